"""Drop-height maps compiled for the CPU with numba.

The lattice phases of the heightmap are split apart, with the map's own row pitch Y', so that one
footprint cell, a *tap*, is the same shift for all placements of an orientation, and one vector
operation for neighbours. Placements are raised in strips of four rows. Only finite cells become
taps. Lanes beyond the last y of a row compute values that are not read; heights are padded for it.

Four things are not computed, all exact because a float32 subtraction is monotone:

* No z is below its floor, fl(min heightmap - min bottom): the strips start from it.
* Blocks of a large item that cannot bind under a strip are left out (:mod:`.blocks_numba`), unless
  the ground is so rough that most of them can; there the order of the taps does more:
* Taps come in order of their level. Once a strip's lowest z reaches what the next tap makes of the
  highest ground under the strip, no later tap can lift it.
* An item that is flat below needs the highest ground in its window: maxima along y, then along x,
  each of four shorter ones, about 3 log4(side) operations per cell and direction.
"""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from packing_env.kernels.compiled.jit import (
    INF,
    array,
    extent_of,
    jit,
    jit_arrays,
    jit_ordered,
    kernel,
    row_maxima,
    run,
    split_phases,
    tap_offsets,
)
from packing_env.kernels.compiled.lanes import LANES, raise_lanes
from packing_env.kernels.drop.blocks_numba import UNKNOWN, block_work, raise_by_blocks
from packing_env.kernels.layout import lattice_shape

_BUCKETS = 16
"""Classes that taps are sorted into by level."""

_SORTED = 300
"""Cells from which on sorting the taps pays."""

_GROUP = 128
"""Taps between two looks at a strip's lowest z."""

_ROWS = 4
"""Rows of placements that are raised together."""

_FLAT = 256
"""Cells from which on the highest ground in a window is found along y and then x."""


@jit
def _bucket(level, base, bounds):
    """Return the class of a tap by its level; taps of the last one lift no z.

    Any order of the others gives the same maxima; the lowest first is fastest.
    """
    highest, floor, scale = bounds
    among = min(max(int((level - base) * scale), 0), _BUCKETS - 1)
    return among if highest - level > floor else _BUCKETS


@jit
def _list_few(bottom, bounds, places, taps):
    """Fill taps (offset, level) in the order of cells; return how many can lift z."""
    highest, floor, _ = bounds
    at_row, at_column = places
    offset, level = taps
    n = 0
    for u in range(bottom.shape[0]):
        for v in range(bottom.shape[1]):
            offset[n], level[n] = at_row[u] + at_column[v], bottom[u, v]
            n += 1 if highest - bottom[u, v] > floor else 0
    return n


@jit
def _list_taps(bottom, base, bounds, count, places, taps):
    """Fill taps (offset, level) class by class; return how many can lift z."""
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
    return n


