"""Rules for placed boxes in `packing_env.kernels.loading`: support, loads, ways in and out.

A :data:`Pile` stores packed boxes as entries. An entry is the cuboid of a box or, if the rules
depend only on contacts (``Rules.by_box`` is 0), of a whole grid of equal boxes, which then carries
like a single box. A block is allowed if each of its boxes is allowed. :func:`enter` adds the boxes
one after the other; :func:`retreat` takes the last entries out again.

:func:`is_allowed` is the only judge of a placement. To add a rule, add its numbers to
`arrays_numba.Rules` and fill them in `packing_env.plan.loading.rules`. A condition on a box and its
contacts is a line of :func:`enter_box`. If it can be judged for whole grids, it is also a line of
:func:`_enter_layer`; else set ``by_box``. A condition on a block and its corner alone, such as a
closed part of the container, stands in :func:`is_allowed` before the block is entered.
"""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit
from packing_env.kernels.compiled.tables import allocate
from packing_env.kernels.loading.arrays_numba import REAR, SIDE, TOP, UNLIMITED, Pile
from packing_env.kernels.loading.cuts_numba import is_cut_off
from packing_env.kernels.loading.support_numba import find_contacts, stands

_MOST_CONTACTS = 64
"""Largest number of contacts of a box. A box with more is refused, or its hull omits some."""
_MOST_PARTS = 64
"""Largest number of parts of a joined block that wait to be taken apart."""
_SUPPORTS = 12
"""Room for supports per entry."""


def new_pile(number: int) -> Pile:
    """Return an empty pile with room for a number of entries."""
    number += 1
    room = {"N": number, "S": _SUPPORTS * number, "C": _MOST_CONTACTS, "W": _MOST_PARTS}
    return allocate(Pile, room)


@jit
def _in_way(box, other, door):
    """Return whether a box lies in the way of another box between its place and the door."""
    axis = 0 if door == REAR else 1 if door == SIDE else 2
    b, c = (axis + 1) % 3, (axis + 2) % 3
    met = box[b] < other[3 + b] and box[3 + b] > other[b]
    met = met and box[c] < other[3 + c] and box[3 + c] > other[c]
    return met and box[3 + axis] > other[axis]


@jit
def _may_rest(kind, rules, pile, num_contacts):
    """Return whether the rules allow a box of a type to rest on the entries that it touches."""
    for k in range(num_contacts):
        below = pile.kind[pile.contacts[k, 0]]
        if below < 0:  # the deck, or a pre-placed box
            if rules.on_like[kind] and pile.boxes[pile.contacts[k, 0], 5] > 0:
                return False
            continue
        if rules.no_stacking and not rules.stackable[below]:
            return False
        if rules.fragile_top and rules.fragile[below] and not rules.fragile[kind]:
            return False
        if rules.on_like[kind] and rules.like[below] != rules.like[kind]:
            return False
    return True


@jit
def _has_way(box, kind, rules, pile):
    """Return whether a box can be moved in and blocks no box that must come later."""
    for k in range(pile.num_near[0]):
        m = pile.near[k]
        there = pile.boxes[m]
        if _in_way(there, box, rules.door):
            return False
        # A box that is pushed in exactly below another would carry it.
        if rules.door != TOP and there[2] == box[5]:
            beside = there[0] >= box[3] or there[3] <= box[0]
            if not (beside or there[1] >= box[4] or there[4] <= box[1]):
                return False
        other = pile.kind[m]
        if other < 0 or not rules.ordered:
            continue
        later = False
        for r in range(rules.order.shape[0]):
            later = later or rules.order[r, other] > rules.order[r, kind]
        if later and _in_way(box, there, rules.door):
            return False
    return True


@jit
def load_below(n, weight, rules, pile):
    """Add a weight to all entries below entry ``n``.

    ``pile.depth`` holds the number of levels from each entry below up to ``n``.

    Returns:
        Whether they may bear that entry, and the least weight that one of them still bears.
    """
    boxes_on, first, on = pile.kind, pile.first, pile.on
    depth, pending = pile.depth, pile.pending
    kind, holds, spare = boxes_on[n], True, UNLIMITED
    # Go from the last entry down; supports were entered before the entries on them.
    depth[n], pending[0], waiting = 1, n, 1
    while waiting:
        waiting -= 1
        m = pending[waiting]
        for k in range(first[m], first[m + 1]):
            s = on[k]
            # Insert it in ascending order.
            at = waiting
            while depth[s] == 0 and at > 0 and pending[at - 1] > s:
                pending[at] = pending[at - 1]
                at -= 1
            if depth[s] == 0:
                pending[at] = s
                waiting += 1
            depth[s] = max(depth[s], depth[m] + 1)
        below = boxes_on[m]
        if m != n and below >= 0:
            pile.borne[m] += weight
            spare = min(spare, rules.max_load[below] - pile.borne[m])
            holds = holds and depth[m] <= rules.layers[below]
            for k in range(rules.order.shape[0] if rules.door else 0):
                holds = holds and rules.order[k, below] <= rules.order[k, kind]
        depth[m] = 0
    spare = spare if rules.loads else UNLIMITED
    return holds and spare >= 0, spare


