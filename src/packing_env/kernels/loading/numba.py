"""Completions of loads and extensions of a beam for `packing_env.kernels.loading`."""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit, kernel
from packing_env.kernels.loading.corners_numba import list_near, may_stand, observe
from packing_env.kernels.loading.rules_numba import enter, in_balance, is_allowed, refill, retreat
from packing_env.kernels.loading.spaces_numba import (
    copy,
    enter_corner,
    next_space,
    place_block,
    stage_of,
)
from packing_env.kernels.loading.tables_numba import (
    as_beam,
    as_cutting,
    as_pile,
    as_problem,
    as_scratch,
)


@jit
def _find_neighbours(space, load, near):
    """Fill ``near [6, 1 + P]``: the number of blocks that touch each face, and their indices."""
    placed, num_placed = load
    for face in range(6):
        near[face, 0] = 0
    for p in range(num_placed):
        beside = True
        for a in range(3):
            beside = beside and placed[p, a] <= space[3 + a] and placed[p, 3 + a] >= space[a]
        if not beside:
            continue
        for a in range(3):
            b, c = (a + 1) % 3, (a + 2) % 3
            along_b = min(space[3 + b], placed[p, 3 + b]) > max(space[b], placed[p, b])
            along_c = min(space[3 + c], placed[p, 3 + c]) > max(space[c], placed[p, c])
            # The block's opposite face lies in the plane of the face and overlaps it.
            for far in range(2 if along_b and along_c else 0):
                if space[a + 3 * far] == placed[p, a + 3 * (1 - far)]:
                    count = near[2 * a + far, 0] + 1
                    near[2 * a + far, count] = p
                    near[2 * a + far, 0] = count


@jit
def _contact(low, sides, space, container, placed, near):
    """Return the share of a block's surface that lies on walls or blocks.

    If ``near`` is None, each face of the space counts as covered by blocks: an upper bound.
    """
    touched, surface = 0.0, 0.0
    for a in range(3):
        b, c = (a + 1) % 3, (a + 2) % 3
        area = np.float64(sides[b]) * sides[c]
        surface += 2.0 * area
        for far in range(2):
            # On a wall, the whole face touches; inside the space, nothing touches.
            plane = low[a] + sides[a] * far
            if plane == container[a] * far:
                touched += area
            elif plane == space[a + 3 * far]:
                # On a face of the space, count the blocks that touch this face.
                if near is None:
                    touched += area
                    continue
                for k in range(1, near[2 * a + far, 0] + 1):
                    p = near[2 * a + far, k]
                    over_b = min(low[b] + sides[b], placed[p, 3 + b]) - max(low[b], placed[p, b])
                    over_c = min(low[c] + sides[c], placed[p, 3 + c]) - max(low[c], placed[p, c])
                    touched += np.float64(max(over_b, 0)) * max(over_c, 0)
    return touched / surface


@jit
def _usable(sides, space, room):
    """Return the largest share of a space that boxes can fill beside a block."""
    share, useful, shift = 1.0, room.useful, room.shift
    for a in range(3):
        side = space[3 + a] - space[a]
        rest = side - sides[a]
        # The longest sum of sides beside the block; an entry of the table may be too long.
        reached = useful[a, rest >> shift]
        if reached > rest:
            reached = useful[a, (rest >> shift) - 1]
        share *= (sides[a] + reached) / side
    return share


@jit
def _insert(chosen, value, num_best, rank, block, low):
    """Insert a block into the best blocks by its rank; return the number of best blocks."""
    # 1. If the list is full, accept only blocks that beat its last block.
    place = min(num_best, value.size - 1)
    if num_best == value.size and rank <= value[place]:
        return num_best
    # 2. Move worse blocks on.
    while place > 0 and value[place - 1] < rank:
        value[place] = value[place - 1]
        copy(chosen[place - 1], chosen[place])
        place -= 1
    # 3. Write.
    value[place] = rank
    chosen[place, 0] = block
    for a in range(3):
        chosen[place, 1 + a] = low[a]
    return min(num_best + 1, value.size)


@jit
def _fits(sides, space):
    x, y, z = space[3] - space[0], space[4] - space[1], space[5] - space[2]
    return sides[0] <= x and sides[1] <= y and sides[2] <= z


@jit
def _takes_a_box(space, left, problem):
    """Return whether a space takes, in some orientation, a box of its stage that is left."""
    lengths, stage = problem.room.lengths, stage_of(space)
    x, y, z = space[3] - space[0], space[4] - space[1], space[5] - space[2]
    low, high = min(x, y), max(x, y)
    short, middle, long = min(low, z), max(low, min(high, z)), max(high, z)
    for t in range(left.size):
        fits = lengths[t, 0] <= short and lengths[t, 1] <= middle and lengths[t, 2] <= long
        if fits and left[t] > 0 and problem.rules.stage[t] == stage:
            return True
    return False


