"""One cuboid in one container of whole cells, compiled for the CPU.

The heights in cells of a container are one line of bytes, cell (x, y) the (x * width + y)-th, with
zeros behind them. The highest cell of every window is a maximum of such lines, shifted along y and
then along x. What a window takes from the next row, or from beyond the line, stands where none
fits, and is dropped. Lines are known by their addresses. Whole vectors are read and written: up to
a vector behind what is meant is read, and written as it was, which only one thread may do at once.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from packing_env.kernels.compiled import bytes as vectors
from packing_env.kernels.compiled.bytes import WIDTH
from packing_env.kernels.compiled.jit import jit, jit_arrays
from packing_env.kernels.step.cells import MAX_CUBOID_SIDE

_FAR = MAX_CUBOID_SIDE
"""What is further away counts as this."""


@jit
def padded(size):  # type: ignore[no-untyped-def]
    """The size in whole vectors."""
    return -(-size // WIDTH) * WIDTH


Room = namedtuple("Room", "tops before after")
"""A line for maxima; of every cell of a line, its column, and how many columns there are from it
on."""


@jit_arrays
def make_room(shape, window):  # type: ignore[no-untyped-def]
    """What the functions of this module are given, for containers and windows of these sizes."""
    length, width = shape
    n = padded(length * width)
    behind = (window[0] - 1) * width + WIDTH
    before, after = np.zeros(n + behind, np.uint8), np.zeros(n, np.uint8)
    for k in range(before.size):
        before[k] = min(k % width, _FAR)
    for k in range(length * width):
        after[k] = min(width - k % width, _FAR)
    return Room(np.zeros(n + behind, np.uint8), before, after)


@jit
def _raise(line, size, step, highest, n):  # type: ignore[no-untyped-def]
    """The highest byte of line + k, line + k + step, ..., ``size`` of them, for each k < n."""
    last = size - 1
    for first in range(0, size, 4):
        second, third = min(first + 1, last), min(first + 2, last)
        a, b = line + first * step, line + second * step
        c, d = line + third * step, line + min(first + 3, last) * step
        for k in range(0, n, WIDTH):
            one = vectors.higher(vectors.load(a + k), vectors.load(b + k))
            other = vectors.higher(vectors.load(c + k), vectors.load(d + k))
            found = vectors.higher(one, other)
            if first:
                found = vectors.higher(found, vectors.load(highest + k))
            vectors.store(highest + k, found)


@jit
def find_rest(line, size, container, room, raised):  # type: ignore[no-untyped-def]
    """Write the rest heights of a cuboid plus 1 to ``raised``, 0 where it does not fit.

    ``container`` and ``size`` are three sides each, ``room`` is from :func:`make_room`. As many
    bytes are written as cells of a container, :func:`padded`, make; of the line, the side along y
    less one more are read.
    """
    length, width, height = container
    w, h, d = size
    n = room.after.size
    if w == 0 or d > height:
        for k in range(0, n, WIDTH):
            vectors.store(raised + k, vectors.splat(0))
        return
    tops = room.tops.ctypes.data
    _raise(line, h, 1, tops, n)
    _raise(tops, w, width, raised, n)
    lid, corners, column = height - d + 1, (length - w + 1) * width, room.after.ctypes.data
    for k in range(0, n, WIDTH):
        fits = vectors.above(vectors.load(column + k), h - 1)
        fits = vectors.keep_first(fits, min(max(corners - k, 0), _FAR))
        level = vectors.add(vectors.load(raised + k), vectors.splat(1))
        vectors.store(raised + k, vectors.keep_up_to(vectors.both(level, fits), lid))


@jit
def show_legal(raised, places, mask):  # type: ignore[no-untyped-def]
    """Write to ``mask`` which of the bytes at ``raised`` are not 0; returns whether any is.

    There are at least :data:`WIDTH` places. The last vector overlaps the one before, so that
    nothing else is written: what lies behind them may be another thread's.
    """
    some = vectors.splat(0)
    for k in range(0, places, WIDTH):
        at = min(k, places - WIDTH)
        legal = vectors.flags(vectors.load(raised + at))
        vectors.store(mask + at, legal)
        some = vectors.either(some, legal)
    return vectors.any_of(some)


@jit
def _inside(k, window, room):  # type: ignore[no-untyped-def]
    """255 for the cells from the k-th on, counted from a window's corner, that are inside."""
    w, h, width = window
    among = vectors.below(vectors.load(room.before.ctypes.data + k), h)
    return vectors.keep_first(among, min(w * width - k, _FAR))


@jit
def find_ground(corner, window, room):  # type: ignore[no-untyped-def]
    """The highest cell of a window, and how many cells are as high.

    ``corner`` is the address of its first, ``window`` its sides and the container's width.
    """
    w, h, width = window
    reach, top, count = (w - 1) * width + h, vectors.splat(0), np.int64(0)
    for k in range(0, reach, WIDTH):
        inside = _inside(k, window, room)
        top = vectors.higher(top, vectors.both(vectors.load(corner + k), inside))
    highest = vectors.highest_of(top)
    for k in range(0, reach, WIDTH):
        same = vectors.equal(vectors.load(corner + k), highest)
        count += vectors.count_of(vectors.both(same, _inside(k, window, room)))
    return highest, count


@jit
def cover(corner, window, room, top):  # type: ignore[no-untyped-def]
    """Raise a window's cells to ``top``, which none of them is above; returns their sum before."""
    w, h, width = window
    total = np.int64(0)
    for k in range(0, (w - 1) * width + h, WIDTH):
        inside, cells = _inside(k, window, room), vectors.load(corner + k)
        total += vectors.sum_of(vectors.both(cells, inside))
        raised = vectors.higher(cells, vectors.both(vectors.splat(top), inside))
        vectors.store(corner + k, raised)
    return total
