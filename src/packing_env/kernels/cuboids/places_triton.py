"""Places of one cuboid in one container of whole cells, in Triton: rest heights and stability.

Functions take a place ``(x, y)`` or a block of places. The ground is read from the heightmap; one
row of it stays in the multiprocessor's cache while its program runs. Heights are whole multiples of
the cell and are compared without a tolerance. Hulls are computed in half cells; slopes are compared
as fractions of integers (`support.hull_triton`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton.language as tl

from packing_env.kernels.compiled.scene_triton import part
from packing_env.kernels.stability_rules import RULES, Support
from packing_env.kernels.support.hull_triton import spans, steeper

_NONE = tl.constexpr(2**20)
"""Number greater than any cell index of a window.

In a row without support it stands for the first cell; negated, for the last.
"""


class Grid(NamedTuple):
    """Sides of the container and the lattice step in cells, and the cell in metres; compiled in.

    ``per_cell`` is the number of cells per metre. Programs write ``across`` cells along y at once.
    """

    length: Any
    width: Any
    height: Any
    stride: Any
    cell: Any
    per_cell: Any
    across: Any


class Rule(NamedTuple):
    """Compiled-in constants of a `stability_rules.Rule`, with three shares."""

    percents: Any
    corners: Any
    at_highest: Any
    hull: Any
    centres: Any


def rule_of(name: str) -> tuple[Rule | None, Any]:
    """Return a rule's constants and its formula; (None, None) if the rule needs no measurement.

    Missing shares are 100 %, which no count exceeds.
    """
    # A rule without measurements needs no code in the kernel.
    rule = RULES[name]
    if not rule.measures:
        return None, None
    percents = (*rule.percents, 100, 100, 100)[:3]
    corners, hull = rule.corners is not None, rule.hull is not None
    constants = Rule(percents, corners, rule.corners == "highest", hull, rule.hull == "centres")
    return constants, part(rule.formula)


@part
def limit(area, PERCENT: tl.constexpr):
    """Return a share of an area in whole cells, rounded down: see `stability_rules.limit`."""
    return PERCENT * area // 100


@part
def ground_at(line, x, y, there, GRID: tl.constexpr):
    """Return the height of the ground at ``(x, y)`` in metres; 0 if not ``there``."""
    return tl.load(line + (x * GRID.width + y), mask=there, other=0.0)


@part
def level_of(metres, GRID: tl.constexpr):
    """Return a height in cells."""
    return (metres * GRID.per_cell + 0.5).to(tl.int32)


@part
def find_rest(line, x, y, w, h, there, GRID: tl.constexpr):
    """Return the highest ground under a cuboid with these sides, metres."""
    # With sides of 0 no cell is read; this stands for a missing item.
    rest = (x * 0).to(tl.float32)
    for u in range(0, w):
        for v in range(0, h):
            rest = tl.maximum(rest, ground_at(line, x + u, y + v, there, GRID))
    return rest


@part
def count_support(line, x, y, w, h, there, rest, GRID: tl.constexpr):
    """Return the number of cells under a cuboid at its rest height."""
    count = x * 0
    for u in range(0, w):
        for v in range(0, h):
            ground = ground_at(line, x + u, y + v, there, GRID)
            count += (ground == rest).to(tl.int32)
    return count


@part
def _corners(line, x, y, w, h, there, rest, AT_HIGHEST: tl.constexpr, GRID: tl.constexpr):
    """Return the count of corner cells at the rule's level, and whether the highest supports."""
    # The four cells at the corners of the window.
    a = ground_at(line, x, y, there, GRID)
    b = ground_at(line, x, y + h - 1, there, GRID)
    c = ground_at(line, x + w - 1, y, there, GRID)
    d = ground_at(line, x + w - 1, y + h - 1, there, GRID)
    highest = tl.maximum(tl.maximum(a, b), tl.maximum(c, d))
    bar = highest if AT_HIGHEST else rest
    count = (a == bar).to(tl.int32) + (b == bar).to(tl.int32)
    return count + (c == bar).to(tl.int32) + (d == bar).to(tl.int32), highest == rest


