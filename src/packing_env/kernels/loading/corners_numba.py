"""Corners of spaces, for `packing_env.kernels.loading`: what a box there may meet and rest on.

A corner is observed once. Most blocks that are not allowed there are then refused without a
judgement of each of their boxes (`rules_numba.is_allowed`).
"""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit
from packing_env.kernels.loading.arrays_numba import (
    AREA,
    LEAST,
    MOST,
    REAR,
    SIDE,
    TOP,
    UNLIMITED,
    WEIGHT,
)
from packing_env.kernels.loading.rules_numba import load_below


@jit
def observe(space, corner, rules, pile):
    """Fill ``pile.limits`` for a corner of a space; return False if no block may stand there."""
    list_near(space, rules, pile)
    # A cut edge moves boxes out of the corner.
    if len(rules.cuts):
        corner = -1
    supported = _find_limits(space, corner, rules, pile)
    covered = corner >= 0 and _is_covered(space, corner, rules, pile)
    # A joined block may leave its far corners empty, so no limit of a single box applies to it.
    if covered and corner > 0:
        pile.limits[WEIGHT] = -1
    return supported and (corner > 0 or not covered)


@jit
def list_near(space, rules, pile):
    """List the entries that a box in a space may meet; entries that are entered later are added."""
    near, number = pile.near, 0
    _, b, c = _axes(rules)
    passed = rules.door != TOP or rules.ordered
    for m in range(pile.size[0]):
        there = pile.boxes[m]
        over = there[5] >= space[2] and _meets(there, space, 0) and _meets(there, space, 1)
        if over or (passed and _meets(there, space, b) and _meets(there, space, c)):
            near[number] = m
            number += 1
    pile.num_near[0] = number


@jit
def _is_covered(space, corner, rules, pile):
    """Return whether an entry lies in the way of every box in a corner of a space."""
    axis, b, c = _axes(rules)
    for k in range(pile.num_near[0]):
        there = pile.boxes[pile.near[k]]
        covered = there[3 + axis] > space[axis] and _is_at(there, space, corner, b, rules)
        if covered and _is_at(there, space, corner, c, rules):
            return True
    return False


@jit
def _axes(rules):
    """Return the axis along which boxes come in, and the other axes."""
    axis = 0 if rules.door == REAR else 1 if rules.door == SIDE else 2
    return axis, (axis + 1) % 3, (axis + 2) % 3


@jit
def _meets(there, space, axis):
    """Return whether an entry and a space overlap along an axis."""
    return there[axis] < space[3 + axis] and there[3 + axis] > space[axis]


@jit
def _is_at(there, space, corner, axis, rules):
    """Return whether an entry overlaps every box in a corner of a space along an axis."""
    if corner >> axis & 1:
        end = space[3 + axis] - rules.gap[axis]
        return there[axis] < end and there[3 + axis] >= end
    return there[axis] <= space[axis] and there[3 + axis] > space[axis]


@jit
def _find_limits(space, corner, rules, pile):
    """Fill ``pile.limits``; return whether a box may have support."""
    limits, boxes, low, high = pile.limits, pile.boxes, pile.corner, pile.box
    for a in range(2):
        limits[LEAST + a], limits[MOST + a] = 0, UNLIMITED
    limits[AREA], limits[WEIGHT] = UNLIMITED, rules.weight_limit - pile.total[0]
    if (space[2] == 0 and not rules.deck) or corner < 0:
        return True
    # 1. The rectangle around all tops that may carry, their area, and what they bear.
    area, bears, tops = np.int64(0), np.int64(-1), 0
    for k in range(pile.num_near[0]):
        m = pile.near[k]
        kind = pile.kind[m]
        carries = boxes[m, 5] == space[2] and _meets(boxes[m], space, 0)
        carries = carries and _meets(boxes[m], space, 1)
        if not carries or (rules.no_stacking and kind >= 0 and not rules.stackable[kind]):
            continue
        top = np.int64(1)
        for a in range(2):
            start, end = max(boxes[m, a], space[a]), min(boxes[m, 3 + a], space[3 + a])
            low[a] = min(low[a], start) if tops else start
            high[a] = max(high[a], end) if tops else end
            top *= end - start
        area, tops = area + top, tops + 1
        spare = np.int64(UNLIMITED)
        if rules.loads and kind >= 0:
            spare = min(load_below(m, 0, rules, pile)[1], rules.max_load[kind] - pile.borne[m])
        bears = max(bears, spare)
    # 2. A base reaches a top, and its centre is over the rectangle.
    for a in range(2):
        least, most = low[a] - space[a], high[a] - space[a]
        if corner >> a & 1:
            end = space[3 + a] - rules.gap[a]
            least, most = end - high[a], end - low[a]
        limits[LEAST + a] = 2 * least if rules.hull else least + 1
        limits[MOST + a] = 2 * most if rules.hull else UNLIMITED
    limits[AREA], limits[WEIGHT] = area, min(limits[WEIGHT], bears)
    return tops > 0


@jit
def may_stand(block, problem, pile):
    """Return False if the limits show that a block is not allowed in the observed corner."""
    rules, limits = problem.rules, pile.limits
    # The limits are for a box in this corner; the first box of a joined block may lie elsewhere.
    if block >= rules.sides.shape[0]:
        return True
    x, y = rules.sides[block, 0] - rules.gap[0], rules.sides[block, 1] - rules.gap[1]
    inside = limits[LEAST] <= x <= limits[MOST] and limits[LEAST + 1] <= y <= limits[MOST + 1]
    light = rules.weight[problem.blocks.types[block, 0]] <= limits[WEIGHT]
    return inside and light and rules.support * (x * y) <= limits[AREA]
