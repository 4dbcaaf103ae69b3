"""The constraints of :mod:`packing_env.constraints` on tensors.

A placement is legal if geometry and stability allow it and :func:`allowed_maps` is True. Each rule
about packed items gives, for each visible item, a list of packed items: the *barred* items, ``[B,
L, N]`` in packing order. The visible item must not rest on them or, under ``lifo``, must not be
above them. ``owner`` in the state maps cells to items, so barred items give barred cells. A
placement rests on a barred cell iff two heights differ by at most the contact tolerance: its rest
height, and its rest height on the barred cells alone. So every rule is computed with the operation
:func:`packing_env.kernels.drop_height`.

The constraints may need these entries of the state:

| key | shape, dtype | meaning |
|---|---|---|
| ``owner`` | ``[B, X, Y]`` float32 | the last packed item over each cell, by order; -1: none |
| ``under`` | ``[B, N, N]`` bool | ``[b, i, k]``: the k-th packed item bears the i-th |

Weights are int64 milligrams and moments are int64, so that sums are exact in any order.
:mod:`packing_env.reference.constraints` specifies the same rules in plain loops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.constraints import CELL_MARGIN, CLEARANCE_SLACK, is_whole, level_of, limit_in_mg
from packing_env.core import heightmap as hm
from packing_env.core.ground import Landing
from packing_env.core.orientation import surfaces
from packing_env.types import (
    SLOPE_UNITS,
    Catalogue,
    PackingParams,
    ParameterError,
    State,
    to_float32,
)

_FAR = 1e30
"""A height greater than all others, for use in a maximum."""


def cells_of(gap: float, params: PackingParams) -> int:
    """Return a gap in metres as whole cells, rounded up."""
    return math.ceil(gap / params.cell - CELL_MARGIN)


def check_items(params: PackingParams, items: Catalogue) -> None:
    """Raise unless the items have the attributes that the constraints read.

    Raises:
        ParameterError: An attribute is missing, or a pre-placed box is incompatible with a list of
            the packed cuboids. The message names the attribute or box and the remedy.
    """
    if params.keeps_boxes:
        _check_levels(params)
    # An attribute that a rule reads must be set for all items.
    needed = params.constraints.needs
    missing = [name for name in needed if name not in items]
    if missing:
        raise ParameterError(
            f"constraints={params.constraints.to_json()} read the attribute {', '.join(missing)} "
            f"of the items; give handling={{{missing[0]}: ...}}, or Catalogue.with_handling"
        )
    # Moments are summed in int64, which must not overflow.
    if params.constraints.balance is not None:
        sides = 2 * SLOPE_UNITS * max(params.grid) * params.num_items
        if int(items["weight"].max()) >= 2**62 // sides:
            raise ParameterError(
                f"constraints.balance: {params.num_items} items of up to "
                f"{int(items['weight'].max()) / 1e6:g} kg are too heavy to add up; use fewer items"
            )


def _check_levels(params: PackingParams) -> None:
    """Raise if items on a pre-placed box would rest between whole numbers of cells."""
    # Boxes of whole cells are recorded as integers, so no level between two cells can be stored.
    cell = params.cell
    for box in params.constraints.preplaced:
        top = box[2] + box[5]
        if not is_whole(top, cell):
            level = math.floor(top / cell) * cell
            raise ParameterError(
                f"constraints.preplaced: the top of the box {list(box)}, {top:g} m, is not a "
                f"whole number of cells of {cell:g} m, which num_spaces and the observation "
                f"'boxes' need; use {level:g} or {level + cell:g} m, or leave out both options"
            )


# ------------------------------------------------------------------ the state


def begin(batch: int, params: PackingParams, device: torch.device) -> State:
    """Return the entries of empty containers that depend on the constraints.

    These are ``heightmap`` if there are pre-placed boxes, and ``owner`` and ``under`` if they are
    needed.
    """
    rules, entries = params.constraints, State()
    if rules.preplaced:
        # A cell that a pre-placed box overlaps has the height of the box's top.
        heightmap = torch.zeros(params.grid, device=device)
        for x, y, z, dx, dy, dz in rules.preplaced:
            (x0, x1), (y0, y1) = _span(x, dx, params), _span(y, dy, params)
            top = to_float32(level_of(z + dz, params.cell))
            heightmap[x0:x1, y0:y1] = heightmap[x0:x1, y0:y1].clamp(min=top)
        entries["heightmap"] = heightmap.expand(batch, -1, -1).contiguous()
    if rules.needs_owners:
        entries["owner"] = torch.full((batch, *params.grid), -1.0, device=device)
    if rules.max_load:
        shape = (batch, params.num_items, params.num_items)
        entries["under"] = torch.zeros(shape, dtype=torch.bool, device=device)
    return entries


def _span(low: float, side: float, params: PackingParams) -> tuple[int, int]:
    """Return the first cell that an interval overlaps, and the cell after the last one."""
    # An interval that overlaps a cell by less than CELL_MARGIN does not occupy it.
    first = math.floor(low / params.cell + CELL_MARGIN)
    return first, math.ceil((low + side) / params.cell - CELL_MARGIN)


def commit(state: State, item: Landing, catalogue: Catalogue, params: PackingParams) -> State:
    """Return the entries after the decision; ``state`` is the state before it."""
    if not params.constraints.needs_owners:
        return {}
    # 1. The cells under the footprint now belong to the new item. Packing indices increase, so the
    #    maximum is the index of the newer owner.
    place = item.placement
    bottom = catalogue["bottom"][item.item_id, place.orientation]
    index = state["items_packed"][:, None, None].float()
    mine = torch.where((bottom < torch.inf) & item.carried[:, None, None], index, -torch.inf)
    after = {"owner": hm.raise_window(state["owner"], place.x, place.y, mine)}
    # 2. The item loads the items that it rests on, and all items that bear these.
    if params.constraints.max_load:
        on = _rests_on(state, item, bottom, params)
        below = on | (on[:, :, None] & state["under"]).any(1)
        order = torch.arange(params.num_items, device=on.device)
        here = (order == state["items_packed"][:, None]) & item.carried[:, None]
        after["under"] = torch.where(here[:, :, None], below[:, None], state["under"])
    return after


def _rests_on(
    state: State, item: Landing, bottom: Float[Tensor, "B U V"], params: PackingParams
) -> Bool[Tensor, "B N"]:
    """Return which packed items own a cell on which each row's item rests."""
    # 1. Supporting cells: the gap is within the tolerance.
    place, window = item.placement, bottom.shape[1:]
    ground, inside = hm.read_window(state["heightmap"], place.x, place.y, window)
    owner, _ = hm.read_window(state["owner"], place.x, place.y, window)
    supports = inside & (ground - bottom >= (item.z - params.tolerance)[:, None, None])
    # 2. Mark the owner of each cell; the last column collects cells that have no owner.
    owner = torch.where(supports & (owner >= 0), owner.long(), params.num_items).flatten(1)
    marks = torch.zeros(len(owner), params.num_items + 1, device=owner.device)
    return marks.scatter(1, owner, 1.0)[:, :-1] > 0


