"""The count of supporting cells of all placements, compiled for the CPU with numba."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from packing_env.kernels.compiled.jit import (
    INF,
    array,
    extent,
    jit,
    kernel,
    row_maxima,
    run,
    split_phases,
    tap_offsets,
)
from packing_env.kernels.drop.numba import surfaces
from packing_env.kernels.support.hull_numba import com_hull, finite_range, work_of

__all__ = ["com_hull", "support_count"]

_BLOCK = 1024
"""Placements per pass: their counts stay in the L1 cache."""


@jit
def _support_taps(bottom, bounds, places, offset, level):
    """List the cells that can support; return their count, padded to eights with cells that cannot.

    A cell that misses the lowest threshold on the highest ground never supports.
    """
    highest, threshold = bounds
    at_row, at_column = places
    n = 0
    for u in range(bottom.shape[0]):
        for v in range(bottom.shape[1]):
            offset[n], level[n] = at_row[u] + at_column[v], bottom[u, v]
            n += 1 if highest - bottom[u, v] >= threshold else 0
    while n % 8:
        offset[n], level[n] = offset[0], INF
        n += 1
    return n


@jit
def _count_by_taps(count, threshold, heights, offset, level):
    """Add the number of those of eight taps that support to the count."""
    n = threshold.size
    h0, h1 = heights[offset[0] :][:n], heights[offset[1] :][:n]
    h2, h3 = heights[offset[2] :][:n], heights[offset[3] :][:n]
    h4, h5 = heights[offset[4] :][:n], heights[offset[5] :][:n]
    h6, h7 = heights[offset[6] :][:n], heights[offset[7] :][:n]
    l0, l1, l2, l3 = level[0], level[1], level[2], level[3]
    l4, l5, l6, l7 = level[4], level[5], level[6], level[7]
    one, none = np.int32(1), np.int32(0)
    for i in range(n):
        bar, found = threshold[i], count[i]
        found += one if h0[i] - l0 >= bar else none
        found += one if h1[i] - l1 >= bar else none
        found += one if h2[i] - l2 >= bar else none
        found += one if h3[i] - l3 >= bar else none
        found += one if h4[i] - l4 >= bar else none
        found += one if h5[i] - l5 >= bar else none
        found += one if h6[i] - l6 >= bar else none
        found += one if h7[i] - l7 >= bar else none
        count[i] = found


@kernel
def _support_count(heightmap, bottom, which, z, tolerance, count, stride, start, stop):
    """Fill count for the orientations start <= b * R + r < stop; which is as in `drop.numba`."""
    length = heightmap.shape[1]
    _, window_x, window_y = bottom.shape
    orientations = z.shape[1]
    xs, ys = z.shape[2], z.shape[3]
    offset = np.empty(window_x * window_y + 8, np.int64)
    level = np.empty(window_x * window_y + 8, np.float32)
    threshold = np.empty(xs * ys, np.float32)
    phases = np.zeros((stride, stride, xs, ys), np.float32)
    heights, ridge = phases.reshape(phases.size), np.empty(length, np.float32)
    places = tap_offsets(window_x, window_y, stride, xs, ys)
    current, highest = -1, -INF
    for index in range(start, stop):
        b, r = index // orientations, index % orientations
        if b != current:
            current = b
            split_phases(heightmap[b], stride, phases)
            _, highest = row_maxima(heightmap[b], ridge)
        flat = count[b, r].reshape(xs * ys)
        chosen = which[b, r] if which.size else index
        if chosen >= bottom.shape[0]:
            raise IndexError("which names a lower surface beyond those in bottom")
        first, last, lowest = finite_range(z[b, r].reshape(xs * ys), tolerance, threshold, flat)
        if chosen < 0 or first == last:
            continue
        w, h, _ = extent(bottom[chosen])
        if w == 0:
            continue
        bounds = (highest, lowest)
        n = _support_taps(bottom[chosen, :w, :h], bounds, places, offset, level)
        for block in range(first, last, _BLOCK):
            end = min(last, block + _BLOCK)
            counts, bars, ground = flat[block:end], threshold[block:end], heights[block:]
            for t in range(0, n, 8):
                _count_by_taps(counts, bars, ground, offset[t:], level[t:])


def support_count(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    tolerance: float,
    stride: int,
    which: Tensor | None = None,
    size: Tensor | None = None,
) -> Tensor:
    """Carry out `packing_env.kernels.support_count`."""
    count = z.new_empty(z.shape, dtype=torch.int32)
    arrays = (array(heightmap), *surfaces(bottom, which), array(z))
    arguments = (*arrays, np.float32(tolerance), count.numpy(), stride)
    run(_support_count, arguments, z.shape[0] * z.shape[1], work_of(z, bottom))
    return count
