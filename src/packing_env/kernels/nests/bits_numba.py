"""Sets of voxels as bits: where parts collide, where they can leave, and which place is best.

A set is ``uint64 [X, W, Y]``: bit ``z % 64`` of word ``[x, z // 64, y]`` is the voxel (x, y, z).
Words of neighbouring y are next to each other, and the loops over them become vector code.

The *no-fit set* of a fixed and a moving part holds the offsets at which their voxels meet (no-fit
voxels: Lamas-Fernandez, Bennell and Martinez-Sykora, Oper. Res. 2023). Bit ``k`` stands for the
offset ``k - (size - 1)``, where ``size`` is that of the moving part. The *blocked set* of a part
in a container is the union of these sets over the parts that are there, moved to their positions.
"""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit, kernel

_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@jit
def _or_row(target, source, shift):
    """Add ``source [W, Y] << shift`` to ``target [W2, Y]``; bits that leave it are lost."""
    words, bits = shift // 64, np.uint64(shift % 64)
    count = source.shape[1]
    for w in range(min(source.shape[0], target.shape[0] - words)):
        for y in range(count):
            target[w + words, y] |= source[w, y] << bits
    if bits:
        for w in range(min(source.shape[0], target.shape[0] - words - 1)):
            for y in range(count):
                target[w + words + 1, y] |= source[w, y] >> (np.uint64(64) - bits)


@kernel
def unite(target, source, x, y, z):
    """Add a set to another one, moved by (x, y, z) >= 0 voxels."""
    for i in range(source.shape[0]):
        _or_row(target[x + i, :, y : y + source.shape[2]], source[i], z)


@kernel
def no_fit(fixed, runs, size, doubled, out):
    """Fill the no-fit set of a fixed and a moving part.

    Args:
        fixed: ``[X, W, Y]``, the fixed part.
        runs: ``[R, 4]`` int64, the moving part as runs ``(u, v, first w, last w)``.
        size: ``[3]`` int64, the size of the moving part in voxels.
        doubled: ``[K, X, W2, Y]`` scratch; 2^K is more than the longest run.
        out: ``[X + U - 1, W2, Y + V - 1]``, zero.
    """
    # 1. doubled[k] is the fixed part, drawn out by 2^k - 1 voxels upwards.
    for x in range(fixed.shape[0]):
        doubled[0, x] = 0
        doubled[0, x, : fixed.shape[1]] = fixed[x]
        for k in range(1, doubled.shape[0]):
            doubled[k, x] = doubled[k - 1, x]
            _or_row(doubled[k, x], doubled[k - 1, x], 1 << (k - 1))
    # 2. Draw it out by each run of the moving part: two of these, which overlap.
    for r in range(runs.shape[0]):
        x, y = size[0] - 1 - runs[r, 0], size[1] - 1 - runs[r, 1]
        low, length = size[2] - 1 - runs[r, 3], runs[r, 3] - runs[r, 2] + 1
        k = 0
        while 2 << k <= length:
            k += 1
        for i in range(fixed.shape[0]):
            row = out[x + i, :, y : y + fixed.shape[2]]
            _or_row(row, doubled[k, i], low)
            if length > 1 << k:
                _or_row(row, doubled[k, i], low + length - (1 << k))


@jit
def _is_blocked(blocked, x, y, z):
    return (blocked[x, z // 64, y] >> np.uint64(z % 64)) & _ONE


@jit
def _way_out(blocked, x, y, z):
    """Return the first of the directions +z, -z, +x, -x, +y, -y that is free to the end, or -1."""
    depth = 64 * blocked.shape[1]
    for way in range(6):
        axis, step = (2, 0, 1)[way // 2], 1 - 2 * (way % 2)
        i, j, k = x, y, z
        free = True
        while free:
            if axis == 0:
                i += step
            elif axis == 1:
                j += step
            else:
                k += step
            if not (0 <= i < blocked.shape[0] and 0 <= j < blocked.shape[2] and 0 <= k < depth):
                return way
            free = not _is_blocked(blocked, i, j, k)
    return -1


@jit
def _bits(first, last, word):
    """Return the mask of the bits first..last of a set within one of its words."""
    low, high = max(first - 64 * word, 0), min(last - 64 * word, 63)
    if low > high:
        return np.uint64(0)
    return (_ALL >> np.uint64(63 - (high - low))) << np.uint64(low)


@kernel
def best_place(  # noqa: C901
    blocked, size, container, weights, locked, result
):
    """Find the place of least ``weights . centre`` among those that touch three ways.

    A place is where no voxel of the part meets another one, inside of the container, and (unless
    `locked`) from where the part can leave along an axis. It touches where one step towards the
    smaller ``weights . centre`` along each axis would meet a part or the wall.

    Args:
        blocked: The blocked set of the part, ``[X + U - 1, W, Y + V - 1]``.
        size: ``[3]`` int64, the part.
        container: ``[3]`` int64.
        weights: ``[3]`` float64.
        locked: Whether parts that cannot leave are allowed.
        result: ``[4]`` float64, filled with the score and the position, unless its score is less.

    Returns:
        Whether there is a better place.
    """
    U, V, W = size[0], size[1], size[2]
    X, Y, Z = container[0], container[1], container[2]
    found = False
    sx = -1 if weights[0] >= 0 else 1
    sy = -1 if weights[1] >= 0 else 1
    sz = -1 if weights[2] >= 0 else 1
    wall = 0 if sz < 0 else Z - W
    for x in range(X - U + 1):
        edge_x = x + sx < 0 or x + sx > X - U
        for w in range(blocked.shape[1]):
            inside = _bits(W - 1, Z - 1, w)
            if not inside:
                continue
            for y in range(Y - V + 1):
                i, j = x + U - 1, y + V - 1
                places = ~blocked[i, w, j] & inside
                if not places:
                    continue
                if not edge_x:
                    places &= blocked[i + sx, w, j]
                if not (y + sy < 0 or y + sy > Y - V):
                    places &= blocked[i, w, j + sy]
                if not places:
                    continue
                if sz < 0:
                    touch = blocked[i, w, j] << _ONE
                    if w:
                        touch |= blocked[i, w - 1, j] >> np.uint64(63)
                else:
                    touch = blocked[i, w, j] >> _ONE
                    if w + 1 < blocked.shape[1]:
                        touch |= blocked[i, w + 1, j] << np.uint64(63)
                touch |= _bits(wall + W - 1, wall + W - 1, w)
                places &= touch
                while places:
                    z = _lowest(places) + 64 * w - (W - 1)
                    places &= places - _ONE
                    score = (
                        weights[0] * (x + U / 2)
                        + weights[1] * (y + V / 2)
                        + weights[2] * (z + W / 2)
                    )
                    if score < result[0] and (locked or _way_out(blocked, i, j, z + W - 1) >= 0):
                        result[0], result[1], result[2], result[3] = score, x, y, z
                        found = True
    return found


@jit
def _lowest(word):
    """Return the number of the lowest bit of a word that is set."""
    number = 0
    while not word & np.uint64(0xFF):
        word >>= np.uint64(8)
        number += 8
    while not word & _ONE:
        word >>= _ONE
        number += 1
    return number
