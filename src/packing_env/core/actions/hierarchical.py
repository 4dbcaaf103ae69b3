"""Action mode ``hierarchical``: a manager picks the item, a worker its placement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Bool
from torch import Tensor

from packing_env.core import packed
from packing_env.core.actions.base import Actions, LatticeMode, all_placements
from packing_env.core.actions.spaces import Box, Flags, Index, Indices, Key, Space
from packing_env.core.feasibility import Maps
from packing_env.core.orientation import Placement
from packing_env.types import Catalogue, PackingParams, State

MANAGER, WORKER = ("manager", "action"), ("worker", "action")
MANAGER_MASK = ("manager", "action_mask")


class HierarchicalMode(LatticeMode):
    """A step reads two entries; in this mode only the manager's entry has a mask.

    ``("manager", "action") [B]`` is a visible item; its mask says which items have a legal
    placement. ``("worker", "action") [B]`` is ``(orientation * Xs + x) * Ys + y`` for that item;
    :class:`packing_env.WorkerMaps` computes its mask once the item is known. The mode follows Huang
    et al., RA-L 2023.

    It adds two observations. ``heights [B, X, Y]`` is the heightmap in metres, from which the
    worker's mask can be computed bit for bit. ``placeable [B, L]`` is the manager's mask, but
    without the rule that in finished rows everything is legal. In tasks with constraints, legality
    also depends on the packed items, so the mode adds a record of them
    (:mod:`packing_env.core.packed`).

    Attributes:
        record_names: Names of the observations in this record; empty without constraints.
    """

    masks_suffice = False

    def __init__(self, params: PackingParams, catalogue: Catalogue) -> None:
        super().__init__(params, catalogue)
        items, *places = self.shape
        self.action_spaces = {MANAGER: Index(items), WORKER: Index(torch.Size(places).numel())}
        self.mask_spaces = {MANAGER_MASK: Flags(items)}
        record = _record_spaces(len(catalogue["volume"]), self.num_orientations, params)
        heights = Box(params.grid, 0.0, params.lid)
        self.observation_spaces = {"heights": heights, "placeable": Flags(items), **record}
        self.record_names = tuple(record)

    def masks(self, state: State, maps: Maps | None) -> dict[Key, Bool[Tensor, "B A"]]:
        """Return which visible items have a legal placement."""
        return {MANAGER_MASK: all_placements(maps).legal.flatten(2).any(2)}

    def observe(self, state: State, maps: Maps | None) -> dict[str, Tensor]:
        """Return ``heights``, ``placeable`` and the record of constraints."""
        placeable = self.masks(state, maps)[MANAGER_MASK]
        seen = {"heights": state["heightmap"].clone(), "placeable": placeable}
        return seen | packed.record(state, self.params)

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


def _record_spaces(
    num_items: int, num_orientations: int, params: PackingParams
) -> dict[str, Space]:
    """Return the spaces of a record; none without constraints."""
    if not params.constraints:
        return {}
    # The entries of `core.packed`, flattened, because a space has one axis.
    capacity, grid = params.num_items, params.grid
    spaces: dict[str, Space] = {
        "packed_id": Indices((num_items,) * capacity),
        "packed_at": Indices((num_orientations, *grid) * capacity),
        "packed_count": Indices((capacity + 1,)),
    }
    if params.constraints.needs_owners:
        spaces["owner"] = Box(grid, -1.0, float(capacity))
    if params.constraints.max_load:
        spaces["under"] = Flags(capacity**2)
    return spaces