@part
def _reach(line, x, y, h, there, rest, GRID: tl.constexpr):
    """Return where the supporting cells of a window row begin and end, and their count."""
    # In a row without supporting cells, the first is beyond the last.
    low, high, count = x * 0 + _NONE, x * 0 - _NONE, x * 0
    for v in range(0, h):
        supports = ground_at(line, x, y + v, there, GRID) == rest
        low = tl.minimum(low, tl.where(supports, v, _NONE))
        high = tl.maximum(high, tl.where(supports, v + 1, -_NONE))
        count += supports.to(tl.int32)
    return low, high, count


@part
def _in_hull(line, x, y, w, h, there, rest, CENTRES: tl.constexpr, GRID: tl.constexpr):
    """Return whether the window's centre is in the hull, and the count of supporting cells.

    The walk over the lines of corners is the same as in `support.hull_triton`.
    """
    # 1. The steepest slopes so far, to the left and to the right, above and below the point, as
    # fractions of integers; a rise of -1 means that there is none.
    count = x * 0
    no_rise = count - 1
    left_up, left_up_run, right_up, right_up_run = no_rise, count, no_rise, count
    left_down, left_down_run, right_down, right_down_run = no_rise, count, no_rise, count
    over, under = count > 0, count > 0
    before_low, before_high = count + _NONE, count - _NONE
    inset = 1 if CENTRES else 0
    # 2. Walk over the lines of corners: rows of centres, or the lines between rows of squares.
    for u in range(0, w if CENTRES else tl.where(w > 0, w + 1, 0)):
        cells = tl.where(u < w, h, 0)
        low, high, more = _reach(line, x + u, y, cells, there, rest, GRID)
        count += more
        # A line between two rows has the corners of both.
        first = low if CENTRES else tl.minimum(low, before_low)
        last = high if CENTRES else tl.maximum(high, before_high)
        before_low, before_high = low, high
        # The corners' distances from the point, in half cells.
        up, down, dx = 2 * last - inset - h, h - 2 * first - inset, 2 * u + inset - w
        run = tl.abs(dx) + count * 0
        left = last > tl.where(dx < 0, 0, _NONE)
        right = last > tl.where(dx > 0, 0, _NONE)
        here = last > tl.where(dx == 0, 0, _NONE)
        # A corner counts on its side of the point; if it is straight above or below, it counts
        # alone.
        left_up, left_up_run = steeper(up, run, left_up, left_up_run, left)
        right_up, right_up_run = steeper(up, run, right_up, right_up_run, right)
        left_down, left_down_run = steeper(down, run, left_down, left_down_run, left)
        right_down, right_down_run = steeper(down, run, right_down, right_down_run, right)
        over = over | (here & (up >= 0))
        under = under | (here & (down >= 0))
    # 3. The point is in the hull if chords pass above and below it.
    over = over | spans(left_up, left_up_run, right_up, right_up_run)
    under = under | spans(left_down, left_down_run, right_down, right_down_run)
    return over & under, count


@part
def stands(
    line, x, y, w, h, there, rest,
    RULE: tl.constexpr, FORMULA: tl.constexpr, GRID: tl.constexpr,
):  # fmt: skip
    """Return whether a cuboid that rests at this height is stable by a rule."""
    if RULE is None:
        stable = rest >= 0.0
    else:
        # The formula reads only the fields that its rule declares; the others may hold anything.
        corners, touching, in_hull = x * 0, rest < 0.0, rest < 0.0
        if RULE.corners:
            corners, touching = _corners(
                line, x, y, w, h, there, rest, RULE.at_highest, GRID
            )  # fmt: skip
        # The loop over the hull also counts the supporting cells.
        if RULE.hull:
            in_hull, count = _in_hull(line, x, y, w, h, there, rest, RULE.centres, GRID)
        else:
            count = count_support(line, x, y, w, h, there, rest, GRID)
        area = w * h
        low, middle = limit(area, RULE.percents[0]), limit(area, RULE.percents[1])
        limits = (low, middle, limit(area, RULE.percents[2]))
        stable = FORMULA(Support(count, limits, corners, touching, in_hull, area))
    return stable
