"""Action mode ``placement``: one index over all placements of the lattice."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from tensordict import NestedKey
from torch import Tensor

from packing_env.core import orientation
from packing_env.core.feasibility import Maps
from packing_env.core.orientation import Placement
from packing_env.envs.action_modes.base import LatticeMode, draw, expressible
from packing_env.types import State


class PlacementMode(LatticeMode):
    """``((item * R + orientation) * Xs + x) * Ys + y`` on the ``grid_step`` lattice."""

    mask_is_joint = True

    def place(
        self, actions: Mapping[NestedKey, Tensor], state: State, maps: Callable[[], Maps | None]
    ) -> Placement:
        """See :func:`packing_env.core.orientation.decode_placement`."""
        return self.decode(actions["action"])

    def random(
        self, masks: Mapping[NestedKey, Tensor], batch_size: torch.Size
    ) -> dict[NestedKey, Tensor]:
        """Each legal placement as likely: the mask's index is the action."""
        return {"action": draw(masks["action_mask"])}

    def decode(self, action: Tensor) -> Placement:
        """The placement of an index."""
        return orientation.decode_placement(action, self.num_orientations, self.params)

    def encode(self, placement: Placement, state: State | None = None) -> dict[NestedKey, Tensor]:
        """``action [B]``, -1 where it has none."""
        where = (placement.slot, placement.orientation, placement.x, placement.y)
        index = orientation.encode_placement(*where, self.num_orientations, self.params)
        return {"action": torch.where(expressible(placement, self.params), index, -1)}
