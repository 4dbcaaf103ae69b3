"""Rest heights of one cuboid in one container where no rule is asked for, compiled for the CPU.

The heights in cells of a container are one line of bytes, cell (x, y) the (x * width + y)-th. The
highest cell of every window is a maximum of such lines, shifted along y and then along x. What a
window takes from the next row, or from beyond the line, stands where none fits, and is dropped.
Lines are padded to whole :data:`STRIP`, so that loops over them have no remainder.
"""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled_cpu import jit

STRIP = 128
"""Bytes that a vectorised loop handles at once, or a multiple of that."""

_U8 = np.uint8


@jit
def padded(size):  # type: ignore[no-untyped-def]
    """The size in whole strips."""
    return -(-size // STRIP) * STRIP


@jit
def _raise(lines, at, size, step, highest, n):  # type: ignore[no-untyped-def]
    """highest[k] = the highest of lines[at + k], lines[at + k + step], ..., ``size`` of them.

    For k < n. Places are unsigned: one that could be negative would be looked at in every round,
    and a view of the line in place of them costs more than a round.
    """
    last = size - 1
    for first in range(0, size, 4):
        a, b = np.uint64(at + first * step), np.uint64(at + min(first + 1, last) * step)
        c = np.uint64(at + min(first + 2, last) * step)
        d = np.uint64(at + min(first + 3, last) * step)
        if first == 0:
            for place in range(n):
                k = np.uint64(place)
                p, q, r, s = lines[k + a], lines[k + b], lines[k + c], lines[k + d]
                one, other = p if p > q else q, r if r > s else s
                highest[k] = one if one > other else other
        else:
            for place in range(n):
                k = np.uint64(place)
                p, q, r, s = lines[k + a], lines[k + b], lines[k + c], lines[k + d]
                one, other = p if p > q else q, r if r > s else s
                one, found = one if one > other else other, highest[k]
                highest[k] = found if found > one else one


@jit
def make_room(shape, window):  # type: ignore[no-untyped-def]
    """Scratch: maxima along y, then along x; where so many cells fit along x, and along y.

    The last two are lines of ``n`` for each size, 0xFF where it fits.
    """
    length, width = shape
    n = padded(length * width)
    across, along = np.zeros((window[0] + 1, n), _U8), np.zeros((window[1] + 1, n), _U8)
    for w in range(1, window[0] + 1):
        for k in range(max(length - w + 1, 0) * width):
            across[w, k] = _U8(255)
    for h in range(1, window[1] + 1):
        for k in range(length * width):
            along[h, k] = _U8(255) if k % width + h <= width else _U8(0)
    tops = np.zeros(n + (window[0] - 1) * width, _U8)
    return tops, np.zeros(n, _U8), across.reshape(-1), along.reshape(-1)


@jit
def find_rest(levels, lane, size, box, room, raised):  # type: ignore[no-untyped-def]
    """Raised rest heights of a cuboid ``size`` in whole cells, 0 where it does not fit.

    Those of line ``lane``. Both arrays are flat; the lines of ``levels`` end in ``window[1] - 1``
    zeros more than those of ``raised``. ``box`` is the width and the height of the container.
    """
    tops, highest, across, along = room
    width, height = box
    w, h, d = size
    n, reach = highest.size, along.size // highest.size - 2  # window[1] - 1
    out = np.uint64(lane * n)
    if w == 0 or d > height:
        for place in range(n):
            raised[out + np.uint64(place)] = 0
        return
    _raise(levels, lane * (n + reach), h, 1, tops, n)
    _raise(tops, 0, w, width, highest, n)
    lid, row, column = _U8(height - d), np.uint64(w * n), np.uint64(h * n)
    for place in range(n):
        k = np.uint64(place)
        level, fits = highest[k], _U8(across[row + k] & along[column + k])
        code = _U8(level + _U8(1)) & fits
        raised[out + k] = code if level <= lid else _U8(0)
