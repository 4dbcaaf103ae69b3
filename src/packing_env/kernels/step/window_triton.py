"""One placement of an item of any shape on a heightmap, in Triton: rest height, support, stability.

One program handles one row. It goes over the item's window, some lines at a time. The bits equal
those of `core.ground.Ground.at_rest`. Hulls are computed as in `kernels.com_hull`, in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import triton
import triton.language as tl

from packing_env.kernels import layout
from packing_env.kernels.compiled.scene_triton import part
from packing_env.kernels.cuboids.places_triton import limit
from packing_env.kernels.stability_rules import Support

_SUBCELL = tl.constexpr(float(layout.SUBCELL))
_HALF_CELL = tl.constexpr(float(layout.HALF_CELL))
_STRAIGHT = tl.constexpr(layout.VERTICAL)
"""Replaces a run of 0, for a corner straight above or below the point."""

_CELLS = 512
"""Number of cells of a window that a program reads at once."""

_INF = tl.constexpr(float("inf"))


class Window(NamedTuple):
    """Numbers of cells of the items' window; ``lines`` of ``lanes`` cells are read at once."""

    across: Any
    along: Any
    lines: Any
    lanes: Any


def window_of(shape: Sequence[int]) -> Window:
    """Return the compiled-in constants of a window with these numbers of cells."""
    # Read lines of about `_CELLS` cells in total at once.
    across, along = shape
    lanes = triton.next_power_of_2(along)
    lines = min(triton.next_power_of_2(across), max(1, _CELLS // lanes))
    return Window(across, along, lines, lanes)


class Place(NamedTuple):
    """A placement: pointers to the row's ground and the item's lower surface, and x and y in cells.

    ``(w, h)`` is the item's window; without an item, w and h are 0, and ``there`` is False.
    """

    ground: Any
    bottom: Any
    x: Any
    y: Any
    w: Any
    h: Any
    there: Any


class Bars(NamedTuple):
    """The level that a cell must reach to support, its tolerance, and the centre of mass."""

    bar: Any
    tolerance: Any
    com_x: Any
    com_y: Any


@part
def cells_of(first, WINDOW: tl.constexpr):
    """Return the cells (u, v) that are read at once, starting at line ``first``."""
    u = first + tl.arange(0, WINDOW.lines)[:, None]
    return u, tl.arange(0, WINDOW.lanes)[None, :]


@part
def gaps_in(place, first, WINDOW: tl.constexpr, GRID: tl.constexpr):
    """Return the gaps to the ground in lines of the window, and which cells are the item's.

    A gap is +inf where the item leaves the container.
    """
    # Cells beyond the item's window or outside its footprint are not read.
    u, v = cells_of(first, WINDOW)
    within = (u < place.w) & (v < place.h)
    low = tl.load(place.bottom + u * WINDOW.along + v, mask=within, other=_INF)
    cells = low < _INF
    # A cell outside the container has gap +inf, which makes the rest height +inf.
    inside = (place.x + u < GRID.length) & (place.y + v < GRID.width)
    at = (place.x + u) * GRID.width + place.y + v
    ground = tl.load(place.ground + at, mask=cells & inside, other=0.0)
    return tl.where(inside, ground - low, _INF), cells


@part
def rest_of(place, WINDOW: tl.constexpr, GRID: tl.constexpr):
    """Return the rest height; +inf if the item leaves the container or does not exist."""
    # The rest height is the largest gap over all lines of the window.
    rest = tl.full([], -_INF, tl.float32)
    for first in range(0, place.w, WINDOW.lines):
        gaps, cells = gaps_in(place, first, WINDOW, GRID)
        highest = tl.max(tl.max(tl.where(cells, gaps, -_INF), axis=1), axis=0)
        rest = tl.maximum(rest, highest)
    return tl.where(place.there, rest, _INF)


@part
def _slopes(edge, run, best):
    """Update the steepest slopes to the left and to the right with the corners of a line.

    ``edge`` is how far the corners are above the point, and ``run`` how far to its right, in 1/64
    cell.
    """
    slope = edge / tl.where(run == 0.0, _STRAIGHT, tl.abs(run))
    left = tl.max(tl.where(run <= 0.0, slope, -_INF), axis=0)
    right = tl.max(tl.where(run >= 0.0, slope, -_INF), axis=0)
    return tl.maximum(best[0], left), tl.maximum(best[1], right)


@part
def _spanned(place, bars, CENTRES: tl.constexpr, WINDOW: tl.constexpr, GRID: tl.constexpr):
    """Return whether the rule's point is in its hull: see `kernels.com_hull`."""
    # 1. The rule's point: the window's centre, or the centre of mass.
    none = tl.full([], -_INF, tl.float64)
    upper, lower = (none, none), (none, none)
    if CENTRES:
        px, py = place.w.to(tl.float64) * _HALF_CELL, place.h.to(tl.float64) * _HALF_CELL
    else:
        px, py = bars.com_x.to(tl.float64), bars.com_y.to(tl.float64)
    # 2. The last and the first supporting cell of each line, relative to the point.
    for first in range(0, place.w, WINDOW.lines):
        gaps, cells = gaps_in(place, first, WINDOW, GRID)
        _, v = cells_of(first, WINDOW)
        held, v = cells & (gaps >= bars.bar), v.to(tl.float64)
        last = tl.max(tl.where(held, v + 1.0, -_INF), axis=1)
        before = tl.max(tl.where(held, -v, -_INF), axis=1)
        line = (first + tl.arange(0, WINDOW.lines)).to(tl.float64)
        inset = _HALF_CELL if CENTRES else 0.0
        # 3. The steepest slopes to these corners, above the point and, by mirroring, below it.
        above, below = last * _SUBCELL - inset - py, before * _SUBCELL - inset + py
        run = line * _SUBCELL + inset - px
        upper, lower = _slopes(above, run, upper), _slopes(below, run, lower)
        if not CENTRES:  # a cell has corners on the lines at both of its sides
            run = run + _SUBCELL
            upper, lower = _slopes(above, run, upper), _slopes(below, run, lower)
    # 4. The point is in the hull if one chord passes above it and one below it.
    return (upper[0] + upper[1] >= 0.0) & (lower[0] + lower[1] >= 0.0)


@part
def count_cells(place, bar, WINDOW: tl.constexpr, GRID: tl.constexpr):
    """Return the number of supporting cells, and of cells of the footprint."""
    count, area = tl.full([], 0, tl.int32), tl.full([], 0, tl.int32)
    for first in range(0, place.w, WINDOW.lines):
        gaps, cells = gaps_in(place, first, WINDOW, GRID)
        held = (cells & (gaps >= bar)).to(tl.int32)
        count += tl.sum(tl.sum(held, axis=1), axis=0)
        area += tl.sum(tl.sum(cells.to(tl.int32), axis=1), axis=0)
    return count, area


@part
def _level(place, u, v, GRID: tl.constexpr, WINDOW: tl.constexpr):
    """Return the gap at a cell of the window; cells beyond the container are read at its edge."""
    x = tl.minimum(place.x + u, GRID.length - 1)
    y = tl.minimum(place.y + v, GRID.width - 1)
    low = tl.load(place.bottom + u * WINDOW.along + v)
    return tl.load(place.ground + (x * GRID.width + y)) - low


@part
def corners_of(place, bars, AT_HIGHEST: tl.constexpr, WINDOW: tl.constexpr, GRID: tl.constexpr):
    """Return the count of corner cells at the rule's level, and whether the highest one supports.

    The placement may be a block of placements, with a bar for each.
    """
    # The corner cells of the window; they may lie outside the footprint or the container.
    u, v = tl.maximum(place.w - 1, 0), tl.maximum(place.h - 1, 0)
    a, b = _level(place, u * 0, v * 0, GRID, WINDOW), _level(place, u, v * 0, GRID, WINDOW)
    c, d = _level(place, u * 0, v, GRID, WINDOW), _level(place, u, v, GRID, WINDOW)
    highest = tl.maximum(tl.maximum(a, b), tl.maximum(c, d))
    # A corner counts if it is level with the highest one, or if it reaches the bar.
    least = highest - bars.tolerance if AT_HIGHEST else bars.bar
    count = (a >= least).to(tl.int32) + (b >= least).to(tl.int32)
    count += (c >= least).to(tl.int32) + (d >= least).to(tl.int32)
    return count, highest >= bars.bar


@part
def limits_of(area, RULE: tl.constexpr):
    """Return the rule's shares of a footprint, in cells."""
    low, middle = limit(area, RULE.percents[0]), limit(area, RULE.percents[1])
    return low, middle, limit(area, RULE.percents[2])


@part
def holds(
    place, bars, count, area,
    RULE: tl.constexpr, FORMULA: tl.constexpr, WINDOW: tl.constexpr, GRID: tl.constexpr,
):  # fmt: skip
    """Return whether a placement inside the container is stable by a rule."""
    if RULE is None:
        stable = place.there
    else:
        # The formula reads only the fields that its rule declares; the others may hold anything.
        corners, touching, in_hull = count * 0, count < 0, count < 0
        if RULE.corners:
            corners, touching = corners_of(place, bars, RULE.at_highest, WINDOW, GRID)
        if RULE.hull:
            in_hull = _spanned(place, bars, RULE.centres, WINDOW, GRID)
        limits = limits_of(area, RULE)
        stable = FORMULA(Support(count, limits, corners, touching, in_hull, area))
    return stable


@part
def raise_cells(place, top, rest, WINDOW: tl.constexpr, GRID: tl.constexpr):
    """Raise the ground to an item's upper surface: see `core.heightmap.raise_window`."""
    for first in range(0, place.w, WINDOW.lines):
        u, v = cells_of(first, WINDOW)
        within = (u < place.w) & (v < place.h)
        within = within & (place.x + u < GRID.length) & (place.y + v < GRID.width)
        at = place.ground + ((place.x + u) * GRID.width + place.y + v)
        ground = tl.load(at, mask=within, other=0.0)
        above = tl.load(top + u * WINDOW.along + v, mask=within, other=-_INF)
        tl.store(at, tl.maximum(ground, rest + above), mask=within)
