"""One item of any shape at rest, compiled: where, what carries it, and whether it stands by a rule.

The arithmetic is that of `core.feasibility.examine` and, for the rules, of `core.stability` for a
single placement: float32 for heights, float64 for slopes.
"""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit
from packing_env.kernels.layout import HALF_CELL, SUBCELL, VERTICAL
from packing_env.kernels.rules import NAMES as RULES

_NONE, _CORNERS, _CODE, _CENTRES, _SQUARES = range(len(RULES))
_INF = np.float32(np.inf)


@jit
def find_rest(heightmap, bottom, x, y):  # type: ignore[no-untyped-def]
    """Rest height of the item with lower corner (x, y); +inf where it leaves the container."""
    rest = -_INF
    for u in range(bottom.shape[0]):
        for v in range(bottom.shape[1]):
            low = bottom[u, v]
            if low == _INF:
                continue
            if x + u >= heightmap.shape[0] or y + v >= heightmap.shape[1]:
                return _INF
            rest = max(rest, heightmap[x + u, y + v] - low)
    return rest


@jit
def find_support(heightmap, bottom, x, y, bar, edges):  # type: ignore[no-untyped-def]
    """How many cells of the footprint reach the bar, and how many there are.

    ``edges[0, u + 1]`` becomes where the last of those of window row u ends, ``edges[1, u + 1]``
    where the first begins, negated; both -inf for none, as for the rows beside the window.
    """
    count = area = 0
    edges[:] = -np.inf
    for u in range(bottom.shape[0]):
        for v in range(bottom.shape[1]):
            if bottom[u, v] == _INF:
                continue
            area += 1
            if heightmap[x + u, y + v] - bottom[u, v] >= bar:
                count += 1
                edges[0, u + 1] = v + 1
                edges[1, u + 1] = max(edges[1, u + 1], np.float64(-v))
    return count, area


@jit
def _chord_passes(reach, sign, point, centres):  # type: ignore[no-untyped-def]
    """Whether the hull reaches the point from one side; see `core.stability.hull_holds`.

    With ``centres`` it is the hull of the cells' centres, else that of their squares.
    """
    inset = HALF_CELL if centres else 0
    left = right = -np.inf
    for line in range(reach.size - 2 if centres else reach.size - 1):
        edge = reach[line + 1] if centres else max(reach[line], reach[line + 1])
        if edge == -np.inf:
            continue
        run = SUBCELL * line + inset - point[0]
        rise = SUBCELL * edge - inset - sign * point[1]
        slope = rise / (np.float64(abs(run)) if run else VERTICAL)
        if run <= 0:
            left = max(left, slope)
        if run >= 0:
            right = max(right, slope)
    return left + right >= 0


@jit
def _corner_level(heightmap, place, far):  # type: ignore[no-untyped-def]
    """Level of a corner cell of the window, the far one along x, y or both; -inf outside."""
    bottom, x, y, _, size = place
    u, v = max(size[0] - 1, 0) if far[0] else 0, max(size[1] - 1, 0) if far[1] else 0
    low = bottom[u, v]
    return heightmap[x + u, y + v] - low if low < _INF else -_INF


@jit
def _corners_hold(levels, rest_bar, tolerance, count, area, rule):  # type: ignore[no-untyped-def]
    """Rules `area_corners` and `area_corners_code` from the levels of the window's corners."""
    highest = max(max(levels[0], levels[1]), max(levels[2], levels[3]))
    bar = highest - tolerance if rule == _CODE else rest_bar
    corners = 0
    for level in levels:
        corners += 1 if level >= bar else 0
    if rule == _CORNERS:
        four = 100 * count > 60 * area and corners == 4
        three = 100 * count > 80 * area and corners >= 3
        return four or three or 100 * count > 95 * area
    enough = 100 * count > (50 if corners == 4 else 85) * area
    return corners >= 3 and (100 * count > 95 * area or (highest >= rest_bar and enough))


@jit
def stands(rule, heightmap, place, bar, tolerance, found):  # type: ignore[no-untyped-def]
    """Whether the rule calls an item stable.

    ``place`` is (bottom, x, y, com, size) and ``found`` (count, area, edges) of
    :func:`find_support`, for cells that reach ``bar``.
    """
    com, size = place[3], place[4]
    count, area, edges = found
    if rule == _NONE or (rule == _CENTRES and 2 * count > area):
        return True
    if rule in (_SQUARES, _CENTRES):
        centres = rule == _CENTRES
        point = (HALF_CELL * size[0], HALF_CELL * size[1]) if centres else (com[0], com[1])
        above = _chord_passes(edges[0], 1, point, centres)
        return above and _chord_passes(edges[1], -1, point, centres)
    levels = (
        _corner_level(heightmap, place, (False, False)),
        _corner_level(heightmap, place, (True, False)),
        _corner_level(heightmap, place, (False, True)),
        _corner_level(heightmap, place, (True, True)),
    )
    return _corners_hold(levels, bar, tolerance, count, area, rule)
