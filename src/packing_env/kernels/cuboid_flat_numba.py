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
def _raise(lines, at, size, step, highest, slack):  # type: ignore[no-untyped-def]
    """highest[k] = the highest of lines[at, k], lines[at, k + step], ..., ``size`` of them.

    The last ``slack`` of it are left. Places are unsigned: one that could be negative would be
    looked at in every round, and a view of the line in place of them costs more than a round.
    """
    last, n = size - 1, highest.shape[1] - slack
    for first in range(0, size, 4):
        a, b = np.uint64(first * step), np.uint64(min(first + 1, last) * step)
        c, d = np.uint64(min(first + 2, last) * step), np.uint64(min(first + 3, last) * step)
        if first == 0:
            for place in range(n):
                k = np.uint64(place)
                p, q, r, s = lines[at, k + a], lines[at, k + b], lines[at, k + c], lines[at, k + d]
                one, other = p if p > q else q, r if r > s else s
                highest[0, k] = one if one > other else other
        else:
            for place in range(n):
                k = np.uint64(place)
                p, q, r, s = lines[at, k + a], lines[at, k + b], lines[at, k + c], lines[at, k + d]
                one, other = p if p > q else q, r if r > s else s
                one, found = one if one > other else other, highest[0, k]
                highest[0, k] = found if found > one else one


@jit
def make_room(shape, window):  # type: ignore[no-untyped-def]
    """Scratch: maxima along y, then along x, and ``inside[h]``: 0xFF where h cells fit along y."""
    length, width = shape
    n = padded(length * width)
    tops = np.zeros((1, n + (window[0] - 1) * width), _U8)
    inside = np.zeros((window[1] + 1, n), _U8)
    for h in range(1, window[1] + 1):
        for k in range(length * width):
            inside[h, k] = _U8(255) if k % width + h <= width else _U8(0)
    return tops, np.zeros((1, n), _U8), inside


@jit
def find_rest(levels, lane, size, box, room, raised):  # type: ignore[no-untyped-def]
    """Raised rest heights of a cuboid ``size`` in whole cells, 0 where it does not fit.

    Those of line ``lane``. ``levels`` reaches ``window[1] - 1`` zeros past it, ``box`` is the
    container in cells.
    """
    tops, highest, inside = room
    length, width, height = box
    w, h, d = size
    n = highest.shape[1]
    there = (length - w + 1) * width
    if w == 0 or there <= 0 or h > width or d > height:
        for k in range(n):
            raised[lane, k] = 0
        return
    _raise(levels, lane, h, 1, tops, tops.shape[1] - n)
    _raise(tops, 0, w, width, highest, 0)
    lid = _U8(height - d)
    for k in range(n):
        level, fits = highest[0, k], inside[h, k]
        code = _U8(level + _U8(1)) & fits
        raised[lane, k] = code if level <= lid else _U8(0)
    for k in range(there, n):
        raised[lane, k] = 0
