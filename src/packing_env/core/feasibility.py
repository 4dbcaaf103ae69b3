"""Rest heights and legality: of every placement on the lattice, and of one placement per row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core import constraints, stability, surest
from packing_env.core import heightmap as hm
from packing_env.core.cuboids import boxes, cells
from packing_env.core.orientation import Placement, surfaces, visible_items
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
    """Compute rest height and legality of every placement on the lattice.

    Cuboids on whole cells take a faster path to the same bits
    (:mod:`packing_env.core.cuboids.cells`).
    """
    find = cells.placement_maps if cells.applies(catalogue, params) else general_maps
    z, legal = find(heightmap, item_id, there, catalogue, params)
    return _within_range(Maps(z, legal), catalogue["size"][item_id], params)


def ground_of(catalogue: Catalogue, params: PackingParams) -> str:
    """Return what placements are computed from: integer boxes, whole cells or height maps."""
    if params.geometry == "boxes":
        return "integer boxes"
    return "whole cells" if cells.applies(catalogue, params) else "height maps"


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

    These include constraints, and the preference for what is surest to stand.
    """
    maps = placement_maps(state["heightmap"], item_id, there, catalogue, params)
    if params.stability in PILE_RULES_ON_MAPS:
        size = catalogue["cuboid"][item_id]
        held = boxes.held_on_lattice(state["boxes"], size, maps.z, maps.legal, params)
        maps = replace(maps, legal=held)
    if params.constraints:
        allowed = constraints.allowed_maps(state, item_id, maps.z, catalogue, params)
        maps = replace(maps, legal=maps.legal & allowed)
    if not params.surest:
        return maps
    ground = (state["heightmap"], item_id, there, catalogue, params)
    return replace(maps, legal=surest.among(maps.z, maps.legal, *ground))


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
    (bottom, which, size), step = surfaces(item_id, there, catalogue), params.grid_step
    z = kernels.drop_height(heightmap, bottom, step, which=which, size=size)
    peak, com, window = (catalogue[key][item_id].flatten(1, 2) for key in ("peak", "com", "size"))
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


def unrotated_fits(x: Tensor, y: Tensor, size: Tensor, params: PackingParams) -> Tensor:
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
    size = catalogue["size"][item_id]
    xs, ys = (torch.arange(n, device=size.device) * params.grid_step for n in params.lattice)
    fits_x = xs + size[..., 0, None] <= params.grid[0]
    fits_y = ys + size[..., 1, None] <= params.grid[1]
    present = there[:, :, None] & catalogue["orientation_mask"][item_id]
    inside = (fits_x & present[..., None])[..., :, None] & fits_y[..., None, :]
    z = torch.where(inside, size.new_zeros((), dtype=torch.float32), torch.inf)
    maps = Maps(z, inside.logical_and_(legal_on_floor[item_id][..., None, None]))
    return _within_range(maps, size, params)


def legal_on_floor(catalogue: Catalogue, params: PackingParams) -> Bool[Tensor, "M R"]:
    """Return which orientations of which items may stand in a corner of the empty container.

    With constraints: anywhere in it. With ``surest`` rules, the surest of each item's orientations.

    Raises:
        ParameterError: The items lack an attribute that the constraints read.
    """
    if params.constraints:
        constraints.check_items(params, catalogue)
        return _legal_at_start(catalogue, params)
    if params.geometry == "boxes":  # a cuboid on the floor is stable by every rule
        return catalogue["orientation_mask"] & (catalogue["peak"] <= params.lid)
    window = catalogue["bottom"].shape[2:]
    u, v = (torch.arange(cells, device=catalogue["peak"].device) for cells in window)
    shape = catalogue["bottom"].shape[1:]
    inside = ((u[:, None] < params.grid[0]) & (v < params.grid[1])).expand(shape)
    floor = catalogue["bottom"].new_zeros(()).expand(shape)

    def judge(rule: str) -> Bool[Tensor, "M R"]:
        judged = params.evolve(stability=rule)
        return torch.stack(_legal_in_corner(floor, inside, catalogue, judged))

    legal = kept = judge(params.stability)
    for rule in params.surest:  # a later one decides where it leaves any
        held = legal & judge(rule)
        kept = torch.where(held.any(1, keepdim=True), held, kept)
    if params.candidate_range == "pct":
        first = catalogue["size"][:, :1]
        kept = kept & unrotated_fits(u[:1], v[:1], first, params)
    return kept


def _legal_in_corner(
    floor: Float[Tensor, "R U V"],
    inside: Bool[Tensor, "R U V"],
    catalogue: Catalogue,
    params: PackingParams,
) -> list[Bool[Tensor, " R"]]:
    """Return the orientations of each item that the floor bears by the task's ``stability``."""
    every = range(catalogue["peak"].shape[0])  # once, when an environment is built
    items = [{key: catalogue[key][row] for key in _TOUCHING} for row in every]
    return [_touch(floor, inside, item, params)[0] for item in items]


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


_TOUCHING = ("bottom", "peak", "com", "size", "orientation_mask")


