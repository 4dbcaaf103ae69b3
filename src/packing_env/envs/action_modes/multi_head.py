"""Action mode ``multi_head``: item, orientation, x and y, each a head of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from tensordict import NestedKey
from torch import Tensor
from torchrl.data import MultiCategorical, TensorSpec

from packing_env.core.feasibility import Maps
from packing_env.core.orientation import Placement
from packing_env.envs.action_modes.base import LatticeMode, expressible
from packing_env.types import State


class MultiHeadMode(LatticeMode):
    """``action [B, 4]``: indices of item, orientation, x and y on the ``grid_step`` lattice.

    ``action_mask`` is the joint one, of every placement as in ``placement`` mode; the masks of the
    single heads are reductions of it (:mod:`packing_env.core.heads`).
    """

    mask_is_joint = True

    def action_specs(
        self, batch_size: torch.Size, device: torch.device
    ) -> dict[NestedKey, TensorSpec]:
        """``action [B, 4]``."""
        shape = (*batch_size, len(self.shape))
        return {"action": MultiCategorical(nvec=self.shape, shape=shape, device=device)}

    def place(
        self, actions: Mapping[NestedKey, Tensor], state: State, maps: Callable[[], Maps | None]
    ) -> Placement:
        """Head by head; one out of range makes the action illegal."""
        return self.at(*actions["action"].unbind(-1))

    def encode(self, placement: Placement, state: State | None = None) -> dict[NestedKey, Tensor]:
        """``action [B, 4]``, -1 where it has none."""
        heads = torch.stack(self.indices(placement), -1)
        good = expressible(placement, self.params)
        return {"action": torch.where(good[..., None], heads, -1)}
