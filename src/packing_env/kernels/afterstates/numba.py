"""The operation of `packing_env.kernels.afterstates` compiled for the CPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from packing_env.kernels.afterstates.corners_numba import all_corners, fill_row_sums, in_turn
from packing_env.kernels.compiled.jit import array, jit, kernel, run


@jit
def _differs(line, z, first, last):
    """Return True if a cell from ``first`` to before ``last`` of a line is not at height z."""
    differs = False
    for k in range(first, last):
        differs |= line[k] != z
    return differs


@jit
def _touches(heights, z, x, y, w, h):
    """Return True if a cuboid at rest touches something in both x and y."""
    end_x, end_y = x + w, y + h
    if x > 0 and end_x < heights.shape[0]:
        low = _differs(heights[x - 1], z, y, end_y)
        if not low and not _differs(heights[end_x], z, y, end_y):
            return False
    if y > 0 and end_y < heights.shape[1]:
        low = _differs(heights[:, y - 1], z, x, end_x)
        if not low and not _differs(heights[:, end_y], z, x, end_x):
            return False
    return True


@jit
def _levels(values, units, levels):
    """Fill ``levels`` with heights in units."""
    for x in range(values.shape[0]):
        for y in range(values.shape[1]):
            levels[x, y] = np.int32(np.rint(values[x, y] * units))


@jit
def _edges(heights, rest, legal, row, tables, task, places, keys, counts):
    """List legal placements with their keys; return their number, and how many of them touch."""
    _, size, item_id = tables
    stride, units = task
    _, num_items, num_orientations, xs, ys = rest.shape
    count, touching, place = 0, 0, 0
    levels = counts.size // 2
    for item in range(num_items):
        for r in range(num_orientations):
            if item_id[row, item] < 0:
                place += xs * ys
                continue
            w, h = size[item_id[row, item], r, 0], size[item_id[row, item], r, 1]
            for i in range(xs):
                for j in range(ys):
                    if legal[row, place] and rest[row, item, r, i, j] < 1:
                        z = np.int64(np.rint(rest[row, item, r, i, j] * units))
                        touch = _touches(heights, z, i * stride, j * stride, w, h)
                        key = z if touch else z + levels
                        places[count], keys[count] = place, key
                        counts[key] += 1
                        count += 1
                        touching += touch
                    place += 1
    return count, touching


@jit
def _sort(places, keys, counts, count, index):
    """Fill ``index`` with the first placements in the order of their keys."""
    total = 0
    for key in range(counts.size):
        total, counts[key] = total + counts[key], total
    for k in range(count):
        at = counts[keys[k]]
        counts[keys[k]] += 1
        if at < index.size:
            index[at] = places[k]


@jit
def _build(heights, rest, row, tables, task, index, maps):
    """Fill ``maps`` with the heightmaps after the placements in index."""
    top, size, item_id = tables
    stride, units = task
    _, _, num_orientations, xs, ys = rest.shape
    for k in range(index.size):
        for x in range(heights.shape[0]):
            for y in range(heights.shape[1]):
                maps[k, x, y] = heights[x, y]
        if index[k] < 0:
            continue
        i, j = index[k] // ys % xs, index[k] % ys
        plane = index[k] // (xs * ys)
        item, r = plane // num_orientations, plane % num_orientations
        which = item_id[row, item]
        z = np.int64(np.rint(rest[row, item, r, i, j] * units))
        x, y = i * stride, j * stride
        for u in range(size[which, r, 0]):
            for v in range(size[which, r, 1]):
                if top[which, r, u, v] >= 0:
                    maps[k, x + u, y + v] = z + top[which, r, u, v]


@kernel
def _afterstates(
    heightmap,
    rest,
    legal,
    item_id,
    top,
    size,
    stride,
    scales,
    edges,
    index,
    maps,
    dropped,
    start,
    stop,
):
    """Fill index, maps and dropped for the rows start <= row < stop."""
    units = np.float32(scales[0])
    heights = np.empty(heightmap.shape[1:], np.int32)
    num_actions, num = legal.shape[1], index.shape[1]
    tables, task = (top, size, item_id), (stride, units)
    if edges:
        places, keys = np.empty(num_actions, np.int64), np.empty(num_actions, np.int64)
        counts = np.empty(2 * (np.int64(units) + 2), np.int64)
    else:
        x_cells, y_cells = heights.shape
        parts = (stride, stride, -(-x_cells // stride), y_cells // stride + 1)
        row_sums = np.zeros(parts, np.int32)
        sums = np.empty(parts[2] * parts[3], np.int32)
        z = np.empty((rest.shape[3] + 2, rest.shape[4] + 2), np.int32)
        space = (sums, z, np.empty(2, np.int64))
        codes, heaps = np.empty(num_actions, np.int64), np.empty((rest.shape[1], 2), np.int64)
    for row in range(start, stop):
        _levels(heightmap[row], units, heights)
        index[row] = -1
        if edges:
            counts[:] = 0
            count, total = _edges(heights, rest, legal, row, tables, task, places, keys, counts)
            _sort(places, keys, counts, count, index[row])
        else:
            fill_row_sums(heights, stride, row_sums)
            first = all_corners(
                row_sums,
                heights.shape,
                rest,
                legal,
                row,
                tables,
                stride,
                scales,
                space,
                codes,
                heaps,
            )
            total = in_turn(codes, heaps, first, index[row])
        dropped[row] = max(0, total - num)
        _build(heights, rest, row, tables, task, index[row], maps[row])


def afterstates(
    heightmap: Tensor,
    rest: Tensor,
    legal: Tensor,
    item_id: Tensor,
    top: Tensor,
    size: Tensor,
    num: int,
    stride: int,
    units: float,
    cells: float,
    edges: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Carry out `packing_env.kernels.afterstates`."""
    batch = len(heightmap)
    index = torch.empty(batch, num, dtype=torch.int64)
    maps = torch.empty(batch, num, *heightmap.shape[1:], dtype=torch.int16)
    dropped = torch.empty(batch, dtype=torch.int64)
    inputs = tuple(array(tensor) for tensor in (heightmap, rest, legal, item_id, top, size))
    scales = np.array([units, cells])
    outputs = (index.numpy(), maps.numpy(), dropped.numpy())
    run(_afterstates, (*inputs, stride, scales, edges, *outputs), batch, 8 * maps.numel())
    return index, maps, dropped
