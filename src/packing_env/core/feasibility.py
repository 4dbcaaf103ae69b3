"""Rest heights and legality of every placement; the support of the one that is carried out.

Legality is found once per state, by :func:`legal_maps`, and kept in it: nothing judges a placement
again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core import constraints, preference, stability
from packing_env.core import heightmap as hm
from packing_env.core.cuboids import boxes, cells
from packing_env.core.orientation import (
    Placement,
    encode_placement,
    surfaces,
    visible_items,
)
from packing_env.types import PILE_RULES_ON_MAPS, Catalogue, PackingParams, State

_PARTS = 8
"""Parts of all planes, of which one after the other is compared with the lid."""


@dataclass(frozen=True)
class Maps:
    """All placements of the visible items.

    Attributes:
        z: ``[B, L, R, Xs, Ys]`` rest height, metres; +inf where the footprint leaves the container
            or the orientation or the item is not there.
        legal: ``[B, L, R, Xs, Ys]``: inside, under the lid, stable; the task's other rules too,
            where the function that made the maps says so.
    """

    z: Float[Tensor, "B L R Xs Ys"]
    legal: Bool[Tensor, "B L R Xs Ys"]


def placement_maps(
    heightmap: Float[Tensor, "B X Y"],
    item_id: Int[Tensor, "B L"],
    there: Bool[Tensor, "B L"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Maps:
    """Compute rest height and legality of every placement on the lattice."""
    z, legal = general_maps(heightmap, item_id, there, catalogue, params)
    return _within_range(Maps(z, legal), catalogue["size"][item_id], params)


def maps_in(state: State, catalogue: Catalogue, params: PackingParams) -> Maps | None:
    """Return :func:`placement_maps` of a state; None in geometry ``"boxes"``, which has no maps."""
    if params.geometry == "boxes":
        return None
    return legal_maps(state, *visible_items(state, params.num_visible), catalogue, params)


def legal_maps(
    state: State,
    item_id: Int[Tensor, "B L"],
    there: Bool[Tensor, "B L"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Maps:
    """Return :func:`placement_maps` of items in a state, by all rules of the task.

    These include constraints and preferred stability rules.
    """
    # 1. Inside, under the lid and stable by the rule of the task.
    heightmap = state["heightmap"]
    maps = placement_maps(heightmap, item_id, there, catalogue, params)
    # 2. Rules of piles read the list of packed cuboids.
    if params.stability in PILE_RULES_ON_MAPS:
        size = catalogue["cuboid"][item_id]
        held = boxes.held_on_lattice(state["boxes"], size, maps.z, maps.legal, params)
        maps = replace(maps, legal=held)
    # 3. Constraints.
    if params.constraints:
        allowed = constraints.allowed_maps(state, item_id, maps.z, catalogue, params)
        maps = replace(maps, legal=maps.legal & allowed)
    # 4. Of what is left, the placements that the task prefers.
    preferred = preference.among(maps.z, maps.legal, heightmap, item_id, there, catalogue, params)
    return replace(maps, legal=preferred)


def general_maps(
    heightmap: Float[Tensor, "B X Y"],
    item_id: Int[Tensor, "B L"],
    there: Bool[Tensor, "B L"],
    catalogue: Catalogue,
    params: PackingParams,
) -> tuple[Float[Tensor, "B L R Xs Ys"], Bool[Tensor, "B L R Xs Ys"]]:
    """Compute rest height and legality of items of any shape, whatever ``candidate_range``.

    Lower surfaces are read where they lie in the catalogue, by index; none is copied.
    """
    # Rest heights; +inf where the footprint leaves the container.
    (bottom, which, size), step = surfaces(item_id, there, catalogue), params.grid_step
    z = kernels.drop_height(heightmap, bottom, step, which=which, size=size)
    peak, com, window = (catalogue[key][item_id].flatten(1, 2) for key in ("peak", "com", "size"))
    # The lid, then stability: placements above the lid are not judged.
    legal = _below_lid(z, peak, params)
    if params.stability != "none":
        judged = torch.where(legal, z, torch.inf)
        contact = stability.Contact(
            heightmap, bottom, judged, com, params.tolerance, step, window, which, size
        )
        legal = legal & stability.judge_maps(params.stability, contact)
    shape = (*item_id.shape, -1, *z.shape[2:])
    return z.view(shape), legal.view(shape)


def _below_lid(
    z: Float[Tensor, "B P Xs Ys"], peak: Float[Tensor, "B P"], params: PackingParams
) -> Bool[Tensor, "B P Xs Ys"]:
    """Return which placements stay below the lid, in parts: the sums need memory of one."""
    below = torch.empty_like(z, dtype=torch.bool)
    parts = (values.tensor_split(_PARTS, 1) for values in (below, z, peak))
    for part, heights, top in zip(*parts, strict=True):
        part.copy_(heights + top[:, :, None, None] <= params.lid)
    return below


def with_footprints(catalogue: Catalogue, params: PackingParams) -> Catalogue:
    """Return the catalogue with ``footprint_size [M, R, 2]``, which spares maps a search.

    Cells (w, h) of each lower surface up to its last finite ones: at most those of the window.
    """
    if params.geometry == "boxes":
        return catalogue
    return {**catalogue, "footprint_size": kernels.surface_sizes(catalogue["bottom"])}


def _within_range(maps: Maps, size: Int[Tensor, "B L R 2"], params: PackingParams) -> Maps:
    """Restrict legality to the placements that ``candidate_range`` allows."""
    if params.candidate_range == "container":
        return maps
    x, y = (torch.arange(n, device=size.device) * params.grid_step for n in params.lattice)
    allowed = unrotated_fits(x[:, None], y, size[:, :, :1, None, None], params)
    return replace(maps, legal=maps.legal & allowed)


def unrotated_fits(x: Tensor | int, y: Tensor | int, size: Tensor, params: PackingParams) -> Tensor:
    """Return whether the window of orientation 0, ``size [..., 2]``, at ``(x, y)`` stays inside."""
    across, along = (cells * params.units_per_cell for cells in params.grid)
    return (x + size[..., 0] <= across) & (y + size[..., 1] <= along)


def empty_container_maps(
    item_id: Int[Tensor, "B L"],
    there: Bool[Tensor, "B L"],
    legal_on_floor: Bool[Tensor, "M R"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Maps | None:
    """Return :func:`placement_maps` of an empty container, without running a kernel.

    Every rest height is 0, and whether an orientation may stand on the floor
    (:func:`legal_on_floor`) does not depend on where. ``None`` in geometry ``"boxes"``. Tasks with
    constraints need :func:`maps_in` instead.
    """
    if params.geometry == "boxes":
        return None
    # Windows stay inside; of orientations that are there.
    size = catalogue["size"][item_id]
    xs, ys = (torch.arange(n, device=size.device) * params.grid_step for n in params.lattice)
    fits_x = xs + size[..., 0, None] <= params.grid[0]
    fits_y = ys + size[..., 1, None] <= params.grid[1]
    present = there[:, :, None] & catalogue["orientation_mask"][item_id]
    inside = (fits_x & present[..., None])[..., :, None] & fits_y[..., None, :]
    # On the floor everything rests at 0, and legality depends on the orientation alone.
    z = torch.where(inside, size.new_zeros((), dtype=torch.float32), torch.inf)
    maps = Maps(z, inside.logical_and_(legal_on_floor[item_id][..., None, None]))
    return _within_range(maps, size, params)


def legal_on_floor(catalogue: Catalogue, params: PackingParams) -> Bool[Tensor, "M R"]:
    """Return which orientations of which items may stand in a corner of the empty container.

    With constraints: anywhere in it. With preferred rules, those of each item's orientations that
    the strictest of them accepts.

    Raises:
        ParameterError: The items lack an attribute that the constraints read.
    """
    if params.constraints:
        constraints.check_items(params, catalogue)
        return _legal_at_start(catalogue, params)
    # A cuboid on the floor is stable by every rule.
    below = catalogue["orientation_mask"] & (catalogue["peak"] <= params.lid)
    if params.geometry == "boxes":
        return below
    if cells.applies(catalogue, params) and not params.surest:
        size = catalogue["size"]
        inside = (size[..., 0] <= params.grid[0]) & (size[..., 1] <= params.grid[1])
        if params.candidate_range != "container":
            inside = inside & unrotated_fits(0, 0, size[:, :1], params)
        return below & inside
    # The corner is the first place of any lattice: a coarse one makes the maps small.
    coarse = params.evolve(grid_step=min(params.grid))
    every = torch.arange(len(catalogue["volume"]), device=catalogue["peak"].device)[None]
    floor, there = catalogue["bottom"].new_zeros(1, *params.grid), every >= 0
    maps = placement_maps(floor, every, there, catalogue, coarse)
    legal = preference.among(maps.z, maps.legal, floor, every, there, catalogue, coarse)
    return legal[0, ..., 0, 0]


def _legal_at_start(catalogue: Catalogue, params: PackingParams) -> Bool[Tensor, "M R"]:
    """Return which orientations have a legal placement in a container with nothing packed."""
    device, rows = catalogue["peak"].device, []
    for row in range(catalogue["peak"].shape[0]):  # once, when an environment is built
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


# ------------------------------------------------------------------ one placement per row


def judge(
    state: State, placement: Placement, catalogue: Catalogue, params: PackingParams
) -> Bool[Tensor, " B"]:
    """Return which placements are legal, from all placements of their item.

    For plans made elsewhere; a step looks its placement up in the state.
    """
    # The item of each placement.
    item_id, there = visible_items(state, params.num_visible)
    slot = placement.slot[:, None]
    item_id, there = item_id.gather(1, slot), there.gather(1, slot)
    where = (placement.orientation, placement.x, placement.y)
    if params.geometry == "boxes":
        size = torch.where(there, catalogue["cuboid"][item_id[:, 0], where[0]], 0)
        lower = torch.stack(where[1:], -1).int()
        legal = boxes.judge(state["boxes"], lower[:, None], size[:, None], params).legal[:, 0]
        if params.candidate_range == "pct":
            first = catalogue["size"][item_id[:, 0], 0]
            legal = legal & unrotated_fits(*where[1:], first, params)
        return legal & placement.valid
    # All its placements, and among them the one in question, if it is on the lattice.
    maps = legal_maps(state, item_id, there, catalogue, params)
    on_lattice = (placement.x % params.grid_step == 0) & (placement.y % params.grid_step == 0)
    index = encode_placement(torch.zeros_like(where[0]), *where, maps.legal.shape[2], params)
    legal = maps.legal.flatten(1).gather(1, index[:, None])[:, 0]
    return legal & on_lattice & placement.valid


@dataclass(frozen=True)
class Resting:
    """One placement per row at rest. Where it is not legal, the values mean nothing.

    Attributes:
        z: ``[B]`` rest height, metres.
        stable: ``[B]`` by the task's ``stability_metric``.
        support_ratio: ``[B]`` float64, the supporting share of the footprint.
    """

    z: Float[Tensor, " B"]
    stable: Bool[Tensor, " B"]
    support_ratio: Float[Tensor, " B"]


def at_rest(
    state: State,
    item_id: Int[Tensor, " B"],
    placement: Placement,
    catalogue: Catalogue,
    params: PackingParams,
) -> Resting:
    """Return rest height and support of a legal placement per row.

    The rules that judge a lattice measure them, on one of one place: the cells under the item.
    """
    orientation = placement.orientation
    lower = torch.stack((placement.x, placement.y), -1).int()
    if params.geometry == "boxes":
        size = catalogue["cuboid"][item_id, orientation]
        return Resting(*boxes.at_rest(state["boxes"], lower, size, params))
    # A lattice of one place: the cells under the item's window.
    items = {key: catalogue[key][item_id, orientation] for key in ("bottom", "com", "size")}
    bottom = items["bottom"][:, None]
    window, step = bottom.shape[2:], max(bottom.shape[2:])
    ground, _ = hm.read_window(state["heightmap"], placement.x, placement.y, window)
    z = kernels.drop_height(ground, bottom, step)
    # What the rule of the metric says of it, and how much of the footprint supports.
    com, size = items["com"][:, None], items["size"][:, None]
    contact = stability.Contact(ground, bottom, z, com, params.tolerance, step, size)
    stable = stability.judge_maps(params.stability_metric, contact).flatten()
    supporting, area = contact.areas()
    ratio = supporting.double().flatten() / area.double().clamp(min=1.0).flatten()
    z = z.flatten()
    # Rules of piles judge the whole pile with the item on it.
    if params.stability_metric in PILE_RULES_ON_MAPS:
        sides = catalogue["cuboid"][item_id, orientation][:, None]
        judged = (lower[:, None], sides, z[:, None], stable[:, None], params)
        stable = boxes.held(state["boxes"], *judged, params.stability_metric)[:, 0]
    return Resting(z, stable, ratio)
