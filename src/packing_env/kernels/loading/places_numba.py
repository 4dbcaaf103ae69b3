"""A place for one more box in a finished load, for `packing_env.kernels.loading`.

A box is tried in corners where faces of other boxes or walls meet: beside a face along x, beside a
face along y, and on the floor or on a top. The result is the lowest place that all rules allow.
"""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit, kernel
from packing_env.kernels.loading.arrays_numba import TOP
from packing_env.kernels.loading.corners_numba import list_near
from packing_env.kernels.loading.rules_numba import enter_before, enter_box, in_balance, retreat
from packing_env.kernels.loading.tables_numba import as_pile, as_problem


@jit
def _enter_load(problem, pile, load, budget):
    """Fill a pile with the boxes of a load; return whether the pile has room for all boxes."""
    rules, box, entered = problem.rules, pile.box, True
    enter_before(pile, problem)
    for p in range(load.shape[0]):
        for a in range(3):
            box[a], box[3 + a] = load[p, a], load[p, 3 + a]
        for a in range(2):
            box[3 + a] -= rules.gap[a]
        kind = problem.blocks.types[load[p, 6], 0]
        entered = entered and enter_box(box, kind, rules, pile, np.bool_(False))
        budget[0] -= pile.size[0] if rules.below else 1
    return entered


@jit
def _find_blockers(box, rules, pile, blockers):
    """Write the entries beside or above a box that it meets along x; return their number.

    Entries beside the box that are closer than the gap are included.
    """
    gap, number = rules.gap[0], 0
    for k in range(pile.num_near[0]):
        there = pile.boxes[pile.near[k]]
        below = there[2] < box[5]
        along_x = gap if below else 0
        met = box[0] < there[3] + along_x and box[3] + along_x > there[0]
        if met and there[5] > box[2] and (below or rules.door == TOP):
            blockers[number] = pile.near[k]
            number += 1
    return number


@jit
def _blocked_until(box, rules, pile, blockers, number):
    """Return the y up to which one of the blockers is in the way of a box, gaps included.

    If the place is free, return the y of the box.
    """
    gap = rules.gap[1]
    for k in range(number):
        there = pile.boxes[blockers[k]]
        along_y = gap if there[2] < box[5] else 0
        if box[1] < there[4] + along_y and box[4] + along_y > there[1]:
            return there[4] + along_y
    return box[1]


@jit
def _try_over(problem, pile, load, grid, base, lengths, blockers, box, budget):
    """Find an allowed place whose base meets a rectangle; the corner is left in ``box``."""
    rules, count, added = problem.rules, pile.size[0], load.shape[0] - 1
    kind, sides = problem.blocks.types[grid, 0], problem.blocks.sides[grid]
    xs, ys = lengths
    space = pile.box
    for a in range(2):
        space[a], space[3 + a] = base[a] - sides[a], base[2 + a] + sides[a]
    space[2], space[5] = box[2], box[5]
    list_near(space, rules, pile)
    budget[0] -= count
    first_x = np.searchsorted(xs, base[0] - sides[0] + rules.gap[0], "right")
    first_y = np.searchsorted(ys, base[1] - sides[1] + rules.gap[1], "right")
    for i in range(first_x, xs.size):
        x = xs[i]
        if x >= base[2]:
            break
        # The blockers are the same for every y.
        box[0], box[3] = x, x + sides[0] - rules.gap[0]
        number = _find_blockers(box, rules, pile, blockers)
        budget[0] -= pile.num_near[0]
        j = first_y
        while j < ys.size and ys[j] < base[3]:
            y = ys[j]
            budget[0] -= 1 + number
            if budget[0] < 0:
                return False
            box[1], box[4] = y, y + sides[1] - rules.gap[1]
            free_from = _blocked_until(box, rules, pile, blockers, number)
            j = np.searchsorted(ys, free_from) if free_from > y else j + 1
            if free_from > y:
                continue
            budget[0] -= 2 * pile.num_near[0]
            allowed = enter_box(box, kind, rules, pile, np.bool_(True))
            retreat(pile, rules, count)
            for a in range(3 if allowed else 0):
                load[added, a], load[added, 3 + a] = box[a], box[a] + sides[a]
            if allowed and in_balance(problem, load, added + 1) == added + 1:
                return True
    return False


@kernel
def find_place(tables, pile_table, load, grid, lengths, memory, budget):
    """Find the lowest place for a box in a load; return whether there is one.

    Args:
        tables: Tables of the problem; each block is one box.
        pile_table: Table of a pile, used as memory.
        load: Boxes ``[N, 7]``, like ``placed``. The last row receives the place.
        grid: The block.
        lengths: Possible coordinates of its lower corner along x, y and z, three ascending arrays.
        memory: Arrays ``[N + B]`` int32, for the load and the cuboids from before, and ``[6]``.
        budget: ``[1]`` number of comparisons of two boxes; negative at the end if it was too small.
    """
    problem, pile = as_problem(tables), as_pile(pile_table)
    blockers, box = memory
    xs, ys, zs = lengths
    sides, container = problem.blocks.sides[grid], problem.room.container
    load[-1, 6] = grid
    if not _enter_load(problem, pile, load[:-1], budget):
        budget[0] = -1
        return False
    for z in zs:
        box[2], box[5] = z, z + sides[2]
        if z == 0:
            floor = 0, 0, container[0], container[1]
            if _try_over(problem, pile, load, grid, floor, (xs, ys), blockers, box, budget):
                return True
            continue
        for m in range(pile.size[0]):
            if pile.boxes[m, 5] != z:
                continue
            there = pile.boxes[m]
            base = there[0], there[1], there[3], there[4]
            if _try_over(problem, pile, load, grid, base, (xs, ys), blockers, box, budget):
                return True
    return False
