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
from packing_env.types import PackingParams, State

MANAGER, WORKER = ("manager", "action"), ("worker", "action")
MANAGER_MASK = ("manager", "action_mask")


class HierarchicalMode(LatticeMode):
    """One step takes two entries; only the manager's has a mask here.

    ``("manager", "action") [B]`` is a visible item; its mask says which have a legal placement.
    ``("worker", "action") [B]`` is ``(orientation * Xs + x) * Ys + y`` for that item; what is legal
    there, :class:`packing_env.WorkerMaps` computes once the item is known, and nothing here keeps
    the maps of all items. After Huang et al., RA-L 2023.

    Two observations serve that: ``heights [B, X, Y]``, the heightmap in metres, not rounded, from
    which legality comes out bit for bit as the environment judges it; and ``placeable [B, L]``,
    the manager's mask as the rules have it in finished rows too. Tasks with constraints add a
    record of the packed items (:mod:`packing_env.core.packed`), on which legality depends there.
    """

    masks_suffice = False

    @property
    def action_spaces(self) -> dict[Key, Space]:
        """The manager's and the worker's entry."""
        items, *places = self.shape
        return {MANAGER: Index(items), WORKER: Index(torch.Size(places).numel())}

    @property
    def mask_spaces(self) -> dict[Key, Flags]:
        """The manager's mask."""
        return {MANAGER_MASK: Flags(self.params.num_visible)}

    @property
    def observation_spaces(self) -> dict[str, Space]:
        """``heights [B, X, Y]`` in metres, ``placeable [B, L]``, the record of constraints."""
        heights = Box(self.params.grid, 0.0, self.params.lid)
        spaces: dict[str, Space] = {"heights": heights}
        spaces["placeable"] = Flags(self.params.num_visible)
        size = (len(self.catalogue["volume"]), self.num_orientations)
        return spaces | record_spaces(*size, self.params)

    def masks(self, state: State, maps: Maps | None) -> dict[Key, Bool[Tensor, "B A"]]:
        """Return which visible items have a legal placement."""
        return {MANAGER_MASK: all_placements(maps).legal.flatten(2).any(2)}

    def observe(self, state: State, maps: Maps | None) -> dict[str, Tensor]:
        """Return ``heights``, ``placeable`` and the record of constraints."""
        placeable = self.masks(state, maps)[MANAGER_MASK]
        found = {"heights": state["heightmap"].clone(), "placeable": placeable}
        return found | packed.record(state, self.params)

    def legality(self, observations: Mapping[str, Tensor]) -> dict[Key, Tensor]:
        """Return ``placeable``."""
        return {MANAGER_MASK: observations["placeable"]}

    def decode(self, actions: Actions, state: State) -> Placement:
        """Return a placement of the manager's item; an index out of range makes both illegal."""
        action, (_, orientations, xs, ys) = actions[WORKER], self.shape
        place = action.clamp(0, orientations * xs * ys - 1)
        plane = torch.div(place, ys, rounding_mode="floor")
        orientation_id = torch.div(plane, xs, rounding_mode="floor")
        found = self.at(actions[MANAGER], orientation_id, plane % xs, place % ys)
        return replace(found, valid=found.valid & (place == action))

    def encode(self, placement: Placement, state: State | None = None) -> dict[Key, Tensor]:
        """Return both entries, -1 where the placement has none."""
        item, orientation_id, x, y = self.indices(placement)
        xs, ys = self.params.lattice
        good = self.expressible(placement)
        place = (orientation_id * xs + x) * ys + y
        return {MANAGER: torch.where(good, item, -1), WORKER: torch.where(good, place, -1)}


def record_spaces(num_items: int, num_orientations: int, params: PackingParams) -> dict[str, Space]:
    """Return the spaces of a record.

    Args:
        num_items: Rows of the catalogue.
        num_orientations: Orientations of an item.
        params: The task; without constraints there is no record.
    """
    if not params.constraints:
        return {}
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
