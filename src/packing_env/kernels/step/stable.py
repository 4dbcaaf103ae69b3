"""Stability of one placement at rest, compiled: the rules of `core.stability` in float64.

The supporting cells come as ``edges [2, U + 2]`` float64: for window row u, ``edges[0, u + 1]`` is
where the last supporting cell ends, and ``edges[1, u + 1]`` where the first begins, negated. Both
are -inf in a row without any, as in the rows beside the window.
"""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit
from packing_env.kernels.cuboids.eager import RULES
from packing_env.kernels.support.eager import HALF_CELL, SUBCELL, VERTICAL

NONE, CORNERS, CODE, CENTRES, SQUARES = range(len(RULES))
"""Rules by their index in `RULES`; the hulls come last."""


@jit
def _chord_passes(reach, rows, sign, point, centres):
    """Tell whether the hull reaches the point from one side; see `core.stability.hull_holds`.

    With ``centres`` it is the hull of the cells' centres, else that of their squares.
    """
    inset = HALF_CELL if centres else 0
    left = right = -np.inf
    for line in range(rows if centres else rows + 1):
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
def hull_holds(edges, rows, point, centres):
    """Tell whether the point, in 1/64 cell, lies in the hull of the supporting cells."""
    above = _chord_passes(edges[0], rows, 1, point, centres)
    return above and _chord_passes(edges[1], rows, -1, point, centres)


@jit
def corners_hold(rule, count, area, levels, bar, tolerance):
    """Evaluate rules `area_corners` and `area_corners_code`.

    Args:
        rule: Which.
        count: Supporting cells.
        area: Cells of the footprint.
        levels: Heights of the ground under the item at the window's four corner cells, each less
            the item's lower surface; -inf outside the footprint.
        bar: Level from which on a cell supports.
        tolerance: Gap that a supporting cell may have.
    """
    highest = max(max(levels[0], levels[1]), max(levels[2], levels[3]))
    least = highest - tolerance if rule == CODE else bar
    corners = 0
    for level in levels:
        corners += 1 if level >= least else 0
    if rule == CORNERS:
        four = 100 * count > 60 * area and corners == 4
        three = 100 * count > 80 * area and corners >= 3
        return four or three or 100 * count > 95 * area
    enough = 100 * count > (50 if corners == 4 else 85) * area
    return corners >= 3 and (100 * count > 95 * area or (highest >= bar and enough))
