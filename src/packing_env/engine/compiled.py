"""The engine ``compiled``: whole steps in place, by compiled operations on a CPU.

It has two kinds of steps. The step for cuboids of whole cells is a single pass over the batch. The
step for heightmaps has two passes; between them run the kernels that compute all placements. Both
give the same bits as the engine ``rules``. :mod:`packing_env.core.rewards` computes the rewards, so
a new term needs no change here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from packing_env import kernels
from packing_env.core import metrics, observation, rewards
from packing_env.core.actions import Key
from packing_env.core.orientation import num_orientations
from packing_env.engine.base import FLAGS, Observations, Step, Task
from packing_env.engine.offers import OFFERS, Offered, Results
from packing_env.engine.operations import Operations, new_outcome, refusal
from packing_env.engine.rules import RulesEngine, is_recorded
from packing_env.types import DEFAULT_OBSERVATIONS, Catalogue, PackingParams, State


class CompiledEngine(RulesEngine):
    """Engine that carries out whole steps in place; resets and observations use ``rules``."""

    name: ClassVar[str] = "compiled"
    in_place: ClassVar[bool] = True

    @classmethod
    def refusal(cls, task: Task) -> str:
        """Return why this engine does not support the task on this device; "" if it does."""
        if not kernels.is_compiled_for(task.device.type):
            return f"the engine needs a CPU and the numba backend, not {task.device.type}"
        return refusal(task.catalogue, task.params)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.operations = Operations(task, self.legal_on_floor)
        self.ground = "whole cells" if self.operations.on_cells else "heightmaps"
        offer = OFFERS[task.params.action_mode]
        self.offer = offer(self.mode, task, on_cells=self.operations.on_cells)
        # Buffers for entries that are requested or read; all other entries are empty tensors.
        shapes = _shapes(task.catalogue, task.params)
        requested = [name for name in DEFAULT_OBSERVATIONS if name in task.params.observation]
        self._requested = observation.entries(requested)
        self._handed_out = {*self._requested, *self.offer.hands_out, *FLAGS}
        self._following = observation.following(task.params)
        reads = {*self.offer.reads, *(["heightmap"] if self._following else [])}
        self._shapes = {
            name: shape
            for name, shape in shapes.items()
            if name in self._handed_out or name in reads
        }
        self._empty = {name: torch.empty(0, dtype=dtype) for name, (dtype, _) in shapes.items()}
        self._empty["metrics"] = torch.empty(0, 0)
        self._metrics = (*metrics.NAMES, *(f"reward/{term}" for term in task.params.reward))
        self._scratch: dict[tuple[str, str], Tensor] = {}

    def advance(self, state: State, actions: Mapping[Key, Tensor], *, reset: bool) -> Step:
        """Carry out one decision per row, in place if the tensors allow it."""
        state = writable(state)
        batch, device = len(state["step"]), state["step"].device
        recorded = is_recorded(state)

        # 1. Decode; the rest of the step, except the rewards, is compiled.
        action = self.offer.decode(actions, state)
        after = self._buffers(batch, device, "" if recorded else "after")
        outcome = new_outcome(batch, device)
        start = self._buffers(batch, device, "" if recorded else "start") if reset else self._empty
        z = self.operations.advance(state, action, after, start, outcome)

        # 2. Score: compute the reward terms and their sums over the episode.
        before, since = (
            dict(zip(metrics.NAMES, outcome[when].unbind(), strict=True))
            for when in ("before", "after")
        )
        terms = rewards.weighted_terms(self.params.reward, before, since, outcome["legal"])
        terms.masked_fill_(outcome["live"].logical_not()[:, None], 0.0)
        sums, count = state["reward_sum"].add_(terms), len(metrics.NAMES)
        after["metrics"].narrow(0, count, terms.shape[1]).copy_(sums.T)
        if reset:
            sums.masked_fill_(after["done"][:, None], 0.0)
            start["metrics"].narrow(0, count, terms.shape[1]).copy_(sums.T)

        # 3. Observe.
        offered, offered_after_resets = self.offer.show(
            Results(state, action, outcome, after, start, z)
        )
        following = self._named(start, offered_after_resets) if reset else None
        return Step(state, terms.sum(-1).float(), self._named(after, offered), following)

    def _buffers(self, batch: int, device: torch.device, use: str = "") -> dict[str, Tensor]:
        """Return uninitialised observations and metrics.

        Calls with the same ``use`` share the buffers that are not returned to the agent.
        """
        # Entries that are not requested stay empty, and the kernels skip them.
        buffers = dict(self._empty)
        for name, (dtype, shape) in self._shapes.items():
            # The agent keeps the buffers that are returned to it, so these are allocated in every
            # step.
            if not use or name in self._handed_out:
                buffers[name] = torch.empty([batch, *shape], dtype=dtype, device=device)
                continue
            # Buffers that only the engine reads are overwritten by the next step.
            scratch = self._scratch.get((use, name))
            if scratch is None or len(scratch) != batch or scratch.device != device:
                scratch = torch.empty([batch, *shape], dtype=dtype, device=device)
                self._scratch[use, name] = scratch
            buffers[name] = scratch
        buffers["metrics"] = torch.empty(len(self._metrics), batch, device=device)
        return buffers

    def _named(self, buffers: dict[str, Tensor], offered: Offered) -> Observations:
        # One column per metric and term, [B, 1] each.
        values = buffers["metrics"][..., None].unbind()
        entries = {name: buffers[name] for name in self._requested}
        if self._following:
            entries |= observation.of_heightmap(self._following, buffers["heightmap"])
        return Observations(
            entries | offered.entries,
            offered.masks,
            {name: buffers[name] for name in FLAGS},
            dict(zip(self._metrics, values, strict=True)),
            offered.report,
        )


def writable(state: State) -> State:
    """Return the state, or a copy of it if some tensor cannot be written in place.

    Inference tensors (outside inference mode) and non-contiguous tensors cannot be written.
    """
    if torch.compiler.is_compiling():
        return state
    # Usually no copy is needed, so check all tensors first.
    inside = torch.is_inference_mode_enabled()
    if all((inside or not v.is_inference()) and v.is_contiguous() for v in state.values()):
        return state
    return {key: value.clone().contiguous() for key, value in state.items()}


def _shapes(
    catalogue: Catalogue, params: PackingParams
) -> dict[str, tuple[torch.dtype, list[int]]]:
    """Return type and shape, without the batch, of every observation, mask and flag."""
    # Axes of the lattice, of the observed items, and of their surfaces.
    orientations, slots = num_orientations(catalogue), params.num_slots
    lattice = [params.num_visible, orientations, *params.lattice]
    turned = [slots, orientations, len(observation.ORIENTATION_FEATURES)]
    surface = [slots, orientations, *catalogue["bottom"].shape[2:]]
    return {
        "heightmap": (torch.float32, list(params.grid)),
        "item_id": (torch.int64, [slots]),
        "item_features": (torch.float32, [slots, len(observation.ITEM_FEATURES)]),
        "orientation_features": (torch.float32, turned),
        "top": (torch.float32, surface),
        "bottom": (torch.float32, surface),
        "drop_height": (torch.float32, lattice),
        "mask": (torch.bool, [math.prod(lattice)]),
        "heights": (torch.float32, list(params.grid)),
        **dict.fromkeys(FLAGS, (torch.bool, list[int]())),
    }
