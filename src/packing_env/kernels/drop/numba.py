"""Maps of drop heights, compiled for the CPU with numba.

The heightmap is split by lattice phase, with the map's row pitch Y'. A footprint cell, called a
*tap*, is then the same shift for all placements of an orientation, so one vector operation covers
neighbouring placements. Placements are raised in strips of four rows. Lanes beyond the last y of a
row compute values that are not read; the heights are padded for them.

Three kinds of work are skipped. The results stay exact, because float32 subtraction is monotone:

* No z is below fl(min heightmap - min bottom). The strips start from this lower bound, and cells
  that cannot exceed it even on the highest ground are left out of the taps.
* In a large item, blocks that cannot bind under a strip are left out (:mod:`.blocks_numba`).
* For an item with a flat underside, the rest height is the highest ground in its window. It is
  found along y, then along x; each maximum combines four shorter ones, in about 3 log4(side)
  operations per cell and direction.
"""

from __future__ import annotations

import math
from collections import namedtuple

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
    run,
    tap_offsets,
)
from packing_env.kernels.compiled.lanes import LANES, raise_lanes
from packing_env.kernels.drop.blocks_numba import (
    ROWS,
    new_blocks,
    raise_by_blocks,
    strip_starts,
    write_strip,
)
from packing_env.kernels.layout import lattice_shape

_LARGE = 1000
"""Number of window cells above which it pays to search for the blocks that can bind."""

_FLAT = 256
"""Number of window cells above which the highest ground is found along y and then along x."""

Phases = namedtuple("Phases", "heights split ridge")
"""A heightmap split by lattice phase: a padded line, its view with four axes, and row maxima."""

Ground = namedtuple("Ground", "heightmap heights lowest highest")
"""A heightmap ``[X, Y]``, the `heights` of its `Phases`, and its lowest and highest cell."""

Work = namedtuple("Work", "taps places first lines best blocks")
"""Scratch memory of :func:`drop_plane`.

Attributes:
    taps: Offset and level of each tap.
    places: Offsets of the window's rows and columns, from `tap_offsets`.
    first: Index of the first tap of each window row; an additional entry is the end.
    lines: Three lines for :func:`_flat_map`.
    best: The rest heights of a strip.
    blocks: `blocks_numba.Blocks`.
"""


@jit
def list_taps(bottom, columns, bounds, work):
    """List the cells of some window columns that can raise z above its lower bound; row by row.

    ``bounds`` are the highest ground and the lower bound. Returns the number of taps.
    """
    highest, floor = bounds
    at_row, at_column = work.places
    offset, level = work.taps
    n = 0
    for u in range(bottom.shape[0]):
        work.first[u] = n
        for v in range(columns[0], columns[1]):
            # Write first, then count: this avoids a branch.
            offset[n], level[n] = at_row[u] + at_column[v], bottom[u, v]
            n += 1 if highest - bottom[u, v] > floor else 0
    work.first[bottom.shape[0]] = n
    return n


@jit
def _raise_strips(z, window, floor, heights, taps, n, best):
    """Fill z strip by strip with the maxima over taps; ``window`` holds (nx, ny)."""
    nx, ny = window
    for i in range(0, nx, ROWS):
        last = min(i + ROWS, nx) - 1
        for j in range(0, ny, LANES):
            best[:] = floor
            raise_lanes(best, heights, strip_starts(i, last, j, z.shape[1]), taps, 0, n)
            write_strip(z, i, last, j, min(LANES, ny - j), best)


@jit
def _highest(lines, n, size, step):
    """Compute max(line[k], line[k + step], ...) of ``size`` entries for every k where all exist.

    Four known maxima are combined to the maximum of a piece up to four times as long; they may
    overlap. ``lines`` are the input and two lines for results. The function returns the index of
    the line with the result.
    """
    known, at = 1, 0
    while known < size:
        # 1. The starts of the four pieces; later ones are moved back to end with the window.
        following = 2 if at == 1 else 1
        line, result = lines[at], lines[following]
        beyond = size - known
        first, second, third = min(known, beyond), min(2 * known, beyond), min(3 * known, beyond)
        # Unsigned, because signed indices would be checked for negative values in every iteration.
        a, b, c = np.uint64(first * step), np.uint64(second * step), np.uint64(third * step)
        # 2. The maximum of the four, for every entry that has all of them.
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
    """Set z to the highest ground under each window minus base."""
    length, width = heightmap.shape
    nx, ny = (length - w) // stride + 1, (width - h) // stride + 1
    one, other, third = lines
    # 1. Along y, with the contiguous heightmap as one line. Windows that reach into the next row
    # give values that step 2 drops.
    lines = (heightmap.reshape(-1), one, other)
    line = lines[_highest(lines, length * width, h, 1)]
    # 2. Select the columns of the lattice.
    rows = (nx - 1) * stride + w
    for x in range(rows):
        here, there = np.uint64(x * ny), np.uint64(x * width)
        for y in range(ny):
            third[here + np.uint64(y)] = line[there + np.uint64(y * stride)]
    # 3. Along x.
    lines = (third, one, other)
    line = lines[_highest(lines, rows * ny, w, ny)]
    for x in range(nx):
        here = np.uint64(x * stride * ny)
        for y in range(ny):
            z[x, y] = line[here + np.uint64(y)] - base


@jit_ordered
def is_flat(cells):
    """Return True if all cells of a surface are equal."""
    level = cells[0, 0]
    for u in range(cells.shape[0]):
        differ, row = np.int32(0), cells[u]
        for v in range(row.size):
            differ |= np.int32(row[v] != level)
        if differ:
            return False
    return True