@jit
def _add(box, kind, weight, pile, num_contacts):
    """Enter a cuboid with its contacts; return False if the pile has no room for them."""
    n = pile.size[0]
    start = pile.first[n]
    if (
        n + 1 >= pile.first.size
        or start + num_contacts > pile.on.size
        or num_contacts > pile.contacts.shape[0]
    ):
        return False
    for a in range(6):
        pile.boxes[n, a] = box[a]
    pile.kind[n], pile.weights[n], pile.borne[n] = kind, weight, 0
    pile.total[0] += weight
    for k in range(num_contacts if box[2] > 0 else 0):
        pile.on[start + k] = pile.contacts[k, 0]
    pile.first[n + 1] = start + (num_contacts if box[2] > 0 else 0)
    pile.near[pile.num_near[0]] = n
    pile.num_near[0] += 1
    pile.size[0] = n + 1
    return True


@jit
def retreat(pile, rules, count):
    """Take out the last entries until ``count`` entries are left."""
    while pile.size[0] > count:
        n = pile.size[0] - 1
        kind = pile.kind[n]
        if rules.below and kind >= 0:
            load_below(n, -rules.weight[kind], rules, pile)
        pile.total[0] -= pile.weights[n]
        pile.size[0] = n
    while pile.num_near[0] and pile.near[pile.num_near[0] - 1] >= pile.size[0]:
        pile.num_near[0] -= 1


@jit
def enter_box(box, kind, rules, pile, judge):
    """Enter one box; with ``judge``, return whether it is allowed."""
    num_contacts = 0
    if judge or rules.below:
        holds, num_contacts = stands(box, rules, pile)
        if num_contacts > pile.contacts.shape[0]:
            return False
        if judge and not (holds and _may_rest(kind, rules, pile, num_contacts)):
            return False
        if judge and (is_cut_off(box, rules) or not _has_way(box, kind, rules, pile)):
            return False
    n = pile.size[0]
    weight = rules.weight[kind]
    if judge and pile.total[0] + weight > rules.weight_limit:
        return False
    if not _add(box, kind, weight, pile, num_contacts):
        return False
    return not rules.below or load_below(n, weight, rules, pile)[0] or not judge


@jit
def _enter_grid(low, grid, kind, rules, pile, judge):
    """Enter the boxes of a grid, lowest first; with ``judge``, return whether all are allowed."""
    sides, repeats, box = rules.sides[grid], rules.repeats[grid], pile.box
    gap = rules.gap
    for k in range(repeats[2]):
        for i in range(repeats[0]):
            for j in range(repeats[1]):
                box[0], box[1] = low[0] + i * sides[0], low[1] + j * sides[1]
                box[2] = low[2] + k * sides[2]
                box[3], box[4] = box[0] + sides[0] - gap[0], box[1] + sides[1] - gap[1]
                box[5] = box[2] + sides[2]
                if not enter_box(box, kind, rules, pile, judge):
                    return False
    return True


@jit
def _enter_layer(low, grid, kind, rules, pile, judge):
    """Enter a grid as one cuboid; with ``judge``, return whether its lowest boxes are allowed."""
    sides, repeats, box = rules.sides[grid], rules.repeats[grid], pile.box
    # 1. Check the lowest layer: it carries the other layers, which have the same bases.
    box[2], box[5] = low[2], low[2] + sides[2]
    if judge and (low[2] > 0 or rules.deck):
        box[0], box[3] = low[0], low[0] + sides[0] * repeats[0]
        box[1], box[4] = low[1], low[1] + sides[1] * repeats[1]
        num_contacts, area = find_contacts(box, pile)
        if num_contacts == 0:
            return False
        # If the base of the layer is wholly supported, so is each box.
        whole = area >= (box[3] - box[0]) * (box[4] - box[1])
        for i in range(0 if whole else repeats[0]):
            for j in range(repeats[1]):
                box[0], box[1] = low[0] + i * sides[0], low[1] + j * sides[1]
                box[3], box[4] = box[0] + sides[0], box[1] + sides[1]
                if not stands(box, rules, pile)[0]:
                    return False
    # 2. Check the way in of the whole grid.
    for a in range(3):
        box[a], box[3 + a] = low[a], low[a] + sides[a] * repeats[a]
    if judge and (is_cut_off(box, rules) or not _has_way(box, kind, rules, pile)):
        return False
    weight = rules.weight[kind] * repeats[0] * repeats[1] * repeats[2]
    if judge and pile.total[0] + weight > rules.weight_limit:
        return False
    return _add(box, kind, weight, pile, np.int64(0))


