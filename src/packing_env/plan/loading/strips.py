"""Strips of the floor in which the boxes of a load are looked up when they are lowered."""

from __future__ import annotations

import numpy as np

_CELLS_PER_BOX = 8
"""Largest average number of floor cells that a box covers when boxes are lowered."""


def floor_strips(corners: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """Return the first and last strip of the floor under each box, along x, then y, ``[N, 4]``.

    Strips begin at every k-th coordinate of the boxes, so they are narrow where many boxes are; a
    load may be long and thin, or fill only a corner. There are at most as many cells as boxes, and
    a box covers a few cells.
    """
    number, starts = len(corners), [np.unique(corners[:, axis]) for axis in range(2)]
    while True:
        if len(starts[0]) * len(starts[1]) <= number:
            columns = []
            for axis, start in enumerate(starts):
                low = corners[:, axis]
                columns.append(np.searchsorted(start, low, "right") - 1)
                columns.append(np.searchsorted(start, low + sides[:, axis], "left") - 1)
            strips = np.stack(columns, 1)
            cells = (strips[:, 1::2] - strips[:, ::2] + 1).prod(1)
            if cells.sum() <= _CELLS_PER_BOX * number:
                return strips
        longer = int(len(starts[1]) > len(starts[0]))
        starts[longer] = starts[longer][::2]
