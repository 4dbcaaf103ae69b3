"""Loads of blocks for `packing_env.kernels.loading`: complete them, extend a beam."""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit, kernel
from packing_env.kernels.loading.arrays_numba import HURRY, STOP

_FRESH = 4096
"""Spaces that one block may leave before they are compared."""


@jit
def _copy(source, target):
    """Copy numbers; an assignment of slices would need memory for a copy in between."""
    for k in range(source.size):
        target[k] = source[k]


@jit
def _next_space(spaces, num_spaces, container):
    """Return the space nearest to a corner of the container, and that corner's bits."""
    # The nearest, the largest of equals; a bit of the corner for each axis at its far side.
    nearest, at, corner, largest = np.int64(-1), 0, 0, 0.0
    for s in range(num_spaces):
        distance, bits, size = np.int64(0), 0, 1.0
        for a in range(3):
            # Distance to the nearer wall along the axis.
            low, high = spaces[s, a], container[a] - spaces[s, 3 + a]
            if high < low:
                bits |= 1 << a
            distance += min(low, high)
            size *= spaces[s, 3 + a] - spaces[s, a]
        if nearest < 0 or distance < nearest or (distance == nearest and size > largest):
            nearest, at, corner, largest = distance, s, bits, size
    return at, corner


@jit
def _find_neighbours(space, load, near):
    """Fill ``near [6, 1 + P]``: the number of blocks that touch each face of a space, and which."""
    placed, num_placed = load
    for a in range(3):
        b, c = (a + 1) % 3, (a + 2) % 3
        for far in range(2):
            found = 0
            # Blocks whose opposite face is in the plane, and overlaps.
            for p in range(num_placed):
                if space[a + 3 * far] == placed[p, a + 3 * (1 - far)]:
                    along_b = min(space[3 + b], placed[p, 3 + b]) > max(space[b], placed[p, b])
                    along_c = min(space[3 + c], placed[p, 3 + c]) > max(space[c], placed[p, c])
                    if along_b and along_c:
                        found += 1
                        near[2 * a + far, found] = p
            near[2 * a + far, 0] = found


@jit
def _contact(low, sides, space, container, placed, near):
    """Return the share of a block's surface that lies on walls or blocks."""
    touched, surface = 0.0, 0.0
    for a in range(3):
        b, c = (a + 1) % 3, (a + 2) % 3
        area = np.float64(sides[b]) * sides[c]
        surface += 2.0 * area
        for far in range(2):
            # On a wall, all of the face touches; inside of the space, none.
            plane = low[a] + sides[a] * far
            if plane == container[a] * far:
                touched += area
            elif plane == space[a + 3 * far]:
                # On a face of the space: the blocks that touch that face.
                for k in range(1, near[2 * a + far, 0] + 1):
                    p = near[2 * a + far, k]
                    over_b = min(low[b] + sides[b], placed[p, 3 + b]) - max(low[b], placed[p, b])
                    over_c = min(low[c] + sides[c], placed[p, 3 + c]) - max(low[c], placed[p, c])
                    touched += np.float64(max(over_b, 0)) * max(over_c, 0)
    return touched / surface


@jit
def _usable(sides, space, useful, shift):
    """Return the share of a space that boxes can fill beside a block, at most."""
    share = 1.0
    for a in range(3):
        side = space[3 + a] - space[a]
        rest = side - sides[a]
        # The longest sum of sides in the rest; a place may hold a longer one than asked for.
        reached = useful[a, rest >> shift]
        if reached > rest:
            reached = useful[a, (rest >> shift) - 1]
        share *= (sides[a] + reached) / side
    return share


@jit
def _insert(chosen, value, found, rank, block, low):
    """Insert a block where its rank belongs among the best; return how many there are."""
    # 1. A full list takes only what is better than its last.
    place = min(found, value.size - 1)
    if found == value.size and rank <= value[place]:
        return found
    # 2. Move the worse ones on.
    while place > 0 and value[place - 1] < rank:
        value[place] = value[place - 1]
        _copy(chosen[place - 1], chosen[place])
        place -= 1
    # 3. Write.
    value[place] = rank
    chosen[place, 0] = block
    for a in range(3):
        chosen[place, 1 + a] = low[a]
    return min(found + 1, value.size)


