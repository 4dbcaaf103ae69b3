"""Empty spaces of a load (`packing_env.kernels.loading`): the next one to fill, and their cuts.

The seventh number of a space is odd if its floor is the container's floor or the top of one grid,
as rules require. Without rules it is always 0. If boxes must be supported wholly, the floor of
every space is carried: by the container's floor, or by the tops of one or several grids. Half of
the number is the stage (:func:`stage_of`); a space with a new floor begins at stage 0.
"""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit, kernel
from packing_env.kernels.compiled.tables import allocate
from packing_env.kernels.loading.arrays_numba import Cutting
from packing_env.kernels.loading.cuts_numba import beyond, from_wall
from packing_env.kernels.loading.tables_numba import as_cutting, as_problem

_FRESH = 4096
"""Largest number of spaces that one block may leave before they are compared."""
_MOST_PARTS = 64
"""Largest number of parts of a joined block that wait to be taken apart."""


def new_cutting() -> Cutting:
    """Return memory to cut spaces in."""
    return allocate(Cutting, {"F": _FRESH, "W": _MOST_PARTS})


@jit
def copy(source, target):
    """Copy numbers; an assignment of slices would allocate a temporary copy."""
    for k in range(source.size):
        target[k] = source[k]


@jit
def stage_of(space):
    """Return the stage whose blocks a space is tried with next; see `arrays_numba.Rules`."""
    return space[6] >> 1


@jit
def next_space(spaces, num_spaces, container, far):
    """Return the next space to fill, and the bits of the corner of the container next to it.

    Of the spaces of the earliest stage, this is the one that is nearest to a corner. ``far`` has
    the bits of the axes at whose far side blocks may be placed.
    """
    # Find the nearest space, the largest of equally near ones. An axis on which its far side is
    # nearer sets a bit.
    nearest, at, corner, largest = np.int64(-1), 0, 0, 0.0
    for s in range(num_spaces):
        distance, bits, size = np.int64(0), 0, 1.0
        for a in range(3):
            # Distance to the nearer wall along the axis.
            low, high = spaces[s, a], container[a] - spaces[s, 3 + a]
            if high < low and far >> a & 1:
                bits |= 1 << a
                low = high
            distance += low
            size *= spaces[s, 3 + a] - spaces[s, a]
        later = stage_of(spaces[s]) - stage_of(spaces[at])
        nearer = distance < nearest or (distance == nearest and size > largest)
        if nearest < 0 or later < 0 or (later == 0 and nearer):
            nearest, at, corner, largest = distance, s, bits, size
    return at, corner


@jit
def _gap(axis, rules):
    """Return the clearance that the side of a block includes along an axis."""
    return rules.gap[axis] if axis < 2 else 0


@jit
def enter_corner(problem, sides, space, corner, low):
    """Write the lower corner of a block in a corner of a space; return whether the block fits.

    If the container's edge at this corner is cut off, the block is moved inwards until it touches
    the plane of the cut.
    """
    for a in range(3):
        low[a] = space[3 + a] - sides[a] if corner >> a & 1 else space[a]
    for cut in problem.rules.cuts:
        one, other = cut[0], cut[3]
        u = from_wall(cut[1], low[one], low[one] + sides[one] - _gap(one, problem.rules))
        v = from_wall(cut[4], low[other], low[other] + sides[other] - _gap(other, problem.rules))
        over = beyond(cut, u, v)
        if over > 0:
            axis, step = cut[0], (over + cut[5] - 1) // cut[5]
            low[axis] += step if cut[1] < 0 else -step
            if low[axis] < space[axis] or low[axis] + sides[axis] > space[3 + axis]:
                return False
    return True


@jit
def _inside(one, other):
    """Return whether one cuboid lies in another."""
    inside = True
    for a in range(3):
        inside = inside and one[a] >= other[a] and one[3 + a] <= other[3 + a]
    return inside


@jit
def _hides(other, one):
    """Return whether another space makes a space superfluous.

    A space with a floor (the top of a block) is useful inside a space without a floor, and so is a
    space that blocks of an earlier stage may fill.
    """
    floor = other[6] & 1 or not one[6] & 1
    return floor and stage_of(other) <= stage_of(one) and _inside(one, other)


