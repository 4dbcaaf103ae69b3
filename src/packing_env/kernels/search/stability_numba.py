"""The stability rules for a single placement of the search, compiled."""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled import stability_rules as rules
from packing_env.kernels.compiled.jit import jit, jit_ordered
from packing_env.kernels.layout import HALF_CELL, SUBCELL, VERTICAL
from packing_env.kernels.stability_rules import Support


@jit
def _span(ground, surface, bar):
    """Return the first supporting cell of a window row, the last plus 1, and their count."""
    first, last, count = np.int32(surface.size), np.int32(0), np.int32(0)
    for v in range(surface.size):
        supports = ground[v] - surface[v] >= bar
        at = np.int32(v)
        first = min(first, at if supports else np.int32(surface.size))
        last = max(last, at + np.int32(1) if supports else np.int32(0))
        count += np.int32(1) if supports else np.int32(0)
    return first, last, count


@jit
def _in_hull(point, rows, nothing, centres, low, high):
    """Return True for a point in the hull of the spans; see `packing_env.kernels.com_hull`.

    Line a lies between the window rows a - 1 and a and takes corners from both; a line of centres
    lies in row a and takes from that row alone.
    """
    inset, lines = (HALF_CELL, rows) if centres else (0, rows + 1)
    up_left = up_right = down_left = down_right = -np.inf
    for line in range(lines):
        first, last = (low[line], high[line]) if line < rows else (nothing, np.int32(0))
        if not centres and line > 0:
            first, last = min(first, low[line - 1]), max(last, high[line - 1])
        if last == 0:
            continue
        dx = SUBCELL * line + inset - point[0]
        distance = float(abs(dx)) if dx else VERTICAL
        up = (SUBCELL * last - inset - point[1]) / distance
        down = (point[1] - SUBCELL * first - inset) / distance
        if dx <= 0:
            up_left, down_left = max(up_left, up), max(down_left, down)
        if dx >= 0:
            up_right, down_right = max(up_right, up), max(down_right, down)
    return rules.chords_hold(up_left + up_right, down_left + down_right)


@jit
def _all_in_hull(point, around, rows, nothing, centres, low, high):
    """Return True if the hull holds a point, or all corners of the rectangle around it."""
    if around[0] == 0:  # a margin is at least 1/64 cell
        return _in_hull(point, rows, nothing, centres, low, high)
    for i in range(-1, 2, 2):
        for j in range(-1, 2, 2):
            corner = (point[0] + i * around[0], point[1] + j * around[1])
            if not _in_hull(corner, rows, nothing, centres, low, high):
                return False
    return True


@jit
def holds(heightmap, bottom, bar, point, around, area, rule, spans):
    """Return True if a rule calls a placement stable."""
    rows, nothing, count = bottom.shape[0], np.int32(bottom.shape[1]), 0
    low, high = spans
    for u in range(rows):
        low[u], high[u], found = _span(heightmap[u], bottom[u], bar)
        count += found
    shares = rules.limits(rule, area)
    in_hull = False
    if rules.HULLS[rule]:
        if rules.COUNTS[rule] and rules.judge(rule, Support(count, shares, 0, False, False)):
            return True  # a rule that holds without its hull needs none
        in_hull = _all_in_hull(point, around, rows, nothing, rules.CENTRES[rule], low, high)
    return rules.judge(rule, Support(count, shares, 0, False, in_hull))


@jit_ordered
def is_flat(heightmap):
    """Return True if all heights of a window are equal."""
    level = heightmap[0, 0]
    for u in range(heightmap.shape[0]):
        differ, row = np.int32(0), heightmap[u]
        for v in range(row.size):
            differ |= np.int32(row[v] != level)
        if differ:
            return False
    return True
