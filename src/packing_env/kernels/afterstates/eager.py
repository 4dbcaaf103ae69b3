"""The operation of `packing_env.kernels.afterstates` in plain torch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

FAR = 2**36
"""Key of placements that are not candidates."""


class Lattice(NamedTuple):
    """The placements of the visible items, axes ``[B, L, R, Xs, Ys]``.

    Attributes:
        heights: ``[B, X, Y]`` int64 heightmap in units.
        z: Rest heights in units.
        legal: Which are legal.
        which: ``[B, L]`` rows of the catalogue.
        size: ``[B, L, R, 2]`` cells of the windows.
        stride: Cells between two placements.
    """

    heights: Tensor
    z: Tensor
    legal: Tensor
    which: Tensor
    size: Tensor
    stride: int


def afterstates(
    heightmap: Tensor,
    rest: Tensor,
    legal: Tensor,
    item_id: Tensor,
    top: Tensor,
    size: Tensor,
    num: int,
    stride: int,
    units: float,
    cells: float,
    edges: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Carry out `packing_env.kernels.afterstates`."""
    # 1. The placements, in units.
    which = item_id.clamp(min=0)
    there = (item_id >= 0)[..., None, None, None]
    possible = legal.view(rest.shape) & (rest < 1) & there
    lattice = Lattice(
        (heightmap * units).round().long(),
        (rest * units).round().long(),
        possible,
        which,
        size[which],
        stride,
    )
    # 2. The candidates.
    if edges:
        touching = touches(lattice)
        key = torch.where(touching, lattice.z, lattice.z + 2**20)
        index = _first(torch.where(possible, key, FAR).flatten(1), num)
        total = (possible & touching).flatten(1).sum(1)
    else:
        index, total = _corners(lattice, rest.double() * cells, round(units / cells), top, num)
    # 3. The heightmaps after them.
    maps = build(lattice, index, top).to(torch.int16)
    return index, maps, (total - num).clamp(min=0)


def _first(key: Tensor, num: int) -> Tensor:
    """Return the indices of the ``num`` smallest keys below `FAR`, ties by index; pad with -1."""
    size = key.shape[1]
    # Key and index form one number, so ties go to the smaller index.
    order = torch.where(key < FAR, key * size + torch.arange(size, device=key.device), FAR * size)
    length = min(num, size)
    smallest = order.topk(length, dim=1, largest=False, sorted=True).values
    index = torch.where(smallest < FAR * size, smallest % size, -1)
    return functional.pad(index, (0, num - length), value=-1)


def touches(lattice: Lattice) -> Tensor:
    """Return which placements of cuboids touch something in both x and y."""
    along = []
    for axis in (0, 1):
        heights = lattice.heights if axis == 0 else lattice.heights.transpose(1, 2)
        side, span = lattice.size[..., axis], lattice.size[..., 1 - axis]
        z = lattice.z if axis == 0 else lattice.z.transpose(3, 4)
        along.append(_touches_along_x(heights, z, side, span, lattice.stride))
    return along[0] & along[1].transpose(3, 4)


def _touches_along_x(heights: Tensor, z: Tensor, side: Tensor, span: Tensor, stride: int) -> Tensor:
    """Return which placements touch a wall or another height on their low or high side in x."""
    batch, x_cells, y_cells = heights.shape
    # 1. The lowest and the highest height over every interval along y.
    spans = torch.arange(1, y_cells + 1, device=heights.device)
    lowest, highest = [], []
    low = high = functional.pad(heights.double(), (0, y_cells), value=0.0)
    for reach in range(y_cells):
        shifted = functional.pad(heights, (0, y_cells)).double().roll(-reach, 2)
        low, high = torch.minimum(low, shifted), torch.maximum(high, shifted)
        lowest.append(low[..., :y_cells])
        highest.append(high[..., :y_cells])
    low, high = torch.stack(lowest, 1).long(), torch.stack(highest, 1).long()  # [B, span, X, Y]
    # 2. Select the interval of each item.
    at_span = (span.clamp(1, len(spans)) - 1).flatten(1)
    rows = torch.arange(batch, device=heights.device)[:, None]
    low, high = low[rows, at_span], high[rows, at_span]  # [B, L * R, X, Y]
    xs = torch.arange(z.shape[3], device=z.device) * stride
    ys = torch.arange(z.shape[4], device=z.device) * stride
    z = z.flatten(1, 2)
    sides = side.flatten(1)[..., None]
    # 3. A wall, or another height, beside the item on its low side or its high side.
    before, after = (xs - 1).expand(batch, sides.shape[1], -1), xs + sides
    wall = (before < 0) | (after >= x_cells)

    def differs(column: Tensor) -> Tensor:
        where = column.clamp(0, x_cells - 1)[..., None].expand(-1, -1, -1, y_cells)
        level = z.transpose(2, 3)
        beside = [part.gather(2, where)[..., ys].transpose(2, 3) for part in (low, high)]
        return ((beside[0] != level) | (beside[1] != level)).transpose(2, 3)

    touching = wall[..., None] | differs(before) | differs(after)
    return touching.unflatten(1, side.shape[1:])


