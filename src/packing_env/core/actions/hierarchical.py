"""Action mode ``hierarchical``: a manager picks the item, a worker its placement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from packing_env.core.actions.base import Actions, LatticeMode
from packing_env.core.actions.spaces import Box, Flags, Index, Key
from packing_env.core.feasibility import Maps
from packing_env.core.lists import any_from
from packing_env.core.orientation import Placement
from packing_env.types import Catalogue, PackingParams, State

MANAGER, WORKER = ("manager", "action"), ("worker", "action")
MANAGER_MASK = ("manager", "action_mask")


class HierarchicalMode(LatticeMode):
    """Two entries per step, the manager's and the worker's; only the manager's entry has a mask.

    ``("manager", "action") [B]`` is a visible item; its mask says which items have a legal
    placement. ``("worker", "action") [B]`` is ``(orientation * Xs + x) * Ys + y`` for that item;
    :class:`packing_env.WorkerMaps` computes its mask once the item is known. The mode follows Huang
    et al., RA-L 2023.

    It adds two observations. ``heights [B, X, Y]`` is the heightmap in metres, from which the
    worker's mask can be computed bit for bit. Constraints read more than heights, so this mode does
    not support them. ``placeable [B, L]`` is the manager's mask, but without the rule that in
    finished rows everything is legal.
    """

    masks_suffice = False

    def __init__(self, params: PackingParams, catalogue: Catalogue) -> None:
        super().__init__(params, catalogue)
        items, *places = self.shape
        self.action_spaces = {MANAGER: Index(items), WORKER: Index(torch.Size(places).numel())}
        self.mask_spaces = {MANAGER_MASK: Flags(items)}
        heights = Box(params.grid, 0.0, params.lid)
        self.observation_spaces = {"heights": heights, "placeable": Flags(items)}

    def masks_of(self, legal: Bool[Tensor, "B L R Xs Ys"]) -> dict[Key, Bool[Tensor, "B A"]]:
        """Return which visible items have a legal placement."""
        return {MANAGER_MASK: any_from(legal, 2)}

    def observe(self, state: State, maps: Maps | None) -> dict[str, Tensor]:
        """Return ``heights`` and ``placeable``, as copies: a step may change the state in place."""
        entries = super().observe(state, maps)
        return entries | {"heights": entries["heights"].clone()}

    def entries_of(
        self, legal: Bool[Tensor, "B L R Xs Ys"], heightmap: Float[Tensor, "B X Y"]
    ) -> dict[str, Tensor]:
        """Return ``heights`` and ``placeable``."""
        return {"heights": heightmap, "placeable": any_from(legal, 2)}

    def legality(self, observations: Mapping[str, Tensor]) -> dict[Key, Tensor]:
        """Return ``placeable``."""
        return {MANAGER_MASK: observations["placeable"]}

    def decode(self, actions: Actions, state: State) -> Placement:
        """Return a placement of the manager's item; if an index is out of range, it is illegal."""
        # Split the worker's index into orientation, x, y; an index out of range is clamped and
        # marked.
        action, (_, orientations, xs, ys) = actions[WORKER], self.shape
        place = action.clamp(0, orientations * xs * ys - 1)
        plane = torch.div(place, ys, rounding_mode="floor")
        orientation_id = torch.div(plane, xs, rounding_mode="floor")
        placement = self.at((actions[MANAGER], orientation_id, plane % xs, place % ys))
        return replace(placement, valid=placement.valid & (place == action))

    def encode(self, placement: Placement, state: State | None = None) -> dict[Key, Tensor]:
        """Return both entries, or -1 if the mode cannot express the placement."""
        item, orientation_id, x, y = self.indices(placement)
        xs, ys = self.params.lattice
        good = self.expressible(placement)
        place = (orientation_id * xs + x) * ys + y
        return {MANAGER: torch.where(good, item, -1), WORKER: torch.where(good, place, -1)}
