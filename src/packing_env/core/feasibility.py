"""Rest heights and legality of every placement, and the support of the chosen placement.

:func:`legal_maps` computes legality once per state, and the state keeps it. Nothing else in a step
computes legality.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core import constraints, preference, stability
from packing_env.core import heightmap as hm
from packing_env.core.cuboids import boxes, cells
from packing_env.core.cuboids.ground import BoxGround
from packing_env.core.ground import Ground, Landing
from packing_env.core.ground import Maps as Maps
from packing_env.core.ground import Resting as Resting
from packing_env.core.ground import unrotated_fits as unrotated_fits
from packing_env.core.orientation import (
    Placement,
    encode_placement,
    num_orientations,
    surfaces,
    visible_items,
)
from packing_env.core.voxels import VoxelGround
from packing_env.types import PILE_RULES_ON_MAPS, Catalogue, PackingParams, State

# ------------------------------------------------------------------ all placements of a state


def maps_in(state: State, catalogue: Catalogue, params: PackingParams) -> Maps | None:
    """Return all placements of the visible items by all rules; None in geometry ``"boxes"``."""
    item_id, there = visible_items(state, params.num_visible)
    return ground(catalogue, params).maps(state, item_id, there)


def legal_maps(
    state: State,
    item_id: Int[Tensor, "B L"],
    there: Bool[Tensor, "B L"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Maps:
    """Compute rest height and legality of every placement of the given items, by all rules.

    These include constraints and preferences.
    """
    # 1. Inside, under the lid and stable by the rule of the task.
    heightmap = state["heightmap"]
    maps = placement_maps(heightmap, item_id, there, catalogue, params)
    # 2. Rules about piles read the list of packed cuboids.
    if params.stability in PILE_RULES_ON_MAPS:
        size = catalogue["cuboid"][item_id]
        held = boxes.held_on_lattice(state["boxes"], size, maps.z, maps.legal, params)
        maps = replace(maps, legal=held)
    # 3. Constraints.
    if params.constraints:
        allowed = constraints.allowed_maps(state, item_id, maps.z, catalogue, params)
        maps = replace(maps, legal=maps.legal & allowed)
    # 4. Keep the placements that the task prefers.
    preferred = preference.among(maps, heightmap, item_id, there, catalogue, params)
    return replace(maps, legal=preferred)


def placement_maps(
    heightmap: Float[Tensor, "B X Y"],
    item_id: Int[Tensor, "B L"],
    there: Bool[Tensor, "B L"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Maps:
    """Compute rest height and legality of every placement by geometry and stability alone."""
    # 1. Rest heights; +inf where the footprint leaves the container.
    below = surfaces(item_id, there, catalogue)
    z = below.rest_heights(heightmap, params.grid_step)
    # 2. The lid: float32(z + peak), rounded as in the reference.
    legal = z + catalogue["peak"][item_id].flatten(1, 2)[..., None, None] <= params.lid
    # 3. Stability; the height of placements above the lid becomes +inf, which rules skip.
    if params.stability != "none":
        judged = torch.where(legal, z, torch.inf)
        contact = stability.contact_of(below, heightmap, judged, item_id, catalogue, params)
        legal = legal & stability.judge_maps(params.stability, contact)
    # 4. The range of lower corners.
    shape = (*item_id.shape, -1, *z.shape[2:])
    return _within_range(Maps(z.view(shape), legal.view(shape)), catalogue["size"][item_id], params)


def _within_range(maps: Maps, size: Int[Tensor, "B L R 2"], params: PackingParams) -> Maps:
    """Restrict legality to the placements that ``candidate_range`` allows."""
    if params.candidate_range == "container":
        return maps
    x, y = (torch.arange(n, device=size.device) * params.grid_step for n in params.lattice)
    allowed = unrotated_fits(x[:, None], y, size[:, :, :1, None, None], params)
    return replace(maps, legal=maps.legal & allowed)


# ------------------------------------------------------------------ the empty container


def legal_on_floor(catalogue: Catalogue, params: PackingParams) -> Bool[Tensor, "M R"]:
    """Return which orientations of which items are legal in a corner of the empty container.

    Without an :func:`even_floor`, the result is True if an orientation is legal at any place. With
    preferences, only the orientations that they leave to each item are True.

    Raises:
        ParameterError: The items lack an attribute that the constraints read.
    """
    return ground(catalogue, params).legal_on_floor()


def even_floor(params: PackingParams) -> bool:
    """Return whether legality on the floor of an empty container is the same at every place.

    It is not the same if there are constraints, or preferences that depend on the place.
    """
    return not params.constraints and not preference.by_place(params)


def _legal_at_start(catalogue: Catalogue, params: PackingParams) -> Bool[Tensor, "M R"]:
    """Return which orientations have a legal placement in a container without packed items."""
    device, rows = catalogue["peak"].device, []
    # This runs once, when an environment is built. One item at a time saves memory.
    for row in range(catalogue["peak"].shape[0]):
        item_id = torch.full((1, params.num_items), row, device=device)
        state = {
            "heightmap": torch.zeros(1, *params.grid, device=device),
            "item_id": item_id,
            "items_packed": torch.zeros(1, dtype=torch.int64, device=device),
            "step": torch.zeros(1, dtype=torch.int64, device=device),
            "placement": torch.zeros(*item_id.shape, 4, dtype=torch.int64, device=device),
            "boxes": torch.zeros(1, params.num_items, 6, dtype=torch.int32, device=device),
            **constraints.begin(1, params, device),
        }
        maps = legal_maps(state, item_id[:, :1], item_id[:, :1] >= 0, catalogue, params)
        rows.append(maps.legal[0, 0].flatten(1).any(1))
    return torch.stack(rows)


# ------------------------------------------------------------------ some placements of each row


def judge(
    state: State, placement: Placement, catalogue: Catalogue, params: PackingParams
) -> Bool[Tensor, " B"]:
    """Return which of the given placements are legal; computes the maps of their items.

    Use it for plans from other programs; a step looks up its placement in the state.
    """
    # Make a list of one visible item: the item of the placement.
    item_id, there = visible_items(state, params.num_visible)
    slot = placement.slot[:, None]
    item_id, there = item_id.gather(1, slot), there.gather(1, slot)
    rules = ground(catalogue, params)
    maps = rules.maps(state, item_id, there)
    if maps is None:
        listed = placement.listed()
        return rules.judge(state, item_id, listed, there)[1][:, 0]
    # All placements of the item are known; select the given one if it is on the lattice.
    on_lattice = (placement.x % params.grid_step == 0) & (placement.y % params.grid_step == 0)
    alone = replace(placement, slot=torch.zeros_like(placement.slot))
    index = encode_placement(alone, num_orientations(catalogue), params)
    legal = maps.legal.flatten(1).gather(1, index[:, None])[:, 0]
    return legal & on_lattice & placement.valid


# ------------------------------------------------------------------ the geometries


class HeightmapGround(Ground):
    """The rules of geometry ``"maps"``: items are two surfaces that fall onto a heightmap."""

    description = "heightmaps"

    @staticmethod
    def prepare(catalogue: Catalogue, params: PackingParams) -> Catalogue:
        """Return the catalogue with ``footprint_size [M, R, 2]``.

        It holds the numbers of cells (w, h) of each lower surface up to its last finite cell, which
        is never beyond the window.
        """
        return {**catalogue, "footprint_size": kernels.surface_sizes(catalogue["bottom"])}

    def legal_on_floor(self) -> Bool[Tensor, "M R"]:
        """Return :func:`legal_on_floor`."""
        if self.params.constraints:
            constraints.check_items(self.params, self.catalogue)
        if not even_floor(self.params):
            return _legal_at_start(self.catalogue, self.params)
        # A cuboid on the floor is stable by every rule.
        if cells.applies(self.catalogue, self.params) and not preference.active(self.params):
            below = self.catalogue["orientation_mask"] & (self.catalogue["peak"] <= self.params.lid)
            size = self.catalogue["size"]
            inside = (size[..., 0] <= self.params.grid[0]) & (size[..., 1] <= self.params.grid[1])
            if self.params.candidate_range != "container":
                inside = inside & unrotated_fits(0, 0, size[:, :1], self.params)
            return below & inside
        # Every lattice contains the corner, so a coarse lattice with small maps is enough.
        coarse = self.params.evolve(grid_step=min(self.params.grid))
        every = torch.arange(len(self.catalogue["volume"]), device=self.catalogue["peak"].device)[
            None
        ]
        floor, there = self.catalogue["bottom"].new_zeros(1, *self.params.grid), every >= 0
        maps = placement_maps(floor, every, there, self.catalogue, coarse)
        legal = preference.among(maps, floor, every, there, self.catalogue, coarse)
        return legal[0, ..., 0, 0]

    def empty_maps(
        self, item_id: Int[Tensor, "B L"], there: Bool[Tensor, "B L"], on_floor: Bool[Tensor, "M R"]
    ) -> Maps:
        """Return the placements on the floor; one lookup per orientation serves for all places."""
        # 1. Windows must be inside, and orientations must exist.
        size = self.catalogue["size"][item_id]
        xs, ys = (
            torch.arange(n, device=size.device) * self.params.grid_step for n in self.params.lattice
        )
        fits_x = xs + size[..., 0, None] <= self.params.grid[0]
        fits_y = ys + size[..., 1, None] <= self.params.grid[1]
        present = there[:, :, None] & self.catalogue["orientation_mask"][item_id]
        inside = (fits_x & present[..., None])[..., :, None] & fits_y[..., None, :]
        # 2. On the floor everything rests at 0, and legality depends on the orientation alone.
        z = torch.where(inside, size.new_zeros((), dtype=torch.float32), torch.inf)
        maps = Maps(z, inside.logical_and_(on_floor[item_id][..., None, None]))
        return _within_range(maps, size, self.params)

    def maps(self, state: State, item_id: Int[Tensor, "B L"], there: Bool[Tensor, "B L"]) -> Maps:
        """Return :func:`legal_maps`."""
        return legal_maps(state, item_id, there, self.catalogue, self.params)

    def at_rest(self, state: State, item_id: Int[Tensor, " B"], placement: Placement) -> Resting:
        """Return rest height and support of one legal placement per row.

        The rules for lattices are evaluated on a lattice with one point, which covers the cells
        under the item.
        """
        orientation, metric = placement.orientation, self.params.stability_metric
        # 1. A lattice with one point: the cells under the item's window.
        bottom = self.catalogue["bottom"][item_id, orientation][:, None]
        window = bottom.shape[2:]
        ground, _ = hm.read_window(state["heightmap"], placement.x, placement.y, window)
        contact = stability.Contact(
            heightmap=ground,
            bottom=bottom,
            z=kernels.drop_height(ground, bottom, max(window)),
            com=self.catalogue["com"][item_id, orientation][:, None],
            tolerance=self.params.tolerance,
            stride=max(window),
            size=self.catalogue["size"][item_id, orientation][:, None],
        )
        # 2. Stability by the metric's rule, and the supported share of the footprint.
        stable = stability.judge_maps(metric, contact).flatten()
        supporting, area = contact.areas()
        ratio = supporting.double().flatten() / area.double().clamp(min=1.0).flatten()
        z = contact.z.flatten()
        # 3. Rules about piles check the whole pile, including the item.
        if metric in PILE_RULES_ON_MAPS:
            stable = boxes.held(
                state["boxes"],
                lower=torch.stack((placement.x, placement.y), -1).int()[:, None],
                size=self.catalogue["cuboid"][item_id, orientation][:, None],
                z=z[:, None],
                legal=stable[:, None],
                params=self.params,
                rule=metric,
            )[:, 0]
        return Resting(z, stable, ratio)

    def commit(self, state: State, item: Landing) -> State:
        """Return the raised heightmap; it stays unchanged in rows without a placement."""
        place = item.placement
        top = hm.surface_at(item.z, item.item_id, place.orientation, self.catalogue, self.params)
        rise = torch.where(item.carried[:, None, None], top, -torch.inf)
        return {"heightmap": hm.raise_window(state["heightmap"], place.x, place.y, rise)}


GROUNDS: dict[str, type[Ground]] = {
    "maps": HeightmapGround,
    "boxes": BoxGround,
    "voxels": VoxelGround,
}
"""The rules of each geometry (``PackingParams.geometry``)."""


def ground(catalogue: Catalogue, params: PackingParams) -> Ground:
    """Return the rules of a task's geometry."""
    return GROUNDS[params.geometry](catalogue, params)
