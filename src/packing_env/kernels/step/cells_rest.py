"""One cuboid on whole cells at rest, compiled: what carries it, and whether it stands by a rule.

The rules are those of `core.stability` for a single placement, the hulls in its float64 arithmetic.
Heights are in cells, a container's in one line of a flat array: cell (x, y) of one that begins at
``base`` is the (base + x * width + y)-th. A window is given as ``(at, w, h)``, the place of its
lower corner and its cells along x and y.
"""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled import bytes as vectors
from packing_env.kernels.compiled.bytes import WIDTH
from packing_env.kernels.compiled.jit import jit
from packing_env.kernels.layout import HALF_CELL, SUBCELL, VERTICAL
from packing_env.kernels.rules import NAMES as RULES

_NONE, _CORNERS, _CODE, _CENTRES, _SQUARES = range(len(RULES))


@jit
def _find_edges(levels, width, window, top, edges):  # type: ignore[no-untyped-def]
    """How far the cells as high as ``top`` reach.

    ``edges[0, u + 1]`` and ``edges[1, u + 1]`` become how far those of window row u reach from its
    lower and from its upper end, 0 for none; the rows beside the window have none.
    """
    at, w, h = window
    for u in range(w):
        row, up, down = levels.ctypes.data + at + u * width, 0, 0
        for k in range(0, h, WIDTH):
            same = vectors.equal(vectors.load(row + k), top)
            same = vectors.keep_first(same, min(h - k, WIDTH))
            if vectors.any_of(same):
                up = k + vectors.end_of(same)
                down = down if down else h - k - vectors.first_of(same)
        edges[0, u + 1], edges[1, u + 1] = up, down
    edges[:, 0] = 0
    edges[:, w + 1] = 0


@jit
def _chord_passes(reach, w, h, centres):  # type: ignore[no-untyped-def]
    """Whether the hull reaches the window's centre from one side; see `core.stability.hull_holds`.

    With ``centres`` it is the hull of the cells' centres, else that of their squares.
    """
    inset = HALF_CELL if centres else 0
    left = right = -np.inf
    for line in range(w if centres else w + 1):
        edge = reach[line + 1] if centres else max(reach[line], reach[line + 1])
        if edge == 0:
            continue
        run = SUBCELL * line + inset - HALF_CELL * w
        rise = np.float64(SUBCELL * edge - inset - HALF_CELL * h)
        slope = rise / (np.float64(abs(run)) if run else VERTICAL)
        if run <= 0:
            left = max(left, slope)
        if run >= 0:
            right = max(right, slope)
    return left + right >= 0


@jit
def _hull_holds(edges, w, h, centres):  # type: ignore[no-untyped-def]
    return _chord_passes(edges[0], w, h, centres) and _chord_passes(edges[1], w, h, centres)


@jit
def _corners_hold(levels, width, window, top, count, rule):  # type: ignore[no-untyped-def]
    """Rules `area_corners` and `area_corners_code`."""
    near, w, h = window
    far = near + (w - 1) * width
    corner = (levels[near], levels[near + h - 1], levels[far], levels[far + h - 1])
    bar = top
    if rule == _CODE:
        bar = max(max(corner[0], corner[1]), max(corner[2], corner[3]))
    corners, area = 0, w * h
    for height in corner:
        corners += 1 if height >= bar else 0
    if rule == _CORNERS:
        four = 100 * count > 60 * area and corners == 4
        three = 100 * count > 80 * area and corners >= 3
        return four or three or 100 * count > 95 * area
    enough = 100 * count > (50 if corners == 4 else 85) * area
    return corners >= 3 and (100 * count > 95 * area or (bar >= top and enough))


@jit
def stands(rule, carried):  # type: ignore[no-untyped-def]
    """Whether the rule calls a cuboid stable.

    ``carried`` is the heights, the container's width, the window, the rest height, how many cells
    of the window have it, and room for the edges of each window row.
    """
    levels, width, window, top, count, edges = carried
    _, w, h = window
    if rule == _NONE or count == w * h:  # every rule holds for what is carried by all its cells
        return True
    if rule >= _CENTRES and 2 * count > w * h:  # no side of a line through the centre has so many
        return True
    if rule >= _CENTRES:  # the hulls come last
        _find_edges(levels, width, window, top, edges)
        return _hull_holds(edges, w, h, rule == _CENTRES)
    return _corners_hold(levels, width, window, top, count, rule)