@jit
def _split(space, block, fresh, num, problem):
    """Add the parts of a space around a block that may take a box; return the number of spaces.

    Each part is as large as possible. The part above the block extends beyond the block's top, so
    it has no floor. With rules, the part over the block's top alone, which has a floor, is added,
    too; with whole support, it replaces the part without a floor.
    """
    least, ruled = problem.room.least, problem.rules.active
    whole = ruled and problem.rules.support >= 1.0
    if ruled and space[5] - block[5] >= least[2] and num < fresh.shape[0]:
        copy(space, fresh[num])
        fresh[num, 2], fresh[num, 6] = block[5], 1
        for a in range(2):
            fresh[num, a] = max(space[a], block[a])
            fresh[num, 3 + a] = min(space[3 + a], block[3 + a])
        num += 1
    for a in range(3):
        for far in range(2):
            room = space[3 + a] - block[3 + a] if far else block[a] - space[a]
            if whole and a == 2 and far:
                continue
            if room >= least[a] and num < fresh.shape[0]:
                copy(space, fresh[num])
                fresh[num, a + 3 * (1 - far)] = block[a + 3 * far]
                if ruled and a == 2 and far:
                    fresh[num, 6] -= fresh[num, 6] & 1
                num += 1
    return num


@jit
def _bridge(one, other, old, fresh, num, least):
    """Add the spaces over the common floor of two spaces; return the number of fresh spaces.

    ``old`` holds the spaces that stay, and their number.
    """
    spaces, num_kept = old
    top = min(one[5], other[5])
    for a in range(2):
        b = 1 - a
        low, high = max(one[b], other[b]), min(one[3 + b], other[3 + b])
        apart = one[a] > other[3 + a] or other[a] > one[3 + a]
        if apart or high - low < least[b] or top - one[2] < least[2] or num == fresh.shape[0]:
            continue
        # 1. The joint floor is as long as both together, and as wide as their common width.
        joint = fresh[num]
        joint[a], joint[3 + a] = min(one[a], other[a]), max(one[3 + a], other[3 + a])
        joint[b], joint[3 + b] = low, high
        joint[2], joint[5], joint[6] = one[2], top, 1
        # 2. Skip a space that another space contains.
        hidden = _inside(joint, one) or _inside(joint, other)
        for s in range(num_kept):
            hidden = hidden or _inside(joint, spaces[s])
        for j in range(num):
            hidden = hidden or _inside(joint, fresh[j])
        num += not hidden
    return num


@jit
def _join_floors(problem, spaces, num_kept, top, fresh, num):
    """Add the spaces over joint floors at the height of a new top; return the numbers of spaces.

    Their floors are the largest rectangles in the union of the tops. Joint rectangles of two
    rectangles are added until there are no new joint rectangles (iterated consensus).
    """
    least = problem.room.least
    # 1. Join each new floor with all earlier floors; joint floors are new, too.
    i = np.int64(0)
    while i < num:
        if fresh[i, 2] == top:
            for s in range(num_kept):
                if spaces[s, 2] == top:
                    num = _bridge(fresh[i], spaces[s], (spaces, num_kept), fresh, num, least)
            for j in range(i):
                if fresh[j, 2] == top:
                    num = _bridge(fresh[i], fresh[j], (spaces, num_kept), fresh, num, least)
        i += 1
    # 2. Leave out old spaces inside a fresh space.
    rest = np.int64(0)
    for s in range(num_kept):
        hidden = False
        for j in range(num if spaces[s, 2] == top else 0):
            hidden = hidden or _inside(spaces[s], fresh[j])
        if not hidden:
            copy(spaces[s], spaces[rest])
            rest += 1
    return rest, num


@jit
def _hide_in_spaces(spaces, num_kept, block, fresh, num):
    """Set the floor of each fresh space to -1 if a space that stays makes it superfluous.

    A part of a space ends at a face of the block, and a space around it ends there, too. Joint
    floors were compared with all spaces when they were made. So only spaces beside the block count.
    """
    for s in range(num_kept):
        beside = True
        for a in range(3):
            beside = beside and spaces[s, a] <= block[3 + a] and spaces[s, 3 + a] >= block[a]
        for i in range(num if beside else 0):
            if fresh[i, 6] >= 0 and _hides(spaces[s], fresh[i]):
                fresh[i, 6] = -1