@jit
def _rank_blocks(problem, candidates, space, corner, load, scratch, best, hurry):
    """Fill ``best`` with the best blocks for a space, best first; return how many there are.

    The rank is ``volume * contact^4 * usable * number^-0.2`` (Araya, Guerrero, Nunez, European
    Journal of Operational Research 2017, their VCS). ``volume * number^-0.2`` is a block's worth
    and bounds its rank: the candidates come by descending worth, and few need their contact.
    """
    # 1. The space, and what touches it.
    blocks, _, container, useful, shift, _ = problem
    active, num_active = candidates
    near, low = scratch[0], scratch[1]
    chosen, value = best
    found, last = 0, value.size - 1
    x, y, z = space[3] - space[0], space[4] - space[1], space[5] - space[2]
    if not hurry:
        _find_neighbours(space, load, near)
    # 2. By descending worth, until no block can be among the best.
    for k in range(num_active):
        b = active[k]
        sides, worth = blocks.sides[b], blocks.worth[b]
        if found > last and worth <= value[last]:
            break
        # It does not fit.
        if sides[0] > x or sides[1] > y or sides[2] > z:
            continue
        # Its lower corner, in the chosen corner of the space.
        for a in range(3):
            low[a] = space[3 + a] - sides[a] if corner >> a & 1 else space[a]
        if hurry:
            return _insert(chosen, value, found, worth, b, low)
        # Contact is at most 1, and costs most: bound the rank first.
        bound = worth * _usable(sides, space, useful, shift)
        if found > last and bound <= value[last]:
            continue
        contact = _contact(low, sides, space, container, load[0], near)
        found = _insert(chosen, value, found, bound * contact**4, b, low)
    return found


@jit
def _best_blocks(problem, candidates, opened, load, scratch, best, hurry):
    """Fill ``best`` for the next space that takes a block, see :func:`_rank_blocks`.

    Returns:
        How many blocks there are, and the number of spaces; those that take none are removed.
    """
    spaces, num_spaces = opened
    while num_spaces:
        at, corner = _next_space(spaces, num_spaces, problem.container)
        found = _rank_blocks(problem, candidates, spaces[at], corner, load, scratch, best, hurry)
        if found:
            return found, num_spaces
        # No block fits: the last space takes its place.
        num_spaces -= 1
        _copy(spaces[num_spaces], spaces[at])
    return 0, 0


@jit
def _inside(one, other):
    """Return whether one cuboid lies in another."""
    inside = True
    for a in range(3):
        inside = inside and one[a] >= other[a] and one[3 + a] <= other[3 + a]
    return inside


@jit
def _split(space, block, fresh, num, least):
    """Add the maximal parts of a space beside a block that could take a box; return the number."""
    for a in range(3):
        for far in range(2):
            room = space[3 + a] - block[3 + a] if far else block[a] - space[a]
            if room >= least[a] and num < fresh.shape[0]:
                _copy(space, fresh[num])
                fresh[num, a + 3 * (1 - far)] = block[a + 3 * far]
                num += 1
    return num


@jit
def _cut(spaces, num_spaces, block, fresh, least):
    """Take a block out of the spaces; return their number. Spaces beyond the array are lost."""
    # 1. Spaces that meet the block give way to their parts beside it.
    kept, num = 0, 0
    for s in range(num_spaces):
        met = True
        for a in range(3):
            met = met and spaces[s, a] < block[3 + a] and spaces[s, 3 + a] > block[a]
        if met:
            num = _split(spaces[s], block, fresh, num, least)
        else:
            _copy(spaces[s], spaces[kept])
            kept += 1
    # 2. Parts that lie in another space are left out.
    whole = kept
    for i in range(num):
        hidden = kept == spaces.shape[0]
        for s in range(whole):
            hidden = hidden or _inside(fresh[i], spaces[s])
        # Of equal parts, the first stays.
        for j in range(num):
            if hidden:
                break
            first = j < i or not _inside(fresh[j], fresh[i])
            hidden = j != i and first and _inside(fresh[i], fresh[j])
        if not hidden:
            _copy(fresh[i], spaces[kept])
            kept += 1
    return kept


@jit
def _place(problem, choice, spaces, num_spaces, load, left, fresh):
    """Place a block; return the number of spaces. ``load`` has room for it."""
    # 1. Enter it.
    blocks = problem.blocks
    placed, num_placed = load
    b, block = choice[0], placed[num_placed]
    for a in range(3):
        block[a], block[3 + a] = choice[1 + a], choice[1 + a] + blocks.sides[b, a]
    block[6] = b
    # 2. Take its boxes.
    for k in range(blocks.kinds.shape[1]):
        kind = blocks.kinds[b, k]
        if kind < 0:
            break
        left[kind] -= blocks.amounts[b, k]
    # 3. Take it out of the spaces.
    return _cut(spaces, num_spaces, block, fresh, problem.least)


@jit
def _available(blocks, left, source, number, target):
    """Copy the blocks of whose boxes enough are left, in order; return how many there are."""
    kept = 0
    for n in range(number):
        b, enough = source[n], True
        for k in range(blocks.kinds.shape[1]):
            kind = blocks.kinds[b, k]
            if kind < 0:
                break
            if blocks.amounts[b, k] > left[kind]:
                enough = False
                break
        if enough:
            target[kept] = b
            kept += 1
    return kept


