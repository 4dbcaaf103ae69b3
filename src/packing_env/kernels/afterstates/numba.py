"""The operation of `packing_env.kernels.afterstates` compiled for the CPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from packing_env.kernels.afterstates.eager import FAR, NUM_SCORES
from packing_env.kernels.compiled.jit import array, jit, kernel, run


@jit
def _differs(heights, z, x, first, last):
    """Return True if a cell from ``(x, first)`` to before ``(x, last)`` is not as high as z."""
    found = False
    for y in range(first, last):
        found |= heights[x, y] != z
    return found


@jit
def _differs_across(heights, z, y, first, last):
    """Return True if a cell from ``(first, y)`` to before ``(last, y)`` is not as high as z."""
    found = False
    for x in range(first, last):
        found |= heights[x, y] != z
    return found


@jit
def _touches(heights, z, x, y, w, h):
    """Return True if a cuboid at rest touches something in x and in y."""
    end_x, end_y = x + w, y + h
    if x > 0 and end_x < heights.shape[0]:
        low = _differs(heights, z, x - 1, y, end_y)
        if not low and not _differs(heights, z, end_x, y, end_y):
            return False
    if y > 0 and end_y < heights.shape[1]:
        low = _differs_across(heights, z, y - 1, x, end_x)
        if not low and not _differs_across(heights, z, end_y, x, end_x):
            return False
    return True


@jit
def _levels(values, units, found):
    """Fill found with heights in units."""
    for x in range(values.shape[0]):
        for y in range(values.shape[1]):
            found[x, y] = np.int32(np.rint(values[x, y] * units))


@jit
def _edges(heights, rest, legal, row, tables, task, places, keys, counts):
    """List legal placements with their keys; return how many, and how many touch."""
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
    """Fill index with the first places in the order of their keys."""
    total = 0
    for key in range(counts.size):
        total, counts[key] = total + counts[key], total
    for k in range(count):
        at = counts[keys[k]]
        counts[keys[k]] += 1
        if at < index.size:
            index[at] = places[k]


@jit
def _row_sums(heights, stride, found):
    """Fill found with the sums of each row's first cells, place by place.

    ``found [stride, stride, ceil(X / stride), Y // stride + 1]`` has the sum of ``heights[x, :y]``
    at ``[x % stride, y % stride, x // stride, y // stride]``: so those of all places of one cell of
    a footprint are neighbours.
    """
    for x in range(heights.shape[0]):
        total = 0
        for y in range(heights.shape[1] + 1):
            found[x % stride, y % stride, x // stride, y // stride] = total
            if y < heights.shape[1]:
                total += heights[x, y]


@jit
def _add_from(line, start, count, sums):
    """Add ``line[start : start + count]`` to sums; unsigned indices let LLVM vectorise."""
    first = np.uint64(start)
    for k in range(np.uint64(count)):
        sums[k] += line[first + k]


@jit
def _subtract_from(line, start, count, sums):
    """Subtract ``line[start : start + count]`` from sums."""
    first = np.uint64(start)
    for k in range(np.uint64(count)):
        sums[k] -= line[first + k]


@jit
def _cover(row_sums, surface, size, sums):
    """Fill sums with the heights under the footprint; return its cells.

    Each unbroken line of cells is the difference of two sums of :func:`_row_sums`, for all places
    in one loop: ``sums [i * W + j]``, ``W`` the last side of ``row_sums``. Numbers of places that
    leave the container have no meaning.
    """
    stride, _, rows, width = row_sums.shape
    line = row_sums.reshape(-1)
    last = rows * width - (size[0] - 1) // stride * width - size[1] // stride
    cells = 0
    for k in range(last):
        sums[k] = 0
    for u in range(size[0]):
        within = False
        for v in range(size[1] + 1):
            filled = v < size[1] and surface[u, v] >= 0
            cells += filled
            if filled == within:
                continue
            phase = u % stride * stride + v % stride
            start = (phase * rows + u // stride) * width + v // stride
            if filled:
                _subtract_from(line, start, last, sums)
            else:
                _add_from(line, start, last, sums)
            within = filled
    return cells


@jit
def _lowest_scores(shape, rest, legal, scales, size, stride, cells, sums, best, where):
    """Lower ``best`` and set ``where`` over the placements of one plane."""
    units, z_scale = np.float32(scales[0]), scales[1]
    x_cells, y_cells = shape
    width = y_cells // stride + 1
    w, h = size
    per_cell = np.int64(np.rint(scales[0] / scales[1]))
    for i in range(rest.shape[0]):
        for j in range(rest.shape[1]):
            if not (legal[i * rest.shape[1] + j] and rest[i, j] < 1):
                continue
            x, y = i * stride, j * stride
            far_x, far_y = x_cells - w - x, y_cells - h - y
            z = np.int64(np.rint(rest[i, j] * units))
            gap = cells * z - np.int64(sums[i * width + j])
            low = 100.0 * (np.float64(rest[i, j]) * z_scale)
            found = (
                np.int64(np.rint(8.0 * (low + np.float64(x + y)))),
                100 * gap + x + y,
                100 * (gap + cells * z) + far_x + far_y,
                100 * z + per_cell * (far_x + far_y),
                100 * z + per_cell * (x + far_y),
                100 * z + per_cell * (far_x + y),
            )
            for k in range(NUM_SCORES):
                if found[k] < best[k]:
                    best[k], where[k] = found[k], i * rest.shape[1] + j


@jit
def _any(legal):
    found = False
    for k in range(legal.size):
        found |= legal[k]
    return found


@jit
def _best(row_sums, shape, rest, legal, row, tables, stride, scales, sums, best, where):
    """Fill ``where [planes, scores]`` with the best places of each plane, or -1."""
    top, size, item_id = tables
    _, num_items, num_orientations, xs, ys = rest.shape
    area = xs * ys
    for item in range(num_items):
        which = item_id[row, item]
        for r in range(num_orientations):
            plane = item * num_orientations + r
            there = legal[row, plane * area : (plane + 1) * area]
            for k in range(NUM_SCORES):
                best[k], where[plane, k] = FAR, -1
            if which < 0 or size[which, r, 0] <= 0 or not _any(there):
                continue  # a finished row calls orientations legal that the item does not have
            extent = size[which, r, 0], size[which, r, 1]
            cells = _cover(row_sums, top[which, r], extent, sums)
            at, places = rest[row, item, r], where[plane]
            _lowest_scores(shape, at, there, scales, extent, stride, cells, sums, best, places)


@jit
def _distinct(where, area, index):
    """Fill index with the best places, those of the first score first; return how many."""
    count = 0
    for score in range(NUM_SCORES):
        for plane in range(where.shape[0]):
            place = where[plane, score]
            new = place >= 0
            for earlier in range(score):
                new &= where[plane, earlier] != place
            if new:
                if count < index.size:
                    index[count] = plane * area + place
                count += 1
    return count


@jit
def _build(heights, rest, row, tables, task, index, maps):
    """Fill maps with the heightmaps after the placements of index."""
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
        best = np.empty(NUM_SCORES, np.int64)
        where = np.empty((rest.shape[1] * rest.shape[2], NUM_SCORES), np.int64)
    for row in range(start, stop):
        _levels(heightmap[row], units, heights)
        index[row] = -1
        if edges:
            counts[:] = 0
            count, found = _edges(heights, rest, legal, row, tables, task, places, keys, counts)
            _sort(places, keys, counts, count, index[row])
        else:
            _row_sums(heights, stride, row_sums)
            shape = heights.shape
            _best(row_sums, shape, rest, legal, row, tables, stride, scales, sums, best, where)
            found = _distinct(where, rest.shape[3] * rest.shape[4], index[row])
        dropped[row] = max(0, found - num)
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
    given = tuple(array(tensor) for tensor in (heightmap, rest, legal, item_id, top, size))
    scales = np.array([units, cells])
    made = (index.numpy(), maps.numpy(), dropped.numpy())
    run(_afterstates, (*given, stride, scales, edges, *made), batch, 8 * maps.numel())
    return index, maps, dropped
