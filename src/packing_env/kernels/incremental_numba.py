"""Drop-height maps brought up to date after a placement, compiled for the CPU with numba.

Heights have only risen, and only in a rectangle: a map stays as it was, but for the placements
whose window meets the rectangle, and those are raised by the taps that fall on it. Both are few, so
rows of the map are worked on one by one, sixteen placements at a time. Placements beyond the
affected ones are raised by what is true of them as well, which changes nothing.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from packing_env.kernels.compiled_cpu import (
    INF,
    array,
    extent,
    jit,
    lowest_of,
    row_maxima,
    run,
    split_phases,
    tap_offsets,
)
from packing_env.kernels.drop_numba import drop_plane, drop_work, surfaces

_LANES = 16
"""Placements at once."""


@jit
def _raise_row(z, heights, start, offset, level, n):  # type: ignore[no-untyped-def]
    """Raise sixteen of z to heights from start + each of n offsets on, less its level.

    Unsigned indices have no meaning from the end, which keeps the loop free of checks.
    """
    for t in range(0, n, 8):
        o0, o1 = np.uint64(start + offset[t]), np.uint64(start + offset[t + 1])
        o2, o3 = np.uint64(start + offset[t + 2]), np.uint64(start + offset[t + 3])
        o4, o5 = np.uint64(start + offset[t + 4]), np.uint64(start + offset[t + 5])
        o6, o7 = np.uint64(start + offset[t + 6]), np.uint64(start + offset[t + 7])
        l0, l1, l2, l3 = level[t], level[t + 1], level[t + 2], level[t + 3]
        l4, l5, l6, l7 = level[t + 4], level[t + 5], level[t + 6], level[t + 7]
        for i in range(np.uint64(_LANES)):
            best = z[i]
            gap = heights[o0 + i] - l0
            best = gap if gap > best else best
            gap = heights[o1 + i] - l1
            best = gap if gap > best else best
            gap = heights[o2 + i] - l2
            best = gap if gap > best else best
            gap = heights[o3 + i] - l3
            best = gap if gap > best else best
            gap = heights[o4 + i] - l4
            best = gap if gap > best else best
            gap = heights[o5 + i] - l5
            best = gap if gap > best else best
            gap = heights[o6 + i] - l6
            best = gap if gap > best else best
            gap = heights[o7 + i] - l7
            best = gap if gap > best else best
            z[i] = best


@jit
def _list_taps(bottom, columns, bounds, places, taps):  # type: ignore[no-untyped-def]
    """List the cells of some window columns that lift z from the highest ground, row by row.

    first[u] is the first of row u. Eights may end with taps of the rows that follow, or after all
    with cells that lift nothing.
    """
    top, low = bounds
    at_row, at_column = places
    offset, level, first = taps
    n = 0
    for u in range(bottom.shape[0]):
        first[u] = n
        for v in range(columns[0], columns[1]):
            offset[n], level[n] = at_row[u] + at_column[v], bottom[u, v]
            n += 1 if top - bottom[u, v] > low else 0
    first[bottom.shape[0]] = n
    for t in range(n, n + 7):
        offset[t], level[t] = offset[0], INF


@jit
def _reached(start, stop, side, count, stride):  # type: ignore[no-untyped-def]
    """The first and last of `count` lattice points whose window of `side` meets [start, stop)."""
    first = max(0, (start - side + stride) // stride)
    return first, min(count - 1, (stop - 1) // stride)


@jit
def _raise_map(flat, bottom, size, rectangle, heights, places, taps, top, stride, ys):  # type: ignore[no-untyped-def]
    """Raise the flat map where windows meet the rectangle, whose highest cell is top.

    size is (w, h, X, Y). Returns how many pairs of a placement and a cell there were.
    """
    w, h, length, width = size
    x0, x1, y0, y1 = rectangle
    nx, ny = (length - w) // stride + 1, (width - h) // stride + 1
    i0, i1 = _reached(x0, x1, w, nx, stride)
    j0, j1 = _reached(y0, y1, h, ny, stride)
    offset, level, first = taps
    if i0 > i1 or j0 > j1:
        return 0
    pairs, low = 0, INF
    for i in range(i0, i1 + 1):
        low = min(low, lowest_of(flat[i * ys + j0 : i * ys + j1 + 1]))
    columns = (max(0, y0 - stride * j1), min(h, y1 - stride * j0))
    _list_taps(bottom[:w], columns, (top, low), places, taps)
    for i in range(i0, i1 + 1):
        start = first[max(0, x0 - stride * i)]
        count = first[min(w, x1 - stride * i)] - start
        pairs += count * (j1 - j0 + 1)
        for lane in range(i * ys + j0, i * ys + j1 + 1, _LANES):
            _raise_row(flat[lane:], heights, lane, offset[start:], level[start:], count)
    return pairs


@jit
def _changed(before, heightmap):  # type: ignore[no-untyped-def]
    """The rectangle [x0, x1) x [y0, y1) of cells that rose, its highest, whether any fell."""
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
    return (x0, x1, y0, y1), top, fell


@jit
def _source(before, item):  # type: ignore[no-untyped-def]
    """Where the item was; -1 if nowhere, or if there is no item."""
    for slot in range(before.size):
        if before[slot] == item and item >= 0:
            return slot
    return -1


@jit
def _update_item(old, cells, z, rose, ground, padded, work, stride):  # type: ignore[no-untyped-def]
    """Fill the maps z [R, X', Y'] of one item from its old ones; returns the pairs looked at."""
    rectangle, top = rose
    drop, places, taps, flat = work
    length, width = ground[0].shape
    ys, lanes, pairs = z.shape[2], z.shape[1] * z.shape[2], 0
    for r in range(z.shape[0]):
        w, h, _ = extent(cells[r])
        fits = 0 < w <= length and h <= width
        if old.size == 0:
            drop_plane(z[r], cells[r], ground, drop, stride)
            if fits:
                pairs += w * h * ((length - w) // stride + 1) * ((width - h) // stride + 1)
            continue
        plane, then = z[r].reshape(lanes), old[r].reshape(lanes)
        if top == -INF or not fits:
            plane[:] = then
            continue
        flat[:lanes] = then
        size = (w, h, length, width)
        pairs += _raise_map(flat, cells[r], size, rectangle, padded, places, taps, top, stride, ys)
        plane[:] = flat[:lanes]
    return pairs


@jit
def _update(before, item_id, heightmap, bottom, which, z, stride, pairs, start, stop):  # type: ignore[no-untyped-def]
    """Fill z for the rows start <= b < stop; item l of row b has the surfaces bottom[which[b, l]].

    A negative one has none.
    """
    old_heightmap, old_item_id, old_z = before
    _, length, width = heightmap.shape
    window_x, window_y = bottom.shape[2:]
    xs, ys = z.shape[3:]
    cells = stride * stride * xs * ys
    padded = np.zeros(cells + _LANES, np.float32)
    ridge, flat = np.empty(length, np.float32), np.empty(xs * ys + _LANES, np.float32)
    drop = drop_work(length, width, window_x, window_y, stride)
    places = (np.empty(window_x, np.int64), np.empty(window_y, np.int64))
    tap_offsets(stride, xs, ys, places[0], places[1])
    taps = (drop[0], drop[1], np.empty(window_x + 1, np.int64))
    work, nothing = (drop, places, taps, flat), old_z[0, 0, :0]
    for b in range(start, stop):
        split_phases(heightmap[b], stride, padded[:cells].reshape(stride, stride, xs, ys))
        lowest, highest = row_maxima(heightmap[b], ridge)
        ground = (heightmap[b], padded[:cells], ridge, lowest, highest)
        rectangle, top, fell = _changed(old_heightmap[b], heightmap[b])
        for slot in range(item_id.shape[1]):
            item = which[b, slot]
            if item < 0:
                z[b, slot] = INF
                continue
            source = -1 if fell else _source(old_item_id[b], item_id[b, slot])
            old = nothing if source < 0 else old_z[b, source]
            rose = (rectangle, top)
            pairs[b] += _update_item(
                old, bottom[item], z[b, slot], rose, ground, padded, work, stride
            )


def update_drop_height(
    before: tuple[Tensor, Tensor, Tensor],
    heightmap: Tensor,
    item_id: Tensor,
    bottom: Tensor,
    stride: int,
    pairs: Tensor | None = None,
) -> Tensor:
    """See `packing_env.kernels.update_drop_height`; pairs [B] counts what was looked at."""
    planes, chosen = surfaces(bottom, None if bottom.dim() == 5 else item_id)
    z = heightmap.new_empty((*item_id.shape, planes.shape[1], *before[2].shape[3:]))
    counted = item_id.new_zeros(len(item_id)) if pairs is None else pairs
    arrays = (
        tuple(array(tensor) for tensor in before),
        array(item_id),
        array(heightmap),
        planes,
        chosen,
        z.numpy(),
        stride,
        counted.numpy(),
    )
    run(_update, arrays, len(item_id), z.numel() * planes[0, 0].size // 8)
    return z
