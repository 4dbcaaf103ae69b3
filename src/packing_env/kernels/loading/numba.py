"""Loads of blocks for `packing_env.kernels.loading`: complete them, extend a beam."""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit, kernel

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
    nearest, at, corner, largest = np.int64(-1), 0, 0, np.int64(0)
    for s in range(num_spaces):
        distance, bits, size = np.int64(0), 0, np.int64(1)
        for a in range(3):
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
            plane = low[a] + sides[a] * far
            if plane == container[a] * far:
                touched += area
            elif plane == space[a + 3 * far]:
                for k in range(1, near[2 * a + far, 0] + 1):
                    p = near[2 * a + far, k]
                    over_b = min(low[b] + sides[b], placed[p, 3 + b]) - max(low[b], placed[p, b])
                    over_c = min(low[c] + sides[c], placed[p, 3 + c]) - max(low[c], placed[p, c])
                    touched += np.float64(max(over_b, 0)) * max(over_c, 0)
    return touched / surface


@jit
def _usable(sides, space, useful):
    """Return the share of a space that boxes can fill beside a block, at most."""
    share = 1.0
    for a in range(3):
        side = space[3 + a] - space[a]
        share *= (sides[a] + useful[a, side - sides[a]]) / side
    return share


@jit
def _insert(chosen, value, found, rank, block, low):
    """Insert a block where its rank belongs among the best; return how many there are."""
    place = min(found, value.size - 1)
    if found == value.size and rank <= value[place]:
        return found
    while place > 0 and value[place - 1] < rank:
        value[place] = value[place - 1]
        _copy(chosen[place - 1], chosen[place])
        place -= 1
    value[place] = rank
    chosen[place, 0] = block
    for a in range(3):
        chosen[place, 1 + a] = low[a]
    return min(found + 1, value.size)


@jit
def _best_blocks(problem, active, num_active, spaces, num_spaces, load, scratch, chosen, value):
    """Fill ``chosen`` with the best blocks for the next space that takes any, best first.

    The rank is ``volume * contact^4 * usable * number^-0.2`` (Araya, Guerrero, Nunez, European
    Journal of Operational Research 2017, their VCS).

    Returns:
        How many there are, and the number of spaces; those that take none are removed.
    """
    (sides, _, volume, number), container, useful, _ = problem
    near, low, _ = scratch
    while num_spaces:
        at, corner = _next_space(spaces, num_spaces, container)
        space, found = spaces[at], 0
        _find_neighbours(space, load, near)
        x, y, z = space[3] - space[0], space[4] - space[1], space[5] - space[2]
        for k in range(num_active):
            b = active[k]
            if sides[b, 0] > x or sides[b, 1] > y or sides[b, 2] > z:
                continue
            for a in range(3):
                low[a] = space[3 + a] - sides[b, a] if corner >> a & 1 else space[a]
            contact = _contact(low, sides[b], space, container, load[0], near)
            usable = _usable(sides[b], space, useful)
            rank = volume[b] * contact**4 * usable * number[b] ** -0.2
            found = _insert(chosen, value, found, rank, b, low)
        if found:
            return found, num_spaces
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
    whole = kept
    for i in range(num):
        hidden = kept == spaces.shape[0]
        for s in range(whole):
            hidden = hidden or _inside(fresh[i], spaces[s])
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
    (sides, used, _, _), _, _, least = problem
    placed, num_placed = load
    b, block = choice[0], placed[num_placed]
    for a in range(3):
        block[a], block[3 + a] = choice[1 + a], choice[1 + a] + sides[b, a]
    block[6] = b
    for t in range(left.size):
        left[t] -= used[b, t]
    return _cut(spaces, num_spaces, block, fresh, least)


@jit
def _available(used, left, active, num_active):
    """Keep the active blocks of whose boxes enough are left; return their number."""
    kept = 0
    for k in range(num_active):
        b, enough = active[k], True
        for t in range(left.size):
            if used[b, t] > left[t]:
                enough = False
                break
        if enough:
            active[kept] = b
            kept += 1
    return kept


