"""Blocks of a lower surface that can bind, compiled for the CPU: see `drop.numba`.

A window is cut into blocks of cells. Over the ground that a strip of placements has under a block,
no gap exceeds fl(highest ground - lowest cell of the block), and one reaches fl(lowest ground -
lowest cell): float32 subtraction is monotone. The second is a floor for the whole strip. Blocks
whose bound is not above the lowest z of the strip so far are left out, which changes no bit.
"""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import INF, jit, jit_arrays, jit_ordered
from packing_env.kernels.compiled.lanes import LANES, raise_lanes

ROWS = 4
"""Rows of placements that are raised together, LANES placements each: a strip."""

UNKNOWN, POOLED, ROUGH = range(3)
"""Knowledge of a ground: none yet, its pooled heights, or that most blocks bind on it."""

_MOST = 0.6
"""Share of the cells under the first row of strips from which on a ground is rough."""

_SIDE = 8
"""Cells along a block's side, at least; it is a whole number of lattice steps."""


@jit
def block_side(stride):
    """Return the cells along a block's side."""
    return (_SIDE + stride - 1) // stride * stride


@jit_ordered
def _raise_line(line, other, sign):
    """Set line[k] = max(line[k], sign * other[k]) for the entries of other, which is no longer."""
    for k in range(other.size):
        line[k] = max(line[k], sign * other[k])


@jit_ordered
def _lowest_in(cells):
    """Return the lowest cell."""
    lowest = INF
    for u in range(cells.shape[0]):
        for v in range(cells.shape[1]):
            lowest = min(lowest, cells[u, v])
    return lowest


@jit
def _pool(heightmap, sign, sizes, steps, line, pooled):
    """Set pooled[x, y] to the highest of sign times the ground from lattice point (x, y) on.

    sizes are (stride, rows, columns), the last two in lattice steps.
    """
    stride, rows, columns = sizes
    xs, ys = steps.shape
    one = np.float32(1)
    for x in range(xs):
        line[:] = -INF
        for u in range(x * stride, min(x * stride + stride, heightmap.shape[0])):
            _raise_line(line, heightmap[u], sign)
        for y in range(ys):
            steps[x, y] = line[y * stride]
            for v in range(y * stride + 1, min(y * stride + stride, line.size)):
                steps[x, y] = max(steps[x, y], line[v])
        widened = pooled[x]
        widened[:] = -INF
        for ahead in range(min(columns, ys)):
            _raise_line(widened, steps[x, ahead:], one)
    for x in range(xs):  # from the first row on: a row is read before it changes
        for ahead in range(x + 1, min(x + rows, xs)):
            _raise_line(pooled[x], pooled[ahead], one)


@jit
def _pool_ground(heightmap, stride, pools):
    """Fill the highest and, negated, the lowest ground under a strip's blocks, unless known."""
    pooled, steps, line, known = pools
    if known[0] == UNKNOWN:
        known[0], across = POOLED, block_side(stride) // stride - 1
        sizes = (stride, ROWS + across, LANES + across)
        for k in range(2):
            _pool(heightmap, np.float32(1 - 2 * k), sizes, steps, line, pooled[k])


@jit
def _list_blocks(bottom, stride, places, taps, blocks):
    """Fill taps (offset, level) block by block, and blocks; return the count of blocks.

    blocks are the first tap of each, its lowest cell, and its place (x, y) in lattice steps.
    """
    at_row, at_column = places
    offset, level = taps
    first, least, place = blocks
    w, h = bottom.shape
    side, n, count = block_side(stride), 0, 0
    for a in range(0, w, side):
        for c in range(0, h, side):
            cells = bottom[a : min(a + side, w), c : min(c + side, h)]
            lowest = _lowest_in(cells)
            if lowest == INF:
                continue
            first[count], least[count] = n, lowest
            place[count, 0], place[count, 1] = a // stride, c // stride
            count += 1
            for u in range(cells.shape[0]):
                for v in range(cells.shape[1]):
                    offset[n + v], level[n + v] = at_row[a + u] + at_column[c + v], cells[u, v]
                n += cells.shape[1]
    first[count] = n
    return count


