"""Rest heights and legality of every placement, and the support of the chosen placement.

:func:`legal_maps` computes legality once per state, and the state keeps it. Nothing else in a step
computes legality.
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
    num_orientations,
    surfaces,
    visible_items,
)
from packing_env.types import PILE_RULES_ON_MAPS, Catalogue, PackingParams, State

_PARTS = 8
"""Number of parts into which the planes are divided for the comparison with the lid."""


@dataclass(frozen=True)
class Maps:
    """All placements of the visible items.

    Attributes:
        z: ``[B, L, R, Xs, Ys]`` rest height, metres; +inf if the footprint leaves the container, or
            if the orientation or the item does not exist.
        legal: ``[B, L, R, Xs, Ys]`` True if inside, under the lid and stable. Some functions also
            apply the task's other rules; their docstrings say so.
    """

    z: Float[Tensor, "B L R Xs Ys"]
    legal: Bool[Tensor, "B L R Xs Ys"]


# ------------------------------------------------------------------ all placements of a state


def maps_in(state: State, catalogue: Catalogue, params: PackingParams) -> Maps | None:
    """Return :func:`legal_maps` of the visible items; None in geometry ``"boxes"``."""
    if params.geometry == "boxes":
        return None
    item_id, there = visible_items(state, params.num_visible)
    return legal_maps(state, item_id, there, catalogue, params)


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
    preferred = preference.among(maps.z, maps.legal, heightmap, item_id, there, catalogue, params)
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
    # 2. The lid.
    legal = _below_lid(z, catalogue["peak"][item_id].flatten(1, 2), params)
    # 3. Stability; the height of placements above the lid becomes +inf, which rules skip.
    if params.stability != "none":
        judged = torch.where(legal, z, torch.inf)
        contact = stability.contact_of(below, heightmap, judged, item_id, catalogue, params)
        legal = legal & stability.judge_maps(params.stability, contact)
    # 4. The range of lower corners.
    shape = (*item_id.shape, -1, *z.shape[2:])
    return _within_range(Maps(z.view(shape), legal.view(shape)), catalogue["size"][item_id], params)


def _below_lid(
    z: Float[Tensor, "B P Xs Ys"], peak: Float[Tensor, "B P"], params: PackingParams
) -> Bool[Tensor, "B P Xs Ys"]:
    """Return which placements stay below the lid; works in parts, to use less memory."""
    # float32(z + peak), rounded as in the reference.
    below = torch.empty_like(z, dtype=torch.bool)
    parts = (values.tensor_split(_PARTS, 1) for values in (below, z, peak))
    for part, heights, top in zip(*parts, strict=True):
        part.copy_(heights + top[:, :, None, None] <= params.lid)
    return below


def _within_range(maps: Maps, size: Int[Tensor, "B L R 2"], params: PackingParams) -> Maps:
    """Restrict legality to the placements that ``candidate_range`` allows."""
    if params.candidate_range == "container":
        return maps
    x, y = (torch.arange(n, device=size.device) * params.grid_step for n in params.lattice)
    allowed = unrotated_fits(x[:, None], y, size[:, :, :1, None, None], params)
    return replace(maps, legal=maps.legal & allowed)


def unrotated_fits(x: Tensor | int, y: Tensor | int, size: Tensor, params: PackingParams) -> Tensor:
    """Return whether the window of orientation 0, ``size [..., 2]``, is inside at ``(x, y)``."""
    # In pitches, like x and y: in geometry "boxes" a cell has several pitches.
    across, along = (cells * params.units_per_cell for cells in params.grid)
    return (x + size[..., 0] <= across) & (y + size[..., 1] <= along)


# ------------------------------------------------------------------ the empty container


def with_footprints(catalogue: Catalogue, params: PackingParams) -> Catalogue:
    """Return the catalogue with ``footprint_size [M, R, 2]``, which the maps then need not compute.

    It holds the numbers of cells (w, h) of each lower surface up to its last finite cell, at most
    those of the window.
    """
    if params.geometry == "boxes":
        return catalogue
    return {**catalogue, "footprint_size": kernels.surface_sizes(catalogue["bottom"])}


def empty_container_maps(
    item_id: Int[Tensor, "B L"],
    there: Bool[Tensor, "B L"],
    legal_on_floor: Bool[Tensor, "M R"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Maps | None:
    """Return :func:`legal_maps` of an empty container, without running a kernel.

    Every rest height is 0. So one lookup per orientation (:func:`legal_on_floor`) serves for all
    places. The result is ``None`` in geometry ``"boxes"``. The result is right only for tasks with
    an :func:`even_floor`; other tasks need :func:`maps_in`.
    """
    if params.geometry == "boxes":
        return None
    # 1. Windows must be inside, and orientations must exist.
    size = catalogue["size"][item_id]
    xs, ys = (torch.arange(n, device=size.device) * params.grid_step for n in params.lattice)
    fits_x = xs + size[..., 0, None] <= params.grid[0]
    fits_y = ys + size[..., 1, None] <= params.grid[1]
    present = there[:, :, None] & catalogue["orientation_mask"][item_id]
    inside = (fits_x & present[..., None])[..., :, None] & fits_y[..., None, :]
    # 2. On the floor everything rests at 0, and legality depends on the orientation alone.
    z = torch.where(inside, size.new_zeros((), dtype=torch.float32), torch.inf)
    maps = Maps(z, inside.logical_and_(legal_on_floor[item_id][..., None, None]))
    return _within_range(maps, size, params)


def even_floor(params: PackingParams) -> bool:
    """Return whether legality on the floor of an empty container is the same at every place.

    It is not the same if there are constraints, or preferences that depend on the place.
    """
    return not params.constraints and not preference.by_place(params)


def legal_on_floor(catalogue: Catalogue, params: PackingParams) -> Bool[Tensor, "M R"]:
    """Return which orientations of which items are legal in a corner of the empty container.

    Without an :func:`even_floor`, the result is True if an orientation is legal at any place. With
    preferences, only the orientations that they leave to each item are True.

    Raises:
        ParameterError: The items lack an attribute that the constraints read.
    """
    if params.constraints:
        constraints.check_items(params, catalogue)
    if not even_floor(params):
        return _legal_at_start(catalogue, params)
    # A cuboid on the floor is stable by every rule.
    below = catalogue["orientation_mask"] & (catalogue["peak"] <= params.lid)
    if params.geometry == "boxes":
        return below
    if cells.applies(catalogue, params) and not preference.active(params):
        size = catalogue["size"]
        inside = (size[..., 0] <= params.grid[0]) & (size[..., 1] <= params.grid[1])
        if params.candidate_range != "container":
            inside = inside & unrotated_fits(0, 0, size[:, :1], params)
        return below & inside
    # Every lattice contains the corner, so a coarse lattice with small maps is enough.
    coarse = params.evolve(grid_step=min(params.grid))
    every = torch.arange(len(catalogue["volume"]), device=catalogue["peak"].device)[None]
    floor, there = catalogue["bottom"].new_zeros(1, *params.grid), every >= 0
    maps = placement_maps(floor, every, there, catalogue, coarse)
    legal = preference.among(maps.z, maps.legal, floor, every, there, catalogue, coarse)
    return legal[0, ..., 0, 0]


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
    """Return which placements are legal, computed from all placements of their item.

    Use it for plans from other programs; a step looks up its placement in the state.
    """
    # Make a list of one visible item: the item of the placement.
    item_id, there = visible_items(state, params.num_visible)
    slot = placement.slot[:, None]
    item_id, there = item_id.gather(1, slot), there.gather(1, slot)
    if params.geometry == "boxes":
        listed = placement.listed()
        return judge_boxes(state, item_id, listed, there, catalogue, params).legal[:, 0]
    # Compute all placements of the item, and select the given one if it is on the lattice.
    maps = legal_maps(state, item_id, there, catalogue, params)
    on_lattice = (placement.x % params.grid_step == 0) & (placement.y % params.grid_step == 0)
    index = encode_placement(
        slot=torch.zeros_like(placement.slot),
        orientation=placement.orientation,
        x=placement.x,
        y=placement.y,
        num_orientations=num_orientations(catalogue),
        params=params,
    )
    legal = maps.legal.flatten(1).gather(1, index[:, None])[:, 0]
    return legal & on_lattice & placement.valid


def judge_boxes(
    state: State,
    item_id: Int[Tensor, "B K"],
    place: Placement,
    there: Bool[Tensor, "B K"],
    catalogue: Catalogue,
    params: PackingParams,
) -> boxes.Judged:
    """Return rest height and legality of placements ``[B, K]`` in geometry ``"boxes"``.

    Args:
        state: The state.
        item_id: Catalogue rows of the items.
        place: Their placements.
        there: False for padding, whose rest height is 0.
        catalogue: The items.
        params: The task.
    """
    # 1. Padding is a box without sides, which is never legal.
    there = there & place.valid
    size = torch.where(there[..., None], catalogue["cuboid"][item_id, place.orientation], 0)
    lower = torch.stack((place.x, place.y), -1).int()
    judged = boxes.judge(state["boxes"], lower, size, params)
    # 2. The range of lower corners.
    if params.candidate_range == "pct":
        unrotated = catalogue["size"][item_id, 0]
        there = there & unrotated_fits(place.x, place.y, unrotated, params)
    return replace(judged, legal=judged.legal & there)


@dataclass(frozen=True)
class Resting:
    """One placement per row, at rest. The values are undefined if the placement is not legal.

    Attributes:
        z: ``[B]`` rest height, metres.
        stable: ``[B]`` by the task's ``stability_metric``.
        support_ratio: ``[B]`` float64, the share of the footprint that is supported.
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
    """Return rest height and support of one legal placement per row.

    The rules for lattices are evaluated on a lattice with one point, which covers the cells under
    the item.
    """
    orientation, metric = placement.orientation, params.stability_metric
    lower = torch.stack((placement.x, placement.y), -1).int()
    if params.geometry == "boxes":
        size = catalogue["cuboid"][item_id, orientation]
        z, stable, ratio = boxes.at_rest(state["boxes"], lower, size, params)
        return Resting(z, stable, ratio)
    # 1. A lattice with one point: the cells under the item's window.
    bottom = catalogue["bottom"][item_id, orientation][:, None]
    window = bottom.shape[2:]
    ground, _ = hm.read_window(state["heightmap"], placement.x, placement.y, window)
    contact = stability.Contact(
        heightmap=ground,
        bottom=bottom,
        z=kernels.drop_height(ground, bottom, max(window)),
        com=catalogue["com"][item_id, orientation][:, None],
        tolerance=params.tolerance,
        stride=max(window),
        size=catalogue["size"][item_id, orientation][:, None],
    )
    # 2. Stability by the rule of ``stability_metric``, and the supported share of the footprint.
    stable = stability.judge_maps(metric, contact).flatten()
    supporting, area = contact.areas()
    ratio = supporting.double().flatten() / area.double().clamp(min=1.0).flatten()
    z = contact.z.flatten()
    # 3. Rules about piles check the whole pile, including the item.
    if metric in PILE_RULES_ON_MAPS:
        stable = boxes.held(
            state["boxes"],
            lower=lower[:, None],
            size=catalogue["cuboid"][item_id, orientation][:, None],
            z=z[:, None],
            legal=stable[:, None],
            params=params,
            rule=metric,
        )[:, 0]
    return Resting(z, stable, ratio)
