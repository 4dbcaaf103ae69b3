"""Blocks of boxes for `packing_env.kernels.loading`, and the lengths that boxes can reach."""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit, kernel


@jit
def _hash(sides, kinds, amounts, slots):
    """Return the first place of a block in a table of ``slots`` places, a power of two."""
    code = np.uint64(1469598103934665603)
    for a in range(3):
        code = (code ^ np.uint64(sides[a])) * np.uint64(1099511628211)
    for k in range(kinds.size):
        code = (code ^ np.uint64(kinds[k])) * np.uint64(1099511628211)
        code = (code ^ np.uint64(amounts[k])) * np.uint64(1099511628211)
    return np.int64((code ^ (code >> np.uint64(29))) & np.uint64(slots - 1))


@jit
def _add(table, lengths, blocks, n):
    """Add block ``n`` to the table and its sides to ``lengths``; return False if it is there."""
    sides, kinds, amounts, _, _ = blocks
    for a in range(3):
        lengths[a, n] = sides[n, a]
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
    """Write the boxes of blocks ``i`` and ``j`` as those of block ``n``; return whether they fit.

    They do not where a type has too few boxes, or the arrays too few columns.
    """
    _, kinds, amounts, _, _ = blocks
    columns = kinds.shape[1]
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
        if kind >= 0 and amount > count[kind]:
            return False
        kinds[n, k], amounts[n, k] = kind, amount
    return (p == columns or kinds[i, p] < 0) and (q == columns or kinds[j, q] < 0)


@jit
def _find_partners(lengths, volume, i, limits, partners):
    """Set the bits of the axes along which block ``i`` may be joined to the blocks j <= i."""
    container, fill = limits
    one, two, three = lengths[0, i], lengths[1, i], lengths[2, i]
    x, y, z = container[0] - one, container[1] - two, container[2] - three
    for j in range(i + 1):
        a, b, c = lengths[0, j], lengths[1, j], lengths[2, j]
        wide_a, wide_b, wide_c = max(one, a), max(two, b), max(three, c)
        share = (volume[i] + volume[j]) / fill
        along_x = (a <= x) & ((one + a) * wide_b * wide_c <= share)
        along_y = (b <= y) & ((two + b) * wide_a * wide_c <= share)
        along_z = (c <= z) & ((three + c) * wide_a * wide_b <= share)
        partners[j] = along_x | along_y << 1 | along_z << 2


@jit
def _join(blocks, i, j, axis, n, count):
    """Write blocks ``i`` and ``j`` side by side as block ``n``; return whether there are boxes."""
    sides, _, _, volume, _ = blocks
    for a in range(3):
        one, other = sides[i, a], sides[j, a]
        sides[n, a] = one + other if a == axis else max(one, other)
    volume[n] = volume[i] + volume[j]
    return _merge(blocks, i, j, n, count)


@kernel
def join_blocks(blocks, parts, number, limits, halt):
    """Join blocks in pairs until no new one is found, the arrays are full or ``halt`` is set.

    Args:
        blocks: See the package; the first ``number`` are boxes and grids of boxes.
        parts: ``[M, 3]``, filled with the two blocks and the axis of each further block.
        number: Number of blocks.
        limits: Sides of the container ``[3]``, float64, boxes of each type ``[T]``, and the least
            share of its cuboid that a block fills.
        halt: See the package.

    Returns:
        The number of blocks.
    """
    volume = blocks[3]
    container, count, fill = limits
    most = volume.size
    slots = 1
    while slots < 4 * most:
        slots *= 2
    table = np.full(slots, -1, np.int32)
    lengths, partners = np.empty((3, most)), np.empty(most, np.uint8)
    for n in range(number):
        _add(table, lengths, blocks, n)
    n, i = number, 0
    while i < n and not halt[0]:
        _find_partners(lengths, volume, i, (container, fill), partners)
        for j in range(i + 1):
            for axis in range(3):
                if not partners[j] >> axis & 1:
                    continue
                if n == most:
                    return n
                if _join(blocks, i, j, axis, n, count) and _add(table, lengths, blocks, n):
                    parts[n, 0], parts[n, 1], parts[n, 2] = i, j, axis
                    n += 1
        i += 1
    return n


@kernel
def reachable_lengths(lengths, longest, shift):
    """Return the longest sum of lengths, each taken any number of times, up to each length.

    Args:
        lengths: Positive whole numbers.
        longest: Longest sum.
        shift: The result has a place per ``2^shift`` units. Where ``shift`` is above 0, it is a sum
            at most that long below the longest, which serves a comparison.

    Returns:
        ``[longest / 2^shift + 1]``; place ``k`` holds a sum below ``(k + 1) * 2^shift``.
    """
    table = np.full((longest >> shift) + 1, -1, np.int64)
    table[0] = 0
    step = 1 << shift
    for k in range(table.size):
        if table[k] < 0:
            table[k] = table[k - 1]
            continue
        for length in lengths:
            # Several short boxes at once, so that every sum lies in a later place.
            end = table[k] + length * ((step + length - 1) // length)
            if end <= longest:
                table[end >> shift] = max(table[end >> shift], end)
    return table


@kernel
def lower_boxes(corners, sides, bins):
    """Lower boxes onto each other and the floor, in place; each later one starts above.

    Args:
        corners: Lower corners ``[N, 3]``, in the order of lowering.
        sides: ``[N, 3]``.
        bins: Cuts of the floor along x and y: the widths ``[2]`` of equal cells, then their numbers
            ``[2]``. A box is compared with those that share a cell.
    """
    width_x, width_y, num_x, num_y = bins
    entries = 0
    for n in range(corners.shape[0]):
        along_x = (corners[n, 0] + sides[n, 0] - 1) // width_x - corners[n, 0] // width_x + 1
        along_y = (corners[n, 1] + sides[n, 1] - 1) // width_y - corners[n, 1] // width_y + 1
        entries += along_x * along_y
    last = np.full((num_x, num_y), -1, np.int64)
    before, box = np.empty(entries, np.int64), np.empty(entries, np.int64)
    entry = 0
    for n in range(corners.shape[0]):
        x, y = corners[n, 0], corners[n, 1]
        end_x, end_y = x + sides[n, 0], y + sides[n, 1]
        height = np.int64(0)
        # 1. Find the highest box below, and enter this one in the same pass.
        for i in range(x // width_x, (end_x - 1) // width_x + 1):
            for j in range(y // width_y, (end_y - 1) // width_y + 1):
                at = last[i, j]
                while at >= 0:
                    m = box[at]
                    over_x = corners[m, 0] < end_x and corners[m, 0] + sides[m, 0] > x
                    over_y = corners[m, 1] < end_y and corners[m, 1] + sides[m, 1] > y
                    if over_x and over_y:
                        height = max(height, corners[m, 2] + sides[m, 2])
                    at = before[at]
                # 2. A box that covers a cell hides all boxes below.
                covers_x = x <= i * width_x and end_x >= (i + 1) * width_x
                covers_y = y <= j * width_y and end_y >= (j + 1) * width_y
                before[entry] = -1 if covers_x and covers_y else last[i, j]
                box[entry], last[i, j] = n, entry
                entry += 1
        corners[n, 2] = height
