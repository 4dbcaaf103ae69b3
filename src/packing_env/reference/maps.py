"""The specification of items as heightmaps, and of their rest heights.

This program defines the correct result: every kernel and the batched core are tested against it. It
is written to be read and is never optimised. It shares no code with the programs that it checks.
Heights are float32, because rest heights, masks and ``done`` must agree bit for bit; sums are
float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

FLOAT = np.float32


@dataclass
class Item:
    """One item with its maps per orientation; ``None`` is a padding orientation.

    Attributes:
        top: ``[U, V]`` float32 per orientation, -inf outside the footprint, metres.
        bottom: ``[U, V]`` float32 per orientation, +inf outside the footprint, metres.
        com: Centre of mass ``(x, y)`` per orientation, in 1/64 cell from the window's corner.
        volume: m^3.
        extent: Bounding box in orientation 0, metres.
        handling: Attributes such as weight and fragility (`reference.constraints.Handling`), which
            constraints read.
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
    """Return the sides of an item's window, which ends with the footprint."""
    w, h = np.argwhere(np.isfinite(bottom)).max(0) + 1
    return int(w), int(h)


def levels(
    heightmap: np.ndarray, bottom: np.ndarray, x: int, y: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the footprint's cells u and v, and ``heightmap[x+u, y+v] - bottom[u, v]`` in each."""
    u, v = np.nonzero(np.isfinite(bottom))
    return u, v, (heightmap[x + u, y + v] - bottom[u, v]).astype(FLOAT)


def drop_height(heightmap: np.ndarray, bottom: np.ndarray, x: int, y: int) -> np.float32:
    """Return the rest height of an item whose window has its lower corner at ``(x, y)``.

    It is ``max over (u, v) of heightmap[x+u, y+v] - bottom[u, v]``, or +inf if a footprint cell
    leaves the container or the footprint is empty. Huang et al., RA-L 2023, Eq. 1.
    """
    u, v = np.nonzero(np.isfinite(bottom))
    w, h = heightmap.shape
    inside = (x + u >= 0) & (x + u < w) & (y + v >= 0) & (y + v < h)
    if not len(u) or not inside.all():
        return FLOAT(np.inf)
    return levels(heightmap, bottom, x, y)[2].max()


def lid_tolerance(height: float) -> float:
    """Return by how many metres rounding may lift an item above a container's height.

    It is 1e-6 m or, if this is larger (above 16 m), the spacing of float32 numbers at that height.
    Rest height and peak of an item are each rounded by half a spacing at most. So a stack exactly
    as high as the container may come out one spacing too high, but not more.
    """
    return max(1e-6, float(np.spacing(FLOAT(height))))


def lid(height: float) -> np.float32:
    """Return the highest legal ``float32(z + peak)`` in a container of this height, in metres."""
    return FLOAT(height + lid_tolerance(height))


def nearest_level(height: np.float32, cell: float, starts: Sequence[float] = (0.0,)) -> np.float32:
    """Round a height to that of a stack of whole-cell cuboids, as float32.

    The result is a whole number of cells above the floor, or above another height at which stacks
    start (`reference.map_constraints.starts_of_stacks`).
    """
    levels = [round((float(height) - start) / cell) * cell + start for start in starts]
    return FLOAT(min(levels, key=lambda level: abs(level - float(height))))


def supporting_cells(
    heightmap: np.ndarray, bottom: np.ndarray, x: int, y: int, z: np.float32, contact_tol: float
) -> list[tuple[int, int]]:
    """Return the footprint cells whose distance to the ground is at most ``contact_tol``.

    In float32: ``heightmap - bottom >= z - contact_tol``.
    """
    u, v, level = levels(heightmap, bottom, x, y)
    near = level >= FLOAT(z - FLOAT(contact_tol))
    return list(zip(u[near].tolist(), v[near].tolist(), strict=True))
