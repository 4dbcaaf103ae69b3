"""Slopes of hulls as integers, which compare in the same way as the fractions that they replace."""

from __future__ import annotations

from typing import Any

import numpy as np


def slope_scale(window: tuple[int, int]) -> tuple[int, int]:
    """Return the scale ``S`` of integer slopes, and ``S0``, which stands for ``S / 0``.

    A slope ``rise / run`` is stored as ``rise * round(S / run)``. In half cells from the window's
    centre, ``|rise| <= V`` and ``run <= U``, so the rounding error of a stored slope is at most V /
    2. If the sum of two slopes is not 0, its magnitude is at least 1 / U^2. So with ``S > 2 V
    U^2``, two slopes sum to 0 or more iff their integers sum to -V or more. S0 is steeper than any
    other slope.
    """
    across, along = window
    scale = 2 * along * across * across + 1
    return scale, along * (scale + 1) + 1


def integers(window: tuple[int, int]) -> tuple[Any, Any]:
    """Return the narrowest dtypes for counts of a window's cells, and for slopes and their sums."""
    across, along = window
    largest = 2 * (along + 2) * slope_scale(window)[1]
    for counts, slopes in ((np.uint8, np.int16), (np.int16, np.int32)):
        fits = across * along <= np.iinfo(counts).max
        if fits and largest <= np.iinfo(slopes).max:
            return counts, slopes
    return np.int32, np.int64