@dataclass(frozen=True)
class Examined:
    """One placement per row.

    Attributes:
        z: ``[B]`` rest height, metres; +inf if it leaves the container.
        legal: ``[B]``.
        stable: ``[B]`` by the task's ``stability_metric``; False if illegal.
        support_ratio: ``[B]`` float64, supporting cells per footprint cell; 0 if illegal.
        top: ``[B, U, V]`` the item's upper surface, metres above its lowest point
            (``[B, 0, 0]`` in geometry ``"boxes"``).
    """

    z: Float[Tensor, " B"]
    legal: Bool[Tensor, " B"]
    stable: Bool[Tensor, " B"]
    support_ratio: Float[Tensor, " B"]
    top: Float[Tensor, "B U V"]


def examine(
    heightmap: Float[Tensor, "B X Y"],
    item_id: Int[Tensor, " B"],
    orientation: Int[Tensor, " B"],
    x: Int[Tensor, " B"],
    y: Int[Tensor, " B"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Examined:
    """Return rest height, legality and support of a placement; lower corner ``(x, y)``, cells."""
    items = {key: catalogue[key][item_id, orientation] for key in _TOUCHING}
    window, inside = hm.read_window(heightmap, x, y, catalogue["bottom"].shape[2:])
    legal, z, touch = _touch(window, inside, items, params)
    if params.candidate_range == "pct":
        legal = legal & unrotated_fits(x, y, catalogue["size"][item_id, 0], params)
    stable = legal & stability.judge(params.stability_metric, touch)
    count = touch.support.flatten(1).sum(1, dtype=torch.float64)
    cells = touch.footprint.flatten(1).sum(1, dtype=torch.float64).clamp(min=1)
    ratio = torch.where(legal, count / cells, 0.0)
    return Examined(z, legal, stable, ratio, catalogue["top"][item_id, orientation])


def _touch(
    window: Float[Tensor, "B U V"],
    inside: Bool[Tensor, "B U V"],
    items: Mapping[str, Tensor],
    params: PackingParams,
) -> tuple[Bool[Tensor, " B"], Float[Tensor, " B"], stability.Touch]:
    """Return legality, rest height and contact of an item over a window of the heightmap.

    ``items`` are the entries :data:`_TOUCHING` of the catalogue, one orientation of one item per
    row; the window holds the ground under it.
    """
    footprint = items["bottom"] < torch.inf
    level = window - items["bottom"]
    leaves = (footprint & ~inside).flatten(1).any(1) | ~items["orientation_mask"]
    z = torch.where(leaves, torch.inf, level.amax((1, 2)))
    under_lid = z + items["peak"] <= params.lid
    judged = torch.where(under_lid, z, torch.inf)
    support = stability.supporting_cells(window, items["bottom"], judged, params.tolerance)
    item = (items["com"], params.tolerance, items["size"])
    touch = stability.Touch(support, footprint, level, judged, *item)
    return under_lid & stability.judge(params.stability, touch), z, touch


def examine_in(
    state: State,
    item_id: Int[Tensor, " B"],
    placement: Placement,
    catalogue: Catalogue,
    params: PackingParams,
) -> Examined:
    """Return :func:`examine` of a placement per row, in either geometry."""
    orientation, x, y = placement.orientation, placement.x, placement.y
    if params.geometry == "maps":
        heightmap = state["heightmap"]
        found = examine(heightmap, item_id, orientation, x, y, catalogue, params)
        found = _within_pile(found, state, item_id, placement, catalogue, params)
        return _within_constraints(found, state, item_id, placement, catalogue, params)
    there = catalogue["orientation_mask"][item_id, orientation]
    size = torch.where(there[:, None], catalogue["cuboid"][item_id, orientation], 0)
    lower = torch.stack((x, y), -1).int()
    judged = boxes.examine(state["boxes"], lower, size, params)
    legal = judged.legal
    if params.candidate_range == "pct":
        legal = legal & unrotated_fits(x, y, catalogue["size"][item_id, 0], params)
    z = torch.where(legal, boxes.metres(judged.z, params), torch.inf)
    top = catalogue["top"][item_id, orientation]
    ratio = torch.where(legal, judged.support_ratio, 0.0)
    return Examined(z, legal, legal & judged.stable, ratio, top)


def _within_pile(
    found: Examined,
    state: State,
    item_id: Int[Tensor, " B"],
    placement: Placement,
    catalogue: Catalogue,
    params: PackingParams,
) -> Examined:
    """Return what was found, judged by the rules that read the packed boxes."""
    if not params.judges_piles:
        return found
    lower = torch.stack((placement.x, placement.y), -1).int()[:, None]
    size = catalogue["cuboid"][item_id, placement.orientation][:, None]
    judged = (lower, size, found.z[:, None], found.legal[:, None], params)
    legal, stable = found.legal, found.stable
    for rule in PILE_RULES_ON_MAPS:
        held = boxes.held(state["boxes"], *judged, rule)[:, 0]
        legal = legal & held if params.stability == rule else legal
        stable = stable & held if params.stability_metric == rule else stable
    ratio = torch.where(legal, found.support_ratio, 0.0)
    return replace(found, legal=legal, stable=stable & legal, support_ratio=ratio)


def _within_constraints(
    found: Examined,
    state: State,
    item_id: Int[Tensor, " B"],
    placement: Placement,
    catalogue: Catalogue,
    params: PackingParams,
) -> Examined:
    """Return what was found, illegal where the task's constraints forbid it."""
    if not params.constraints:
        return found
    legal = found.legal & constraints.allowed(state, item_id, placement, found.z, catalogue, params)
    ratio = torch.where(legal, found.support_ratio, 0.0)
    return replace(found, legal=legal, stable=found.stable & legal, support_ratio=ratio)
