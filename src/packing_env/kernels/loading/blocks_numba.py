"""Blocks of boxes for `packing_env.kernels.loading`, and the lengths that boxes can reach."""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit, kernel
from packing_env.kernels.loading.tables_numba import as_blocks


@jit
def _hash(sides, kinds, amounts, slots):
    """Return the first place of a block in a table of ``slots`` places, a power of two."""
    # FNV-1a over the sides and the boxes.
    code = np.uint64(1469598103934665603)
    for a in range(3):
        code = (code ^ np.uint64(sides[a])) * np.uint64(1099511628211)
    for k in range(kinds.size):
        code = (code ^ np.uint64(kinds[k])) * np.uint64(1099511628211)
        code = (code ^ np.uint64(amounts[k])) * np.uint64(1099511628211)
    # Higher bits fold into the lowest, which choose the place.
    return np.int64((code ^ (code >> np.uint64(29))) & np.uint64(slots - 1))


@jit
def _add(table, lengths, blocks, n):
    """Add block ``n`` to the table and its sides to ``lengths``; return False for a duplicate."""
    sides, kinds, amounts = blocks.sides, blocks.types, blocks.amounts
    # The sides by axis, which _find_partners reads in long lines.
    for a in range(3):
        lengths[a, n] = sides[n, a]
    # Linear probing: the table has four times as many places as blocks.
    at = _hash(sides[n], kinds[n], amounts[n], table.size)
    while table[at] >= 0:
        other, same = table[at], True
        for a in range(3):
            same = same and sides[other, a] == sides[n, a]
        for k in range(kinds.shape[1]):
            same = same and kinds[other, k] == kinds[n, k] and amounts[other, k] == amounts[n, k]
        if same:
            return False
        at = (at + 1) & (table.size - 1)
    table[at] = n
    return True


@jit
def _merge(blocks, i, j, n, count):
    """Write the boxes of blocks ``i`` and ``j`` as block ``n``; return whether that is possible.

    It is not possible if a type has too few boxes, or the arrays have too few columns.
    """
    kinds, amounts = blocks.types, blocks.amounts
    columns = kinds.shape[1]
    # Both lists of types ascend: merge them.
    p, q = 0, 0
    for k in range(columns):
        one = kinds[i, p] if p < columns else -1
        other = kinds[j, q] if q < columns else -1
        kind = one if other < 0 or 0 <= one < other else other
        amount = 0
        if one == kind and kind >= 0:
            amount += amounts[i, p]
            p += 1
        if other == kind and kind >= 0:
            amount += amounts[j, q]
            q += 1
        # Too few boxes exist.
        if kind >= 0 and amount > count[kind]:
            return False
        kinds[n, k], amounts[n, k] = kind, amount
    # Both lists must be at their ends; otherwise there are too few columns.
    return (p == columns or kinds[i, p] < 0) and (q == columns or kinds[j, q] < 0)


@jit
def _find_partners(lengths, volume, i, limits, partners):
    """Set the bits of the axes along which block ``i`` may be joined to the blocks j <= i."""
    container, fill = limits.container, limits.fill
    one, two, three = lengths[0, i], lengths[1, i], lengths[2, i]
    # 1. The room beside block i.
    x, y, z = container[0] - one, container[1] - two, container[2] - three
    # 2. Compare without branches, so that the loop vectorises: 64-bit lengths as floats.
    for j in range(i + 1):
        a, b, c = lengths[0, j], lengths[1, j], lengths[2, j]
        wide_a, wide_b, wide_c = max(one, a), max(two, b), max(three, c)
        # The largest allowed volume of the joint cuboid.
        share = (volume[i] + volume[j]) / fill
        along_x = (a <= x) & ((one + a) * wide_b * wide_c <= share)
        along_y = (b <= y) & ((two + b) * wide_a * wide_c <= share)
        along_z = (c <= z) & ((three + c) * wide_a * wide_b <= share)
        partners[j] = along_x | along_y << 1 | along_z << 2


@jit
def _bears(blocks, n, bears):
    """Return the least of ``bears`` of the boxes in a block."""
    kinds = blocks.types
    least = bears[kinds[n, 0]]
    for k in range(1, kinds.shape[1]):
        if kinds[n, k] >= 0:
            least = min(least, bears[kinds[n, k]])
    return least


@jit
def _stacked(blocks, i, j, bears):
    """Return two blocks, and whether both sides of the base of the first are at least as long.

    The first has the larger base; of equal bases, that whose boxes bear more.
    """
    sides = blocks.sides
    one, other = np.float64(sides[i, 0]) * sides[i, 1], np.float64(sides[j, 0]) * sides[j, 1]
    stronger = one == other and _bears(blocks, j, bears) > _bears(blocks, i, bears)
    low, high = (j, i) if other > one or stronger else (i, j)
    return low, high, sides[high, 0] <= sides[low, 0] and sides[high, 1] <= sides[low, 1]


@jit
def _join(blocks, pair, axis, n, limits, part):
    """Join two blocks, side by side or stacked, as block ``n``; return whether this is allowed.

    ``part`` receives both blocks and the axis. There must be enough boxes. If whole support is
    required, the upper base must not be longer than the lower block.
    """
    sides, volume = blocks.sides, blocks.volume
    i, j = pair
    # 1. The larger base is below.
    if axis == 2:
        i, j, inside = _stacked(blocks, i, j, limits.bears)
        if limits.whole and not inside:
            return False
    part[0], part[1], part[2] = i, j, axis
    # 2. The cuboid around both.
    for a in range(3):
        one, other = sides[i, a], sides[j, a]
        sides[n, a] = one + other if a == axis else max(one, other)
    # 3. Their boxes.
    volume[n] = volume[i] + volume[j]
    return _merge(blocks, i, j, n, limits.counts)


