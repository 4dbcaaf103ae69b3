"""Slopes of hulls as integers, which decide as the fractions do."""

from __future__ import annotations

from typing import Any

import numpy as np


def slope_scale(window: tuple[int, int]) -> tuple[int, int]:
    """Return ``(S, S0)``, with which slopes are kept as integers.

    A slope ``rise / run`` is kept as ``rise * round(S / run)``, which is off by V / 2 at most:
    half cells from the window's centre have ``|rise| <= V`` and ``run <= U``. Two slopes that do
    not cancel sum to 1 / U^2 at least, so with ``S > 2 V U^2`` their integers sum to -V or more if
    and only if they sum to 0 or more. S0 stands for ``S / 0``: steeper than any other slope.
    """
    across, along = window
    scale = 2 * along * across * across + 1
    return scale, along * (scale + 1) + 1


def integers(window: tuple[int, int]) -> tuple[Any, Any]:
    """Return the narrowest integers for counts of a window's cells, and for slopes and sums."""
    across, along = window
    largest = 2 * (along + 2) * slope_scale(window)[1]
    for counts, slopes in ((np.uint8, np.int16), (np.int16, np.int32)):
        fits = across * along <= np.iinfo(counts).max
        if fits and largest <= np.iinfo(slopes).max:
            return counts, slopes
    return np.int32, np.int64
