"""TorchRL specs of an environment's entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torchrl import data
from torchrl.data import Composite, TensorSpec

from packing_env.core import metrics, observation
from packing_env.core.actions import ActionMode, Box, Flags, Index, Indices, Key, Space
from packing_env.engine import FLAGS
from packing_env.envs.masked_specs import MaskedCategorical, MaskedMultiCategorical, UniformBox

_SLACK = 1e-4
"""Excess over 1 that the spec of a metric allows. Metrics are not clipped; rounding and the
tolerance of 1e-6 m at the lid may make a ratio exceed 1.
"""


class Specs:
    """Specs of the entries of one task, with the batch axes.

    Args:
        mode: The action mode, which knows the task and the items.
        batch_size: Batch size of the environment.
        device: Device of the environment.
        seen: Observations of one row, which determine the shapes.
    """

    def __init__(
        self,
        mode: ActionMode,
        batch_size: torch.Size,
        device: torch.device,
        seen: Mapping[str, Tensor],
    ) -> None:
        self.mode, self.params = mode, mode.params
        self.batch_size, self.device, self.seen = batch_size, device, seen

    def actions(self) -> dict[Key, TensorSpec]:
        """Return the spec of each entry that the agent writes; it draws legal values."""
        spaces = self.mode.action_spaces.items()
        return {key: self._spec(space, box=UniformBox) for key, space in spaces}

    def action(self, actions: Mapping[Key, TensorSpec]) -> TensorSpec:
        """Return the spec of everything that the agent writes; a leaf if only ``action``."""
        return actions["action"] if set(actions) == {"action"} else self._composite(actions)

    def observation(self) -> Composite:
        """Return the spec of observations, metrics, masks and the mode's report."""
        params, entries = self.params, {}
        # All observations are float32 in [0, 1] except item_id, which is -1 in empty slots.
        for name in observation.entries(params.observation):
            shape = tuple(self.seen[name].shape[1:])
            entries[name] = self._spec(Box(shape, 0.0, 1.0))
        if "item_id" in entries:
            last = len(self.mode.catalogue["volume"]) - 1
            shape = (*self.batch_size, params.num_slots)
            entries["item_id"] = data.Bounded(
                -1, last, shape=shape, dtype=torch.int64, device=self.device
            )
        entries |= {name: self._spec(s) for name, s in self.mode.observation_spaces.items()}
        others = {**self.mode.mask_spaces, **self.mode.report_spaces}
        parts = {"observation": self._composite(entries), "metrics": self._metrics()}
        return self._composite({**parts, **{key: self._spec(s) for key, s in others.items()}})

    def reward(self) -> TensorSpec:
        """Return the spec of one float32 per row."""
        shape = (*self.batch_size, 1)
        return data.Unbounded(shape=shape, dtype=torch.float32, device=self.device)

    def done(self) -> Composite:
        """Return the spec of ``done``, ``terminated`` and ``truncated``."""
        return self._composite({name: self._spec(Flags(1)) for name in FLAGS})

    def _metrics(self) -> Composite:
        params = self.params
        limits = {"items_packed": float(params.num_items), "overflow": 1e9}
        limits["illegal_actions"] = float(params.step_limit)
        spaces = {name: Box((1,), 0.0, limits.get(name, 1 + _SLACK)) for name in metrics.NAMES}
        spaces |= {f"reward/{term}": Box((1,), -1e6, 1e6) for term in self.params.reward}
        return self._composite({name: self._spec(space) for name, space in spaces.items()})

    def _composite(self, entries: Mapping[Any, TensorSpec]) -> Composite:
        composite = Composite({}, shape=self.batch_size, device=self.device)
        for key, spec in entries.items():
            composite[key] = spec
        return composite

    def _spec(self, space: Space, box: type[TensorSpec] = data.Bounded) -> TensorSpec:
        batch, device = self.batch_size, self.device
        if isinstance(space, Index):
            return MaskedCategorical(space.size, batch, device)
        if isinstance(space, Flags):
            shape = (*batch, space.size)
            return data.Binary(space.size, shape=shape, dtype=torch.bool, device=device)
        if isinstance(space, Indices):
            return MaskedMultiCategorical(space.sizes, (*batch, len(space.sizes)), device)
        shape = (*batch, *space.shape)
        return box(space.low, space.high, shape=shape, dtype=torch.float32, device=device)
