"""`Emission`: conversion of an engine's rows to the environment's TensorDicts, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from packing_env.core.actions import ActionMode
from packing_env.engine import FLAGS, Observations


class Emission:
    """Conversion between rows ``[B, ...]`` and entries ``[*batch_size, ...]``.

    Args:
        mode: The action mode, which names masks and reports.
        batch_size: Batch size of the environment.
        device: Device of all tensors.
    """

    def __init__(self, mode: ActionMode, batch_size: torch.Size, device: torch.device) -> None:
        self.mode, self.batch_size, self.device = mode, batch_size, device

    def shaped(self, entries: Mapping[Any, Tensor]) -> dict[Any, Tensor]:
        """Reshape entries ``[B, ...]`` to ``[*batch_size, ...]``."""
        if len(self.batch_size) == 1:
            return dict(entries)
        return {key: value.unflatten(0, self.batch_size) for key, value in entries.items()}

    def flat(self, value: Tensor) -> Tensor:
        """Reshape ``[*batch_size, ...]`` to ``[B, ...]``."""
        return value if len(self.batch_size) == 1 else value.flatten(0, len(self.batch_size) - 1)

    def packed(self, observations: Observations, reward: Tensor | None = None) -> TensorDict:
        """Return observations, metrics, flags, masks, report and reward in TensorDicts."""
        # 1. Reshape rows to the batch's axes; the entries of a mode may have nested keys.
        rows: dict[Any, Tensor] = {name: observations.flags[name][:, None] for name in FLAGS}
        rows |= {**observations.masks, **observations.report}
        if reward is not None:
            rows["reward"] = reward[:, None]
        rows = self.shaped(rows)
        nested = {key: rows.pop(key) for key in [*rows] if isinstance(key, tuple)}
        # 2. Build TensorDicts without shape checks, which TorchRL's own constructor would make.
        entries = self.bare(self.shaped(observations.entries))
        measured = self.bare(self.shaped(observations.metrics))
        packed = self.bare({"observation": entries, "metrics": measured, **rows})
        for key, value in nested.items():
            packed.set(key, value)
        return packed

    def unpacked(self, emitted: TensorDictBase) -> Observations:
        """Return the environment's observations in the engine's form, the inverse of `packed`."""
        return Observations(
            entries={key: self.flat(value) for key, value in emitted["observation"].items()},
            masks={key: self.flat(emitted[key]) for key in self.mode.mask_keys},
            flags={name: self.flat(emitted[name]).squeeze(-1) for name in FLAGS},
            metrics={key: self.flat(value) for key, value in emitted["metrics"].items()},
            report={key: self.flat(emitted[key]) for key in self.mode.report_keys},
        )

    def bare(self, entries: dict[str, Any]) -> TensorDict:
        """Return a TensorDict of entries, without checks of batch shape and device."""
        if torch.compiler.is_compiling():
            return TensorDict._new_unsafe(entries, self.batch_size, device=self.device)
        packed = TensorDict._new_unsafe(entries, self.batch_size, nested=False)
        packed._device = self.device  # the constructor would look the device up again
        return packed

    def following(self, tensordict: TensorDictBase, root: TensorDict) -> TensorDictBase | None:
        """Return the result of TorchRL's ``step_mdp`` for a step with ``root`` as its ``next``.

        The result is None if other code wrote nested entries, or entries inside the environment's
        nested entries: these need ``step_mdp`` itself.
        """
        emitted, others = dict(root.items()), {}
        for key, value in tensordict.items():
            known = key in emitted or key in ("next", "reward", "_reset")
            if known and isinstance(value, TensorDictBase) and key != "next":
                known = key in emitted and set(value.keys()) <= set(emitted[key].keys())
            elif not known and isinstance(value, Tensor):
                others[key], known = value, True
            if not known:
                return None
        return self.bare(others | emitted)