@jit
def drop_plane(z, bottom, size, ground, work, stride):
    """Fill z [X', Y'] with the rest heights of one orientation.

    ``size`` comes from `extent_of` and ``work`` from :func:`drop_work`; ``ground`` is a `Ground`.
    The caller sets ``work.blocks.known[0]`` to False for each new heightmap.
    """
    length, width = ground.heightmap.shape
    w, h, base = size
    # 1. No item, or an item that is too large.
    if w == 0 or w > length or h > width:
        z[:] = INF
        return
    nx, ny = (length - w) // stride + 1, (width - h) // stride + 1
    cells = bottom[:w, :h]
    # 2. The placements inside the container, by the method that suits the item.
    if w * h >= _FLAT and is_flat(cells):
        _flat_map(ground.heightmap, w, h, base, stride, z, work.lines)
    elif w * h >= _LARGE and ground.highest > ground.lowest:
        raise_by_blocks(z, cells, ground, work, stride)
    else:
        floor = ground.lowest - base
        n = list_taps(cells, (0, h), (ground.highest, floor), work)
        _raise_strips(z, (nx, ny), floor, ground.heights, work.taps, n, work.best)
    # 3. The placements that leave the container.
    for x in range(nx):
        z[x, ny:] = INF
    z[nx:] = INF


@jit_arrays
def drop_work(length, width, window_x, window_y, stride):
    """Allocate a `Work`."""
    xs, ys = (length + stride - 1) // stride, (width + stride - 1) // stride
    cells = window_x * window_y
    line = length * width if cells >= _FLAT else 0  # small windows do not use flat maps
    return Work(
        taps=(np.empty(cells, np.int64), np.empty(cells, np.float32)),
        places=tap_offsets(window_x, window_y, stride, xs, ys),
        first=np.empty(window_x + 1, np.int64),
        lines=(np.empty(line, np.float32), np.empty(line, np.float32), np.empty(line, np.float32)),
        best=np.empty(ROWS * LANES, np.float32),
        blocks=new_blocks(length, width, (window_x, window_y), stride),
    )


@jit_arrays
def new_phases(length, width, stride):
    """Allocate `Phases`."""
    xs, ys = (length + stride - 1) // stride, (width + stride - 1) // stride
    cells = stride * stride * xs * ys
    heights = np.zeros(cells + 2 * LANES, np.float32)
    split = heights[:cells].reshape(stride, stride, xs, ys)
    return Phases(heights, split, np.empty(length, np.float32))


@jit_ordered
def read_phases(heightmap, stride, phases):
    """Fill `Phases` with a heightmap; return its minimum and maximum."""
    length, width = heightmap.shape
    # 1. Cells that are one lattice step apart become neighbours, so loops vectorise.
    for p in range(stride):
        for q in range(stride):
            for i in range((length - p + stride - 1) // stride):
                for j in range((width - q + stride - 1) // stride):
                    phases.split[p, q, i, j] = heightmap[stride * i + p, stride * j + q]
    # 2. The extremes of each row, and of all rows.
    lowest, highest = INF, -INF
    for x in range(length):
        low, high = INF, -INF
        for y in range(width):
            low = min(low, heightmap[x, y])
            high = max(high, heightmap[x, y])
        phases.ridge[x] = high
        lowest, highest = min(lowest, low), max(highest, high)
    return lowest, highest


@jit
def surface_of(which, b, r, orientations, count):
    """Return the index of the lower surface of orientation r of row b; negative for none."""
    chosen = which[b, r] if which.size else b * orientations + r
    if chosen >= count:
        raise IndexError("`which` has an index beyond the surfaces of `bottom`")
    return chosen


@kernel
def _drop_height(heightmap, bottom, which, size, z, stride, start, stop):
    """Fill z for the orientations start <= b * R + r < stop, whose surface is bottom[which[b, r]].

    A negative index means no surface. If which is empty, the surfaces are in order. `size` is as
    for `extent_of`.
    """
    _, length, width = heightmap.shape
    _, window_x, window_y = bottom.shape
    orientations = z.shape[1]
    phases = new_phases(length, width, stride)
    work = drop_work(length, width, window_x, window_y, stride)
    current, lowest, highest = -1, INF, -INF
    for index in range(start, stop):
        # 1. Prepare the ground once for all orientations of a row.
        b, r = index // orientations, index % orientations
        if b != current:
            current = b
            lowest, highest = read_phases(heightmap[b], stride, phases)
            work.blocks.known[0] = False
        ground = Ground(heightmap[b], phases.heights, lowest, highest)
        # 2. The map of the orientation.
        chosen = surface_of(which, b, r, orientations, bottom.shape[0])
        if chosen < 0:
            z[b, r] = INF
        else:
            measured = extent_of(bottom[chosen], size, chosen)
            drop_plane(z[b, r], bottom[chosen], measured, ground, work, stride)


def surfaces(bottom: Tensor, which: Tensor | None) -> tuple[np.ndarray, np.ndarray]:
    """Return lower surfaces ``[K, ...]`` and each orientation's index; empty if in order."""
    if which is not None:
        return array(bottom), array(which)
    return array(bottom.flatten(0, 1)), np.empty((0, 0), np.int64)


def sizes_of(size: Tensor | None) -> np.ndarray:
    """Return the sizes ``[K, 2]`` of lower surfaces; no rows if they are not known."""
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
