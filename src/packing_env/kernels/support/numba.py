"""Supporting cells of all placements, compiled for the CPU with numba: their count and their hull.

The hull: a vectorised pass over all placements collects the directions, in 32 sectors, in which
corners of supporting cells lie from the centre of mass. Sectors come in opposite pairs and hold one
of their two ends. So 16 empty ones in a row leave an open half-plane without support: not stable.
With at most 14 in a row two neighbouring corners are less than 180 degrees apart: stable. Only
placements whose longest empty run is 15 are examined one by one.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from packing_env.kernels.compiled.jit import (
    INF,
    array,
    extent,
    jit,
    jit_arrays,
    kernel,
    lowest_of,
    row_maxima,
    run,
    split_phases,
    tap_offsets,
)
from packing_env.kernels.compiled.stability_rules import chords_hold
from packing_env.kernels.drop.numba import surfaces
from packing_env.kernels.layout import HALF_CELL, SUBCELL, VERTICAL

_COUNT_BLOCK = 1024
"""Placements per pass of the count: their counts stay in the L1 cache."""

_HULL_BLOCK = 512
"""Placements per pass of the hull: what the pass reads and writes stays in the L1 cache."""

_QUARTER = 8
"""Sectors in a quarter turn."""

_ALL = np.uint32(0xFFFFFFFF)


@jit
def finite_range(z, contact_tol, threshold, result):
    """Return the range of placements with finite z and the lowest threshold, z - contact_tol.

    Fills the thresholds, and the result with 0.
    """
    first, last, lowest = z.size, 0, INF
    for i in range(z.size):
        bar = z[i] - contact_tol
        threshold[i] = bar
        result[i] = 0
        if bar < INF:
            first, last = min(first, i), i + 1
            lowest = min(lowest, bar)
    return min(first, last), last, lowest


# ---------------------------------------------------------------------- count


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
def _support_count(heightmap, bottom, which, z, contact_tol, count, stride, start, stop):
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
        first, last, lowest = finite_range(z[b, r].reshape(xs * ys), contact_tol, threshold, flat)
        if chosen < 0 or first == last:
            continue
        w, h, _ = extent(bottom[chosen])
        if w == 0:
            continue
        bounds = (highest, lowest)
        n = _support_taps(bottom[chosen, :w, :h], bounds, places, offset, level)
        for block in range(first, last, _COUNT_BLOCK):
            end = min(last, block + _COUNT_BLOCK)
            counts, bars, ground = flat[block:end], threshold[block:end], heights[block:]
            for t in range(0, n, 8):
                _count_by_taps(counts, bars, ground, offset[t:], level[t:])


def support_count(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    contact_tol: float,
    stride: int,
    which: Tensor | None = None,
    size: Tensor | None = None,
) -> Tensor:
    """Carry out `packing_env.kernels.support_count`."""
    count = z.new_empty(z.shape, dtype=torch.int32)
    arrays = (array(heightmap), *surfaces(bottom, which), array(z))
    arguments = (*arrays, np.float32(contact_tol), count.numpy(), stride)
    run(_support_count, arguments, z.shape[0] * z.shape[1], _work(z, bottom))
    return count


def _work(z: Tensor, bottom: Tensor) -> int:
    """Return the pairs of a placement and a cell of its window, at most."""
    return z.numel() * math.prod(bottom.shape[-2:])


# ---------------------------------------------------------------------- hull


@jit
def _sector(dx, dy):
    """Return the bit of the sector of a direction.

    A quarter turn is cut by the share of one axis in both, which grows with the angle; the same
    division for opposite directions puts them in opposite sectors.
    """
    first, second, third = (dx > 0) & (dy >= 0), (dx <= 0) & (dy > 0), (dx < 0) & (dy <= 0)
    quarter = 0 if first else (1 if second else (2 if third else 3))
    across, along = abs(dx), abs(dy)
    along, across = (along, across) if first | third else (across, along)
    share = np.float32(along) / np.float32(across + along)
    step = min(int(share * np.float32(_QUARTER)), _QUARTER - 1)
    return np.uint32(1 << (_QUARTER * quarter + step))


@jit
def _corner_sectors(com, inset, sectors):
    """Set sectors[a, c] to the bit of corner (a, c) of the grid, `inset` 1/64 cells beyond it."""
    for a in range(sectors.shape[0]):
        dx = SUBCELL * a + inset - com[0]
        for c in range(sectors.shape[1]):
            dy = SUBCELL * c + inset - com[1]
            sectors[a, c] = _sector(dx, dy) if dx != 0 or dy != 0 else _ALL


@jit
def _list_taps(bottom, sectors, span, bounds, places, taps):
    """List the cells that can support with their sectors; return their count, padded to eights.

    A cell that misses the lowest threshold on the highest ground never supports; those of the
    padding have a level that no ground reaches.
    """
    top, lowest = bounds
    at_row, at_column = places
    offset, level, bits = taps
    n = 0
    for u in range(bottom.shape[0]):
        near, far = sectors[u], sectors[u + span]
        for v in range(bottom.shape[1]):
            offset[n], level[n] = at_row[u] + at_column[v], bottom[u, v]
            bits[n] = near[v] | near[v + span] | far[v] | far[v + span]
            n += 1 if top - bottom[u, v] >= lowest else 0
    for t in range(n, (n + 7) // 8 * 8):
        offset[t], level[t], bits[t] = offset[0], INF, 0
    return (n + 7) // 8 * 8


@jit
def _collect(found, threshold, heights, offset, level, bits):
    """Add the sectors of those of eight taps that support."""
    n = threshold.size
    h0, h1 = heights[offset[0] :][:n], heights[offset[1] :][:n]
    h2, h3 = heights[offset[2] :][:n], heights[offset[3] :][:n]
    h4, h5 = heights[offset[4] :][:n], heights[offset[5] :][:n]
    h6, h7 = heights[offset[6] :][:n], heights[offset[7] :][:n]
    l0, l1, l2, l3 = level[0], level[1], level[2], level[3]
    l4, l5, l6, l7 = level[4], level[5], level[6], level[7]
    b0, b1, b2, b3 = bits[0], bits[1], bits[2], bits[3]
    b4, b5, b6, b7 = bits[4], bits[5], bits[6], bits[7]
    none = np.uint32(0)
    for i in range(n):
        bar, held = threshold[i], found[i]
        held |= b0 if h0[i] - l0 >= bar else none
        held |= b1 if h1[i] - l1 >= bar else none
        held |= b2 if h2[i] - l2 >= bar else none
        held |= b3 if h3[i] - l3 >= bar else none
        held |= b4 if h4[i] - l4 >= bar else none
        held |= b5 if h5[i] - l5 >= bar else none
        held |= b6 if h6[i] - l6 >= bar else none
        held |= b7 if h7[i] - l7 >= bar else none
        found[i] = held


@jit
def _rotated(bits, steps):
    """Return the sectors, rotated."""
    return np.uint32((bits << steps) | (bits >> (4 * _QUARTER - steps)))


@jit
def _classify(found, verdict):
    """Set verdict to 0 where 16 sectors in a row are empty, 2 where no 15 are, else 1."""
    for i in range(found.size):
        two = np.uint32(found[i] | _rotated(found[i], 1))
        four = np.uint32(two | _rotated(two, 2))
        eight = np.uint32(four | _rotated(four, 4))
        fifteen = np.uint32(eight | _rotated(eight, 7))
        sixteen = np.uint32(eight | _rotated(eight, 8))
        sure = np.uint8(1) if fifteen == _ALL else np.uint8(0)
        maybe = np.uint8(1) if sixteen == _ALL else np.uint8(0)
        verdict[i] = sure + maybe


@jit
def _slope(rise, dx):
    """Return the rise per distance from the centre of mass; straight above or below, 2^20 rise."""
    return rise / (float(abs(dx)) if dx else VERTICAL)


@jit
def _is_held(ground, bottom, bar, com, inset, span):
    """Return True if the supporting cells of one placement hold its centre of mass.

    ground is the heightmap under the window, bar the placement's threshold. The largest slopes up
    and down from the centre on either side must span it (see `packing_env.kernels.com_hull`). Of a
    row only the first and the last supporting cell count. More support never makes it unstable, so
    rows are visited from the ends inwards until the answer is True.
    """
    up_left, up_right, down_left, down_right = -np.inf, -np.inf, -np.inf, -np.inf
    w, h = bottom.shape
    for visit in range(w):
        u = w - 1 - visit // 2 if visit % 2 else visit // 2
        first, last = 0, h - 1
        while first < h and not ground[u, first] - bottom[u, first] >= bar:
            first += 1
        if first == h:
            continue
        while not ground[u, last] - bottom[u, last] >= bar:
            last -= 1
        above = SUBCELL * (last + span) + inset - com[1]
        below = com[1] - SUBCELL * first - inset
        for line in range(u, u + span + 1):
            dx = SUBCELL * line + inset - com[0]
            up, down = _slope(above, dx), _slope(below, dx)
            if dx <= 0:
                up_left, down_left = max(up_left, up), max(down_left, down)
            if dx >= 0:
                up_right, down_right = max(up_right, up), max(down_right, down)
        if chords_hold(up_left + up_right, down_left + down_right):
            return True
    return False


@jit
def hull_plane(stable, z, bottom, com, ground, work, contact_tol, stride, centres):
    """Fill stable [X', Y'] for one orientation; ground as in `drop_plane`, work of `hull_work`."""
    inset, span = (HALF_CELL, 0) if centres else (0, 1)
    heightmap, heights, ridge, _, _ = ground
    offset, level, bits, places, sectors, threshold, found, verdict = work
    ys = z.shape[1]
    flat = stable.reshape(stable.size)
    first, last, _ = finite_range(z.reshape(z.size), contact_tol, threshold, flat)
    if first == last:
        return
    w, h, _ = extent(bottom)
    cells, corners = bottom[:w, :h], sectors[: w + span, : h + span]
    _corner_sectors(com, inset, corners)
    for block in range(first, last, _HULL_BLOCK):
        end = min(last, block + _HULL_BLOCK)
        bars, size, top = threshold[block:end], end - block, -INF
        for x in range(block // ys * stride, (end - 1) // ys * stride + w):
            top = max(top, ridge[x])
        bounds = (top, lowest_of(bars))
        n = _list_taps(cells, corners, span, bounds, places, (offset, level, bits))
        found[:] = 0
        for t in range(0, n, 8):
            _collect(found[:size], bars, heights[block:], offset[t:], level[t:], bits[t:])
        _classify(found[:size], verdict[:size])
        for i in range(size):
            flat[block + i] = verdict[i] == 2
            if verdict[i] == 1:
                x, y = (block + i) // ys * stride, (block + i) % ys * stride
                under = heightmap[x : x + w, y : y + h]
                flat[block + i] = _is_held(under, cells, bars[i], com, inset, span)


@jit_arrays
def hull_work(length, width, window_x, window_y, stride):
    """Allocate the memory that `hull_plane` writes into."""
    xs, ys = (length + stride - 1) // stride, (width + stride - 1) // stride
    cells = window_x * window_y + 8
    return (
        np.empty(cells, np.int64),
        np.empty(cells, np.float32),
        np.empty(cells, np.uint32),
        tap_offsets(window_x, window_y, stride, xs, ys),
        np.empty((window_x + 1, window_y + 1), np.uint32),
        np.empty(xs * ys, np.float32),
        np.empty(_HULL_BLOCK, np.uint32),
        np.empty(_HULL_BLOCK, np.uint8),
    )


@kernel
def _com_hull(heightmap, bottom, which, z, com, contact_tol, stable, stride, centres, start, stop):
    """Fill stable for the orientations start <= b * R + r < stop; which is as in `drop.numba`."""
    _, length, width = heightmap.shape
    _, window_x, window_y = bottom.shape
    orientations = z.shape[1]
    phases = np.zeros((stride, stride, z.shape[2], z.shape[3]), np.float32)
    ridge = np.empty(length, np.float32)
    work = hull_work(length, width, window_x, window_y, stride)
    current, lowest, highest = -1, INF, -INF
    for index in range(start, stop):
        b, r = index // orientations, index % orientations
        if b != current:
            current = b
            split_phases(heightmap[b], stride, phases)
            lowest, highest = row_maxima(heightmap[b], ridge)
        ground = (heightmap[b], phases.reshape(phases.size), ridge, lowest, highest)
        chosen = which[b, r] if which.size else index
        if chosen < 0:
            stable[b, r] = False
            continue
        hull_plane(
            stable[b, r], z[b, r], bottom[chosen], com[b, r], ground, work,
            contact_tol, stride, centres,
        )  # fmt: skip


def com_hull(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    com: Tensor,
    contact_tol: float,
    stride: int,
    centres: bool,
    which: Tensor | None = None,
    size: Tensor | None = None,
) -> Tensor:
    """Carry out `packing_env.kernels.com_hull`."""
    stable = z.new_empty(z.shape, dtype=torch.bool)
    arrays = (array(heightmap), *surfaces(bottom, which), array(z), array(com))
    arguments = (*arrays, np.float32(contact_tol), stable.numpy(), stride, centres)
    run(_com_hull, arguments, z.shape[0] * z.shape[1], _work(z, bottom))
    return stable