@jit
def _stage_of_block(block, problem):
    """Return the latest stage of the boxes in a block."""
    stage, types = np.int64(0), problem.blocks.types
    for k in range(types.shape[1]):
        if types[block, k] >= 0:
            stage = max(stage, problem.rules.stage[types[block, k]])
    return stage


@jit
def _rank_blocks(problem, candidates, space, corner, load, memory, best):
    """Fill ``best`` with the best blocks for a space, best first; return their number.

    The rank is ``volume * contact^4 * usable * number^-0.2`` (Araya, Guerrero, Nunez, European
    Journal of Operational Research 2017, their VCS). ``volume * number^-0.2`` is a block's worth
    and bounds its rank. Candidates come by descending worth, so the contact of only a few has to be
    computed.
    """
    # 1. Find the blocks that touch the space.
    blocks, room = problem.blocks, problem.room
    active, num_active = candidates
    scratch, pile, _ = memory
    near, low = scratch.near, scratch.low
    chosen, value = best
    num_best, last, stage = np.int64(0), value.size - 1, stage_of(space)
    _find_neighbours(space, load, near)
    ruled = problem.rules.active
    if ruled and not observe(space, corner, problem.rules, pile):
        return num_best
    # 2. Rank blocks by descending worth until no other block can be among the best.
    for k in range(num_active):
        b = np.int64(active[k])
        sides, worth = blocks.sides[b], blocks.worth[b]
        if num_best > last and worth <= value[last]:
            break
        if problem.rules.stages > 1 and _stage_of_block(b, problem) != stage:
            continue
        # The block does not fit.
        if not _fits(sides, space) or not enter_corner(problem, sides, space, corner, low):
            continue
        if ruled and not may_stand(b, problem, pile):
            continue
        # Contact takes the most time, so bound the rank first.
        bound = worth * _usable(sides, space, room)
        most = _contact(low, sides, space, room.container, load[0], None)
        if num_best > last and bound * most**4 <= value[last]:
            continue
        rank = bound * _contact(low, sides, space, room.container, load[0], near) ** 4
        better = num_best <= last or rank > value[last]
        if not better or not is_allowed(b, low, problem, pile):
            continue
        num_best = _insert(chosen, value, num_best, rank, b, low)
    return num_best


@jit
def _best_blocks(problem, candidates, opened, load, left, memory, best):
    """Fill ``best`` for the next space that takes a block (:func:`_rank_blocks`).

    Returns:
        The number of blocks, and the number of spaces that remain; spaces that take no block of any
        stage are removed.
    """
    spaces, num_spaces = opened
    while num_spaces:
        far = problem.rules.corners
        at, corner = next_space(spaces, num_spaces, problem.room.container, far)
        space = spaces[at]
        if _takes_a_box(space, left, problem):
            num_best = _rank_blocks(problem, candidates, space, corner, load, memory, best)
            if num_best:
                return num_best, num_spaces
        # No block of this stage fits: the next stage comes, or the last space takes its place.
        if stage_of(space) + 1 < problem.rules.stages:
            space[6] += 2
            continue
        num_spaces -= 1
        copy(spaces[num_spaces], spaces[at])
    return 0, 0


@jit
def _available(blocks, left, source, number, target):
    """Copy the blocks for which enough boxes are left, in order; return their number."""
    num_available = 0
    for n in range(number):
        b, enough = source[n], True
        for k in range(blocks.types.shape[1]):
            kind = blocks.types[b, k]
            if kind < 0:
                break
            if blocks.amounts[b, k] > left[kind]:
                enough = False
                break
        if enough:
            target[num_available] = b
            num_available += 1
    return num_available


@jit
def _complete(problem, candidates, opened, load, left, memory, halt):
    """Place the best block until none fits; return the number of blocks and the volume added."""
    active, num_active = candidates
    spaces, num_spaces = opened
    placed, num_placed = load
    scratch, pile, cutting = memory
    one, rank = scratch.one, scratch.rank
    added = 0.0
    # The number of boxes only falls, so the list of available blocks only shrinks.
    while num_placed < placed.shape[0] and not halt[0]:
        num_active = _available(problem.blocks, left, active, num_active, active)
        num_best, num_spaces = _best_blocks(
            problem, (active, num_active), (spaces, num_spaces), (placed, num_placed), left,
            memory, (one, rank),
        )  # fmt: skip
        if not num_best:
            break
        added += problem.blocks.volume[one[0, 0]]
        load = placed, num_placed
        num_spaces = place_block(problem, one[0], spaces, num_spaces, load, left, cutting)
        if problem.rules.active:
            enter(one[0, 0], one[0, 1:], problem, pile)
        num_placed += 1
    return num_placed, added


