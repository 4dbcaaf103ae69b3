"""Action mode ``multi_head``: item, orientation, x and y, each from its own head."""

from __future__ import annotations

import torch
from torch import Tensor

from packing_env.core.actions.base import Actions, LatticeMode
from packing_env.core.actions.spaces import Indices, Key
from packing_env.core.orientation import Placement
from packing_env.types import Catalogue, PackingParams, State


class MultiHeadMode(LatticeMode):
    """``action [B, 4]``: indices of item, orientation, x and y on the ``grid_step`` lattice.

    ``action_mask`` is the joint mask of all placements, as in ``placement`` mode. The masks of the
    single heads are reductions of this mask (:mod:`packing_env.core.actions.heads`).
    """

    mask_is_joint = True

    def __init__(self, params: PackingParams, catalogue: Catalogue) -> None:
        super().__init__(params, catalogue)
        self.action_spaces = {"action": Indices(self.shape)}

    def decode(self, actions: Actions, state: State) -> Placement:
        """Return the placement of four indices; an index out of range makes the action illegal."""
        return self.at(actions["action"].unbind(-1))

    def encode(self, placement: Placement, state: State | None = None) -> dict[Key, Tensor]:
        """Return ``action [B, 4]``, or -1 if the placement has no indices."""
        heads = torch.stack(self.indices(placement), -1)
        return {"action": torch.where(self.expressible(placement)[..., None], heads, -1)}
