"""The loops of `kernels.cuboids.numba`; an array line has one entry per place along y and lane.

Every innermost loop writes one array and reads all its inputs before it selects, so that it
vectorises. Masks are 0xFF or 0x00. Heights are counted in cells and raised by one; 0 means no cell.
One pass over the window along y and one along x suffice. The highest cell of a window row, the
number of cells with this height, and the first and last of these cells do not depend on other rows.
"""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit
from packing_env.kernels.compiled.stability_rules import judge, limit
from packing_env.kernels.compiled.tables import copy, flat, rows
from packing_env.kernels.stability_rules import Support

_U8 = np.uint8


@jit
def tile(line, lanes):
    """Repeat the first lanes along the whole line."""
    # Every copy doubles the filled part.
    filled = lanes
    while filled < line.size:
        todo = min(filled, line.size - filled)
        copy(line, rows(line, filled, todo))
        filled *= 2


@jit
def fill_sides(size, lanes, sides):
    """Set sides[0] = w, sides[1] = h of each lane, along the lines."""
    kind = sides.dtype.type
    for side in range(2):
        line = sides[side]
        for lane in range(lanes):
            line[lane] = kind(size[lane, side])
        tile(line, lanes)


@jit
def fill_masks(side, masks):
    """Set masks[i] = 0xFF where the side is longer than i cells."""
    for i in range(masks.shape[0]):
        mask, at_least = masks[i], side.dtype.type(i + 1)
        for k in range(side.size):
            mask[k] = _U8(255) if side[k] >= at_least else _U8(0)


