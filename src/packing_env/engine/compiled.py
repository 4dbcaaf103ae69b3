"""The engine `compiled`: whole steps in place, by compiled CPU operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor

from packing_env import kernels
from packing_env.core.actions import Key
from packing_env.engine import cells, heights
from packing_env.engine.base import FLAGS, Observations, Step, Task
from packing_env.engine.rules import RulesEngine
from packing_env.engine.whole import Seen
from packing_env.types import State


class CompiledEngine(RulesEngine):
    """Carries out whole steps in place; begins and observes episodes as the rules do."""

    name: ClassVar[str] = "compiled"
    in_place: ClassVar[bool] = True

    @classmethod
    def refusal(cls, task: Task) -> str:
        """Return why this engine cannot carry out the task here; "" if it can."""
        if not kernels.advances_cuboids(task.device.type):
            return f"it needs a CPU and the numba backend, not {task.device.type}"
        known = cells.applies(task.catalogue, task.params)
        if known or heights.applies(task.catalogue, task.params):
            return ""
        return "it does not know this combination of parameters and items"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        make: type[cells.CuboidStep | heights.MapsStep] = cells.CuboidStep
        if not cells.applies(task.catalogue, task.params):
            make = heights.MapsStep
        self.steps = make(
            task.params,
            task.catalogue,
            task.instances,
            self.legal_on_floor,
            in_turn=task.draw == "sequential",
        )

    def advance(self, state: State, actions: Mapping[Key, Tensor], *, reset: bool) -> Step:
        """Carry out one decision per row, in the given tensors where they allow it."""
        state = _writable(state)
        action = actions["action"]
        taken = self.steps.advance(state, action.view(len(action), -1), renews=reset)
        start = None if taken.start is None else _observations(taken.start)
        return Step(state, taken.reward, _observations(taken), start)

    def reset(
        self, rows: Bool[Tensor, " B"], state: State, observations: Observations
    ) -> tuple[State, Observations]:
        """Start the next episode in some rows, in the given state's tensors."""
        observations = observations.clone()
        shape = (len(rows), self.params.num_visible, -1, *self.params.lattice)
        shown = {**observations.entries, **observations.flags}
        shown["mask"] = observations.masks["action_mask"].view(shape)
        state = _writable(state)
        self.steps.renew(rows, state, shown, list(observations.metrics.values()))
        return state, observations


def _writable(state: State) -> State:
    """Return the state, copied if it was made in inference mode and that mode has been left."""
    if torch.compiler.is_compiling() or torch.is_inference_mode_enabled():
        return state
    if state["step"].is_inference():
        return {key: value.clone() for key, value in state.items()}
    return state


def _observations(seen: Seen) -> Observations:
    entries = dict(seen.shown)
    masks: dict[Key, Tensor] = {"action_mask": entries.pop("mask").flatten(1)}
    flags = {name: entries.pop(name) for name in FLAGS}
    return Observations(entries, masks, flags, seen.metrics)
