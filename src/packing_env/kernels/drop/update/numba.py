"""Maps of drop heights, updated after a placement, compiled for the CPU with numba.

Heights have only risen, and only in a rectangle. So a map stays the same, except for placements
whose window overlaps the rectangle. These are raised by the taps that lie on the rectangle. There
are few such placements and taps, so the rows of the map are processed one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
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
from packing_env.kernels.drop.numba import (
    Ground,
    drop_plane,
    drop_work,
    enter_ground,
    ground_buffers,
)


@jit
def _list_taps(bottom, columns, bounds, work, first):
    """List the cells of some window columns that can raise z on the highest ground, row by row.

    first[u] is the index of the first cell of row u.
    """
    top, low = bounds
    at_row, at_column = work.places
    offset, level = work.taps
    n = 0
    for u in range(bottom.shape[0]):
        first[u] = n
        for v in range(columns[0], columns[1]):
            # Write first, then count: this avoids a branch.
            offset[n], level[n] = at_row[u] + at_column[v], bottom[u, v]
            n += 1 if top - bottom[u, v] > low else 0
    first[bottom.shape[0]] = n


@jit
def _reached(start, stop, side, count, stride):
    """Return the first and last of `count` lattice points whose window overlaps [start, stop)."""
    first = max(0, (start - side + stride) // stride)
    return first, min(count - 1, (stop - 1) // stride)


@jit
def _raise_map(z, bottom, size, rose, ground, work, first, stride):
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
    _list_taps(bottom[:w], columns, (top, low), work, first)
    # 3. Raise them row by row, with the window rows that lie on the rectangle.
    for i in range(i0, i1 + 1):
        start = first[max(0, x0 - stride * i)]
        count = first[min(w, x1 - stride * i)] - start
        for j in range(j0, j1 + 1, best.size):
            beyond, at = min(best.size, j1 + 1 - j), i * ys + j
            for k in range(beyond):
                best[k] = z[i, j + k]
            raise_lanes(best, ground.heights, (at, at + LANES), work.taps, start, count)
            for k in range(beyond):
                z[i, j + k] = best[k]


@jit
def _changed(before, heightmap):
    """Return the rectangle [x0, x1) x [y0, y1) of risen cells, its maximum, and if any fell."""
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
def _source(before, item):
    """Return the slot that held the item before; -1 for a new item."""
    for slot in range(before.size):
        if before[slot] == item:
            return slot
    return -1


@jit
def _update_item(old, item, z, rose, ground, work, first, stride):
    """Fill the maps z [R, X', Y'] of one item, from its old maps if it has any.

    item is (lower surfaces ``[R, U, V]``, sizes of all surfaces, index of its first one).
    """
    bottom, sizes, surface = item
    length, width = ground.heightmap.shape
    for r in range(z.shape[0]):
        size = extent_of(bottom[r], sizes, surface + r)
        w, h, _ = size
        # 1. A new item, or another episode: compute in full.
        if old.size == 0:
            drop_plane(z[r], bottom[r], size, ground, work, stride)
            continue
        # 2. Copy the old map, and raise it where the ground has risen.
        for x in range(z.shape[1]):
            for y in range(z.shape[2]):
                z[r, x, y] = old[r, x, y]
        _, top = rose
        if top > -INF and 0 < w <= length and h <= width:
            _raise_map(z[r], bottom[r], (w, h), rose, ground, work, first, stride)


@kernel
def _update(before, item_id, heightmap, surfaces, z, stride, start, stop):
    """Fill z for the rows start <= b < stop; ``surfaces`` are bottom and size."""
    old_heightmap, old_item_id, old_z = before
    bottom, size = surfaces
    _, length, width = heightmap.shape
    window_x, window_y = bottom.shape[2:]
    buffers = ground_buffers(length, stride, z.shape[3], z.shape[4])
    work = drop_work(length, width, window_x, window_y, stride)
    first, nothing = np.empty(window_x + 1, np.int64), old_z[0, 0, :0]
    for b in range(start, stop):
        # 1. The ground, and where it rose.
        lowest, highest = enter_ground(heightmap[b], stride, buffers, work)
        ground = Ground(heightmap[b], buffers[0], lowest, highest)
        rose, fell = _changed(old_heightmap[b], heightmap[b])
        for slot in range(item_id.shape[1]):
            # 2. Find the item's earlier maps; in another episode there are none.
            item = item_id[b, slot]
            if item >= bottom.shape[0]:
                raise IndexError("item_id refers to an item that bottom does not have")
            if item < 0:
                z[b, slot] = INF
                continue
            source = -1 if fell else _source(old_item_id[b], item)
            old = nothing if source < 0 else old_z[b, source]
            # 3. Its maps.
            cells = (bottom[item], size, item * bottom.shape[1])
            _update_item(old, cells, z[b, slot], rose, ground, work, first, stride)


def update_drop_height(
    before: Sequence[Tensor],
    heightmap: Tensor,
    item_id: Tensor,
    bottom: Tensor,
    stride: int,
    size: Tensor,
    out: Tensor | None = None,
) -> Tensor:
    """Carry out `packing_env.kernels.update_drop_height`."""
    z = before[2].new_empty((*item_id.shape, *before[2].shape[2:])) if out is None else out
    state = (tuple(map(array, before)), array(item_id), array(heightmap))
    arguments = (*state, (array(bottom), array(size.view(-1, 2))), z.numpy(), stride)
    run(_update, arguments, len(item_id), z.numel() * math.prod(bottom.shape[2:]) // 8)
    return z
