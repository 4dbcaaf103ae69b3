"""The operation of `packing_env.kernels.features` compiled for the CPU.

32 maps are processed at once, one per lane of a vector, so that positions need no lanes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from packing_env.kernels.compiled.jit import array, jit, kernel, run
from packing_env.kernels.compiled.shorts import (
    LANES,
    SIZE,
    add,
    higher,
    load,
    lower,
    mul,
    scaled,
    shift_right,
    splat,
    store,
    sub,
    where,
)
from packing_env.kernels.features.eager import FIXED, MOST, NONE, SHAPE, STEEPEST, gap_factor

_HALF = 2


@jit
def _scan(peaks, area, best, shape, size, limits, levels):
    """Update the minima and counts in ``best`` with all positions of one turned window."""
    x_cells, y_cells, shift = shape
    length, w = size
    height, tolerance, flat_gap, low_gap, factor = limits
    half, half_w = (length + 1) // _HALF, (w + 1) // _HALF
    one, zero, never = splat(1), splat(0), splat(NONE)
    lid, slack = splat(height - 1), splat(tolerance)
    cells, level, loose = splat(length * w), splat(flat_gap), splat(low_gap)
    row, line = y_cells * SIZE, (y_cells + 1) * SIZE
    low_z, low_held, low_flat = load(best), load(best + SIZE), load(best + 2 * SIZE)
    least_gap, low_loose = load(best + 3 * SIZE), load(best + 4 * SIZE)
    low_filled = load(best + 5 * SIZE)
    for x in range(x_cells - length + 1):
        for y in range(y_cells - w + 1):
            near = peaks + x * row + y * SIZE
            far, across = near + (length - half) * row, (w - half_w) * SIZE
            a, b, c, d = load(near), load(near + across), load(far), load(far + across)
            z = higher(higher(a, b), higher(c, d))
            low = lower(lower(a, b), lower(c, d))
            corner = area + x * line + y * SIZE
            end = corner + length * line
            below = sub(
                add(load(end + w * SIZE), load(corner)), add(load(end), load(corner + w * SIZE))
            )
            gap = sub(mul(cells, shift_right(z, shift)), below)
            held = where(sub(z, low), slack, z, never)
            flat = where(gap, level, held, never)
            filled = add(z, scaled(gap, factor))
            low_z, low_held, low_flat = (
                lower(low_z, z),
                lower(low_held, held),
                lower(low_flat, flat),
            )
            least_gap = lower(least_gap, where(z, lid, gap, never))
            low_loose = lower(low_loose, where(gap, loose, z, never))
            low_filled = lower(low_filled, where(sub(z, low), slack, filled, never))
            count = best + FIXED * SIZE
            for k in range(levels.size):
                limit = splat(levels[k])
                store(count, add(load(count), where(held, limit, one, zero)))
                store(count + SIZE, add(load(count + SIZE), where(flat, limit, one, zero)))
                count += 2 * SIZE
    store(best, low_z)
    store(best + SIZE, low_held)
    store(best + 2 * SIZE, low_flat)
    store(best + 3 * SIZE, least_gap)
    store(best + 4 * SIZE, low_loose)
    store(best + 5 * SIZE, low_filled)


@jit
def _prepare(rows, area, shape, longest):
    """Fill the maxima over 2 to ``longest`` cells along x, and the summed-area table."""
    x_cells, y_cells, shift = shape
    plane, line = x_cells * y_cells * SIZE, (y_cells + 1) * SIZE
    cells = rows + plane
    for x in range(x_cells):
        total = splat(0)
        for y in range(y_cells):
            total = add(total, shift_right(load(cells + (x * y_cells + y) * SIZE), shift))
            corner = area + x * line + (y + 1) * SIZE
            store(corner + line, add(load(corner), total))
    for length in range(2, longest + 1):
        source = rows + (length - 1) * plane
        further = cells + (length - 1) * y_cells * SIZE
        for p in range((x_cells - length + 1) * y_cells):
            at = p * SIZE
            store(source + plane + at, higher(load(source + at), load(further + at)))


@jit
def _window(rows, peaks, area, best, shape, size, limits, levels):
    """Fill ``best``, the features of one window in both orientations."""
    x_cells, y_cells, _ = shape
    for k in range(FIXED + 2 * levels.size):
        store(best + k * SIZE, splat(NONE if k < FIXED else 0))
    for turn in range(1 if size[0] == size[1] else 2):
        length, w = size if turn == 0 else (size[1], size[0])
        half, half_w = (length + 1) // _HALF, (w + 1) // _HALF
        source = rows + half * x_cells * y_cells * SIZE
        for x in range(x_cells - half + 1):
            for y in range(y_cells - half_w + 1):
                at = (x * y_cells + y) * SIZE
                peak = load(source + at)
                for v in range(1, half_w):
                    peak = higher(peak, load(source + at + v * SIZE))
                store(peaks + at, peak)
        _scan(peaks, area, best, shape, (length, w), limits, levels)


@jit
def _step(one, other, shift, totals):
    """Add the sum and the number of the steps between two lines of cells to ``totals``."""
    size = sub(higher(load(one), load(other)), lower(load(one), load(other)))
    steep = lower(shift_right(size, shift), splat(STEEPEST))
    store(totals, add(load(totals), steep))
    counted = where(size, splat(0), splat(0), splat(1))
    store(totals + SIZE, add(load(totals + SIZE), counted))


@jit
def _shape(cells, best, shape, bins):
    """Fill ``best``, the features of the whole map."""
    x_cells, y_cells, shift = shape
    for k in range(SHAPE + bins.size):
        store(best + k * SIZE, splat(0))
    one, zero = splat(1), splat(0)
    for x in range(x_cells):
        for y in range(y_cells):
            here = cells + (x * y_cells + y) * SIZE
            store(best, higher(load(best), load(here)))
            if x + 1 < x_cells:
                _step(here, here + y_cells * SIZE, shift, best + SIZE)
            if y + 1 < y_cells:
                _step(here, here + SIZE, shift, best + SIZE)
            for k in range(bins.size):
                count = best + (SHAPE + k) * SIZE
                store(count, add(load(count), where(load(here), splat(bins[k]), one, zero)))


@jit
def _parts(cells, area, best, shape, pool):
    """Fill ``best`` with the highest cell of each part and, if it has several cells, their sum."""
    x_cells, y_cells, _ = shape
    line = (y_cells + 1) * SIZE
    several = pool[0] < x_cells or pool[1] < y_cells
    for i in range(pool[0]):
        left, right = -(-i * x_cells // pool[0]), -(-(i + 1) * x_cells // pool[0])
        for j in range(pool[1]):
            low, high = -(-j * y_cells // pool[1]), -(-(j + 1) * y_cells // pool[1])
            peak = splat(0)
            for x in range(left, right):
                for y in range(low, high):
                    peak = higher(peak, load(cells + (x * y_cells + y) * SIZE))
            part = best + (i * pool[1] + j) * SIZE
            store(part, peak)
            if several:
                start, end = area + left * line, area + right * line
                a, b = load(start + low * SIZE), load(start + high * SIZE)
                c, d = load(end + low * SIZE), load(end + high * SIZE)
                store(part + pool[0] * pool[1] * SIZE, sub(add(d, a), add(b, c)))


@jit
def _write(best, lines, rows, start, width, tables, features):
    """Write the features of the maps ``rows`` to their rows of ``features``, through ``lines``."""
    scale, counts, logs = tables
    most = np.float32(MOST)
    # 1. Numbers of all maps, one feature after the other: these loops are vectorised.
    for k in range(width):
        factor = scale[start + k]
        if counts[start + k]:
            for lane in range(LANES):
                lines[k, lane] = min(logs[np.uint16(best[k, lane])] * factor, most)
        else:
            for lane in range(LANES):
                lines[k, lane] = min(np.float32(best[k, lane]) * factor, most)
    # 2. One map after the other.
    for lane in range(rows.size):
        row = features[np.uint64(rows[lane])]
        for k in range(np.uint64(width)):
            row[start + k] = lines[k, lane]


@jit
def _keep(rows, area, peaks, best):
    """Do nothing; this call keeps arrays alive that are otherwise known only by their addresses."""


@kernel
def _features(
    maps,
    used,
    sizes,
    levels,
    bins,
    pool,
    limits,
    height,
    tolerance,
    shift,
    tables,
    features,
    start,
    stop,
):
    """Fill ``features`` for the blocks start <= block < stop, ``LANES`` ``used`` maps each."""
    # 1. Positions of the features of the whole map, of each window, and of the parts.
    _, x_cells, y_cells = maps.shape
    shape, parts = (x_cells, y_cells, shift), (pool[0], pool[1])
    longest = 1
    for k in range(sizes.size):
        longest = max(longest, (sizes[k] + 1) // _HALF)
    width, head = FIXED + 2 * levels.size, SHAPE + bins.size
    tail = features.shape[1] - head - sizes.size // 2 * width
    # 2. Scratch, passed by address: line 1 of ``rows`` holds the cells of the block's maps.
    rows = np.empty((longest + 1, x_cells * y_cells, LANES), np.int16)
    area = np.zeros(((x_cells + 1) * (y_cells + 1), LANES), np.int16)
    peaks = np.empty((x_cells * y_cells, LANES), np.int16)
    best = np.empty((max(width, head, tail), LANES), np.int16)
    lines = np.empty(best.shape, np.float32)
    places = rows.ctypes.data, peaks.ctypes.data, area.ctypes.data, best.ctypes.data
    cells = places[0] + x_cells * y_cells * SIZE
    for block in range(start, stop):
        # 3. Copy the block's maps side by side, one per lane; surplus lanes repeat the last map.
        block_maps = used[block * LANES : (block + 1) * LANES]
        for lane in range(LANES):
            which = block_maps[min(lane, block_maps.size - 1)]
            for x in range(x_cells):
                for y in range(y_cells):
                    rows[1, x * y_cells + y, lane] = maps[which, x, y]
        # 4. Compute and write the features, group by group.
        _shape(cells, places[3], shape, bins)
        _write(best, lines, block_maps, 0, head, tables, features)
        _prepare(places[0], places[2], shape, longest)
        for k in range(sizes.size // 2):
            size = sizes[2 * k], sizes[2 * k + 1]
            slack = height, tolerance, limits[k, 0], limits[k, 1], limits[k, 2]
            _window(places[0], places[1], places[2], places[3], shape, size, slack, levels)
            _write(best, lines, block_maps, head + k * width, width, tables, features)
        _parts(cells, places[2], places[3], shape, parts)
        _write(best, lines, block_maps, features.shape[1] - tail, tail, tables, features)
    _keep(rows, area, peaks, best)


def map_features(
    maps: Tensor,
    sizes: list[int],
    levels: list[int],
    bins: list[int],
    pool: list[int],
    gaps: list[int],
    height: int,
    tolerance: int,
    shift: int,
    scale: Tensor,
    counts: Tensor,
    logs: Tensor,
    used: Tensor,
) -> Tensor:
    """Carry out `packing_env.kernels.map_features`."""
    new = maps.new_zeros if len(used) else maps.new_empty
    features = new(len(maps), len(scale), dtype=torch.float32)
    # NumPy on the CPU, so no device is waited for
    rows = np.flatnonzero(array(used)) if len(used) else np.arange(len(maps))
    numbers = (np.array(values, np.int64) for values in (sizes, levels, bins, pool))
    areas = (a * b for a, b in zip(sizes[::2], sizes[1::2], strict=True))
    factors = [gap_factor(area, shift) for area in areas]
    limits = np.column_stack([np.array(gaps, np.int64).reshape(-1, 2), np.array(factors, np.int64)])
    tables = array(scale), array(counts), array(logs)
    arguments = (array(maps), rows, *numbers, limits, height, tolerance, shift)
    arguments += (tables, features.numpy())
    run(_features, arguments, -(-len(rows) // LANES), maps.numel() * len(sizes))
    return features