@jit
def _hide_in_parts(face, block, cutting, num):
    """Set a fresh space's floor to -1 if another fresh space at this face of the block hides it."""
    fresh, members = cutting.fresh, cutting.members
    count = 0
    for i in range(num):
        if fresh[i, (face + 3) % 6] == block[face] and fresh[i, 6] >= 0:
            members[count] = i
            count += 1
    for i in members[:count]:
        for j in members[:count]:
            hidden = i != j and fresh[j, 6] >= 0 and _hides(fresh[j], fresh[i])
            # Of equal parts, the first stays.
            if hidden and (j < i or not _hides(fresh[i], fresh[j])):
                fresh[i, 6] = -1
                break


@jit
def cut(problem, spaces, num_spaces, block, cutting):
    """Take a block out of the spaces; return their number. Spaces beyond the array are lost."""
    fresh = cutting.fresh
    # 1. Replace spaces that meet the block by their parts beside it.
    num_kept, num = np.int64(0), np.int64(0)
    for s in range(num_spaces):
        met = True
        for a in range(3):
            met = met and spaces[s, a] < block[3 + a] and spaces[s, 3 + a] > block[a]
        if met:
            num = _split(spaces[s], block, fresh, num, problem)
        else:
            copy(spaces[s], spaces[num_kept])
            num_kept += 1
    # 2. Join floors at one height; with clearances there is a gap between them.
    rules = problem.rules
    if rules.active and rules.support >= 1.0 and rules.gap[0] == 0:
        num_kept, num = _join_floors(problem, spaces, num_kept, block[5], fresh, num)
    # 3. Add the parts that no other space makes superfluous.
    _hide_in_spaces(spaces, num_kept, block, fresh, num)
    for face in range(6):
        _hide_in_parts(face, block, cutting, num)
    for i in range(num):
        if fresh[i, 6] >= 0 and num_kept < spaces.shape[0]:
            copy(fresh[i], spaces[num_kept])
            num_kept += 1
    return num_kept


@jit
def _cut_grids(problem, choice, spaces, num_spaces, cutting):
    """Take each grid of a block out of the spaces, so that spaces above begin at its top."""
    blocks, rules = problem.blocks, problem.rules
    waiting, grid = cutting.waiting, cutting.grid
    number = 1
    copy(choice, waiting[0])
    while number:
        number -= 1
        b, x, y, z = waiting[number]
        if b < rules.sides.shape[0]:
            grid[0], grid[1], grid[2] = x, y, z
            for a in range(3):
                grid[3 + a] = grid[a] + blocks.sides[b, a]
            num_spaces = cut(problem, spaces, num_spaces, grid, cutting)
            continue
        # Push both parts; the second lies beside the first.
        for k in range(2):
            waiting[number, 0] = rules.parts[b, k]
            waiting[number, 1], waiting[number, 2], waiting[number, 3] = x, y, z
            if k:
                axis = rules.parts[b, 2]
                waiting[number, 1 + axis] += blocks.sides[rules.parts[b, 0], axis]
            number += 1
    return num_spaces


@jit
def place_block(problem, choice, spaces, num_spaces, load, left, cutting):
    """Place a block; return the number of spaces. ``load`` has room for it."""
    # 1. Enter the block.
    blocks = problem.blocks
    placed, num_placed = load
    b, block = choice[0], placed[num_placed]
    for a in range(3):
        block[a], block[3 + a] = choice[1 + a], choice[1 + a] + blocks.sides[b, a]
    block[6] = b
    # 2. Take its boxes.
    for k in range(blocks.types.shape[1]):
        kind = blocks.types[b, k]
        if kind < 0:
            break
        left[kind] -= blocks.amounts[b, k]
    # 3. Take the block out of the spaces.
    if problem.rules.active:
        return _cut_grids(problem, choice, spaces, num_spaces, cutting)
    return cut(problem, spaces, num_spaces, block, cutting)


@kernel
def cut_spaces(tables, spaces, cuboids, cutting):
    """Take cuboids out of the spaces of an empty container ``[S, 7]``; return their number."""
    problem, number = as_problem(tables), np.int64(1)
    for k in range(cuboids.shape[0]):
        number = cut(problem, spaces, number, cuboids[k], as_cutting(cutting))
    return number