@jit
def _complete(problem, candidates, opened, load, left, scratch, halt):
    """Place the best block until none fits; return the number of blocks and the volume added."""
    active, num_active = candidates
    spaces, num_spaces = opened
    placed, num_placed = load
    _, _, fresh, one, rank = scratch
    added = 0.0
    # Boxes are only taken, so the list of blocks that may be placed only shrinks.
    while num_placed < placed.shape[0] and halt[0] != STOP:
        num_active = _available(problem.blocks, left, active, num_active, active)
        found, num_spaces = _best_blocks(
            problem, (active, num_active), (spaces, num_spaces), (placed, num_placed), scratch,
            (one, rank), halt[0] == HURRY,
        )  # fmt: skip
        if not found:
            break
        added += problem.blocks.volume[one[0, 0]]
        load = placed, num_placed
        num_spaces = _place(problem, one[0], spaces, num_spaces, load, left, fresh)
        num_placed += 1
    return num_placed, added


@jit
def _copy_load(beam, s, spaces, placed, left):
    """Copy load ``s`` of a beam."""
    for k in range(beam[1][s]):
        _copy(beam[0][s, k], spaces[k])
    for k in range(beam[3][s]):
        _copy(beam[2][s, k], placed[k])
    _copy(beam[4][s], left)


@kernel
def expand(problem, beam, successors, record, rows, halt):
    """Complete the best successors of some loads of a beam.

    Args:
        problem: See the package.
        beam: Arrays of loads, see the package. Spaces that take no block are removed.
        successors: Filled with ``chosen [W, K, 4]`` (block and lower corner, best first), the
            ``volume [W, K]``, and that of the completions, ``total [W, K]``; -1 where there is
            none.
        record: ``placed [P, 7]``, ``num_placed [1]`` and ``volume [1]`` of the best completion,
            replaced by better ones; ``P`` is the largest number of blocks of a load.
        rows: The first of the loads, and the one behind the last.
        halt: See the package. An unfinished completion counts as one.
    """
    # 1. Memory, one load at a time.
    spaces, num_spaces, placed, num_placed, left, volume = beam
    chosen, current, total = successors
    blocks, most = problem.blocks, record[0].shape[0]
    near, fresh = np.empty((6, most + 1), np.int32), np.empty((_FRESH, 6), np.int64)
    one, rank = np.empty((1, 4), np.int64), np.empty(1)
    scratch = near, np.empty(3, np.int64), fresh, one, rank
    value = np.empty(chosen.shape[1])
    active, rest = np.empty_like(problem.order), np.empty_like(problem.order)
    my_spaces, my_placed = np.empty_like(spaces[0]), np.empty_like(record[0])
    my_left = np.empty_like(left[0])
    # 2. Load by load.
    for s in range(rows[0], rows[1]):
        total[s] = -1.0
        if halt[0] == STOP:
            break
        # The best blocks for its next space.
        num_active = _available(blocks, left[s], problem.order, problem.order.size, active)
        num, load = 0, (placed[s], num_placed[s])
        if num_placed[s] < most:
            num, num_spaces[s] = _best_blocks(
                problem, (active, num_active), (spaces[s], num_spaces[s]), load, scratch,
                (chosen[s], value), False,
            )  # fmt: skip
        # Each of them, completed on a copy of the load.
        for k in range(num):
            if halt[0] == STOP:
                break
            _copy_load(beam, s, my_spaces, my_placed, my_left)
            for n in range(num_active):
                rest[n] = active[n]
            end = num_placed[s]
            mine = my_placed, end
            num_open = _place(problem, chosen[s, k], my_spaces, num_spaces[s], mine, my_left, fresh)
            current[s, k] = volume[s] + blocks.volume[chosen[s, k, 0]]
            end, added = _complete(
                problem, (rest, num_active), (my_spaces, num_open), (my_placed, end + 1), my_left,
                scratch, halt,
            )  # fmt: skip
            total[s, k] = current[s, k] + added
            # Keep the best completion of all.
            if total[s, k] > record[2][0]:
                record[1][0], record[2][0] = end, total[s, k]
                for p in range(end):
                    _copy(my_placed[p], record[0][p])


@kernel
def extend(problem, beam, parents, choices, after):
    """Fill the beam ``after`` with the loads that a block was added to.

    Args:
        problem: See the package.
        beam: Arrays of loads, see the package.
        parents: Rows of the beam, ``[N]``.
        choices: Block and lower corner for each, ``[N, 4]``.
        after: Arrays of N loads, each with room for a block more.
    """
    _, num_spaces, _, num_placed, _, volume = beam
    fresh = np.empty((_FRESH, 6), np.int64)
    for k in range(parents.size):
        s = parents[k]
        spaces, placed, left = after[0][k], after[2][k], after[4][k]
        _copy_load(beam, s, spaces, placed, left)
        load = placed, num_placed[s]
        after[1][k] = _place(problem, choices[k], spaces, num_spaces[s], load, left, fresh)
        after[3][k] = num_placed[s] + 1
        after[5][k] = volume[s] + problem.blocks.volume[choices[k, 0]]
