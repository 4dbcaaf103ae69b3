"""Supporting cells of many placements at once, compiled: shared parts of their hull and count."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from packing_env.kernels.compiled.jit import INF, jit, jit_arrays, lowest_of, tap_offsets

BLOCK = 512
"""Number of placements per pass; the data of a pass stays in the L1 cache."""

Cells = namedtuple("Cells", "places offset level value threshold")
"""Scratch memory: offsets of the window's rows and columns; offset, level and value of each cell
that can support; and the threshold of each placement.
"""


@jit_arrays
def new_cells(length, width, window_x, window_y, stride):
    """Allocate `Cells`."""
    xs, ys = (length + stride - 1) // stride, (width + stride - 1) // stride
    most = window_x * window_y + 8
    return Cells(
        places=tap_offsets(window_x, window_y, stride, xs, ys),
        offset=np.empty(most, np.int64),
        level=np.empty(most, np.float32),
        value=np.empty(most, np.uint32),
        threshold=np.empty(xs * ys, np.float32),
    )


@jit
def finite_range(z, tolerance, threshold, result):
    """Return the range of placements with finite z.

    Writes the thresholds, z - tolerance, and sets the result to 0.
    """
    first, last = z.size, 0
    for i in range(z.size):
        bar = z[i] - tolerance
        threshold[i] = bar
        result[i] = 0
        if bar < INF:
            first, last = min(first, i), i + 1
    return min(first, last), last


@jit
def _list_taps(bottom, values, bounds, cells):
    """List the cells that can support; return their padded number, and the OR of their values.

    A cell that is below the lowest threshold even on the highest ground never supports. The list is
    padded to a multiple of eight with cells whose level no ground reaches.
    """
    highest, lowest = bounds
    at_row, at_column = cells.places
    offset, level, value = cells.offset, cells.level, cells.value
    n, every = 0, np.uint32(0)
    for u in range(bottom.shape[0]):
        for v in range(bottom.shape[1]):
            if highest - bottom[u, v] >= lowest:
                offset[n], level[n] = at_row[u] + at_column[v], bottom[u, v]
                value[n] = values[u, v]
                every |= value[n]
                n += 1
    padded = (n + 7) // 8 * 8
    for t in range(n, padded):
        offset[t], level[t], value[t] = offset[0], INF, 0
    return padded, every


def gatherer(combine: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that combines the values of the cells that support each placement.

    Args:
        combine: compiled function of two uint32; combining with 0 must change nothing.
    """

    @jit
    def eight(combined, threshold, heights, offset, level, value):
        """Combine the values of the supporting cells among eight cells."""
        n = threshold.size
        h0, h1 = heights[offset[0] :][:n], heights[offset[1] :][:n]
        h2, h3 = heights[offset[2] :][:n], heights[offset[3] :][:n]
        h4, h5 = heights[offset[4] :][:n], heights[offset[5] :][:n]
        h6, h7 = heights[offset[6] :][:n], heights[offset[7] :][:n]
        l0, l1, l2, l3 = level[0], level[1], level[2], level[3]
        l4, l5, l6, l7 = level[4], level[5], level[6], level[7]
        b0, b1, b2, b3 = value[0], value[1], value[2], value[3]
        b4, b5, b6, b7 = value[4], value[5], value[6], value[7]
        none = np.uint32(0)
        for i in range(n):
            bar, held = threshold[i], combined[i]
            held = combine(held, b0 if h0[i] - l0 >= bar else none)
            held = combine(held, b1 if h1[i] - l1 >= bar else none)
            held = combine(held, b2 if h2[i] - l2 >= bar else none)
            held = combine(held, b3 if h3[i] - l3 >= bar else none)
            held = combine(held, b4 if h4[i] - l4 >= bar else none)
            held = combine(held, b5 if h5[i] - l5 >= bar else none)
            held = combine(held, b6 if h6[i] - l6 >= bar else none)
            held = combine(held, b7 if h7[i] - l7 >= bar else none)
            combined[i] = held

    @jit
    def gather(combined, block, lattice, bottom, values, needed, ground, cells):
        """Fill ``combined`` for a block of placements; skip a block whose values lack needed bits.

        ``lattice`` is the stride and the number of placements along y; ``block`` is the first and
        the last placement; ``ground`` is a `drop.numba.Phases`.
        """
        first, last = block
        stride, ys = lattice
        bars, top = cells.threshold[first:last], -INF
        # 1. List the cells that can support on the highest ground under the block.
        for x in range(first // ys * stride, (last - 1) // ys * stride + bottom.shape[0]):
            top = max(top, ground.ridge[x])
        n, every = _list_taps(bottom, values, (top, lowest_of(bars)), cells)
        if every & needed != needed:
            return
        # 2. Process eight of them at a time.
        for t in range(0, n, 8):
            taps = (cells.offset[t:], cells.level[t:], cells.value[t:])
            eight(combined, bars, ground.heights[first:], taps[0], taps[1], taps[2])

    return gather


def work_of(z: Tensor, bottom: Tensor) -> int:
    """Return an upper bound on the number of pairs of a placement and a cell of its window."""
    return z.numel() * math.prod(bottom.shape[-2:])
