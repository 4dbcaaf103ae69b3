"""The number of voxels that two placed shapes share."""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit

_ONE = np.uint64(1)
_WORD = np.uint64(64)


@jit
def _count(word):
    """Return the number of set bits of a word."""
    word -= (word >> _ONE) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@jit
def _shared_in_row(mine, other, count, shift, down):
    """Return the number of bits that words share with others, shifted down or up.

    The indices start at 0 and are never negative, so LLVM vectorises the loops.
    """
    total = 0
    if down:
        for y in range(count):
            total += _count(mine[y] & (other[y] >> shift))
    elif shift:
        for y in range(count):
            total += _count(mine[y] & (other[y] << (_WORD - shift)))
    return total


@jit
def count_shared(words, a, xa, ya, za, b, xb, yb, zb, enough, step):
    """Return the number of voxels that two placed shapes share; from `enough` on, stop early.

    Only every `step`-th plane across x is counted, and the count is multiplied by `step`.
    """
    # 1. The intersection of both bounding boxes.
    x0, x1 = max(xa, xb), min(xa + a[1], xb + b[1])
    y0, y1 = max(ya, yb), min(ya + a[2], yb + b[2])
    z0, z1 = max(za, zb), min(za + a[3], zb + b[3])
    if x0 >= x1 or y0 >= y1 or z0 >= z1:
        return 0
    # 2. Word by word of the first shape, with the bits of the other at the same height.
    total, count = 0, y1 - y0
    for x in range(x0 + (x1 - x0 - 1) % step // 2, x1, step):
        for word in range((z0 - za) >> 6, ((z1 - 1 - za) >> 6) + 1):
            row = a[0] + ((x - xa) * a[4] + word) * a[2] + (y0 - ya)
            bit = 64 * word + za - zb
            other, shift = bit >> 6, np.uint64(bit & 63)
            below = b[0] + ((x - xb) * b[4] + other) * b[2] + (y0 - yb)
            above = below + b[2]
            mine, low, high = words[row:], words[below:], words[above:]
            if other < 0:
                total += _shared_in_row(mine, high, count, shift, False)
            elif shift == 0 or other + 1 >= b[4]:
                total += _shared_in_row(mine, low, count, shift, True)
            else:
                for y in range(count):
                    total += _count(mine[y] & (low[y] >> shift | high[y] << (_WORD - shift)))
        if total * step >= enough:
            break
    return total * step
