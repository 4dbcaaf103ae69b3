"""The specification of items as height maps, and of where they come to rest.

This program defines the correct result: every kernel and the batched core are tested against it. It
is written to be read, it is never optimised, and it shares no code with what it checks. Heights are
float32, because rest heights, masks and ``done`` must agree bit for bit; sums are float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

FLOAT = np.float32


@dataclass
class Item:
    """One item with its maps per orientation; ``None`` marks a padding orientation.

    Attributes:
        top: ``[U, V]`` float32 per orientation, -inf outside the footprint, metres.
        bottom: ``[U, V]`` float32 per orientation, +inf outside the footprint, metres.
        com: Centre of mass ``(x, y)`` per orientation, in 1/64 cell from the window's corner.
        volume: m^3.
        extent: Bounding box in orientation 0, metres.
        handling: Its weight, fragility, ... (`reference.constraints.Handling`), for constraints.
    """

    top: list[np.ndarray | None]
    bottom: list[np.ndarray | None]
    com: list[tuple[int, int]]
    volume: float
    extent: tuple[float, float, float] = (0.0, 0.0, 0.0)
    handling: Any = None

    def maps(self, orientation: int) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
        """Return bottom, top and centre of mass in an orientation that is not padding."""
        bottom, top = self.bottom[orientation], self.top[orientation]
        assert bottom is not None
        assert top is not None
        return bottom, top, self.com[orientation]


def window_size(bottom: np.ndarray) -> tuple[int, int]:
    """Return the sides of an item's window, up to the last row and column of the footprint."""
    w, h = np.argwhere(np.isfinite(bottom)).max(0) + 1
    return int(w), int(h)


def drop_height(heightmap: np.ndarray, bottom: np.ndarray, x: int, y: int) -> np.float32:
    """Return the rest height of an item whose window has its lower corner at ``(x, y)``.

    ``max over (u, v) of heightmap[x+u, y+v] - bottom[u, v]``; +inf if a footprint cell leaves the
    container or the footprint is empty. Huang et al., RA-L 2023, Eq. 1.
    """
    z = FLOAT(-np.inf)
    for u, v in np.argwhere(np.isfinite(bottom)):
        if not (0 <= x + u < heightmap.shape[0] and 0 <= y + v < heightmap.shape[1]):
            return FLOAT(np.inf)
        z = max(z, FLOAT(heightmap[x + u, y + v] - bottom[u, v]))
    return z if np.isfinite(z) else FLOAT(np.inf)


def lid_tolerance(height: float) -> float:
    """Return the metres that an item may exceed a container's height by, for rounding.

    1e-6 m, or the spacing of float32 numbers at that height where it is larger, above 16 m. Rest
    height and peak of an item are each rounded to half a spacing at most, so a stack of exactly the
    container's height may come out one spacing above it, and never more.
    """
    return max(1e-6, float(np.spacing(FLOAT(height))))


def lid(height: float) -> np.float32:
    """Return the highest legal ``float32(z + peak)`` in a container of a height, metres."""
    return FLOAT(height + lid_tolerance(height))


def nearest_level(height: np.float32, cell: float, starts: Sequence[float] = (0.0,)) -> np.float32:
    """Round a height to that of a stack of whole-cell cuboids, as float32.

    That is a whole number of cells above the floor, or above another height that stacks start at
    (`reference.constraints.starts_of_stacks`).
    """
    levels = [round((float(height) - start) / cell) * cell + start for start in starts]
    return FLOAT(min(levels, key=lambda level: abs(level - float(height))))


def supporting_cells(
    heightmap: np.ndarray, bottom: np.ndarray, x: int, y: int, z: np.float32, contact_tol: float
) -> list[tuple[int, int]]:
    """Return the footprint cells whose gap to the ground is at most ``contact_tol``.

    In float32: ``heightmap - bottom >= z - contact_tol``.
    """
    level = FLOAT(z - FLOAT(contact_tol))
    return [
        (int(u), int(v))
        for u, v in np.argwhere(np.isfinite(bottom))
        if FLOAT(heightmap[x + u, y + v] - bottom[u, v]) >= level
    ]