@jit
def _enter(block, low, problem, pile, judge):
    """Enter the boxes of a block at a corner, in the order of packing.

    Args:
        block: Index of the block.
        low: Its lower corner ``[3]``.
        problem: See the package.
        pile: See :data:`Pile`.
        judge: True stops at the first box that is not allowed and returns False.

    Returns:
        Whether all boxes were entered; if not, take them out with :func:`retreat`.
    """
    rules, parts = problem.rules, pile.parts
    blocks, first = problem.blocks, rules.sides.shape[0]
    # 1. Blocks that wait to be taken apart; the last one is next.
    parts[0, 0] = block
    for a in range(3):
        parts[0, 1 + a] = low[a]
    waiting = 1
    while waiting:
        waiting -= 1
        b, corner = parts[waiting, 0], pile.corner
        for a in range(3):
            corner[a] = parts[waiting, 1 + a]
        if b < first:
            kind = blocks.types[b, 0]
            if rules.by_box:
                entered = _enter_grid(corner, b, kind, rules, pile, judge)
            else:
                entered = _enter_layer(corner, b, kind, rules, pile, judge)
            if not entered:
                return False
            continue
        # 2. The first part of a joined block comes first, so it is pushed last.
        if waiting + 2 > parts.shape[0]:
            return False
        one, other, axis = rules.parts[b, 0], rules.parts[b, 1], rules.parts[b, 2]
        for a in range(3):
            parts[waiting + 1, 1 + a] = corner[a]
            parts[waiting, 1 + a] = corner[a]
        parts[waiting, 1 + axis] += blocks.sides[one, axis]
        parts[waiting, 0], parts[waiting + 1, 0] = other, one
        waiting += 2
    return True


@jit
def enter(block, low, problem, pile):
    """Enter the boxes of a block that is allowed at a corner."""
    _enter(block, low, problem, pile, np.bool_(False))


@jit
def enter_before(pile, problem):
    """Reset a pile to the cuboids that are in the container from the start."""
    pile.size[0], pile.num_near[0], pile.total[0], pile.first[0] = 0, 0, 0, 0
    before = problem.room.before
    for k in range(before.shape[0]):
        _add(before[k], np.int32(-1), np.int64(0), pile, np.int64(0))


@jit
def refill(pile, problem, placed, num_placed):
    """Reset a pile to the cuboids from the start and the blocks of a load."""
    enter_before(pile, problem)
    for p in range(num_placed):
        enter(placed[p, 6], placed[p], problem, pile)


@jit
def is_allowed(block, low, problem, pile):
    """Return whether a block may be placed at a corner; leave the pile unchanged."""
    if not problem.rules.active:
        return True
    count = pile.size[0]
    # np.bool_, because numba would compile a second version for a constant.
    allowed = _enter(block, low, problem, pile, np.bool_(True))
    retreat(pile, problem.rules, count)
    return allowed


@jit
def _is_off(moment, mass, low, high, axis, problem):
    """Return whether a load's centre of mass stays too far off the middle, even if moved."""
    rules, side = problem.rules, problem.room.container[axis]
    if mass == 0.0:
        return False
    away = moment / mass - 0.5 * (side - rules.gap[axis])
    if rules.slide:  # by whole units; boxes that reach over one edge of a deck are moved off it
        before = np.float64(max(low - rules.floor[axis], 0))
        behind = np.float64(max(rules.floor[2 + axis] - high, 0))
        away -= min(max(np.round(away), -behind), before)
    return abs(away) > rules.off[axis]


@jit
def in_balance(problem, placed, num_placed):
    """Return the length of the longest balanced prefix of a load's blocks."""
    rules, container = problem.rules, problem.room.container
    if rules.off[0] < 0:
        return num_placed
    mass, along_x, along_y, whole = 0.0, 0.0, 0.0, 0
    low_x, low_y, high_x, high_y = container[0], container[1], np.int64(0), np.int64(0)
    for p in range(num_placed):
        # The moments and the extent of the load so far.
        b = placed[p, 6]
        mass += rules.mass[b]
        along_x += rules.mass[b] * placed[p, 0] + rules.moment[b, 0]
        along_y += rules.mass[b] * placed[p, 1] + rules.moment[b, 1]
        low_x, high_x = min(low_x, placed[p, 0]), max(high_x, placed[p, 3])
        low_y, high_y = min(low_y, placed[p, 1]), max(high_y, placed[p, 4])
        off = _is_off(along_x, mass, low_x, high_x, np.int64(0), problem)
        if not off and not _is_off(along_y, mass, low_y, high_y, np.int64(1), problem):
            whole = p + 1
    return whole
