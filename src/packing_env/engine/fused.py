"""The engine ``fused``: whole steps on CUDA with few launches of Triton kernels.

For cuboids of whole cells, a step is one launch and a copy of the mask. One program handles one
row. It decodes the action, checks and carries out the placement, computes metrics and reward, ends
the episode, starts the next one, and writes all observations into the tensors that are returned.
For heightmaps, one such kernel runs before the search for all placements and one after it. Without
a preference, a step takes at most eleven launches. State and results equal those of the
engine ``rules``, bit for bit. The engine supports the tasks of the compiled step in those action
modes whose only entry in the state is the legality of the lattice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core import metrics, observation, preference, rewards
from packing_env.core.actions import Key
from packing_env.core.candidates import Scene
from packing_env.engine.base import Observations, Step, Task
from packing_env.engine.compiled import CompiledEngine, writable
from packing_env.engine.offers import Offered
from packing_env.engine.operations import refusal
from packing_env.kernels.layout import MAX_CUBOID_HEIGHT
from packing_env.kernels.stability_rules import MARGINS
from packing_env.kernels.step.entries import FUSED_TERMS
from packing_env.kernels.step.fused import (
    FusedTask,
    advance_fused,
    decide_fused,
    is_fused_for,
    observe_fused,
    reset_fused,
)
from packing_env.types import PackingParams, State

MODES = ("placement", "multi_head")
"""Action modes that the kernel decodes."""

_MEASURED = 4096
"""Number of surfaces of a catalogue that are measured at once."""

Memory = tuple[list[Tensor], list[Tensor]]
"""See :meth:`packing_env.kernels.step.fused.FusedTask.new_memory`."""

_TERMS = {name: rewards.TERMS[name] for name in FUSED_TERMS}
"""The reward terms that the kernel computes, with their definitions."""


class FusedEngine(CompiledEngine):
    """Engine that carries out whole steps and resets in place; first states use ``rules``."""

    name: ClassVar[str] = "fused"

    @classmethod
    def refusal(cls, task: Task) -> str:
        """Return why this engine does not support the task on this device; "" if it does."""
        # 1. The backend and the action mode.
        device = task.device.type
        if not is_fused_for(device):
            backend = kernels.backend_for(device)
            return f"the engine needs CUDA and the triton backend, not {backend} on {device}"
        if task.params.action_mode not in MODES:
            return f"the engine does not support action_mode={task.params.action_mode!r}"
        # 2. The preferences and the stability rules.
        preferences, ladder = preference.active(task.params), preference.ladder(task.params)
        if preferences and not ladder:
            named = ", ".join(f"{name}={getattr(task.params, name)}" for name in preferences)
            return f"the engine does not support {named} with that stability rule"
        judged = () if ladder else (task.params.stability,)
        for rule in (*judged, task.params.stability_metric):
            if rule in MARGINS:
                return f"the engine does not support the stability rule {rule!r}"
        # 3. The conditions of the compiled step.
        if unsupported := refusal(task.catalogue, task.params):
            return unsupported
        # 4. The kernel has its own code for reward terms, so user-defined terms are refused.
        for name in task.params.reward:
            if rewards.TERMS[name] is not _TERMS.get(name):
                return f"the engine does not support the reward term {name!r}"
        return ""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        device = task.device
        self._empty = {name: value.to(device) for name, value in self._empty.items()}
        self._fused = FusedTask(
            self.operations.task,
            _numbers(task.params).to(device),
            _shares(task.params, device, on_cells=self.operations.on_cells),
            tuple(task.params.reward),
            () if self.operations.on_cells else _map_tables(task),
        )
        self._memory: dict[int, Memory] = {}

    def advance(self, state: State, actions: Mapping[Key, Tensor], *, reset: bool) -> Step:
        """Carry out one decision per row, in place where the tensors allow it."""
        # 1. Buffers for all observations; the step needs no other memory.
        state, action = writable(state), actions["action"]
        batch, device = len(action), action.device
        after = self._buffers(batch, device)
        start = self._buffers(batch, device) if reset else {}
        reward = torch.empty(batch, dtype=torch.float32, device=device)
        action = action.reshape(batch, -1).contiguous()
        # 2. Look up.
        # The kernels check a placement only by the least strict rule. So with a preference, the
        # action is looked up in the state.
        if preference.active(self.params):
            action = torch.where(self._looked_up(action, state)[:, None], action, -1)
        # 3. Carry out the step, including rewards, resets and observations.
        if self.operations.on_cells:
            advance_fused(self._fused, state, action, after, start, reward)
        else:
            self._advance_on_maps(state, action, after, start, reward)
        # 4. Store the new legality in the state.
        state["legal"].copy_((start if reset else after)["mask"])
        following = self._named(start, _masks(start)) if reset else None
        return Step(state, reward, self._named(after, _masks(after)), following)

    def _looked_up(self, action: Int[Tensor, "B heads"], state: State) -> Bool[Tensor, " B"]:
        """Return which rows' placements are legal according to the state."""
        # Compare all four numbers: if an index is out of range, it differs from its clamped value.
        if action.shape[1] > 1:
            entries: dict[Key, Tensor] = {"action": action}
            return self.mode.is_legal(self.mode.decode(entries, state), state)
        legal, index = state["legal"], action.clamp(0, state["legal"].shape[1] - 1)
        return (legal.gather(1, index) & (index == action))[:, 0]

    def _advance_on_maps(
        self,
        state: State,
        action: Int[Tensor, "B heads"],
        after: Mapping[str, Tensor],
        start: Mapping[str, Tensor],
        reward: Float[Tensor, " B"],
    ) -> None:
        memory = self._memory_for(state)
        under = metrics.sum_of_heights(state["heightmap"])
        decide_fused(self._fused, state, action, under, memory[0])
        under = metrics.sum_of_heights(state["heightmap"])
        observe_fused(self._fused, state, under, memory, after, start, reward)

    def _memory_for(self, state: State) -> Memory:
        """Return memory for a step; steps with the same number of rows share it, unless traced."""
        batch, observed = len(state["step"]), "drop_height" in self._requested
        # A traced step allocates its own memory. Nothing in the memory outlives a step.
        traced = torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack()
        if traced:
            return self._fused.new_memory(state, observed=observed)
        # A CUDA graph writes to addresses, so memory stays alive when the number of rows changes.
        if batch not in self._memory:
            with torch.inference_mode(False):  # otherwise later steps could not write into it
                self._memory[batch] = self._fused.new_memory(state, observed=observed)
        return self._memory[batch]

    def reset(
        self, rows: Bool[Tensor, " B"], state: State, observations: Observations
    ) -> tuple[State, Observations]:
        """Start the next episode in some rows, in place."""
        # 1. Copy the observations; the kernel overwrites the rows that are reset.
        state, batch = writable(state), len(rows)
        computed = {name: observations.entries[name] for name in self._requested}
        computed |= observations.flags
        computed["mask"] = observations.masks["action_mask"]
        computed["metrics"] = torch.cat([value.T for value in observations.metrics.values()])
        filled = self._buffers(batch, rows.device)
        for name, value in computed.items():
            filled[name].copy_(value)
        # 2. Start the next episode of these rows.
        reset_fused(self._fused, state, rows.contiguous(), filled)
        state["legal"].copy_(torch.where(rows[:, None], filled["mask"], state["legal"]))
        return state, self._follow(self._named(filled, _masks(filled)), state)

    def _follow(self, observations: Observations, state: State) -> Observations:
        """Return the observations; entries that follow from the heightmap are computed again."""
        if not self._following:
            return observations
        heightmap = observation.over_height(state["heightmap"], self.params)
        following = observation.of_heightmap(self._following, heightmap)
        return replace(observations, entries={**observations.entries, **following})