@jit
def scan_tops(ground, masks, step, tops):
    """Find the highest cell of every window row."""
    stride, columns, lanes = step
    n = tops.shape[1]
    for x in range(tops.shape[0]):
        top = tops[x]
        for k in range(n):
            top[k] = 0
        for v in range(masks.shape[0]):
            # Cell v of all windows is one line of the phase of v, so the loop runs over neighbours.
            at = ((v % stride) * columns + v // stride) * lanes
            cells, mask = rows(ground[x], at, n), masks[v]
            for k in range(n):
                height, cell = top[k], _U8(cells[k] & mask[k])
                top[k] = cell if cell > height else height


@jit
def scan_counts(ground, masks, step, tops, counts):
    """Count the cells of every window row that have the height of the row's highest cell."""
    stride, columns, lanes = step
    n = tops.shape[1]
    kind = counts.dtype.type
    for x in range(tops.shape[0]):
        top, count = tops[x], counts[x]
        for k in range(n):
            count[k] = 0
        # First from the left: the last cell with that height; then from the right: the first one.
        for v in range(masks.shape[0]):
            at = ((v % stride) * columns + v // stride) * lanes
            cells, mask = rows(ground[x], at, n), masks[v]
            for k in range(n):
                before, cell = count[k], _U8(cells[k] & mask[k])
                count[k] = kind(before + (kind(1) if cell == top[k] else kind(0)))


@jit
def scan_edges(ground, masks, depth, step, tops, ups, downs):
    """Find the first and the last of the highest cells in every window row."""
    stride, columns, lanes = step
    n = tops.shape[1]
    kind = ups.dtype.type
    for x in range(tops.shape[0]):
        top, up, down = tops[x], ups[x], downs[x]
        for v in range(masks.shape[0]):
            at = ((v % stride) * columns + v // stride) * lanes
            cells, mask, edge = rows(ground[x], at, n), masks[v], kind(v + 1)
            for k in range(n):
                before, cell = up[k], _U8(cells[k] & mask[k])
                up[k] = edge if cell == top[k] else before
        for v in range(masks.shape[0] - 1, -1, -1):
            at = ((v % stride) * columns + v // stride) * lanes
            cells, mask, edge = rows(ground[x], at, n), masks[v], kind(v)
            for k in range(n):
                before, cell, here = down[k], _U8(cells[k] & mask[k]), kind(depth[k] - edge)
                down[k] = here if cell == top[k] else before


@jit
def scan_ends(ground, depth, step, ends, along):
    """Find the last cell of every window row."""
    stride, columns, lanes = step
    n = ends.shape[1]
    for x in range(ends.shape[0]):
        end = ends[x]
        for v in range(along):
            at = ((v % stride) * columns + v // stride) * lanes
            cells, last = rows(ground[x], at, n), depth.dtype.type(v + 1)
            for k in range(n):
                cell, other = cells[k], end[k]
                end[k] = cell if depth[k] == last else other


@jit
def find_rest(tops, masks, stride, raised):
    """Find the maximum over the rows of each window; windows begin in the lattice rows."""
    for i in range(raised.shape[0]):
        highest = raised[i]
        for k in range(highest.size):
            highest[k] = 0
        for u in range(min(masks.shape[0], tops.shape[0] - i * stride)):
            top, mask = tops[i * stride + u], masks[u]
            for k in range(highest.size):
                height, cell = highest[k], _U8(top[k] & mask[k])
                highest[k] = cell if cell > height else height


@jit
def count_support(tops, counts, masks, num, raised, total):
    """Count the supporting cells."""
    kind = total.dtype.type
    for k in range(total.size):
        total[k] = 0
    for u in range(num):
        top, count, mask = tops[u], counts[u], masks[u]
        for k in range(total.size):
            before, more = total[k], kind(count[k])
            more = more if _U8(top[k] & mask[k]) == raised[k] else kind(0)
            total[k] = kind(before + more)


@jit
def note_reach(tops, edges, masks, num, raised, reach):
    """Set reach[u + 1] to the edge of the support in window row u; 0 without support."""
    none = reach.dtype.type(0)
    for u in range(num):
        top, mask, edge, here = tops[u], masks[u], edges[u], reach[u + 1]
        for k in range(raised.size):
            value = edge[k]
            here[k] = value if _U8(top[k] & mask[k]) == raised[k] else none
    # Rows beyond the container support nothing.
    for u in range(num + 1, reach.shape[0]):
        beyond = reach[u]
        for k in range(beyond.size):
            beyond[k] = none


@jit
def find_slopes(reach, span, factors, bases, slopes):
    """Compute the slope to the farther edge of the two rows at each line; 0 without an edge.

    The rows are line - span and line.
    """
    kind = slopes.dtype.type
    for line in range(slopes.shape[0]):
        before, here, slope = reach[line + 1 - span], reach[line + 1], slopes[line]
        factor, base = factors[line], bases[line]
        for k in range(slope.size):
            one, other = before[k], here[k]
            edge = one if one > other else other
            value = kind(kind(edge) * factor[k] + base[k])
            slope[k] = value if edge > 0 else kind(0)


@jit
def find_steepest(slopes, masks, side):
    """Find the steepest slope on one side of the point."""
    kind = side.dtype.type
    for k in range(side.size):
        side[k] = 0
    for line in range(slopes.shape[0]):
        slope, mask = slopes[line], masks[line]
        for k in range(side.size):
            best, value = side[k], kind(slope[k] & mask[k])
            side[k] = value if value > best else best


@jit
def keep_chords(left, right, bar, stable):
    """Set ``stable`` to 0 where the sum of the steepest slopes is below the bar."""
    for k in range(stable.size):
        before, total = stable[k], np.int64(left[k]) + np.int64(right[k])
        stable[k] = before if total >= bar else _U8(0)


@jit
def find_corners(cells_of, num, width, near, far):
    """Copy the cells of the first and of the last window row to ``near`` and ``far``."""
    first = cells_of[0]
    for k in range(near.size):
        near[k] = first[k]
    for u in range(num):
        cells, last = cells_of[u], width.dtype.type(u + 1)
        for k in range(far.size):
            cell, other = cells[k], far[k]
            far[k] = cell if width[k] == last else other


@jit
def count_at_level(corner, level, corners):
    """Count the corners at a level."""
    for k in range(corners.size):
        corners[k] = 0
    for c in range(4):
        cells = corner[c]
        for k in range(corners.size):
            before = corners[k]
            corners[k] = _U8(before + (_U8(1) if cells[k] == level[k] else _U8(0)))


@jit
def find_highest(corner, level):
    """Find the highest of four corners."""
    for k in range(level.size):
        level[k] = 0
    for c in range(4):
        cells = corner[c]
        for k in range(level.size):
            one, other = cells[k], level[k]
            level[k] = one if one > other else other


@jit
def judge_lanes(rule, total, limits, sides, corners, highest, raised, stable):
    """Evaluate the rule on a line of placements.

    ``stable`` holds the verdict of the hull on entry and the verdict of the rule on return. Arrays
    that the rule does not read may have any content.
    """
    low, middle, high = limits[0], limits[1], limits[2]
    across, along = sides[0], sides[1]
    for k in range(stable.size):
        shares, area = (low[k], middle[k], high[k]), np.int32(across[k]) * np.int32(along[k])
        touching, in_hull = highest[k] == raised[k], stable[k] != 0
        holds = judge(rule, Support(total[k], shares, corners[k], touching, in_hull, area))
        stable[k] = _U8(1) if holds else _U8(0)


@jit
def fill_slopes(sides, centres, weights, lanes, factors, bases, lefts, rights):
    """Fill factors, bases and side masks of the slopes on every line; see `slopes.slope_scale`."""
    kind, steepest = factors.dtype.type, weights[0]
    for line in range(factors.shape[0]):
        factor, base, left, right = factors[line], bases[line], lefts[line], rights[line]
        for lane in range(lanes):
            # Half cells from the window's centre; a slope is kept as an integer, see `slopes`.
            run = 2 * line + centres - np.int64(sides[0, lane])
            weight = weights[abs(run)]
            factor[lane] = kind(2 * weight)
            base[lane] = kind(steepest - (np.int64(sides[1, lane]) + centres) * weight)
            left[lane] = kind(-1) if run <= 0 else kind(0)
            right[lane] = kind(-1) if run >= 0 else kind(0)
        for filled in (factor, base, left, right):
            tile(filled, lanes)


@jit
def fill_limits(sides, percents, lanes, limits):
    """Fill in the rule's shares of each item's footprint, in whole cells."""
    for i in range(limits.shape[0]):
        line = limits[i]
        for lane in range(lanes):
            area = np.int64(sides[0, lane]) * np.int64(sides[1, lane])
            line[lane] = limits.dtype.type(limit(area, percents[i]))
        tile(line, lanes)


@jit
def fill_places(size, container, lanes, highest, places):
    """Fill in the highest raised rest height under the lid, and 0xFF where items fit along y."""
    width, height, stride = container
    for lane in range(lanes):
        h, d = size[lane, 1], size[lane, 2]
        highest[lane] = _U8(max(height + 1 - d, 0))
        for j in range(places.size // lanes):
            # A missing item has side 0; it fits nowhere.
            inside = 0 < h <= width - j * stride
            places[j * lanes + lane] = _U8(255) if inside else _U8(0)
    tile(highest, lanes)


@jit
def finish(raised, highest, places, across, container, stable):
    """Set ``raised`` to 0 outside the container, and ``stable`` to 0 outside and above the lid."""
    length, stride, window = container
    # First the walls, then the lid: each loop writes one array.
    for i in range(raised.shape[0]):
        levels, holds = raised[i], stable[i]
        room = across.dtype.type(min(length - i * stride, window))
        for k in range(levels.size):
            level, place = levels[k], places[k]
            level = level if across[k] <= room else _U8(0)
            levels[k] = _U8(level & place)
        for k in range(levels.size):
            level, held = levels[k], holds[k]
            held = held if level <= highest[k] else _U8(0)
            holds[k] = held if level > 0 else _U8(0)


@jit
def fill_ground(levels, width, step, ground):
    """Fill the ground from heights in cells, ``levels[row of the batch, x * width + y]``."""
    stride, columns, lanes = step
    for x in range(ground.shape[0]):
        line = ground[x]
        for y in range(width):
            at = ((y % stride) * columns + y // stride) * lanes
            for lane in range(levels.shape[0]):
                line[at + lane] = levels[lane, x * width + y] + _U8(1)


@jit
def gather_rows(raised, stable, gathered):
    """Set gathered[lane, place] to the raised rest height if the placement is stable, else to 0."""
    levels, holds = flat(raised), flat(stable)
    lanes = gathered.shape[0]
    for k in range(levels.size):
        level, held = levels[k], holds[k]
        levels[k] = level if held else _U8(0)
    for place in range(levels.size // lanes):
        here = rows(levels, place * lanes, lanes)
        for lane in range(lanes):
            gathered[lane, place] = here[lane]