# ------------------------------------------------------------------ the packed items


@dataclass(frozen=True)
class _Packed:
    """The packed items of each row, in packing order; padding is never barred.

    Attributes:
        there: ``[B, N]`` True for items that exist.
        item_id: ``[B, N]`` their catalogue rows.
        catalogue: The items.
    """

    there: Bool[Tensor, "B N"]
    item_id: Int[Tensor, "B N"]
    catalogue: Catalogue

    def __getitem__(self, name: str) -> Tensor:
        """Return an attribute of the items, ``[B, N]``."""
        return self.catalogue[name][self.item_id]


def _packed_items(state: State, catalogue: Catalogue) -> _Packed:
    order = torch.arange(state["item_id"].shape[1], device=state["step"].device)
    there = order < state["items_packed"][:, None]
    return _Packed(there, state["item_id"].gather(1, state["placement"][:, :, 0]), catalogue)


def _spare_load(state: State, packed: _Packed) -> Int[Tensor, "B N"]:
    """Return the load in milligrams that each packed item can still bear.

    It is the minimum over the item and all items under it.
    """
    # 1. The maximum load of each item, minus its present load.
    weight = torch.where(packed.there, packed["weight"], 0)
    borne = (state["under"] * weight[:, :, None]).sum(1)
    spare = torch.where(packed.there, packed["max_load"] - borne, torch.iinfo(torch.int64).max)
    # 2. Then the minimum over all items under it.
    below = torch.where(state["under"], spare[:, None], torch.iinfo(torch.int64).max)
    return torch.minimum(spare, below.amin(2))


