"""One cuboid in one container of whole cells, compiled for the CPU with vectors of bytes.

The heights of a container in cells are one line of bytes, followed by zeros. Cell (x, y) has index
x * width + y. The highest cells of all windows are maxima of such lines, shifted along y and then
along x. Values of windows that extend into the next row or beyond the line are discarded, because
no item fits there. Lines are passed by address. Whole vectors are read and written. Up to one
vector after the line is read and written back unchanged, so only one thread at a time may work
there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from packing_env.kernels.compiled import bytes as vectors
from packing_env.kernels.compiled.bytes import WIDTH
from packing_env.kernels.compiled.jit import jit
from packing_env.kernels.compiled.tables import reader, zeros
from packing_env.kernels.layout import MAX_CUBOID_SIDE
from packing_env.kernels.step.entries import declare_entries


def padded(size: int) -> int:
    """Return the size, rounded up to whole vectors."""
    return -(-size // WIDTH) * WIDTH


Columns = declare_entries(
    "Columns",
    """
    tops   uint8  cells
    after  uint8  cells
    """,
)
"""Memory for maxima; ``after`` holds, for each cell of a line, the number of columns from it on."""

as_columns = reader(Columns)


def new_columns(shape: Sequence[int], window: Sequence[int]) -> list[Tensor]:
    """Return `Columns` for containers and windows of these sizes."""
    length, width = shape
    size = padded(length * width)
    behind = size + (window[0] - 1) * width + WIDTH
    after = np.minimum(width - np.arange(size) % width, MAX_CUBOID_SIDE).astype(np.uint8)
    after[length * width :] = 0
    return [zeros(behind), torch.from_numpy(after)]


@jit
def _raise(line, size, step, highest, n):
    """Write, for each k < n, the maximum of ``size`` bytes, ``step`` apart, from line + k on."""
    # Four lines at a time; indices beyond the last line repeat it, which changes no maximum.
    last = size - 1
    for first in range(0, size, 4):
        second, third = min(first + 1, last), min(first + 2, last)
        a, b = line + first * step, line + second * step
        c, d = line + third * step, line + min(first + 3, last) * step
        for k in range(0, n, WIDTH):
            one = vectors.higher(vectors.load(a + k), vectors.load(b + k))
            other = vectors.higher(vectors.load(c + k), vectors.load(d + k))
            maximum = vectors.higher(one, other)
            if first:
                maximum = vectors.higher(maximum, vectors.load(highest + k))
            vectors.store(highest + k, maximum)


@jit
def find_rest(line, size, container, columns, raised):
    """Write the rest heights of a cuboid plus 1 to ``raised``; 0 where it does not fit.

    ``container`` and ``size`` are three sides each. It writes one byte per cell of the container,
    rounded up (:func:`padded`). It also reads some bytes after them, one per cell of the cuboid's
    side along y.
    """
    # 1. If there is no item, or if it is too high, nothing fits.
    length, width, height = container
    w, h, d = size
    n = columns.after.size
    if w == 0 or d > height:
        for k in range(0, n, WIDTH):
            vectors.store(raised + k, vectors.splat(0))
        return
    # 2. The highest cell of each window: first along y, then along x.
    tops = columns.tops.ctypes.data
    _raise(line, h, np.int64(1), tops, n)
    _raise(tops, w, width, raised, n)
    # 3. Set the placements to 0 that leave the container or are above the lid.
    lid, corners, column = height - d + 1, (length - w + 1) * width, columns.after.ctypes.data
    for k in range(0, n, WIDTH):
        fits = vectors.above(vectors.load(column + k), h - 1)
        fits = vectors.keep_first(fits, min(max(corners - k, 0), MAX_CUBOID_SIDE))
        level = vectors.add(vectors.load(raised + k), vectors.splat(1))
        vectors.store(raised + k, vectors.keep_up_to(vectors.both(level, fits), lid))


@jit
def mark_legal(raised, places, mask):
    """Write to ``mask`` which bytes at ``raised`` are not 0; return whether there are any.

    There must be at least :data:`WIDTH` places. The last vector overlaps the previous one, so that
    no byte after the mask is written: such a byte may belong to another thread.
    """
    # The flags of all vectors are combined and tested once.
    some = vectors.splat(0)
    for k in range(0, places, WIDTH):
        at = min(k, places - WIDTH)
        legal = vectors.flags(vectors.load(raised + at))
        vectors.store(mask + at, legal)
        some = vectors.either(some, legal)
    return vectors.any_of(some)
