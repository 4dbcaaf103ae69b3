"""Drop-height maps compiled for the CPU with numba.

A map over placements is one flat vector (row pitch Y', lattice phases of the heightmap split
apart), so that one footprint cell, a *tap*, is one shifted vector operation over all placements of
an orientation. Only finite cells become taps. Lanes beyond the last valid y of a row compute
garbage that is masked afterwards; no read leaves the heightmap, because the last lane of a pass is
a valid placement.

Three things are not computed, all exact because a float32 subtraction is monotone:

* No z is below its floor, fl(min heightmap - min bottom): the passes start from it.
* Taps come in order of their level. Once a block's lowest z reaches what the next tap makes of the
  highest ground under the block, no later tap can lift it.
* An item that is flat below needs the highest ground in its window: two one-dimensional running
  maxima by doubling, 2 log2(side) operations per cell.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from packing_env.kernels.compiled_cpu import (
    INF,
    array,
    extent,
    jit,
    jit_ordered,
    lowest_of,
    row_maxima,
    run,
    split_phases,
    tap_offsets,
)
from packing_env.kernels.eager import lattice_shape

_BLOCK = 512
"""Placements per pass: their running maxima and eight shifted reads stay in the L1 cache."""

_BUCKETS = 16
"""Classes that taps are sorted into by level."""

_SORTED = 300
"""Cells from which on sorting the taps pays."""

_GROUP = 32
"""Taps between two looks at a block's lowest z."""

_FLAT = 256
"""Cells from which on the highest ground in a window is found by doubling."""


@jit
def raise_by_taps(z, heights, offset, level):  # type: ignore[no-untyped-def]
    """Z = max(z, heights shifted by each of eight offsets - its level)."""
    n = z.size
    h0, h1 = heights[offset[0] :][:n], heights[offset[1] :][:n]
    h2, h3 = heights[offset[2] :][:n], heights[offset[3] :][:n]
    h4, h5 = heights[offset[4] :][:n], heights[offset[5] :][:n]
    h6, h7 = heights[offset[6] :][:n], heights[offset[7] :][:n]
    l0, l1, l2, l3 = level[0], level[1], level[2], level[3]
    l4, l5, l6, l7 = level[4], level[5], level[6], level[7]
    for i in range(n):
        best = z[i]
        gap = h0[i] - l0
        best = gap if gap > best else best
        gap = h1[i] - l1
        best = gap if gap > best else best
        gap = h2[i] - l2
        best = gap if gap > best else best
        gap = h3[i] - l3
        best = gap if gap > best else best
        gap = h4[i] - l4
        best = gap if gap > best else best
        gap = h5[i] - l5
        best = gap if gap > best else best
        gap = h6[i] - l6
        best = gap if gap > best else best
        gap = h7[i] - l7
        best = gap if gap > best else best
        z[i] = best


@jit
def _bucket(level, base, bounds):  # type: ignore[no-untyped-def]
    """Class of a tap by its level; the last is of those that lift no z from the highest ground.

    Any order of the others gives the same maxima; the lowest first is fastest.
    """
    highest, floor, scale = bounds
    among = min(max(int((level - base) * scale), 0), _BUCKETS - 1)
    return among if highest - level > floor else _BUCKETS