@jit
def _bound(i, j, count, blocks, pooled, reach):
    """Set reach to the highest gap of each block under the strip at (i, j).

    Returns a floor of the strip, and the block that may reach highest.
    """
    _, least, place = blocks
    floor, highest = -INF, 0
    for k in range(count):
        x, y = i + place[k, 0], j + place[k, 1]
        reach[k] = pooled[0, x, y] - least[k]
        floor = max(floor, -pooled[1, x, y] - least[k])
        highest = k if reach[k] > reach[highest] else highest
    return floor, highest


@jit
def _raise_row(z, rows, heights, pooled, taps, count, blocks, work):
    """Fill strips of z [X', Y'], rows (first, last, columns), with the maxima of blocks that bind.

    Returns the count of pairs of a placement and a tap.
    """
    i, last, ny = rows
    reach, best = work
    first, ys, pairs = blocks[0], z.shape[1], 0
    second, third = min(i + 1, last), min(i + 2, last)
    for j in range(0, ny, LANES):
        low, highest = _bound(i, j, count, blocks, pooled, reach)
        beyond = min(LANES, ny - j)
        for k in range(best.size):
            best[k] = low if k % LANES < beyond else INF
        starts = (i * ys + j, second * ys + j, third * ys + j, last * ys + j)
        for turn in range(-1, count):
            k = highest if turn < 0 else turn
            if reach[k] > low:
                reach[k] = -INF
                cells = first[k + 1] - first[k]
                low = raise_lanes(best, heights, starts, taps, first[k], cells)
                pairs += cells * (last - i + 1) * beyond
        for k in range(beyond):
            z[i, j + k], z[second, j + k] = best[k], best[LANES + k]
            z[third, j + k], z[last, j + k] = best[2 * LANES + k], best[3 * LANES + k]
    return pairs


@jit
def raise_by_blocks(z, cells, ground, places, taps, stride, work):
    """Fill z [X', Y'] where the orientation with these cells fits, unless the ground is rough.

    ground, places and taps are those of `drop_plane`, work is from `block_work`. Returns the first
    row that was not filled, and the count of pairs of a placement and a tap.
    """
    heightmap, heights = ground[0], ground[1]
    blocks, reach, pools, best = work
    if pools[3][0] == ROUGH:
        return 0, 0
    w, h = cells.shape
    nx, ny = (heightmap.shape[0] - w) // stride + 1, (heightmap.shape[1] - h) // stride + 1
    first_look, pairs = pools[3][0] == UNKNOWN, 0
    _pool_ground(heightmap, stride, pools)
    count = _list_blocks(cells, stride, places, taps, blocks)
    for i in range(0, nx, ROWS):
        rows = (i, min(i + ROWS, nx) - 1, ny)
        pairs += _raise_row(z, rows, heights, pools[0], taps, count, blocks, (reach, best))
        if first_look and i == 0 and pairs > _MOST * w * h * (rows[1] + 1) * ny:
            pools[3][0] = ROUGH
            return ROWS, pairs
    return nx, pairs


@jit_arrays
def block_work(length, width, window, stride):
    """Allocate the memory of blocks: blocks, reach, pools and a strip."""
    xs, ys = (length + stride - 1) // stride, (width + stride - 1) // stride
    side = block_side(stride)
    count = ((window[0] + side - 1) // side) * ((window[1] + side - 1) // side)
    blocks = (
        np.empty(count + 1, np.int64),
        np.empty(count, np.float32),
        np.empty((count, 2), np.int64),
    )
    pools = (
        np.empty((2, xs, ys), np.float32),
        np.empty((xs, ys), np.float32),
        np.empty(width, np.float32),
        np.zeros(1, np.int64),
    )
    return blocks, np.empty(count, np.float32), pools, np.empty(ROWS * LANES, np.float32)
