"""Hulls of the supporting cells of all placements, compiled for the CPU with numba.

A hull holds a rectangle iff no direction leads farther in the rectangle than in the hull. A
vectorised pass over all placements collects two bits for each of 16 directions: whether a corner of
a supporting cell lies as far along it as the rectangle does, and whether one corner does so along
this direction and the next. A direction without the first: not stable. All directions with the
second: stable, as that corner lies as far in all directions between the two, too. Only the
placements between are examined one by one. A point is a rectangle without sides.
"""

from __future__ import annotations

import math
from typing import Any

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

_BLOCK = 512
"""Placements per pass: what the pass reads and writes stays in the L1 cache."""

_QUARTER = [(1, 0), (12, 5), (1, 1), (5, 12)]
_HALF_TURN = [*_QUARTER, *((-along, across) for across, along in _QUARTER)]
_DIRECTIONS = [*_HALF_TURN, *((-across, -along) for across, along in _HALF_TURN)]
_COUNT = len(_DIRECTIONS)
_ACROSS, _ALONG = np.array(_DIRECTIONS, np.int32).T.copy()
"""Directions in their order around a point, integers, so that distances along them are exact."""

_BIT = np.uint32(1) << np.arange(_COUNT, dtype=np.uint32)

_FAR = np.uint32(0x0000FFFF)
"""The bits of the directions along which a corner lies far enough."""

_FARTHER = np.uint32(0xFFFF0000)
"""The bits of those of which one corner lies far enough along the next as well."""


@jit
def finite_range(z, tolerance, threshold, result):
    """Return the range of placements with finite z and the lowest threshold, z - tolerance.

    Fills the thresholds, and the result with 0.
    """
    first, last, lowest = z.size, 0, INF
    for i in range(z.size):
        bar = z[i] - tolerance
        threshold[i] = bar
        result[i] = 0
        if bar < INF:
            first, last = min(first, i), i + 1
            lowest = min(lowest, bar)
    return min(first, last), last, lowest


@jit
def _corner_bits(com, margin, inset, least, bits):
    """Set bits[a, c] to those of corner (a, c) of the grid, `inset` 1/64 cells beyond it.

    least has an entry for each direction, for what is far enough along it.
    """
    for a in range(bits.shape[0]):
        dx = SUBCELL * a + inset - com[0]
        for k in range(_COUNT):
            across, along = _ACROSS[k], _ALONG[k]
            away = abs(across) * margin[0] + abs(along) * margin[1]
            least[k] = away - across * dx - along * (inset - com[1])
        for c in range(bits.shape[1]):
            far, y = np.uint32(0), np.int32(SUBCELL * c)
            for k in range(_COUNT):
                far |= _BIT[k] if _ALONG[k] * y >= least[k] else np.uint32(0)
            both = far & np.uint32(far >> 1 | far << (_COUNT - 1))
            bits[a, c] = far | np.uint32(both << _COUNT)