def _corners(
    lattice: Lattice, z_cells: Tensor, per_cell: int, top: Tensor, num: int
) -> tuple[Tensor, Tensor]:
    """Return the candidates of items that are not cuboids, and their number."""
    batch, items = lattice.legal.shape[:2]
    # 1. The placement nearest to the corner comes first; it is always a candidate.
    legal, blocked = lattice.legal.flatten(1), is_blocked(lattice).flatten(1)
    corner = rank_corner(lattice, z_cells).flatten(1)
    order = torch.arange(legal.shape[1], device=legal.device)
    lowest = torch.where(legal, corner * len(order) + order, FAR * len(order)).argmin(1)
    any_legal = legal.any(1)
    # 2. Select the best blocked placements of each item.
    others = blocked & (order != lowest[:, None])
    key = torch.where(others, rank(lattice, per_cell, top).flatten(1), FAR)
    each = _first(key.unflatten(1, (items, -1)).flatten(0, 1), num).unflatten(0, (batch, items))
    # 3. Interleave the items.
    turn = torch.arange(each.shape[2], device=each.device) * items
    turn = turn + torch.arange(items, device=each.device)[:, None]
    chosen = _first(torch.where(each >= 0, turn, FAR).flatten(1), num - 1)
    offset = torch.arange(items, device=each.device)[:, None] * (len(order) // items)
    places = (each + offset).flatten(1).gather(1, chosen.clamp(min=0))
    # 4. Their indices follow the first candidate.
    first = torch.where(any_legal, lowest, -1)[:, None]
    index = torch.cat((first, torch.where(chosen >= 0, places, -1)), 1)
    return index, others.sum(1) + any_legal


def is_blocked(lattice: Lattice) -> Tensor:
    """Return which legal placements rest lower than a neighbour in x and a neighbour in y.

    One of the two neighbours along an axis is enough. Neighbours are one lattice point away; an
    illegal neighbour counts as higher.
    """
    z = torch.where(lattice.legal, lattice.z, FAR)
    around = functional.pad(z, (1, 1, 1, 1), value=FAR)
    along_x = torch.maximum(around[..., :-2, 1:-1], around[..., 2:, 1:-1])
    along_y = torch.maximum(around[..., 1:-1, :-2], around[..., 1:-1, 2:])
    return lattice.legal & (torch.minimum(along_x, along_y) > z)


def rank_corner(lattice: Lattice, z_cells: Tensor) -> Tensor:
    """Return ``x + y + 100 z`` in eighths, as the heuristic ``deepest_bottom_left`` rounds it."""
    x, y = (
        torch.arange(count, device=z_cells.device) * lattice.stride for count in z_cells.shape[3:]
    )
    return (8 * (100.0 * z_cells + (x[:, None] + y))).round().long()


def rank(lattice: Lattice, per_cell: int, top: Tensor) -> Tensor:
    """Return the order of an item's candidates: small numbers come first."""
    cells = lattice.heights.shape[1:]
    # 1. The space below, from the heights under the footprint.
    footprint = top[lattice.which] >= 0
    count = footprint.sum((3, 4))[..., None, None]
    gap = count * lattice.z - covered(lattice, footprint)
    # 2. The distance to the nearer walls.
    walls = torch.zeros_like(lattice.z)
    for axis in (0, 1):
        low = torch.arange(lattice.z.shape[3 + axis], device=walls.device) * lattice.stride
        high = cells[axis] - lattice.size[..., axis, None] - low  # [B, L, R, places]
        near = torch.minimum(low.expand_as(high), high)
        walls = walls + (near[..., None] if axis == 0 else near[..., None, :])
    # 3. The key.
    peak = top[lattice.which].amax((3, 4))[..., None, None].long()
    return 2 * gap // count.clamp(min=1) + lattice.z + peak + per_cell * walls


def covered(lattice: Lattice, footprint: Tensor) -> Tensor:
    """Return the sum of the heights under each footprint, ``[B, L, R, Xs, Ys]``."""
    batch, u, v = len(footprint), *footprint.shape[3:]
    if batch == 0:  # a convolution needs a group
        return torch.zeros_like(lattice.z)
    # A convolution per row, with the row's own footprints; it is exact in float64.
    weights = footprint.flatten(1, 2).flatten(0, 1)[:, None].double()
    padded = functional.pad(lattice.heights.double(), (0, v - 1, 0, u - 1))
    sums = functional.conv2d(padded[None], weights, stride=lattice.stride, groups=batch)
    return sums.round().long().view(lattice.z.shape)


def build(lattice: Lattice, index: Tensor, top: Tensor) -> Tensor:
    """Return the heightmaps after the placements ``[B, K]``, in units, ``[B, K, X, Y]``."""
    # 1. Decode item, orientation and place of each index.
    num_orientations, xs, ys = lattice.z.shape[2:]
    chosen = index.clamp(min=0)
    z = lattice.z.flatten(1).gather(1, chosen)
    y, rest = chosen % ys * lattice.stride, chosen // ys
    x, plane = rest % xs * lattice.stride, rest // xs
    item = lattice.which.gather(1, plane // num_orientations)
    # 2. The item's upper surface, shifted to the place.
    surface = top[item, plane % num_orientations]  # [B, K, U, V]
    x_cells, y_cells = lattice.heights.shape[1:]
    u = torch.arange(x_cells, device=z.device) - x[..., None]
    v = torch.arange(y_cells, device=z.device) - y[..., None]
    inside = ((u >= 0) & (u < surface.shape[2]))[..., None]
    inside = inside & ((v >= 0) & (v < surface.shape[3]))[..., None, :]
    rows = u.clamp(0, surface.shape[2] - 1)[..., None].expand(-1, -1, -1, surface.shape[3])
    columns = v.clamp(0, surface.shape[3] - 1)[..., None, :].expand(-1, -1, x_cells, -1)
    moved = surface.gather(2, rows).gather(3, columns).long()
    # 3. The new height, within the footprint.
    placed = inside & (moved >= 0) & (index >= 0)[..., None, None]
    return torch.where(placed, z[..., None, None] + moved, lattice.heights[:, None])
