"""`Choices`: the legal actions of an environment's state, from which its action specs draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torchrl.data import TensorSpec

from packing_env.core.actions import ActionMode, Key
from packing_env.envs.masked_specs import Masked


class Choices:
    """The legal actions of a state, from which its environment's action specs draw.

    If masks do not suffice (mode ``hierarchical``), all entries of an action are drawn together,
    and each spec gets its part of the draw.

    Args:
        mode: The action mode.
        batch_size: Batch size of the environment.
        specs: The specs of the actions.
        legal: Function that computes the legality of all placements in the current state,
            ``[*batch_size, A]``.

    Attributes:
        masks: The latest masks, ``[*batch_size, A]`` by key; empty before the first reset.
    """

    def __init__(
        self,
        mode: ActionMode,
        batch_size: torch.Size,
        specs: Mapping[Key, TensorSpec],
        legal: Callable[[], Tensor],
    ) -> None:
        self.mode, self.batch_size, self._legal = mode, batch_size, legal
        self.masks: dict[Key, Tensor] = {}
        self._cells = {k: spec.legality for k, spec in specs.items() if isinstance(spec, Masked)}
        self._drawn: dict[Key, Tensor] = {}
        self._shape = torch.Size()

    def show(self, masks: dict[Key, Tensor]) -> None:
        """Set the masks of the current state, by key, from which the specs draw."""
        self.masks, self._drawn = masks, {}
        for key, cell in self._cells.items():
            cell.mask = masks.get(_mask_key(key))
            if not self.mode.masks_suffice and cell.draw is None:
                cell.draw = partial(self._part, key)

    def _part(self, key: Key, shape: torch.Size) -> Tensor:
        """Return an entry of a random legal action; each entry of a draw is used once."""
        if key not in self._drawn or shape != self._shape:
            legal = self._legal()
            joint = legal.expand(*shape, *legal.shape)
            self._drawn = self.mode.random({"joint_mask": joint}, (*shape, *self.batch_size))
            self._shape = shape
        return self._drawn.pop(key)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled copy, including the draws of the specs."""
        self.__dict__.update(state)
        if self.masks:
            self.show(self.masks)


def _mask_key(key: Key) -> Key:
    return "action_mask" if isinstance(key, str) else (*key[:-1], "action_mask")
