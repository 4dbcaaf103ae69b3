"""Lower bounds of rest heights from pooled heights, compiled; see `packing_env.kernels.search`."""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import INF, jit, jit_arrays
from packing_env.kernels.compiled.lanes import LANES, raise_lanes


@jit_arrays
def pool(heightmap, task, pooled):
    """Pool the heights of the square at each lattice point; return the smallest and the greatest.

    pooled holds the minima of all lattice points, then the maxima.
    """
    stride, side, xs, ys = task.stride, task.side, task.xs, task.ys
    length, width = heightmap.shape
    low, high = np.empty(width, np.float32), np.empty(width, np.float32)
    lowest, highest = INF, -INF
    for x in range(xs):
        # 1. Along x, for every column.
        for j in range(width):
            low[j] = high[j] = heightmap[stride * x, j]
        for i in range(stride * x + 1, min(stride * x + side, length)):
            for j in range(width):
                height = heightmap[i, j]
                low[j] = height if height < low[j] else low[j]
                high[j] = height if height > high[j] else high[j]
        # 2. Along y, for the square that begins at each lattice point.
        for y in range(ys):
            least, most = low[stride * y], high[stride * y]
            for j in range(stride * y + 1, min(stride * y + side, width)):
                least, most = min(least, low[j]), max(most, high[j])
            pooled[x * ys + y], pooled[(xs + x) * ys + y] = least, most
            lowest, highest = min(lowest, least), max(highest, most)
    return lowest, highest


@jit
def raise_bounds(bound, pooled, at, taps, listed, best):
    """Raise the bounds of consecutive placements, the first at lattice point ``at``, by squares."""
    first, count = listed
    # Four vectors at a time, or two at the end of the row.
    for lane in range(0, bound.size, 4 * LANES):
        part, here = bound[lane : lane + 4 * LANES], at + lane
        for k in range(part.size):
            best[k] = part[k]
        if part.size > 2 * LANES:
            starts = (here, here + LANES, here + 2 * LANES, here + 3 * LANES)
            raise_lanes(best, pooled, starts, taps, first, count)
        else:
            raise_lanes(best, pooled, (here, here + LANES), taps, first, count)
        for k in range(part.size):
            part[k] = best[k]
