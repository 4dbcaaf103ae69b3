"""The operation of `packing_env.kernels.afterstates` in plain torch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

NUM_SCORES = 6
"""Scores whose best placements are candidates where not all placements are."""

FAR = 2**50
"""Key of placements that are no candidates."""


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
    if edges:
        touching = touches(lattice)
        key = torch.where(touching, lattice.z, lattice.z + 2**20)
        index = _first(torch.where(possible, key, FAR).flatten(1), num)
        total = (possible & touching).flatten(1).sum(1)
    else:
        index, total = _best(lattice, rest.double() * cells, round(units / cells), top, num)
    maps = build(lattice, index, top).to(torch.int16)
    return index, maps, (total - num).clamp(min=0)


def _first(key: Tensor, num: int) -> Tensor:
    """Return the indices of the ``num`` lowest keys below `FAR`, smaller indices first, or -1."""
    size = key.shape[1]
    order = torch.where(key < FAR, key * size + torch.arange(size, device=key.device), FAR * size)
    kept = min(num, size)
    found = order.topk(kept, dim=1, largest=False, sorted=True).values
    index = torch.where(found < FAR * size, found % size, -1)
    return functional.pad(index, (0, num - kept), value=-1)


def touches(lattice: Lattice) -> Tensor:
    """Return which placements of cuboids touch something in x and in y."""
    found = []
    for axis in (0, 1):
        heights = lattice.heights if axis == 0 else lattice.heights.transpose(1, 2)
        side, span = lattice.size[..., axis], lattice.size[..., 1 - axis]
        z = lattice.z if axis == 0 else lattice.z.transpose(3, 4)
        found.append(_touches_along_x(heights, z, side, span, lattice.stride))
    return found[0] & found[1].transpose(3, 4)


def _touches_along_x(heights: Tensor, z: Tensor, side: Tensor, span: Tensor, stride: int) -> Tensor:
    """Return which placements have a wall or another height at their low or high side in x."""
    batch, x_cells, y_cells = heights.shape
    spans = torch.arange(1, y_cells + 1, device=heights.device)
    lowest, highest = [], []
    low = high = functional.pad(heights.double(), (0, y_cells), value=0.0)
    for reach in range(y_cells):
        shifted = functional.pad(heights, (0, y_cells)).double().roll(-reach, 2)
        low, high = torch.minimum(low, shifted), torch.maximum(high, shifted)
        lowest.append(low[..., :y_cells])
        highest.append(high[..., :y_cells])
    low, high = torch.stack(lowest, 1).long(), torch.stack(highest, 1).long()  # [B, span, X, Y]
    at_span = (span.clamp(1, len(spans)) - 1).flatten(1)
    rows = torch.arange(batch, device=heights.device)[:, None]
    low, high = low[rows, at_span], high[rows, at_span]  # [B, L * R, X, Y]
    xs = torch.arange(z.shape[3], device=z.device) * stride
    ys = torch.arange(z.shape[4], device=z.device) * stride
    z = z.flatten(1, 2)
    sides = side.flatten(1)[..., None]
    before, after = (xs - 1).expand(batch, sides.shape[1], -1), xs + sides
    wall = (before < 0) | (after >= x_cells)

    def differs(column: Tensor) -> Tensor:
        where = column.clamp(0, x_cells - 1)[..., None].expand(-1, -1, -1, y_cells)
        level = z.transpose(2, 3)
        found = [part.gather(2, where)[..., ys].transpose(2, 3) for part in (low, high)]
        return ((found[0] != level) | (found[1] != level)).transpose(2, 3)

    touching = wall[..., None] | differs(before) | differs(after)
    return touching.unflatten(1, side.shape[1:])


def _best(
    lattice: Lattice, z_cells: Tensor, per_cell: int, top: Tensor, num: int
) -> tuple[Tensor, Tensor]:
    """Return the candidates by the six scores, and how many there are."""
    legal = lattice.legal
    planes, places = legal[0, :, :, 0, 0].numel(), legal[0, 0, 0].numel()
    keys = torch.stack([score.flatten(3) for score in scores(lattice, z_cells, per_cell, top)], 1)
    flat = legal.flatten(3)[:, None]
    order = torch.arange(places, device=keys.device)
    best = torch.where(flat, keys * places + order, FAR * places).amin(-1)
    place = torch.where(best < FAR * places, best % places, -1)  # [B, scores, L, R]
    new = place >= 0
    for later in range(1, NUM_SCORES):
        new[:, later] &= (place[:, :later] != place[:, later : later + 1]).all(1)
    plane = torch.arange(planes, device=keys.device).view(lattice.legal.shape[1:3])
    index = torch.where(new, plane * places + place, -1).flatten(1)
    key = torch.where(new.flatten(1), 0, FAR)
    chosen = _first(key, num)
    return torch.where(chosen >= 0, index.gather(1, chosen.clamp(min=0)), -1), new.flatten(1).sum(1)


def scores(lattice: Lattice, z_cells: Tensor, per_cell: int, top: Tensor) -> list[Tensor]:
    """Return the six scores as integers, ``[B, L, R, Xs, Ys]`` each."""
    x_cells, y_cells = lattice.heights.shape[1:]
    xs, ys = (
        torch.arange(count, device=z_cells.device) * lattice.stride for count in z_cells.shape[3:]
    )
    width, depth = lattice.size[..., 0, None, None], lattice.size[..., 1, None, None]
    x, y = xs[:, None], ys
    far_x, far_y = x_cells - width - x, y_cells - depth - y
    footprint = top[lattice.which] >= 0
    count = footprint.sum((3, 4))[..., None, None]
    gap = count * lattice.z - covered(lattice, footprint)
    corners = ((far_x, far_y), (x, far_y), (far_x, y))
    return [
        (8 * (100.0 * z_cells + (x + y))).round().long(),
        100 * gap + x + y,
        100 * (gap + count * lattice.z) + far_x + far_y,
        *(100 * lattice.z + per_cell * (a + b) for a, b in corners),
    ]


def covered(lattice: Lattice, footprint: Tensor) -> Tensor:
    """Return the sum of the heights under each footprint, ``[B, L, R, Xs, Ys]``."""
    batch, u, v = len(footprint), *footprint.shape[3:]
    weights = footprint.flatten(1, 2).flatten(0, 1)[:, None].double()
    padded = functional.pad(lattice.heights.double(), (0, v - 1, 0, u - 1))
    found = functional.conv2d(padded[None], weights, stride=lattice.stride, groups=batch)
    return found.round().long().view(lattice.z.shape)


def build(lattice: Lattice, index: Tensor, top: Tensor) -> Tensor:
    """Return the heightmaps after the placements ``[B, K]``, in units, ``[B, K, X, Y]``."""
    num_orientations, xs, ys = lattice.z.shape[2:]
    chosen = index.clamp(min=0)
    z = lattice.z.flatten(1).gather(1, chosen)
    y, rest = chosen % ys * lattice.stride, chosen // ys
    x, plane = rest % xs * lattice.stride, rest // xs
    item = lattice.which.gather(1, plane // num_orientations)
    surface = top[item, plane % num_orientations]  # [B, K, U, V]
    x_cells, y_cells = lattice.heights.shape[1:]
    u = torch.arange(x_cells, device=z.device) - x[..., None]
    v = torch.arange(y_cells, device=z.device) - y[..., None]
    inside = ((u >= 0) & (u < surface.shape[2]))[..., None]
    inside = inside & ((v >= 0) & (v < surface.shape[3]))[..., None, :]
    rows = u.clamp(0, surface.shape[2] - 1)[..., None].expand(-1, -1, -1, surface.shape[3])
    columns = v.clamp(0, surface.shape[3] - 1)[..., None, :].expand(-1, -1, x_cells, -1)
    moved = surface.gather(2, rows).gather(3, columns).long()
    placed = inside & (moved >= 0) & (index >= 0)[..., None, None]
    return torch.where(placed, z[..., None, None] + moved, lattice.heights[:, None])
