"""The hot operations compiled for the CPU with numba; imported only when they are first used.

Both kernels see a map over placements as one flat vector (row pitch Y', lattice phases of the
heightmap split apart), so that one footprint cell, a *tap*, is one shifted vector operation over
all placements of an orientation. Only finite cells become taps. Lanes beyond the last valid y of
a row compute garbage that is masked afterwards; no read leaves the heightmap, because the last
lane of a pass is a valid placement.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from packing_env.kernels.eager import HALF_CELL, SUBCELL, VERTICAL, lattice_shape

_BLOCK = 1024
"""Placements per pass: the running maxima of a pass stay in the L1 cache."""

_EXACT = 2048
"""Below this, float32 keeps distinct fractions of two such integers distinct and in order."""

_MIN_PARALLEL_WORK = 4_000_000
"""Taps times placements below which threads cost more than they save."""

_INF = np.float32(np.inf)


def _jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile without the GIL, cached on disk where a cache directory is writable."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no writable cache directory
        return numba.njit(**options)(function)


@_jit
def _split_phases(heightmap, stride, phases):  # type: ignore[no-untyped-def]
    """phases[p, q, i, j] = heightmap[stride * i + p, stride * j + q]."""
    length, width = heightmap.shape
    for p in range(stride):
        for q in range(stride):
            for i in range((length - p + stride - 1) // stride):
                for j in range((width - q + stride - 1) // stride):
                    phases[p, q, i, j] = heightmap[stride * i + p, stride * j + q]


@_jit
def _extent(bottom):  # type: ignore[no-untyped-def]
    """Window cells (w, h) up to the last finite one, and the minimum; (0, 0, inf) if none."""
    w, h, lowest = 0, 0, _INF
    for u in range(bottom.shape[0]):
        row = _INF
        for v in range(bottom.shape[1]):
            row = min(row, bottom[u, v])
        if row < _INF:
            w = u + 1
            lowest = min(lowest, row)
            for v in range(h, bottom.shape[1]):
                if bottom[u, v] < _INF:
                    h = v + 1
    return w, h, lowest


@_jit
def _raise_by_taps(z, heights, offset, level):  # type: ignore[no-untyped-def]
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


@_jit
def _drop_taps(bottom, window, highest, floor, offset, level, row):  # type: ignore[no-untyped-def]
    """List the finite cells that can lift z above its floor; returns how many, padded to eights."""
    w, h, stride, xs, ys = window
    n = 0
    for u in range(w):
        i, p = u // stride, u % stride
        for v in range(h):
            if highest - bottom[u, v] > floor:
                offset[n] = ((p * stride + v % stride) * xs + i) * ys + v // stride
                level[n] = bottom[u, v]
                row[n] = u
                n += 1
    while n % 8:
        offset[n], level[n], row[n] = offset[n - 1], level[n - 1], row[n - 1]
        n += 1
    return n


@_jit
def _drop_height(heightmap, bottom, z, stride, start, stop):  # type: ignore[no-untyped-def]
    """Fill z for the orientations start <= b * R + r < stop.

    Every z is at least its floor, fl(min heightmap - min bottom), because a float32 subtraction is
    monotone: taps and container rows that cannot exceed the floor are skipped.
    """
    _, length, width = heightmap.shape
    _, orientations, window_x, window_y = bottom.shape
    xs, ys = z.shape[2], z.shape[3]
    offset = np.empty(window_x * window_y + 8, np.int64)
    row = np.empty(window_x * window_y + 8, np.int64)
    level = np.empty(window_x * window_y + 8, np.float32)
    phases = np.zeros((stride, stride, xs, ys), np.float32)
    heights = phases.reshape(phases.size)
    current, lowest, highest, rows_from, rows_to = -1, _INF, -_INF, 0, 0
    for index in range(start, stop):
        b, r = index // orientations, index % orientations
        if b != current:
            current = b
            lowest, highest, rows_from, rows_to = _height_range(heightmap[b])
            if stride == 1:
                heights = heightmap[b].reshape(length * width)
            else:
                _split_phases(heightmap[b], stride, phases)
        flat = z[b, r].reshape(xs * ys)
        w, h, base = _extent(bottom[b, r])
        if w == 0 or w > length or h > width:
            flat[:] = _INF
            continue
        nx, ny = (length - w) // stride + 1, (width - h) // stride + 1
        lanes = (nx - 1) * ys + ny
        floor = lowest - base
        flat[:lanes] = floor
        window = (w, h, stride, xs, ys)
        n = _drop_taps(bottom[b, r], window, highest, floor, offset, level, row)
        for block in range(0, lanes, _BLOCK):
            for t in range(0, n, 8):
                first = max(0, rows_from - row[t + 7] + stride - 1) // stride * ys
                last = ((rows_to - 1 - row[t]) // stride + 1) * ys
                first, last = max(first, block), min(last, lanes, block + _BLOCK)
                if first < last:
                    _raise_by_taps(
                        flat[first:last], heights[first:], offset[t : t + 8], level[t : t + 8]
                    )
        for x in range(nx):
            z[b, r, x, ny:] = _INF
        z[b, r, nx:] = _INF


@_jit
def _height_range(heightmap):  # type: ignore[no-untyped-def]
    """Minimum, maximum, and the range of rows that rise above the minimum."""
    lowest, highest = _INF, -_INF
    for x in range(heightmap.shape[0]):
        for y in range(heightmap.shape[1]):
            height = heightmap[x, y]
            lowest = height if height < lowest else lowest
            highest = height if height > highest else highest
    rows_from, rows_to = heightmap.shape[0], 0
    for x in range(heightmap.shape[0]):
        top = -_INF
        for y in range(heightmap.shape[1]):
            height = heightmap[x, y]
            top = height if height > top else top
        if top > lowest:
            rows_from, rows_to = min(rows_from, x), x + 1
    return lowest, highest, rows_from, rows_to


@_jit
def _corner_slopes(com_x, com_y, inset, slope):  # type: ignore[no-untyped-def]
    """slope[a, c] = dy/|dx| from the centre of mass to corner (a, c), 2^20 dy where dx = 0.

    Corners lie on the lines of the grid, or `inset` 1/64 cells beyond them.
    """
    for a in range(slope.shape[0]):
        dx = abs(SUBCELL * a + inset - com_x)
        distance = float(dx) if dx else VERTICAL
        for c in range(slope.shape[1]):
            slope[a, c] = (SUBCELL * c + inset - com_y) / distance


@_jit
def _side_taps(bottom, window, bounds, points, slope, side, taps, reach):  # type: ignore[no-untyped-def]
    """List the cells with a corner left (side 0) or right (1) of the centre that can support.

    points is (com_x, inset, span): the corners of cell (u, v) are u or u + span, v or v + span.
    reach[side] is a cell's largest slope on that side, and its smallest negated. A cell that
    misses the lowest threshold on the highest ground never supports. Padded to whole fours.
    """
    w, h, stride, xs, ys = window
    highest, threshold = bounds
    com_x, inset, span = points
    count, offset, level = taps
    sign = 2 * side - 1
    n = 0
    for u in range(w):
        near = sign * (SUBCELL * u + inset - com_x) >= 0
        far = sign * (SUBCELL * (u + span) + inset - com_x) >= 0
        if not (near or far):
            continue
        i, p = u // stride, u % stride
        a, c = u if near else u + span, u + span if far else u
        for v in range(h):
            if highest - bottom[u, v] >= threshold:
                offset[side, n] = ((p * stride + v % stride) * xs + i) * ys + v // stride
                level[side, n] = bottom[u, v]
                reach[side, 0, n] = max(slope[a, v + span], slope[c, v + span])
                reach[side, 1, n] = -min(slope[a, v], slope[c, v])
                n += 1
    while n % 4:
        offset[side, n], level[side, n] = offset[side, n - 1], level[side, n - 1]
        reach[side, 0, n], reach[side, 1, n] = reach[side, 0, n - 1], reach[side, 1, n - 1]
        n += 1
    count[side] = n


@_jit
def _reach_by_taps(up, down, threshold, heights, offset, level, key):  # type: ignore[no-untyped-def]
    """Raise the keys up and down to those of the four taps, where a tap supports."""
    n = threshold.size
    nothing = key.dtype.type(0)
    h0, h1 = heights[offset[0] :][:n], heights[offset[1] :][:n]
    h2, h3 = heights[offset[2] :][:n], heights[offset[3] :][:n]
    l0, l1, l2, l3 = level[0], level[1], level[2], level[3]
    u0, u1, u2, u3 = key[0, 0], key[0, 1], key[0, 2], key[0, 3]
    d0, d1, d2, d3 = key[1, 0], key[1, 1], key[1, 2], key[1, 3]
    for i in range(n):
        bar, high, low = threshold[i], up[i], down[i]
        supports = h0[i] - l0 >= bar
        high = max(high, u0 if supports else nothing)
        low = max(low, d0 if supports else nothing)
        supports = h1[i] - l1 >= bar
        high = max(high, u1 if supports else nothing)
        low = max(low, d1 if supports else nothing)
        supports = h2[i] - l2 >= bar
        high = max(high, u2 if supports else nothing)
        low = max(low, d2 if supports else nothing)
        supports = h3[i] - l3 >= bar
        high = max(high, u3 if supports else nothing)
        low = max(low, d3 if supports else nothing)
        up[i], down[i] = high, low


@_jit
def _narrow(wide, narrow):  # type: ignore[no-untyped-def]
    """Copy float64 into float32."""
    for i in range(wide.size):
        narrow[i] = wide[i]


@_jit
def _encode(bits, sign):  # type: ignore[no-untyped-def]
    """Turn the bits of floats into unsigned keys in the same order, all above 0."""
    for i in range(bits.size):
        bits[i] = ~bits[i] if bits[i] & sign else bits[i] | sign


@_jit
def _decode(keys, sign):  # type: ignore[no-untyped-def]
    """Undo `_encode`; the key 0, of no float, becomes a NaN."""
    for i in range(keys.size):
        keys[i] = keys[i] ^ sign if keys[i] & sign else ~keys[i]


@_jit
def _sides_meet(stable, threshold, heights, taps, reach, sides, sign):  # type: ignore[no-untyped-def]
    """Fill stable from the taps (count, offset, level) of both sides and their reach.

    The running maxima are kept as integer keys: a masked integer maximum is cheaper, and 0 can
    stand for no support.
    """
    count, offset, level = taps
    keys, side_keys = reach.view(sign.dtype), sides.view(sign.dtype)
    for side in range(2):
        for way in range(2):
            _encode(keys[side, way, : count[side]], sign[0])
    for block in range(0, stable.size, _BLOCK):
        end = min(stable.size, block + _BLOCK)
        n = end - block
        for side in range(2):
            for i in range(n):
                side_keys[side, 0, i] = side_keys[side, 1, i] = 0
            for t in range(0, count[side], 4):
                _reach_by_taps(
                    side_keys[side, 0, :n],
                    side_keys[side, 1, :n],
                    threshold[block:end],
                    heights[block:],
                    offset[side, t : t + 4],
                    level[side, t : t + 4],
                    keys[side, :, t : t + 4],
                )
            _decode(side_keys[side, 0, :n], sign[0])
            _decode(side_keys[side, 1, :n], sign[0])
        for i in range(n):
            above = sides[0, 0, i] + sides[1, 0, i] >= 0
            below = sides[0, 1, i] + sides[1, 1, i] >= 0
            stable[block + i] = above and below


@_jit
def _com_hull(heightmap, bottom, z, com, contact_tol, stable, stride, centres, start, stop):  # type: ignore[no-untyped-def]
    """Fill stable for the orientations start <= b * R + r < stop."""
    inset, span = (HALF_CELL, 0) if centres else (0, 1)
    _, length, width = heightmap.shape
    _, orientations, window_x, window_y = bottom.shape
    xs, ys = z.shape[2], z.shape[3]
    cells = window_x * window_y + 4
    taps = (np.empty(2, np.int64), np.empty((2, cells), np.int64), np.empty((2, cells), np.float32))
    slope = np.empty((window_x + 1, window_y + 1), np.float64)
    reach64, reach32 = np.empty((2, 2, cells), np.float64), np.empty((2, 2, cells), np.float32)
    sides64, sides32 = np.empty((2, 2, _BLOCK), np.float64), np.empty((2, 2, _BLOCK), np.float32)
    sign64, sign32 = np.full(1, 1 << 63, np.uint64), np.full(1, 1 << 31, np.uint32)
    threshold = np.empty(xs * ys, np.float32)
    phases = np.zeros((stride, stride, xs, ys), np.float32)
    heights = phases.reshape(phases.size)
    current, highest = -1, -_INF
    for index in range(start, stop):
        b, r = index // orientations, index % orientations
        if b != current:
            current = b
            _, highest, _, _ = _height_range(heightmap[b])
            if stride == 1:
                heights = heightmap[b].reshape(length * width)
            else:
                _split_phases(heightmap[b], stride, phases)
        flat = stable[b, r].reshape(xs * ys)
        w, h, _ = _extent(bottom[b, r])
        first, last, lowest = _finite_range(z[b, r].reshape(xs * ys), contact_tol, threshold, flat)
        if w == 0 or first == last:
            continue
        cx, cy = com[b, r, 0], com[b, r, 1]
        _corner_slopes(cx, cy, inset, slope[: w + span, : h + span])
        window = (w, h, stride, xs, ys)
        bounds = (highest, lowest)
        for side in range(2):
            points = (cx, inset, span)
            _side_taps(bottom[b, r], window, bounds, points, slope, side, taps, reach64)
        if min(taps[0][0], taps[0][1]) == 0:
            continue
        size = max(abs(cx), abs(cy), abs(SUBCELL * w - cx), abs(SUBCELL * h - cy))
        lanes, bar, from_first = flat[first:last], threshold[first:last], heights[first:]
        if size <= _EXACT:
            _narrow(reach64.ravel(), reach32.ravel())
            _sides_meet(lanes, bar, from_first, taps, reach32, sides32, sign32)
        else:
            _sides_meet(lanes, bar, from_first, taps, reach64, sides64, sign64)


@_jit
def _finite_range(z, contact_tol, threshold, result):  # type: ignore[no-untyped-def]
    """Range of placements with finite z; threshold = z - contact_tol, its minimum; result is 0."""
    first, last, lowest = z.size, 0, _INF
    for i in range(z.size):
        bar = z[i] - contact_tol
        threshold[i] = bar
        result[i] = 0
        if bar < _INF:
            first, last = min(first, i), i + 1
            lowest = min(lowest, bar)
    return min(first, last), last, lowest


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    """Plain threads: the kernels release the GIL, and no numba threading layer is involved."""
    return ThreadPoolExecutor(count, thread_name_prefix="packing-kernels")


os.register_at_fork(after_in_child=_threads.cache_clear)


def _run(kernel: Callable[..., None], arrays: tuple[Any, ...], planes: int, work: int) -> None:
    """Call the kernel for all orientations, on torch's number of threads where it pays."""
    count = min(torch.get_num_threads(), planes) if work >= _MIN_PARALLEL_WORK else 1
    if count <= 1:
        kernel(*arrays, 0, planes)
        return
    edges = [planes * part // count for part in range(count + 1)]
    parts = [
        _threads(count).submit(kernel, *arrays, edge, edges[part + 1])
        for part, edge in enumerate(edges[:-1])
    ]
    for part in parts:
        part.result()


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


def drop_height(heightmap: Tensor, bottom: Tensor, stride: int) -> Tensor:
    """See `packing_env.kernels.drop_height`."""
    z = heightmap.new_empty(lattice_shape(heightmap, bottom, stride))
    arrays = (_array(heightmap), _array(bottom), z.numpy(), stride)
    planes = z.shape[0] * z.shape[1]
    _run(_drop_height, arrays, planes, z.numel() * bottom.shape[2] * bottom.shape[3])
    return z


def com_hull(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    com: Tensor,
    contact_tol: float,
    stride: int,
    centres: bool,
) -> Tensor:
    """See `packing_env.kernels.com_hull`."""
    stable = z.new_empty(z.shape, dtype=torch.bool)
    arrays = (
        _array(heightmap),
        _array(bottom),
        _array(z),
        _array(com),
        np.float32(contact_tol),
        stable.numpy(),
        stride,
        centres,
    )
    planes = z.shape[0] * z.shape[1]
    _run(_com_hull, arrays, planes, z.numel() * bottom.shape[2] * bottom.shape[3])
    return stable
