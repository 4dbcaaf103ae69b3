"""Blocks of a lower surface that can bind, compiled for the CPU: see `drop.numba`.

A window is cut into blocks of cells. Consider a block of cells, a strip of placements, and the
ground under the block. No gap there exceeds fl(highest ground - lowest cell of the block), and some
gap reaches fl(lowest ground - lowest cell), because float32 subtraction is monotone. So the second
value is a lower bound for the whole strip. Blocks whose first value is not above the lowest z of
the strip so far are skipped, which changes no bit.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from packing_env.kernels.compiled.jit import INF, jit, jit_arrays, jit_ordered, lowest_in
from packing_env.kernels.compiled.lanes import LANES, raise_lanes

ROWS = 4
"""Number of rows in a strip: rows of LANES placements each, which are raised together."""

_SIDE = 8
"""Minimum of cells along a block's side; the side is a whole number of lattice steps."""

Blocks = namedtuple("Blocks", "first least place reach pooled steps line known")
"""The blocks of a window, and the ground under the strips.

Attributes:
    first: Per block, its first tap; an additional entry is the end of the last block.
    least: Per block, its lowest cell.
    place: Per block, its position ``(x, y)`` in lattice steps.
    reach: Per block, the largest gap that is possible under the current strip.
    pooled: ``[2, X', Y']`` for the block at each lattice point: the highest and, negated, the
        lowest ground under a strip.
    steps: Scratch ``[X', Y']``.
    line: Scratch ``[Y]``.
    known: ``[1]`` whether ``pooled`` is filled.
"""


