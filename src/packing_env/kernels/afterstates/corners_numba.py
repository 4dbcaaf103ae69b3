"""Candidates of items that are not cuboids, compiled for the CPU."""

from __future__ import annotations

import numpy as np

from packing_env.kernels.afterstates.eager import FAR
from packing_env.kernels.compiled.jit import jit, sift

_NOWHERE = 2**30
"""Rest height of illegal placements."""
_PLACES = 2**31
"""Exceeds the number of placements: ``key * _PLACES + placement`` sorts by key, then placement.

Heaps have their largest number on top, so they hold the negated numbers.
"""


@jit
def fill_row_sums(heights, stride, row_sums):
    """Fill ``row_sums`` with the prefix sums of the heights along y.

    ``row_sums [stride, stride, ceil(X / stride), Y // stride + 1]`` holds the sum of ``heights[x,
    :y]`` at ``[x % stride, y % stride, x // stride, y // stride]``. So the sums that the placements
    need for one footprint cell are adjacent in memory.
    """
    for x in range(heights.shape[0]):
        total = 0
        for y in range(heights.shape[1] + 1):
            row_sums[x % stride, y % stride, x // stride, y // stride] = total
            if y < heights.shape[1]:
                total += heights[x, y]


@jit
def _add_from(line, start, count, sums):
    """Add ``line[start : start + count]`` to sums; unsigned indices let LLVM vectorise the loop."""
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
    """Fill ``sums`` with the sum of heights under the footprint; return its number of cells.

    Each contiguous line of cells is the difference of two sums of :func:`fill_row_sums`. One loop
    computes it for all placements: ``sums [i * W + j]``, where ``W`` is the last side of
    ``row_sums``. The sums of placements that leave the container are undefined.
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
def _lattice(rest, legal, units, z):
    """Fill z with the rest heights of a plane and a border; return whether any is legal.

    The border is one placement wide on each side. `_NOWHERE` marks the border and illegal
    placements.
    """
    xs, ys = rest.shape
    z[:] = _NOWHERE
    any_legal = False
    for i in range(xs):
        for j in range(ys):
            if legal[i * ys + j] and rest[i, j] < 1:
                z[i + 1, j + 1] = np.int32(np.rint(rest[i, j] * units))
                any_legal = True
    return any_legal


@jit
def _peak(surface, size):
    highest = np.int64(surface[0, 0])
    for u in range(size[0]):
        for v in range(size[1]):
            highest = max(highest, np.int64(surface[u, v]))
    return highest


@jit
def _corners(shape, rest, z, plane, task, size, cells, sums, codes, count, lowest):
    """List the blocked placements of a plane with keys; update ``lowest``; return their number."""
    stride, z_scale, per_cell, peak = task
    x_cells, y_cells = shape
    width = y_cells // stride + 1
    xs, ys = rest.shape
    for i in range(xs):
        for j in range(ys):
            at = z[i + 1, j + 1]
            if at == _NOWHERE:
                continue
            x, y = i * stride, j * stride
            low = 100.0 * (np.float64(rest[i, j]) * z_scale)
            corner = np.int64(np.rint(8.0 * (low + np.float64(x + y))))
            place = (plane * xs + i) * ys + j
            if corner < lowest[0]:
                lowest[0], lowest[1] = corner, place
            along_x = max(z[i, j + 1], z[i + 2, j + 1])
            along_y = max(z[i + 1, j], z[i + 1, j + 2])
            if min(along_x, along_y) <= at:
                continue
            gap = cells * np.int64(at) - np.int64(sums[i * width + j])
            walls = min(x, x_cells - size[0] - x) + min(y, y_cells - size[1] - y)
            key = 2 * gap // cells + at + peak + per_cell * walls
            codes[count] = -(key * _PLACES + place)
            count += 1
    return count


@jit
def all_corners(row_sums, shape, rest, legal, row, tables, stride, scales, space, codes, heaps):
    """List the blocked placements, as one heap per item; return the one nearest to the corner."""
    top, size, item_id = tables
    sums, z, lowest = space
    units, per_cell = np.float32(scales[0]), np.int64(np.rint(scales[0] / scales[1]))
    _, num_items, num_orientations, xs, ys = rest.shape
    area, count = xs * ys, 0
    lowest[0], lowest[1] = FAR, -1
    for item in range(num_items):
        which, first = item_id[row, item], count
        for r in range(num_orientations):
            plane = item * num_orientations + r
            there = legal[row, plane * area : (plane + 1) * area]
            if (
                which < 0
                or size[which, r, 0] <= 0
                or not _lattice(rest[row, item, r], there, units, z)
            ):
                continue  # in finished rows, the mask is True even for missing orientations
            extent = size[which, r, 0], size[which, r, 1]
            cells = _cover(row_sums, top[which, r], extent, sums)
            task = (stride, scales[1], per_cell, _peak(top[which, r], extent))
            at = rest[row, item, r]
            count = _corners(shape, at, z, plane, task, extent, cells, sums, codes, count, lowest)
        _heapify(codes[first:count])
        heaps[item, 0], heaps[item, 1] = first, count - first
    return lowest[1]


@jit
def _heapify(heap):
    """Make numbers a heap: entry i is at least its children, entries 2 i + 1 and 2 i + 2."""
    for k in range(heap.size // 2 - 1, -1, -1):
        sift(heap, heap.size, k, heap[k])


@jit
def _take(codes, heaps, item):
    """Remove the placement of smallest key from an item's heap, which must not be empty."""
    begin, last = heaps[item, 0], heaps[item, 1] - 1
    place = -codes[begin] % _PLACES
    sift(codes[begin:], last, 0, codes[begin + last])
    heaps[item, 1] = last
    return place


@jit
def in_turn(codes, heaps, first, index):
    """Fill ``index`` with ``first``, then with the best placement left of each item in turn.

    ``heaps [L, 2]`` holds the start and the length of each item's heap; the heaps are emptied.
    Returns the number of candidates.
    """
    # 1. Count the candidates. The placement nearest to the corner is one, even if it is unblocked.
    total, in_heap = 0, False
    for item in range(len(heaps)):
        for k in range(heaps[item, 1]):
            in_heap |= -codes[heaps[item, 0] + k] % _PLACES == first
        total += heaps[item, 1]
    if first < 0:
        return total
    # 2. In each round, take one placement of every item; skip the one that is already listed.
    index[0], count = first, 1
    any_left = True
    while any_left and count < index.size:
        any_left = False
        for item in range(len(heaps)):
            place = first
            while place == first and heaps[item, 1] > 0:
                place = _take(codes, heaps, item)
            if place != first and count < index.size:
                index[count] = place
                count += 1
                any_left = True
    return total + (not in_heap)
