"""Maps of drop heights, updated after a placement, compiled for the CPU with numba.

Since the last update heights have only risen, and only in a rectangle. So the earlier map is still
right, except for placements whose window overlaps the rectangle. These are raised by the taps that
lie on the rectangle. There are few such placements and taps, so the rows of the map are processed
one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from packing_env.kernels.compiled.jit import (
    INF,
    array,
    extent_of,
    jit,
    kernel,
    lowest_of,
    run,
)
from packing_env.kernels.compiled.lanes import LANES, raise_lanes
from packing_env.kernels.compiled.tables import copy
from packing_env.kernels.drop.numba import (
    Ground,
    drop_plane,
    drop_work,
    list_taps,
    new_phases,
    read_phases,
    surface_of,
)


@jit
def _reached(start, stop, side, count, stride):
    """Return the first and last of `count` lattice points whose window overlaps [start, stop)."""
    first = max(0, (start - side + stride) // stride)
    return first, min(count - 1, (stop - 1) // stride)


@jit
def _raise_map(z, bottom, size, rose, ground, work, stride):
    """Raise the map of an orientation of size (w, h) where windows overlap the risen rectangle."""
    w, h = size
    (x0, x1, y0, y1), top = rose
    length, width = ground.heightmap.shape
    # 1. The placements whose window overlaps the rectangle.
    i0, i1 = _reached(x0, x1, w, (length - w) // stride + 1, stride)
    j0, j1 = _reached(y0, y1, h, (width - h) // stride + 1, stride)
    if i0 > i1 or j0 > j1:
        return
    # 2. The window cells that can raise the lowest of these placements.
    low, ys, best = INF, z.shape[1], work.best[: 2 * LANES]
    for i in range(i0, i1 + 1):
        low = min(low, lowest_of(z[i, j0 : j1 + 1]))
    columns = (max(0, y0 - stride * j1), min(h, y1 - stride * j0))
    list_taps(bottom[:w], columns, (top, low), work)
    # 3. Raise them row by row, with the window rows that lie on the rectangle.
    for i in range(i0, i1 + 1):
        start = work.first[max(0, x0 - stride * i)]
        count = work.first[min(w, x1 - stride * i)] - start
        for j in range(j0, j1 + 1, best.size):
            beyond, at = min(best.size, j1 + 1 - j), i * ys + j
            for k in range(beyond):
                best[k] = z[i, j + k]
            raise_lanes(best, ground.heights, (at, at + LANES), work.taps, start, count)
            for k in range(beyond):
                z[i, j + k] = best[k]


@jit
def _changed(before, heightmap):
    """Return the rectangle [x0, x1) x [y0, y1) of risen cells, their maximum, and if any fell."""
    # Start from an empty rectangle.
    x0, x1, y0, y1 = heightmap.shape[0], 0, heightmap.shape[1], 0
    top, fell = -INF, False
    for x in range(heightmap.shape[0]):
        for y in range(heightmap.shape[1]):
            height = heightmap[x, y]
            if height > before[x, y]:
                x0, x1 = min(x0, x), x + 1
                y0, y1 = min(y0, y), max(y1, y + 1)
                top = max(top, height)
            fell |= height < before[x, y]
    return ((x0, x1, y0, y1), top), fell


@jit
def _source(before, chosen, r):
    """Return the plane, r or later, that held a surface before; -1 for a new surface."""
    # Planes before r are already overwritten. When an item is packed, the slots after it move up,
    # so surfaces only move to earlier planes.
    for plane in range(r, before.size):
        if before[plane] == chosen:
            return plane
    return -1


@kernel
def _update(known, heightmap, bottom, which, size, stride, start, stop):
    """Update ``known``, the arrays of a `DropHeights`, for the rows start <= b < stop."""
    old_heightmap, old_which, z = known
    _, length, width = heightmap.shape
    surfaces, window_x, window_y = bottom.shape
    phases = new_phases(length, width, stride)
    work = drop_work(length, width, window_x, window_y, stride)
    for b in range(start, stop):
        # 1. The ground, and where it rose.
        lowest, highest = read_phases(heightmap[b], stride, phases)
        work.blocks.known[0] = False
        ground = Ground(heightmap[b], phases.heights, lowest, highest)
        (rose, top), fell = _changed(old_heightmap[b], heightmap[b])
        for r in range(z.shape[1]):
            # 2. Find the earlier map of the surface; a new episode has none.
            chosen = surface_of(which, b, r, z.shape[1], surfaces)
            if chosen < 0:
                z[b, r] = INF
                continue
            source = -1 if fell else _source(old_which[b], chosen, r)
            if source < 0:
                measured = extent_of(bottom[chosen], size, chosen)
                drop_plane(z[b, r], bottom[chosen], measured, ground, work, stride)
                continue
            # 3. Move it to its plane, and raise it where the ground has risen.
            if source > r:
                copy(z[b, source], z[b, r])
            w, h = size[chosen, 0], size[chosen, 1]
            if top > -INF and 0 < w <= length and h <= width:
                risen = (rose, top)
                _raise_map(z[b, r], bottom[chosen], (w, h), risen, ground, work, stride)
        # 4. Record the heights and the surfaces of these maps.
        copy(heightmap[b], old_heightmap[b])
        copy(which[b], old_which[b])


def update_drop_height(
    known: Sequence[Tensor],
    heightmap: Tensor,
    bottom: Tensor,
    stride: int,
    which: Tensor,
    size: Tensor,
) -> None:
    """Carry out `packing_env.kernels.update_drop_height`."""
    memory = tuple(tensor.numpy() for tensor in known)
    arrays = (memory, array(heightmap), array(bottom), array(which), array(size), stride)
    work = known[2].numel() * math.prod(bottom.shape[1:]) // 8
    run(_update, arrays, len(heightmap), work)
