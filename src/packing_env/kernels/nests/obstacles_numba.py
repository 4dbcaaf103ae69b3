"""Parts of a nest that block other parts on their way out along an axis."""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit, kernel

_ONE = np.uint64(1)
_WORD = np.uint64(64)


@jit
def _meets_on_the_way(words, a, b, to, axis, upwards):
    """Return whether shape a, moved along an axis to the end, meets shape b at the offset `to`."""
    # They cannot meet if their shadows along the axis are apart, or if b lies wholly behind a.
    for k in range(3):
        if k != axis and not -b[1 + k] < to[k] < a[1 + k]:
            return False
    if upwards and to[axis] + b[1 + axis] <= 0:
        return False
    if not upwards and to[axis] >= a[1 + axis]:
        return False
    for x in range(max(0, to[0]) if axis else 0, min(a[1], to[0] + b[1]) if axis else a[1]):
        for y in range(
            max(0, to[1]) if axis != 1 else 0, min(a[2], to[1] + b[2]) if axis != 1 else a[2]
        ):
            for word in range(a[4]):
                mine = words[a[0] + (x * a[4] + word) * a[2] + y]
                if mine and _is_ahead(words, b, to, axis, upwards, x, y, word, mine):
                    return True
    return False


@jit
def _is_ahead(words, b, to, axis, upwards, x, y, word, mine):
    """Return whether voxels of b lie ahead of the voxels ``mine`` of the column (x, y)."""
    if axis == 2:
        # Ahead are the voxels above the lowest one (or below the highest).
        u, v = x - to[0], y - to[1]
        for k in range(64) if upwards else range(63, -1, -1):
            if (mine >> np.uint64(k)) & _ONE:
                start = 64 * word + k - to[2]
                steps = range(max(start, 0), b[3]) if upwards else range(min(start, b[3] - 1) + 1)
                for z in steps:
                    if (words[b[0] + (u * b[4] + (z >> 6)) * b[2] + v] >> np.uint64(z & 63)) & _ONE:
                        return True
                return False
        return False
    # Ahead are the rows with a larger (or smaller) index.
    start = (x - to[0]) if axis == 0 else (y - to[1])
    length = b[1 + axis]
    bit = 64 * word - to[2]
    for n in range(max(start, 0), length) if upwards else range(min(start, length - 1) + 1):
        u, v = (n, y - to[1]) if axis == 0 else (x - to[0], n)
        if mine & _bits_at(words, b, u, v, bit):
            return True
    return False


@jit
def _bits_at(words, b, u, v, bit):
    """Return 64 bits of a column of a shape from a height on, which may be outside it."""
    word, shift = bit >> 6, np.uint64(bit & 63)
    value = np.uint64(0)
    if 0 <= word < b[4]:
        value = words[b[0] + (u * b[4] + word) * b[2] + v] >> shift
    if shift and 0 <= word + 1 < b[4]:
        value |= words[b[0] + (u * b[4] + word + 1) * b[2] + v] << (_WORD - shift)
    return value


@kernel
def find_obstacles(shapes, nest, obstacle):
    """Fill ``obstacle [6, N, N]`` bool: whether piece j is in the way of piece i.

    The ways are +x, -x, +y, -y, +z and -z. Checking whole steps is enough: between two steps along
    an axis, a solid stays inside the union of its voxels before and after the step.
    """
    count, to = nest.part.shape[0], np.zeros(3, np.int64)
    for i in range(count):
        for j in range(count):
            to[:] = nest.place[j] - nest.place[i]
            for way in range(6):
                obstacle[way, i, j] = i != j and _meets_on_the_way(
                    shapes.words, shapes.table[nest.shape[i]], shapes.table[nest.shape[j]],
                    to, way // 2, way % 2 == 0,
                )  # fmt: skip