@jit_arrays
def new_blocks(length, width, window, stride):
    """Allocate `Blocks`."""
    xs, ys = (length + stride - 1) // stride, (width + stride - 1) // stride
    side = _block_side(stride)
    count = ((window[0] + side - 1) // side) * ((window[1] + side - 1) // side)
    return Blocks(
        first=np.empty(count + 1, np.int64),
        least=np.empty(count, np.float32),
        place=np.empty((count, 2), np.int64),
        reach=np.empty(count, np.float32),
        pooled=np.empty((2, xs, ys), np.float32),
        steps=np.empty((xs, ys), np.float32),
        line=np.empty(width, np.float32),
        known=np.zeros(1, np.bool_),
    )


@jit
def _block_side(stride):
    return (_SIDE + stride - 1) // stride * stride


@jit
def strip_starts(i, last, j, ys):
    """Return the lattice points of a strip's rows i to last; missing rows repeat the last one."""
    return i * ys + j, min(i + 1, last) * ys + j, min(i + 2, last) * ys + j, last * ys + j


@jit
def write_strip(z, i, last, j, count, best):
    """Write the first ``count`` rest heights of each row of a strip."""
    second, third = min(i + 1, last), min(i + 2, last)
    for k in range(count):
        z[i, j + k], z[second, j + k] = best[k], best[LANES + k]
        z[third, j + k], z[last, j + k] = best[2 * LANES + k], best[3 * LANES + k]


@jit_ordered
def _raise_line(line, other, sign):
    """Set line[k] = max(line[k], sign * other[k]); other is not longer than line."""
    for k in range(other.size):
        line[k] = max(line[k], sign * other[k])


@jit
def pool(heightmap, sign, sizes, steps, line, pooled):
    """Set pooled[x, y] to the maximum of sign times the ground in a block at (x, y).

    sizes are (stride, rows, columns), the last two in lattice steps.
    """
    stride, rows, columns = sizes
    xs, ys = steps.shape
    one = np.float32(1)
    for x in range(xs):
        # 1. The highest cell of each lattice step.
        line[:] = -INF
        for u in range(x * stride, min(x * stride + stride, heightmap.shape[0])):
            _raise_line(line, heightmap[u], sign)
        for y in range(ys):
            steps[x, y] = line[y * stride]
            for v in range(y * stride + 1, min(y * stride + stride, line.size)):
                steps[x, y] = max(steps[x, y], line[v])
        # 2. Along y.
        widened = pooled[x]
        widened[:] = -INF
        for ahead in range(min(columns, ys)):
            _raise_line(widened, steps[x, ahead:], one)
    # 3. Along x, beginning with the first row: a row is read before it is changed.
    for x in range(xs):
        for ahead in range(x + 1, min(x + rows, xs)):
            _raise_line(pooled[x], pooled[ahead], one)


@jit
def _list_blocks(bottom, stride, work):
    """List the window's cells as taps, block by block, and list the blocks; return their number."""
    at_row, at_column = work.places
    offset, level = work.taps
    blocks = work.blocks
    w, h = bottom.shape
    side, n, count = _block_side(stride), 0, 0
    for a in range(0, w, side):
        for c in range(0, h, side):
            cells = bottom[a : min(a + side, w), c : min(c + side, h)]
            lowest = lowest_in(cells)
            if lowest == INF:
                continue
            blocks.first[count], blocks.least[count] = n, lowest
            blocks.place[count, 0], blocks.place[count, 1] = a // stride, c // stride
            count += 1
            for u in range(cells.shape[0]):
                for v in range(cells.shape[1]):
                    offset[n + v], level[n + v] = at_row[a + u] + at_column[c + v], cells[u, v]
                n += cells.shape[1]
    blocks.first[count] = n
    return count


@jit
def _bound(i, j, count, blocks):
    """Set ``reach`` of each block under the strip at (i, j).

    Returns a lower bound for the strip, and the block with the highest reach.
    """
    reach, least, pooled = blocks.reach, blocks.least, blocks.pooled
    floor, highest = -INF, 0
    for k in range(count):
        x, y = i + blocks.place[k, 0], j + blocks.place[k, 1]
        reach[k] = pooled[0, x, y] - least[k]
        floor = max(floor, -pooled[1, x, y] - least[k])
        highest = k if reach[k] > reach[highest] else highest
    return floor, highest


@jit
def _raise_row(z, i, last, ny, heights, count, work):
    """Fill the strips of the rows i to last of z [X', Y'] with the maxima over blocks that bind."""
    blocks, best = work.blocks, work.best
    reach, first = blocks.reach, blocks.first
    for j in range(0, ny, LANES):
        # 1. Start from the lower bound; lanes without a placement must not lower the minimum of z.
        low, highest = _bound(i, j, count, blocks)
        beyond = min(LANES, ny - j)
        for k in range(best.size):
            best[k] = low if k % LANES < beyond else INF
        # 2. The block with the highest reach comes first, because it excludes most of the others.
        starts = strip_starts(i, last, j, z.shape[1])
        for turn in range(-1, count):
            k = highest if turn < 0 else turn
            if reach[k] > low:
                reach[k] = -INF
                cells = first[k + 1] - first[k]
                low = raise_lanes(best, heights, starts, work.taps, first[k], cells)
        # 3. Write.
        write_strip(z, i, last, j, beyond, best)


@jit
def raise_by_blocks(z, cells, ground, work, stride):
    """Fill z [X', Y'] where the orientation with these cells fits.

    ground and work are as for `drop_plane`.
    """
    heightmap, blocks = ground.heightmap, work.blocks
    w, h = cells.shape
    nx, ny = (heightmap.shape[0] - w) // stride + 1, (heightmap.shape[1] - h) // stride + 1
    # 1. Pool the ground under the blocks of a strip, once for all orientations.
    if not blocks.known[0]:
        blocks.known[0] = True
        across = _block_side(stride) // stride - 1
        sizes = (stride, ROWS + across, LANES + across)
        for k in range(2):
            sign = np.float32(1 - 2 * k)
            pool(heightmap, sign, sizes, blocks.steps, blocks.line, blocks.pooled[k])
    # 2. Raise the placements, strip by strip.
    count = _list_blocks(cells, stride, work)
    for i in range(0, nx, ROWS):
        _raise_row(z, i, min(i + ROWS, nx) - 1, ny, ground.heights, count, work)