@jit
def _list_few(bottom, bounds, places, taps):  # type: ignore[no-untyped-def]
    """Fill taps (offset, level) as they come; returns how many count, padded to eights."""
    highest, floor, _ = bounds
    at_row, at_column = places
    offset, level = taps
    n = 0
    for u in range(bottom.shape[0]):
        for v in range(bottom.shape[1]):
            offset[n], level[n] = at_row[u] + at_column[v], bottom[u, v]
            n += 1 if highest - bottom[u, v] > floor else 0
    for t in range(n, (n + 7) // 8 * 8):
        offset[t], level[t] = offset[n - 1], level[n - 1]
    return (n + 7) // 8 * 8


@jit
def _list_taps(bottom, base, bounds, count, places, taps):  # type: ignore[no-untyped-def]
    """Fill taps (offset, level) class by class; returns how many count, padded to eights."""
    at_row, at_column = places
    offset, level = taps
    count[:] = 0
    for u in range(bottom.shape[0]):
        for v in range(bottom.shape[1]):
            count[_bucket(bottom[u, v], base, bounds)] += 1
    n = 0
    for bucket in range(_BUCKETS):
        n, count[bucket] = n + count[bucket], n
    count[_BUCKETS] = n
    for u in range(bottom.shape[0]):
        for v in range(bottom.shape[1]):
            bucket = _bucket(bottom[u, v], base, bounds)
            offset[count[bucket]] = at_row[u] + at_column[v]
            level[count[bucket]] = bottom[u, v]
            count[bucket] += 1
    while n % 8:
        offset[n], level[n] = offset[n - 1], level[n - 1]
        n += 1
    return n


@jit
def _least_left(level, n, least):  # type: ignore[no-untyped-def]
    """least[g] is the lowest level of the taps from the g-th group on."""
    lowest = INF
    for group in range((n - 1) // _GROUP, -1, -1):
        for t in range(group * _GROUP, min(n, group * _GROUP + _GROUP)):
            lowest = min(lowest, level[t])
        least[group] = lowest


@jit
def _raise_blocks(z, floor, heights, ground, taps, n, window):  # type: ignore[no-untyped-def]
    """Fill z block by block with the maxima of its taps; ground is each row's highest cell."""
    w, stride, ys = window
    offset, level, least = taps
    for block in range(0, z.size, _BLOCK):
        end = min(z.size, block + _BLOCK)
        part = z[block:end]
        part[:] = floor
        top, low = -INF, floor
        for x in range(block // ys * stride, (end - 1) // ys * stride + w):
            top = max(top, ground[x])
        for first in range(0, n, _GROUP):
            if top - least[first // _GROUP] <= low:
                break
            for t in range(first, min(n, first + _GROUP), 8):
                raise_by_taps(part, heights[block:], offset[t : t + 8], level[t : t + 8])
            low = lowest_of(part)


@jit
def _maximum(a, b, result):  # type: ignore[no-untyped-def]
    """Elementwise, of as many as the result has."""
    for i in range(result.size):
        result[i] = a[i] if a[i] > b[i] else b[i]


@jit
def _raise_to(target, other):  # type: ignore[no-untyped-def]
    """Target = max(target, other)."""
    for i in range(target.size):
        target[i] = target[i] if target[i] > other[i] else other[i]


@jit
def _widest(side):  # type: ignore[no-untyped-def]
    """The largest power of two up to side."""
    step = 1
    while 2 * step <= side:
        step *= 2
    return step


@jit
def _flat_map(heightmap, w, h, base, stride, z, rows, lines):  # type: ignore[no-untyped-def]
    """Z = highest ground under each window - base, by doubling along y, then along x.

    rows [X, Y'] takes the maxima along y at lattice columns, lines [2, Y] is scratch; both swap.
    """
    length, width = heightmap.shape
    nx, ny = (length - w) // stride + 1, (width - h) // stride + 1
    last = _widest(h)
    for x in range((nx - 1) * stride + w):
        line, other = lines[0], lines[1]
        line[:width] = heightmap[x]
        step = 1
        while step < last:
            _maximum(line, line[step:], other[: width - 2 * step + 1])
            line, other = other, line
            step *= 2
        _maximum(line, line[h - last :], other[: width - h + 1])
        for y in range(ny):
            rows[x, y] = other[y * stride]
    last, step = _widest(w), 1
    while step < last:
        for x in range((nx - 1) * stride + w - 2 * step + 1):
            _raise_to(rows[x, :ny], rows[x + step])
        step *= 2
    for x in range(nx):
        _maximum(rows[x * stride], rows[x * stride + w - last], z[x, :ny])
        for y in range(ny):
            z[x, y] -= base


@jit_ordered
def _is_flat(bottom, base):  # type: ignore[no-untyped-def]
    """Whether every cell is base."""
    highest = base
    for u in range(bottom.shape[0]):
        for v in range(bottom.shape[1]):
            highest = max(highest, bottom[u, v])
        if highest > base:
            return False
    return True


@jit
def drop_plane(z, bottom, ground, work, stride):  # type: ignore[no-untyped-def]
    """Fill z [X', Y'] with the rest heights of one orientation.

    ground is (heightmap [X, Y], its phases, flat, each row's highest cell, lowest, highest cell);
    work is what `drop_work` made. Returns how many lanes of the flat z hold placements.
    """
    heightmap, heights, ridge, lowest, highest = ground
    offset, level, least, count, at_row, at_column, rows, lines = work
    length, width = heightmap.shape
    xs, ys = z.shape
    w, h, base = extent(bottom)
    if w == 0 or w > length or h > width:
        z[:] = INF
        return 0
    nx, ny = (length - w) // stride + 1, (width - h) // stride + 1
    lanes = (nx - 1) * ys + ny
    cells = bottom[:w, :h]
    if w * h >= _FLAT and _is_flat(cells, base):
        _flat_map(heightmap, w, h, base, stride, z, rows, lines)
    else:
        flat, n, floor = z.reshape(xs * ys)[:lanes], 0, lowest - base
        if highest > lowest:
            bounds = (highest, floor, np.float32(_BUCKETS) / (highest - lowest))
            places, taps = (at_row, at_column), (offset, level)
            if w * h < _SORTED:
                n = _list_few(cells, bounds, places, taps)
            else:
                n = _list_taps(cells, base, bounds, count, places, taps)
            _least_left(level, n, least)
        window = (w, stride, ys)
        _raise_blocks(flat, floor, heights, ridge, (offset, level, least), n, window)
    for x in range(nx):
        z[x, ny:] = INF
    z[nx:] = INF
    return lanes


@jit
def drop_work(length, width, window_x, window_y, stride):  # type: ignore[no-untyped-def]
    """What `drop_plane` writes into."""
    xs, ys = (length + stride - 1) // stride, (width + stride - 1) // stride
    cells = window_x * window_y + 8
    at_row, at_column = np.empty(window_x, np.int64), np.empty(window_y, np.int64)
    tap_offsets(stride, xs, ys, at_row, at_column)
    return (
        np.empty(cells, np.int64),
        np.empty(cells, np.float32),
        np.empty(cells // _GROUP + 1, np.float32),
        np.empty(_BUCKETS + 1, np.int64),
        at_row,
        at_column,
        np.empty((length, ys), np.float32),
        np.empty((2, width), np.float32),
    )


@jit
def _drop_height(heightmap, bottom, which, z, stride, start, stop):  # type: ignore[no-untyped-def]
    """Fill z for the orientations start <= b * R + r < stop, whose surface is bottom[which[b, r]].

    A negative one has none.
    """
    _, length, width = heightmap.shape
    _, window_x, window_y = bottom.shape
    orientations = which.shape[1]
    phases = np.zeros((stride, stride, z.shape[2], z.shape[3]), np.float32)
    ridge = np.empty(length, np.float32)
    work = drop_work(length, width, window_x, window_y, stride)
    current, lowest, highest = -1, INF, -INF
    for index in range(start, stop):
        b, r = index // orientations, index % orientations
        if b != current:
            current = b
            split_phases(heightmap[b], stride, phases)
            lowest, highest = row_maxima(heightmap[b], ridge)
        ground = (heightmap[b], phases.reshape(phases.size), ridge, lowest, highest)
        if which[b, r] < 0:
            z[b, r] = INF
        else:
            drop_plane(z[b, r], bottom[which[b, r]], ground, work, stride)


def surfaces(bottom: Tensor, which: Tensor | None) -> tuple[np.ndarray, np.ndarray]:
    """Lower surfaces ``[K, ...]``, and which of them each place has; all, in order, for None."""
    if which is not None:
        return array(bottom), array(which)
    every = array(bottom.flatten(0, 1))
    return every, np.arange(len(every)).reshape(bottom.shape[:2])


def drop_height(
    heightmap: Tensor, bottom: Tensor, stride: int, which: Tensor | None = None
) -> Tensor:
    """See `packing_env.kernels.drop_height`."""
    planes, chosen = surfaces(bottom, which)
    z = heightmap.new_empty(lattice_shape(heightmap, bottom if which is None else which, stride))
    arrays = (array(heightmap), planes, chosen, z.numpy(), stride)
    run(_drop_height, arrays, chosen.size, z.numel() * planes[0].size)
    return z