def _masks(filled: Mapping[str, Tensor]) -> Offered:
    return Offered(masks={"action_mask": filled["mask"]})


def _numbers(params: PackingParams) -> Tensor:
    """Return `FusedTask.numbers`."""
    lengths = (
        params.cell,
        params.cell**2,
        params.container[0] * params.container[1],
        params.height,
    )
    return torch.tensor([*lengths, *params.reward.values()], dtype=torch.float64)


def _shares(params: PackingParams, device: torch.device, *, on_cells: bool) -> Tensor:
    """Return `FusedTask.share`."""
    if not on_cells:
        return torch.empty(0, device=device)
    levels = torch.arange(MAX_CUBOID_HEIGHT + 2, device=device).view(-1, 1, 1)
    return observation.over_height(levels.float() * params.cell, params).flatten()


def _map_tables(task: Task) -> tuple[Tensor, ...]:
    """Return `FusedTask.maps`."""
    items, params = task.catalogue, task.params
    # Cells and extents of every lower surface, in blocks of surfaces to limit the memory.
    surfaces = items["bottom"].flatten(0, 1)
    parts = surfaces.split(_MEASURED)
    areas = torch.cat([part.isfinite().sum((1, 2), dtype=torch.int32) for part in parts])
    bound = kernels.surface_sizes(surfaces).contiguous()
    none = surfaces.new_empty(0)
    ladder = preference.ladder(params)
    margins = preference.tiers(items["size"].flatten(0, 1), ladder) if ladder else none
    if "item_maps" not in params.observation:
        return areas, bound, none, none, margins
    every = torch.arange(len(items["bottom"]), device=task.device)[:, None]
    scene = Scene({}, every, every >= 0, None, items, params)
    top, bottom = (observation.item_maps(scene, name).squeeze(1) for name in ("top", "bottom"))
    return areas, bound, top, bottom, margins