@jit
def _least_left(level, n, least):
    """Set least[g] to the lowest level of the taps from the g-th group on."""
    lowest = INF
    for group in range((n - 1) // _GROUP, -1, -1):
        for t in range(group * _GROUP, min(n, group * _GROUP + _GROUP)):
            lowest = min(lowest, level[t])
        least[group] = lowest


@jit
def _raise_strips(z, begin, floor, heights, ground, taps, n, window, best):
    """Fill z[begin:] strip by strip with the maxima of its taps; ground is each row's highest cell.

    Returns the count of pairs of a placement and a tap.
    """
    w, nx, ny, stride = window
    offset, level, least = taps
    among, ys, pairs = (offset, level), z.shape[1], 0
    for i in range(begin, nx, _ROWS):
        last, top = min(i + _ROWS, nx) - 1, -INF
        for x in range(i * stride, last * stride + w):
            top = max(top, ground[x])
        second, third = min(i + 1, last), min(i + 2, last)
        for j in range(0, ny, LANES):
            best[:] = floor
            low, starts = floor, (i * ys + j, second * ys + j, third * ys + j, last * ys + j)
            for first in range(0, n, _GROUP):
                if top - least[first // _GROUP] <= low:
                    break
                count = min(n - first, _GROUP)
                low = raise_lanes(best, heights, starts, among, first, count)
                pairs += count * (last - i + 1) * min(LANES, ny - j)
            for k in range(min(LANES, ny - j)):
                z[i, j + k], z[second, j + k] = best[k], best[LANES + k]
                z[third, j + k], z[last, j + k] = best[2 * LANES + k], best[3 * LANES + k]
    return pairs


@jit
def _highest(lines, n, size, step):
    """Compute max(line[k], line[k + step], ...), of ``size`` entries, for every k that has them.

    Four known pieces make the next piece, each time four times as long, the last ones overlapping.
    ``lines`` are the line and two for results; returns the index of the one with the result.
    Indices are unsigned: signed ones would be checked for being negative in every round.
    """
    known, at = 1, 0
    while known < size:
        following = 2 if at == 1 else 1
        line, result = lines[at], lines[following]
        beyond = size - known
        first, second, third = min(known, beyond), min(2 * known, beyond), min(3 * known, beyond)
        a, b, c = np.uint64(first * step), np.uint64(second * step), np.uint64(third * step)
        n -= third * step
        for place in range(n):
            k = np.uint64(place)
            p, q, r, s = line[k], line[k + a], line[k + b], line[k + c]
            one, other = p if p > q else q, r if r > s else s
            result[k] = one if one > other else other
        known, at = known + third, following
    return at


@jit
def _flat_map(heightmap, w, h, base, stride, z, lines):
    """Set z = highest ground under each window - base: maxima along y, then along x.

    The heightmap, contiguous, is one line. Windows that reach into its next row stand where none
    fits, and are dropped with the columns between those of the lattice.
    """
    length, width = heightmap.shape
    nx, ny = (length - w) // stride + 1, (width - h) // stride + 1
    one, other, third = lines
    lines = (heightmap.reshape(-1), one, other)
    line = lines[_highest(lines, length * width, h, 1)]
    rows = (nx - 1) * stride + w
    for x in range(rows):
        here, there = np.uint64(x * ny), np.uint64(x * width)
        for y in range(ny):
            third[here + np.uint64(y)] = line[there + np.uint64(y * stride)]
    lines = (third, one, other)
    line = lines[_highest(lines, rows * ny, w, ny)]
    for x in range(nx):
        here = np.uint64(x * stride * ny)
        for y in range(ny):
            z[x, y] = line[here + np.uint64(y)] - base


@jit_ordered
def _is_flat(bottom, base):
    """Return True if every cell is base."""
    highest = base
    for u in range(bottom.shape[0]):
        for v in range(bottom.shape[1]):
            highest = max(highest, bottom[u, v])
        if highest > base:
            return False
    return True


@jit
def drop_plane(z, bottom, size, ground, work, stride):
    """Fill z [X', Y'] with the rest heights of one orientation of a size as from `extent`.

    Returns the count of pairs of a placement and a cell that were computed; for a flat item an
    upper bound of the maxima taken.

    ground is (heightmap [X, Y], its phases as from `ground_buffers`, each row's highest cell,
    lowest, highest cell); work is from `drop_work`; after
    a change of the ground, `new_ground` comes first.
    """
    heightmap, heights, ridge, lowest, highest = ground
    offset, level, least, count, at_row, at_column, lines, best, blocks = work
    length, width = heightmap.shape
    w, h, base = size
    if w == 0 or w > length or h > width:
        z[:] = INF
        return 0
    nx, ny = (length - w) // stride + 1, (width - h) // stride + 1
    cells = bottom[:w, :h]
    if w * h >= _FLAT and _is_flat(cells, base):
        _flat_map(heightmap, w, h, base, stride, z, lines)
        pairs = nx * ny * (w + h)
    else:
        n, floor, begin, pairs = 0, lowest - base, 0, 0
        places, listed = (at_row, at_column), (offset, level)
        if highest > lowest and w * h >= _SORTED:
            begin, pairs = raise_by_blocks(z, cells, ground, places, listed, stride, blocks)
        if highest > lowest and begin < nx:
            bounds = (highest, floor, np.float32(_BUCKETS) / (highest - lowest))
            if w * h < _SORTED:
                n = _list_few(cells, bounds, places, listed)
            else:
                n = _list_taps(cells, base, bounds, count, places, listed)
            _least_left(level, n, least)
        window, taps = (w, nx, ny, stride), (offset, level, least)
        pairs += _raise_strips(z, begin, floor, heights, ridge, taps, n, window, best)
    for x in range(nx):
        z[x, ny:] = INF
    z[nx:] = INF
    return pairs


@jit_arrays
def drop_work(length, width, window_x, window_y, stride):
    """Allocate the memory that `drop_plane` writes into."""
    xs, ys = (length + stride - 1) // stride, (width + stride - 1) // stride
    cells = window_x * window_y
    at_row, at_column = tap_offsets(window_x, window_y, stride, xs, ys)
    line = length * width if cells >= _FLAT else 0
    return (
        np.empty(cells, np.int64),
        np.empty(cells, np.float32),
        np.empty(cells // _GROUP + 1, np.float32),
        np.empty(_BUCKETS + 1, np.int64),
        at_row,
        at_column,
        (np.empty(line, np.float32), np.empty(line, np.float32), np.empty(line, np.float32)),
        np.empty(_ROWS * LANES, np.float32),
        block_work(length, width, (window_x, window_y), stride),
    )


@jit
def new_ground(work):
    """Forget what is known of the ground: the next plane stands on another."""
    work[8][2][3][0] = UNKNOWN


@jit_arrays
def ground_buffers(stride, xs, ys):
    """Allocate the heights of a container by phase; return them flat, padded, and in four axes."""
    cells = stride * stride * xs * ys
    flat = np.zeros(cells + 2 * LANES, np.float32)
    return flat, flat[:cells].reshape(stride, stride, xs, ys)


@kernel
def _drop_height(heightmap, bottom, which, size, z, stride, start, stop):
    """Fill z for the orientations start <= b * R + r < stop, whose surface is bottom[which[b, r]].

    A negative one has none; without which they are in order. `size` is as for `extent_of`.
    """
    _, length, width = heightmap.shape
    _, window_x, window_y = bottom.shape
    orientations = z.shape[1]
    heights, phases = ground_buffers(stride, z.shape[2], z.shape[3])
    ridge = np.empty(length, np.float32)
    work = drop_work(length, width, window_x, window_y, stride)
    current, lowest, highest = -1, INF, -INF
    for index in range(start, stop):
        b, r = index // orientations, index % orientations
        if b != current:
            current = b
            split_phases(heightmap[b], stride, phases)
            lowest, highest = row_maxima(heightmap[b], ridge)
            new_ground(work)
        ground = (heightmap[b], heights, ridge, lowest, highest)
        chosen = which[b, r] if which.size else index
        if chosen >= bottom.shape[0]:
            raise IndexError("which names a lower surface beyond those in bottom")
        if chosen < 0:
            z[b, r] = INF
        else:
            measured = extent_of(bottom[chosen], size, chosen)
            drop_plane(z[b, r], bottom[chosen], measured, ground, work, stride)


def surfaces(bottom: Tensor, which: Tensor | None) -> tuple[np.ndarray, np.ndarray]:
    """Return lower surfaces ``[K, ...]``, and which each orientation has; empty if in order."""
    if which is not None:
        return array(bottom), array(which)
    return array(bottom.flatten(0, 1)), np.empty((0, 0), np.int64)


def sizes_of(size: Tensor | None) -> np.ndarray:
    """Return the sizes ``[K, 2]`` of lower surfaces, no rows where they are not known."""
    return np.empty((0, 2), np.int64) if size is None else array(size.view(-1, 2))


def drop_height(
    heightmap: Tensor,
    bottom: Tensor,
    stride: int,
    which: Tensor | None = None,
    size: Tensor | None = None,
) -> Tensor:
    """Carry out `packing_env.kernels.drop_height`."""
    planes, chosen = surfaces(bottom, which)
    like = which if which is not None else bottom
    z = heightmap.new_empty(lattice_shape(heightmap, like, stride))
    arrays = (array(heightmap), planes, chosen, sizes_of(size), z.numpy(), stride)
    run(_drop_height, arrays, z.shape[0] * z.shape[1], z.numel() * math.prod(planes.shape[1:]))
    return z
