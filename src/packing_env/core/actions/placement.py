"""Action mode ``placement``: one index over all placements of the lattice."""

from __future__ import annotations

from torch import Tensor

from packing_env.core import orientation
from packing_env.core.actions.base import ActionMode, Actions, LatticeMode
from packing_env.core.actions.spaces import Key
from packing_env.core.orientation import Placement
from packing_env.types import State


class PlacementMode(LatticeMode):
    """``((item * R + orientation) * Xs + x) * Ys + y`` on the ``grid_step`` lattice."""

    mask_is_joint = True
    random = ActionMode.random  # an action is an index of the mask

    def decode(self, actions: Actions, state: State) -> Placement:
        """Return the placement of ``action [B]``."""
        return orientation.decode_placement(actions["action"], self.num_orientations, self.params)

    def encode(self, placement: Placement, state: State | None = None) -> dict[Key, Tensor]:
        """Return ``action [B]``, or -1 if the placement has no index."""
        return {"action": self.index_of(placement)}