@jit
def _complete(problem, active, num_active, spaces, num_spaces, placed, num_placed, left, scratch):
    """Place the best block until none fits; return the number of blocks and the volume added."""
    (_, used, volume, _), _, _, _ = problem
    _, _, fresh, one, rank = scratch
    added = np.int64(0)
    while num_placed < placed.shape[0]:
        num_active = _available(used, left, active, num_active)
        load = placed, num_placed
        found, num_spaces = _best_blocks(
            problem, active, num_active, spaces, num_spaces, load, scratch[:3], one, rank
        )
        if not found:
            break
        added += volume[one[0, 0]]
        num_spaces = _place(problem, one[0], spaces, num_spaces, load, left, fresh)
        num_placed += 1
    return num_placed, added


@kernel
def expand(problem, beam, found, record, start, stop):
    """Complete the best successors of the loads start <= s < stop of a beam.

    Args:
        problem: The blocks, the container's sides ``[3]``, ``useful [3, .]`` (the longest sum of
            boxes' sides up to a length, by axis), and the shortest side of a box by axis ``[3]``.
        beam: Arrays of loads, see the package. Spaces that take no block are removed.
        found: Filled with the successors, ``chosen [W, K, 4]`` (block and lower corner, best
            first), their ``volume [W, K]``, and that of their completions, ``total [W, K]``; -1
            where there is none.
        record: ``placed [P, 7]``, ``num_placed [1]`` and ``volume [1]`` of the best completion,
            replaced by better ones.
        start: See above.
        stop: See above.
    """
    spaces, num_spaces, placed, num_placed, left, volume = beam
    chosen, current, total = found
    (sides, used, boxes, _), _, _, _ = problem
    count, most = sides.shape[0], placed.shape[1]
    near, fresh = np.empty((6, most + 1), np.int32), np.empty((_FRESH, 6), np.int32)
    one, rank = np.empty((1, 4), np.int32), np.empty(1)
    scratch = near, np.empty(3, np.int32), fresh, one, rank
    value = np.empty(chosen.shape[1])
    active, rest = np.empty(count, np.int32), np.empty(count, np.int32)
    my_spaces, my_placed = np.empty_like(spaces[0]), np.empty_like(placed[0])
    my_left = np.empty_like(left[0])
    for s in range(start, stop):
        for b in range(count):
            active[b] = b
        num_active = _available(used, left[s], active, count)
        load = placed[s], num_placed[s]
        num, num_spaces[s] = 0, num_spaces[s]
        if num_placed[s] < most:
            num, num_spaces[s] = _best_blocks(
                problem, active, num_active, spaces[s], num_spaces[s], load, scratch[:3], chosen[s],
                value,
            )  # fmt: skip
        total[s] = -1
        for k in range(num):
            my_spaces[: num_spaces[s]] = spaces[s, : num_spaces[s]]
            my_placed[: num_placed[s]] = placed[s, : num_placed[s]]
            my_left[:] = left[s]
            rest[:num_active] = active[:num_active]
            mine = my_placed, num_placed[s]
            open_spaces = _place(
                problem, chosen[s, k], my_spaces, num_spaces[s], mine, my_left, fresh
            )
            current[s, k] = volume[s] + boxes[chosen[s, k, 0]]
            end, added = _complete(
                problem, rest, num_active, my_spaces, open_spaces, my_placed, num_placed[s] + 1,
                my_left, scratch,
            )  # fmt: skip
            total[s, k] = current[s, k] + added
            if total[s, k] > record[2][0]:
                record[0][:end] = my_placed[:end]
                record[1][0], record[2][0] = end, total[s, k]


@kernel
def extend(problem, beam, parents, choices, after):
    """Fill the beam ``after`` with the loads that a block was added to.

    Args:
        problem: See :func:`expand`, as ``beam``.
        beam: See above.
        parents: Rows of the beam, ``[N]``.
        choices: Block and lower corner for each, ``[N, 4]``.
        after: Arrays of N loads.
    """
    spaces, num_spaces, placed, num_placed, left, volume = beam
    fresh = np.empty((_FRESH, 6), np.int32)
    for k in range(parents.size):
        s = parents[k]
        after[0][k, : num_spaces[s]] = spaces[s, : num_spaces[s]]
        after[2][k, : num_placed[s]] = placed[s, : num_placed[s]]
        after[4][k] = left[s]
        load = after[2][k], num_placed[s]
        after[1][k] = _place(
            problem, choices[k], after[0][k], num_spaces[s], load, after[4][k], fresh
        )
        after[3][k] = num_placed[s] + 1
        after[5][k] = volume[s] + problem[0][2][choices[k, 0]]
