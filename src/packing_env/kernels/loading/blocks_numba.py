"""Blocks of boxes for `packing_env.kernels.loading`."""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit, kernel

_SLOTS = 1 << 17
"""Places of the hash table of blocks; a power of two, above the number of blocks."""


@jit
def _hash(sides, used):
    """Return the first place of a block in the table."""
    found = np.uint64(1469598103934665603)
    for a in range(3):
        found = (found ^ np.uint64(sides[a])) * np.uint64(1099511628211)
    for t in range(used.size):
        found = (found ^ np.uint64(used[t])) * np.uint64(1099511628211)
    return np.int64((found ^ (found >> np.uint64(29))) & np.uint64(_SLOTS - 1))


@jit
def _add(table, sides, used, n):
    """Add block ``n`` to the table; return False if an equal one is there."""
    at = _hash(sides[n], used[n])
    while table[at] >= 0:
        other, same = table[at], True
        for a in range(3):
            same = same and sides[other, a] == sides[n, a]
        for t in range(used.shape[1]):
            same = same and used[other, t] == used[n, t]
        if same:
            return False
        at = (at + 1) & (_SLOTS - 1)
    table[at] = n
    return True


@jit
def _join(blocks, i, j, axis, n, limits):
    """Write blocks ``i`` and ``j`` side by side as block ``n``; return whether that is one."""
    sides, used, volume, number = blocks
    container, count, fill = limits
    room = np.int64(1)
    for a in range(3):
        one, other = sides[i, a], sides[j, a]
        sides[n, a] = one + other if a == axis else max(one, other)
        room *= sides[n, a]
    volume[n], number[n] = volume[i] + volume[j], number[i] + number[j]
    if sides[n, axis] > container[axis] or volume[n] < fill * room:
        return False
    for t in range(count.size):
        used[n, t] = used[i, t] + used[j, t]
        if used[n, t] > count[t]:
            return False
    return True


@kernel
def join_blocks(blocks, parts, given, container, count, fill):
    """Join blocks in pairs until no new one is found or the arrays are full.

    Args:
        blocks: See the package; the first ``given`` are boxes and grids of boxes.
        parts: ``[M, 3]``, filled with the two blocks and the axis of each further block.
        given: Number of blocks.
        container: Its sides ``[3]``.
        count: Boxes of each type, ``[T]``.
        fill: Least share of its cuboid that a block fills.

    Returns:
        The number of blocks.
    """
    sides, used, _, _ = blocks
    table = np.full(_SLOTS, -1, np.int32)
    limits = container, count, fill
    for n in range(given):
        _add(table, sides, used, n)
    n, i = given, 0
    while i < n:
        for j in range(i + 1):
            for axis in range(3):
                if n == sides.shape[0]:
                    return n
                if _join(blocks, i, j, axis, n, limits) and _add(table, sides, used, n):
                    parts[n, 0], parts[n, 1], parts[n, 2] = i, j, axis
                    n += 1
        i += 1
    return n
