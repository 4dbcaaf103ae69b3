"""Stability of one placement at rest, compiled: measured here, decided by its rule.

``edges [2, U + 2]`` float64 describe the supporting cells. For window row u, ``edges[0, u + 1]`` is
the end of the last supporting cell, and ``edges[1, u + 1]`` the negated start of the first one.
Both are -inf in a row without supporting cells, and in one additional row on each side of the
window.
"""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled import stability_rules as rules
from packing_env.kernels.compiled.jit import INF, jit
from packing_env.kernels.layout import HALF_CELL, SUBCELL, VERTICAL
from packing_env.kernels.stability_rules import NAMES, Support

NONE = NAMES.index("none")
"""Index of the rule that accepts all placements."""


@jit
def find_support(heightmap, bottom, x, y, bar, edges):
    """Return the number of footprint cells that reach the bar, and the number of footprint cells.

    Fills the edges described above.
    """
    # Cells outside the footprint are +inf. The placement is legal, so all its cells lie inside the
    # container.
    count = area = 0
    edges[:] = -np.inf
    for u in range(bottom.shape[0]):
        for v in range(bottom.shape[1]):
            if bottom[u, v] == INF:
                continue
            area += 1
            if heightmap[x + u, y + v] - bottom[u, v] >= bar:
                count += 1
                edges[0, u + 1] = v + 1
                edges[1, u + 1] = max(edges[1, u + 1], np.float64(-v))
    return count, area


@jit
def holds(edges, point, centres):
    """Return whether the hull holds a point: see `kernels.stability_rules.chords_hold`.

    The hull encloses the cells' centres with ``centres``, otherwise their squares.
    """
    # A row of squares has corners on the lines at both of its sides, a row of centres on one line.
    span, inset = (0, HALF_CELL) if centres else (1, 0)
    upper = lower = -np.inf
    for side in range(2):
        # The steepest slopes to the left and to the right; the second pass is mirrored.
        reach, across = edges[side], -point[1] if side else point[1]
        left = right = -np.inf
        for line in range(edges.shape[1] - 2 + span):
            edge = max(reach[line + 1 - span], reach[line + 1])
            if edge == -np.inf:
                continue
            run = SUBCELL * line + inset - point[0]
            rise = SUBCELL * edge - inset - across
            slope = rise / (np.float64(abs(run)) if run else VERTICAL)
            if run <= 0:
                left = max(left, slope)
            if run >= 0:
                right = max(right, slope)
        upper, lower = lower, left + right
    return rules.chords_hold(upper, lower)


@jit
def contacts_hold(contacts, count, scale, inset, x, y):
    """Return whether the hull of rectangles holds a point: see `stability_rules.chords_hold`.

    Slopes are compared as fractions of integers, which is exact for lengths below 2^30.

    Args:
        contacts: ``[C, 5]`` int64; columns 1 to 4 are ``(x0, y0, x1, y1)`` in units.
        count: Number of rectangles.
        scale: Steps per unit; all other lengths are in steps.
        inset: Length by which the corners are moved inwards.
        x: Coordinate of the point along x, in steps.
        y: Its coordinate along y.
    """
    for side in range(2):
        # The steepest slopes to the left and to the right; a run of 0 means none. The second pass
        # is mirrored. If a corner lies straight above the point, its sign alone decides.
        left, left_run, right, right_run = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        above = False
        for k in range(count):
            rise = (y - scale * contacts[k, 2] if side else scale * contacts[k, 4] - y) - inset
            for end in range(2):
                edge = scale * contacts[k, 3] - inset if end else scale * contacts[k, 1] + inset
                run = edge - x
                if run == 0:
                    above = above or rise >= 0
                elif run < 0 and (left_run == 0 or rise * left_run > left * -run):
                    left, left_run = rise, -run
                elif run > 0 and (right_run == 0 or rise * right_run > right * run):
                    right, right_run = rise, run
        spans = left_run > 0 and right_run > 0 and left * right_run + right * left_run >= 0
        if not (above or spans):
            return False
    return True


@jit
def _holds_margin(edges, com, size, rule):
    """Return whether the hull holds the rectangle of a rule's margin around the centre of mass."""
    percent, centres = rules.MARGIN[rule], rules.CENTRES[rule]
    across, along = rules.margin(size[0], percent), rules.margin(size[1], percent)
    for x in (com[0] - across, com[0] + across):
        for y in (com[1] - along, com[1] + along):
            if not holds(edges, (x, y), centres):
                return False
    return True


@jit
def stands(rule, count, area, levels, bar, tolerance, in_hull, edges, size, com):
    """Return whether a placement is stable by a rule.

    Args:
        rule: Index of the rule.
        count: Supporting cells.
        area: Cells of the footprint.
        levels: Heights of the ground minus the item's lower surface, at the window's four corner
            cells; -inf outside the footprint.
        bar: Level that a cell must reach to support.
        tolerance: Largest distance at which a cell supports.
        in_hull: True if the rule's point is already known to be in its hull.
        edges: The supporting cells; read only if the rule has a hull and ``in_hull`` is False.
        size: Cells of the window along x and y.
        com: Centre of mass, 1/64 cell.
    """
    # 1. Count the corners at the rule's level.
    corners, touching = 0, False
    if rules.CORNERS[rule]:
        highest = max(max(levels[0], levels[1]), max(levels[2], levels[3]))
        least = highest - tolerance if rules.AT_HIGHEST[rule] else bar
        for level in levels:
            corners += 1 if level >= least else 0
        touching = highest >= bar
    # 2. The hull, unless it is known to hold the point.
    if rules.MARGIN[rule] >= 0:
        in_hull = _holds_margin(edges, com, size, rule)
    elif rules.HULLS[rule] and not in_hull:
        centres = rules.CENTRES[rule]
        point = (HALF_CELL * size[0], HALF_CELL * size[1]) if centres else (com[0], com[1])
        in_hull = holds(edges, point, centres)
    # 3. The verdict.
    limits = rules.limits(rule, area)
    return rules.judge(rule, Support(count, limits, corners, touching, in_hull, area))