@kernel
def join_blocks(table, parts, number, limits, halt):
    """Join blocks in pairs until no new one is found, the arrays are full or ``halt`` is set.

    Args:
        table: Table of blocks; the first ``number`` are boxes and grids of boxes.
        parts: ``[M, 3]``, filled with the two blocks and the axis of each further block.
        number: Number of blocks.
        limits: :class:`JoinLimits`.
        halt: See the package.

    Returns:
        The number of blocks.
    """
    # 1. A table of all blocks, which finds equal ones.
    blocks = as_blocks(table)
    volume, group = blocks.volume, limits.group
    most = volume.size
    slots = 1
    while slots < 4 * most:
        slots *= 2
    known = np.full(slots, -1, np.int32)
    lengths, partners = np.empty((3, most)), np.empty(most, np.uint8)
    # 2. Enter the existing blocks.
    for n in range(number):
        _add(known, lengths, blocks, n)
    # 3. Join each block with itself and all earlier blocks; append new blocks.
    n, i = number, np.int64(0)
    while i < n and not halt[0]:
        _find_partners(lengths, volume, i, limits, partners)
        for j in range(i + 1):
            if group[blocks.types[i, 0]] != group[blocks.types[j, 0]]:
                continue
            for axis in range(3):
                if not partners[j] >> axis & 1:
                    continue
                # The arrays are full.
                if n == most:
                    return n
                joined = _join(blocks, (i, j), axis, n, limits, parts[n])
                if joined and _add(known, lengths, blocks, n):
                    n += 1
        i += 1
    return n


@kernel
def reachable_lengths(lengths, longest, shift):
    """Return the longest sum up to each length; each summand may occur any number of times.

    Args:
        lengths: Positive whole numbers.
        longest: Longest sum.
        shift: The result has a place per ``2^shift`` units. If ``shift`` is above 0, the result may
            be up to ``2^shift`` below the longest sum, which is exact enough for comparisons.

    Returns:
        ``[longest / 2^shift + 1]``; place ``k`` holds a sum below ``(k + 1) * 2^shift``.
    """
    # For each length in steps, the longest sum that ends there; -1 if none does.
    table = np.full((longest >> shift) + 1, -1, np.int64)
    table[0] = 0
    step = 1 << shift
    for k in range(table.size):
        # If no sum ends here, the longest sum up to here is the one up to the place before.
        if table[k] < 0:
            table[k] = table[k - 1]
            continue
        for length in lengths:
            # Add enough short boxes to reach a later place of the table.
            end = table[k] + length * ((step + length - 1) // length)
            if end <= longest:
                table[end >> shift] = max(table[end >> shift], end)
    return table


@jit
def _height_below(cell, n, height, boxes, lists):
    """Return the height at which box ``n`` rests on the boxes of a cell; at least ``height``.

    The boxes of a cell are in a list, the highest first.
    """
    corners, sides = boxes
    head, after, entered = lists
    # From the highest box down: the first box that overlaps box n decides.
    at = head[cell]
    while at >= 0:
        m = entered[at]
        top = corners[m, 2] + sides[m, 2]
        # The next boxes are lower.
        if top <= height:
            return height
        apart = False
        for a in range(2):
            apart = apart or corners[m, a] >= corners[n, a] + sides[n, a]
            apart = apart or corners[n, a] >= corners[m, a] + sides[m, a]
        if not apart:
            return top
        at = after[at]
    return height


@jit
def _enter(cell, n, entry, boxes, lists):
    """Insert box ``n`` in the list of a cell, behind the boxes that are higher."""
    corners, sides = boxes
    head, after, entered = lists
    top = corners[n, 2] + sides[n, 2]
    # 1. Find the first box that is not higher.
    before, at = np.int64(-1), head[cell]
    while at >= 0 and corners[entered[at], 2] + sides[entered[at], 2] > top:
        before, at = at, after[at]
    # 2. Link the new entry before it.
    entered[entry], after[entry] = n, at
    if before < 0:
        head[cell] = entry
    else:
        after[before] = entry


@kernel
def lower_boxes(corners, sides, strips, halt):
    """Lower boxes onto each other and the floor, in place, until ``halt`` is set.

    Args:
        corners: Lower corners ``[N, 3]``, in the order of lowering: each later one starts above.
        sides: ``[N, 3]``.
        strips: First and last strip of the floor that each box covers, along x, then y, ``[N, 4]``.
            Strips along x and y cross in cells; a box is compared with the boxes that share a cell.
        halt: See the package.
    """
    # 1. Count cells and entries, and allocate the lists.
    entries, num_x, num_y = 0, 0, 0
    for n in range(corners.shape[0]):
        first_x, last_x, first_y, last_y = strips[n]
        entries += (last_x - first_x + 1) * (last_y - first_y + 1)
        num_x, num_y = max(num_x, last_x + 1), max(num_y, last_y + 1)
    boxes = corners, sides
    head = np.full((num_x, num_y), -1, np.int64)
    lists = head, np.empty(entries, np.int64), np.empty(entries, np.int64)
    # 2. Lower box by box.
    entry = 0
    for n in range(corners.shape[0]):
        if halt[0]:
            return
        first_x, last_x, first_y, last_y = strips[n]
        height = np.int64(0)
        # The highest box below, in any cell.
        for i in range(first_x, last_x + 1):
            for j in range(first_y, last_y + 1):
                height = _height_below((i, j), n, height, boxes, lists)
        corners[n, 2] = height
        # Enter the box in its cells.
        for i in range(first_x, last_x + 1):
            for j in range(first_y, last_y + 1):
                _enter((i, j), n, entry, boxes, lists)
                entry += 1
