"""Action mode ``placement``: one index over all placements of the lattice."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Int
from torch import Tensor

from packing_env.core import orientation
from packing_env.core.actions.base import Actions, LatticeMode, Masks, draw
from packing_env.core.actions.spaces import Key
from packing_env.core.orientation import Placement
from packing_env.types import State


class PlacementMode(LatticeMode):
    """``((item * R + orientation) * Xs + x) * Ys + y`` on the ``grid_step`` lattice."""

    mask_is_joint = True

    def decode(self, actions: Actions, state: State) -> Placement:
        """Return the placement of ``action [B]``."""
        return self.decode_index(actions["action"])

    def random(self, masks: Masks, batch_size: Sequence[int]) -> dict[Key, Tensor]:
        """Draw the index of a legal placement; all legal placements are equally likely."""
        return {"action": draw(masks["action_mask"])}

    def decode_index(self, action: Int[Tensor, "*rows"]) -> Placement:
        """Return the placement of an index."""
        return orientation.decode_placement(action, self.num_orientations, self.params)

    def encode(self, placement: Placement, state: State | None = None) -> dict[Key, Tensor]:
        """Return ``action [B]``, or -1 if the placement has no index."""
        return {"action": self.index_of(placement)}