@jit
def _list_taps(bottom, corners, span, bounds, places, taps):
    """List the cells that can support with their bits; return their count, padded to eights.

    A cell that misses the lowest threshold on the highest ground never supports; those of the
    padding have a level that no ground reaches.
    """
    top, lowest = bounds
    at_row, at_column = places
    offset, level, bits = taps
    n, every = 0, np.uint32(0)
    for u in range(bottom.shape[0]):
        near, far = corners[u], corners[u + span]
        for v in range(bottom.shape[1]):
            offset[n], level[n] = at_row[u] + at_column[v], bottom[u, v]
            bits[n] = near[v] | near[v + span] | far[v] | far[v + span]
            if top - bottom[u, v] >= lowest:
                every |= bits[n]
                n += 1
    if every & _FAR != _FAR:
        return 0
    for t in range(n, (n + 7) // 8 * 8):
        offset[t], level[t], bits[t] = offset[0], INF, 0
    return (n + 7) // 8 * 8


@jit
def _collect(found, threshold, heights, offset, level, bits):
    """Add the bits of those of eight taps that support."""
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
def _slope(rise, dx):
    """Return the rise per distance from the point; straight above or below, 2^20 rise."""
    return rise / (float(abs(dx)) if dx else VERTICAL)


@jit
def _is_held(ground, bottom, bar, point, inset, span):
    """Return True if the supporting cells of one placement hold a point.

    ground is the heightmap under the window, bar the placement's threshold. The largest slopes up
    and down from the point on either side must span it (see `packing_env.kernels.com_hull`). Of a
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
        above = SUBCELL * (last + span) + inset - point[1]
        below = point[1] - SUBCELL * first - inset
        for line in range(u, u + span + 1):
            dx = SUBCELL * line + inset - point[0]
            up, down = _slope(above, dx), _slope(below, dx)
            if dx <= 0:
                up_left, down_left = max(up_left, up), max(down_left, down)
            if dx >= 0:
                up_right, down_right = max(up_right, up), max(down_right, down)
        if chords_hold(up_left + up_right, down_left + down_right):
            return True
    return False


@jit
def _holds_corners(ground, bottom, bar, com, margin, inset, span):
    """Return True if the supporting cells of one placement hold the corners of a rectangle."""
    for i in range(-1, 2, 2):
        for j in range(-1, 2, 2):
            point = (com[0] + i * margin[0], com[1] + j * margin[1])
            if not _is_held(ground, bottom, bar, point, inset, span):
                return False
            if margin[0] == 0 and margin[1] == 0:
                return True
    return True


@jit
def hull_plane(stable, z, bottom, com, margin, ground, work, tolerance, stride, centres):
    """Fill stable [X', Y'] for one orientation; return whether any placement is.

    ground is the heightmap, its phases and the maxima of its rows; work is of `hull_work`.
    """
    inset, span = (HALF_CELL, 0) if centres else (0, 1)
    heightmap, heights, ridge = ground
    offset, level, bits, places, corners, least, threshold, found = work
    ys = z.shape[1]
    flat = stable.reshape(stable.size)
    first, last, _ = finite_range(z.reshape(z.size), tolerance, threshold, flat)
    if first == last:
        return False
    any_held = False
    w, h, _ = extent(bottom)
    cells, corners = bottom[:w, :h], corners[: w + span, : h + span]
    _corner_bits(com, margin, inset, least, corners)
    for block in range(first, last, _BLOCK):
        end = min(last, block + _BLOCK)
        bars, size, top = threshold[block:end], end - block, -INF
        for x in range(block // ys * stride, (end - 1) // ys * stride + w):
            top = max(top, ridge[x])
        bounds = (top, lowest_of(bars))
        n = _list_taps(cells, corners, span, bounds, places, (offset, level, bits))
        found[:] = 0
        for t in range(0, n, 8):
            _collect(found[:size], bars, heights[block:], offset[t:], level[t:], bits[t:])
        for i in range(size if n else 0):
            held = found[i] & _FARTHER == _FARTHER
            if not held and found[i] & _FAR == _FAR:
                x, y = (block + i) // ys * stride, (block + i) % ys * stride
                under = heightmap[x : x + w, y : y + h]
                held = _holds_corners(under, cells, bars[i], com, margin, inset, span)
            flat[block + i] = held
            any_held |= held
    return any_held


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
        np.empty(_COUNT, np.int32),
        np.empty(xs * ys, np.float32),
        np.empty(_BLOCK, np.uint32),
    )


@kernel
def _tiered_hull(
    heightmap, bottom, which, z, com, margin, tolerance, stable, stride, centres, items,
    start, stop,
):  # fmt: skip
    """Fill stable for the items start <= b * items + l < stop; which is as in `drop.numba`."""
    _, length, width = heightmap.shape
    _, window_x, window_y = bottom.shape
    orientations, turned = z.shape[1], z.shape[1] // items
    phases = np.zeros((stride, stride, z.shape[2], z.shape[3]), np.float32)
    ridge = np.empty(length, np.float32)
    work = hull_work(length, width, window_x, window_y, stride)
    current = -1
    for item in range(start, stop):
        b, first = item // items, item % items * turned
        if b != current:
            current = b
            split_phases(heightmap[b], stride, phases)
            row_maxima(heightmap[b], ridge)
        ground = (heightmap[b], phases.reshape(phases.size), ridge)
        for tier in range(margin.shape[2]):
            any_held = False
            for r in range(first, first + turned):
                chosen = which[b, r] if which.size else b * orientations + r
                if chosen >= bottom.shape[0]:
                    raise IndexError("which names a lower surface beyond those in bottom")
                if chosen < 0:
                    stable[b, r] = False
                    continue
                any_held |= hull_plane(
                    stable[b, r], z[b, r], bottom[chosen], com[b, r], margin[b, r, tier], ground,
                    work, tolerance, stride, centres,
                )  # fmt: skip
            if any_held:
                break


def work_of(z: Tensor, bottom: Tensor) -> int:
    """Return the pairs of a placement and a cell of its window, at most."""
    return z.numel() * math.prod(bottom.shape[-2:])


def _judge(
    arrays: tuple[Any, ...],
    z: Tensor,
    tolerance: float,
    stride: int,
    centres: bool,
    items: int,
    work: int,
) -> Tensor:
    """Return which placements are stable; each item's by the first of its margins that has any."""
    stable = z.new_empty(z.shape, dtype=torch.bool)
    arguments = (*arrays, np.float32(tolerance), stable.numpy(), stride, centres, items)
    run(_tiered_hull, arguments, z.shape[0] * items, work)
    return stable


def com_hull(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    com: Tensor,
    tolerance: float,
    stride: int,
    centres: bool,
    which: Tensor | None = None,
    size: Tensor | None = None,
    margin: Tensor | None = None,
) -> Tensor:
    """Carry out `packing_env.kernels.com_hull`."""
    margin = (torch.zeros_like(com) if margin is None else margin)[:, :, None]
    arrays = (array(heightmap), *surfaces(bottom, which), array(z), array(com), array(margin))
    return _judge(arrays, z, tolerance, stride, centres, z.shape[1], work_of(z, bottom))


def tiered_hull(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    com: Tensor,
    margin: Tensor,
    tolerance: float,
    stride: int,
    items: int,
) -> Tensor:
    """Carry out `packing_env.kernels.tiered_hull`."""
    arrays = (array(heightmap), *surfaces(bottom, None), array(z), array(com), array(margin))
    return _judge(arrays, z, tolerance, stride, False, items, work_of(z, bottom))