# ------------------------------------------------------------------ all placements


def allowed_maps(
    state: State,
    item_id: Int[Tensor, "B L"],
    z: Float[Tensor, "B L R Xs Ys"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Bool[Tensor, "B L R Xs Ys"]:
    """Return which placements on the lattice the constraints allow, given their rest heights.

    The result is undefined where ``z`` is +inf.
    """
    packed, rules = _packed_items(state, catalogue), params.constraints
    one = item_id.flatten()[:, None]  # one row of the batch per visible item
    surface = surfaces(one, torch.ones_like(one, dtype=torch.bool), catalogue)
    # 1. Find items that must not be packed now, at any place.
    allowed = _allowed_items(packed, item_id, params)[..., None, None, None].expand(z.shape)
    # 2. Find packed items that must not bear the item: does it rest on one of their cells?
    below = _barred_below(state, packed, item_id, params)
    if below is not None:
        barred = _cells(state, below)
        heights = torch.where(barred, state["heightmap"][:, None], -_FAR).flatten(0, 1)
        reach = surface.rest_heights(heights, params.grid_step).view(z.shape)
        allowed = allowed & ~(reach >= z - params.tolerance)
    # 3. Find packed items that must stay uncovered: does its footprint cover one of their cells?
    if rules.lifo:
        sooner = packed["group"][:, None] < catalogue["group"][item_id][..., None]
        above = _cells(state, sooner & packed.there[:, None])
        heights = torch.where(above, _FAR, -_FAR).flatten(0, 1)
        reach = surface.rest_heights(heights, params.grid_step).view(z.shape)
        allowed = allowed & (reach < 0)
    # 4. Neighbours: widen the item by the clearance; its rest height must not increase.
    if rules.clearance:
        bottom = catalogue["bottom"][item_id].flatten(0, 1)
        allowed = allowed & (_beside(state, bottom, params).view(z.shape) <= z + _SLACK)
    # 5. Walls and balance: these depend only on the lower corner.
    return allowed & _allowed_corners(state, packed, item_id, params)


_SLACK = to_float32(CLEARANCE_SLACK)


def _allowed_items(
    packed: _Packed, item_id: Int[Tensor, "B L"], params: PackingParams
) -> Bool[Tensor, "B L"]:
    """Return which items may be packed now, at any place."""
    # Weights are whole milligrams, so the comparison is exact.
    rules, catalogue = params.constraints, packed.catalogue
    allowed = torch.ones_like(item_id, dtype=torch.bool)
    if rules.weight_limit is not None:
        total = torch.where(packed.there, packed["weight"], 0).sum(1, keepdim=True)
        limit = limit_in_mg(rules.weight_limit)
        allowed = allowed & (total + catalogue["weight"][item_id] <= limit)
    # Once a fragile item is packed, only fragile items may follow.
    if rules.fragile == "last":
        begun = (packed["fragile"] & packed.there).any(1, keepdim=True)
        allowed = allowed & (catalogue["fragile"][item_id] | ~begun)
    return allowed


def _barred_below(
    state: State, packed: _Packed, item_id: Int[Tensor, "B L"], params: PackingParams
) -> Bool[Tensor, "B L N"] | None:
    """Return the packed items that each visible item must not rest on; None without such a rule."""
    # 1. For each rule: which packed items it bars, for all visible items or for single ones.
    rules, catalogue, barred = params.constraints, packed.catalogue, []
    if rules.no_stacking:
        barred.append(~packed["stackable"][:, None])
    if rules.fragile == "top":
        barred.append(packed["fragile"][:, None] & ~catalogue["fragile"][item_id][..., None])
    if rules.max_load:
        spare = _spare_load(state, packed)[:, None]
        barred.append(catalogue["weight"][item_id][..., None] > spare)
    # 2. Combine the rules; only items that exist are barred.
    if not barred:
        return None
    by_any = barred[0]
    for by_another in barred[1:]:
        by_any = by_any | by_another
    return (by_any & packed.there[:, None]).expand(*item_id.shape, -1)


def _cells(state: State, barred: Bool[Tensor, "B L N"]) -> Bool[Tensor, "B L X Y"]:
    # Look up the owner of each cell; cells without an owner read a False flag past the last item.
    owner = state["owner"].long().flatten(1)
    index = torch.where(owner >= 0, owner, barred.shape[2])[:, None].expand(-1, barred.shape[1], -1)
    flags = torch.nn.functional.pad(barred, (0, 1)).gather(2, index)
    return flags.unflatten(2, state["owner"].shape[1:])


def _beside(
    state: State, bottom: Float[Tensor, "BL R U V"], params: PackingParams
) -> Float[Tensor, "BL R Xs Ys"]:
    """Return the rest heights of items that are widened by the clearance; walls are ignored."""
    # 1. Each cell of the wider surface gets the lowest value within the clearance.
    gap = cells_of(params.constraints.clearance or 0.0, params)
    side = [gap] * 4
    wider = torch.nn.functional.pad(bottom, side, value=torch.inf)
    wider = -torch.nn.functional.max_pool2d(-wider, 2 * gap + 1, 1, gap)
    # 2. Beyond the walls the ground is set very low, so only neighbours count.
    ground = torch.nn.functional.pad(state["heightmap"], side, value=-_FAR)
    visible = len(bottom) // len(ground)
    ground = ground[:, None].expand(-1, visible, -1, -1).flatten(0, 1)
    xs, ys = params.lattice
    return kernels.drop_height(ground, wider, params.grid_step)[..., :xs, :ys]


# ------------------------------------------------------------------ lower corners


def _allowed_corners(
    state: State, packed: _Packed, item_id: Int[Tensor, "B L"], params: PackingParams
) -> Bool[Tensor, "B L R Xs Ys"]:
    """Return which placements keep the clearance to the walls and the balance of the container."""
    size, gap = packed.catalogue["size"][item_id], cells_of(params.constraints.walls, params)
    # Each rule is a condition along x combined with a condition along y.
    along = []
    for axis, count in enumerate(params.lattice):
        at = torch.arange(count, device=size.device) * params.grid_step
        at = at.expand(*size.shape[:3], -1)
        allowed = (at >= gap) & (at + size[..., axis, None] <= params.grid[axis] - gap)
        if params.constraints.balance is not None:
            allowed = allowed & _balanced(state, packed, item_id, at, axis, params)
        along.append(allowed)
    return along[0][..., :, None] & along[1][..., None, :]


def _balanced(
    state: State,
    packed: _Packed,
    item_id: Int[Tensor, "B L"],
    at: Int[Tensor, "B L R steps"],
    axis: int,
    params: PackingParams,
) -> Bool[Tensor, "B L R steps"]:
    """Return the lower corners along an axis at which the common centre of mass is allowed."""
    assert params.constraints.balance is not None
    catalogue, cells = packed.catalogue, params.grid[axis]
    # 1. Twice the distance of each packed item's centre from the middle, in 1/64 cells, a whole
    #    number.
    orientation, corner = state["placement"][..., 1], state["placement"][..., 2 + axis]
    own = catalogue["com"][packed.item_id, orientation][..., axis]
    far = 2 * (SLOPE_UNITS * corner + own) - SLOPE_UNITS * cells
    weight = torch.where(packed.there, packed["weight"], 0)
    moment, total = (weight * far).sum(1), weight.sum(1)
    # 2. The same for the visible item at every lower corner; then check the sum of moments.
    mine, com = catalogue["weight"][item_id], catalogue["com"][item_id][..., axis, None]
    distance = 2 * (SLOPE_UNITS * at + com) - SLOPE_UNITS * cells
    off = (moment[:, None, None, None] + mine[:, :, None, None] * distance).abs()
    limit = params.constraints.balance * (2.0 * SLOPE_UNITS * cells)
    return off.double() <= limit * (total[:, None] + mine).double()[:, :, None, None]