@jit
def _copy_load(beam, s, spaces, placed, left):
    for k in range(beam.num_spaces[s]):
        copy(beam.spaces[s, k], spaces[k])
    for k in range(beam.num_placed[s]):
        copy(beam.placed[s, k], placed[k])
    copy(beam.left[s], left)


@jit
def _keep(problem, placed, num_placed, total, record):
    """Record the balanced part of a load if its volume is the largest so far."""
    if total <= record[2][0]:
        return
    whole = in_balance(problem, placed, num_placed)
    if whole < num_placed:
        total = 0.0
        for p in range(whole):
            total += problem.blocks.volume[placed[p, 6]]
        if total <= record[2][0]:
            return
    record[1][0], record[2][0] = whole, total
    for p in range(whole):
        copy(placed[p], record[0][p])


@kernel
def expand(tables, loads, successors, record, memories, rows, halt):
    """Complete the best successors of some loads of a beam.

    Args:
        tables: Tables of the problem.
        loads: Table of a beam. Spaces that take no block are removed.
        successors: Output: ``chosen [W, K, 4]`` (block and lower corner, best first); ``volume [W,
            K]``; and ``total [W, K]``, the volume of the completions. -1 if there is no successor.
        record: ``placed [P, 7]``, ``num_placed [1]`` and ``volume [1]`` of the best completion; a
            better one replaces it. ``P`` is the largest number of blocks of a load.
        memories: Tables of a scratch, a pile and a cutting
            (`packing_env.kernels.loading.arrays_numba`).
        rows: Index of the first load, and index of the last load plus 1.
        halt: See the package. An unfinished completion counts as a completion.
    """
    # 1. Memory, one load at a time.
    problem, beam = as_problem(tables), as_beam(loads)
    scratch, pile, cutting = as_scratch(memories[0]), as_pile(memories[1]), as_cutting(memories[2])
    memory = scratch, pile, cutting
    chosen, current, total = successors
    blocks, most, ruled = problem.blocks, record[0].shape[0], problem.rules.active
    active, rest, left = scratch.active, scratch.rest, scratch.left
    # 2. Expand load by load.
    for s in range(rows[0], rows[1]):
        total[s] = -1.0
        if halt[0]:
            break
        end = beam.num_placed[s]
        if ruled:
            refill(pile, problem, beam.placed[s], end)
        packed = pile.size[0]
        # Find the best blocks for the next space.
        order = problem.room.order
        num_active = _available(blocks, beam.left[s], order, order.size, active)
        num = np.int64(0)
        if end < most:
            num, beam.num_spaces[s] = _best_blocks(
                problem, (active, num_active), (beam.spaces[s], beam.num_spaces[s]),
                (beam.placed[s], end), beam.left[s], memory, (chosen[s], scratch.value),
            )  # fmt: skip
        # Complete each on a copy of the load.
        for k in range(num):
            if halt[0]:
                break
            _copy_load(beam, s, scratch.spaces, scratch.placed, left)
            for n in range(num_active):
                rest[n] = active[n]
            num_open = place_block(
                problem, chosen[s, k], scratch.spaces, beam.num_spaces[s], (scratch.placed, end),
                left, cutting,
            )  # fmt: skip
            if ruled:
                list_near(scratch.placed[end], problem.rules, pile)
                enter(chosen[s, k, 0], chosen[s, k, 1:], problem, pile)
            current[s, k] = beam.volume[s] + blocks.volume[chosen[s, k, 0]]
            number, added = _complete(
                problem, (rest, num_active), (scratch.spaces, num_open),
                (scratch.placed, end + 1), left, memory, halt,
            )  # fmt: skip
            total[s, k] = current[s, k] + added
            _keep(problem, scratch.placed, number, total[s, k], record)
            if ruled:
                retreat(pile, problem.rules, packed)


@kernel
def extend(tables, loads, parents, choices, extended, cutting_table):
    """Add one block to each parent load; fill a beam with the results.

    Args:
        tables: Tables of the problem.
        loads: Table of a beam.
        parents: Rows of the beam, ``[N]``.
        choices: Block and lower corner for each, ``[N, 4]``.
        extended: Table of a beam of N loads, each with room for one more block.
        cutting_table: Table of a cutting.
    """
    problem, beam, after = as_problem(tables), as_beam(loads), as_beam(extended)
    cutting = as_cutting(cutting_table)
    for k in range(parents.size):
        s = parents[k]
        spaces, placed, left = after.spaces[k], after.placed[k], after.left[k]
        _copy_load(beam, s, spaces, placed, left)
        number, load = beam.num_spaces[s], (placed, beam.num_placed[s])
        after.num_spaces[k] = place_block(problem, choices[k], spaces, number, load, left, cutting)
        after.num_placed[k] = beam.num_placed[s] + 1
        after.volume[k] = beam.volume[s] + problem.blocks.volume[choices[k, 0]]
