"""A small software rasteriser: the nearest triangle per pixel, vectorised over all triangles.

Each triangle is split into the pixel rows that it covers and each row into pixels, so the cost is
proportional to the number of pixels drawn. Depth is stored as 1 / distance, which is linear on the
screen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

_CHUNK = 1 << 21
"""Largest number of rows or pixels that are processed in one pass."""
_ID_BITS = 24
DISTANCE = 3.2
"""Distance of the eye, in diagonals of the scene."""


@dataclass(frozen=True)
class Camera:
    """A view: ``screen = project(point)``.

    Attributes:
        rotation: ``[3, 3]``; its rows are the view's axes right, up, and towards the viewer.
        centre: Point that the camera looks at, metres.
        distance: Distance from the eye to the centre, metres; ``inf`` for a parallel projection.
        scale: Pixels per metre at the centre.
        shift: ``[2]`` pixel of the centre.
    """

    rotation: np.ndarray
    centre: np.ndarray
    distance: float
    scale: float
    shift: np.ndarray

    def project(self, points: np.ndarray) -> np.ndarray:
        """Project ``[..., 3]`` metres to pixel column, pixel row and nearness (1 at the centre)."""
        view = (points - self.centre) @ self.rotation.T
        near = 1.0 / (1.0 - view[..., 2:] / self.distance)
        pixels = self.shift + view[..., :2] * near * (self.scale, -self.scale)
        if np.isinf(self.distance):
            near = 1.0 + view[..., 2:]
        return np.concatenate((pixels, near), -1)

    def unproject(self, column: np.ndarray, row: np.ndarray, near: np.ndarray) -> np.ndarray:
        """Invert :meth:`project`; returns ``[..., 3]`` metres."""
        flat = np.stack((column - self.shift[0], self.shift[1] - row), -1) / self.scale
        if np.isinf(self.distance):
            depth = near - 1.0
        else:
            flat, depth = flat / near[..., None], self.distance * (1.0 - 1.0 / near)
        return np.concatenate((flat, depth[..., None]), -1) @ self.rotation + self.centre

    def fit(self, points: np.ndarray, size: np.ndarray, used: np.ndarray) -> Camera:
        """Return the camera with ``points [P, 3]`` in the middle ``used`` pixels of ``size``."""
        flat = replace(self, scale=1.0, shift=np.zeros(2)).project(points)[:, :2]
        low, high = flat.min(0), flat.max(0)
        scale = float(np.min(used / (high - low)))
        return replace(self, scale=scale, shift=size / 2 - scale * (low + high) / 2)


def look_at(
    corners: np.ndarray,
    size: tuple[int, int],
    azimuth: float,
    elevation: float,
    margin: float = 0.04,
) -> Camera:
    """Build a camera that shows all of ``corners [P, 3]`` in ``size`` (width, height) pixels.

    Args:
        corners: Points that must be visible.
        size: Pixels.
        azimuth: Degrees from the x axis to the eye, seen from above.
        elevation: Degrees above the horizon.
        margin: Share of the picture left free on each side.
    """
    a, e = np.radians(azimuth), np.radians(elevation)
    towards = np.array([np.cos(a) * np.cos(e), np.sin(a) * np.cos(e), np.sin(e)])
    right = np.array([-np.sin(a), np.cos(a), 0.0])
    rotation = np.stack((right, np.cross(towards, right), towards))
    centre = (corners.max(0) + corners.min(0)) / 2
    reach = DISTANCE * float(np.linalg.norm(np.ptp(corners, axis=0)))
    camera = Camera(rotation, centre, reach, 1.0, np.zeros(2))
    return camera.fit(corners, np.asarray(size), np.asarray(size) * (1 - 2 * margin))


def _ragged(counts: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield index pairs ``(owner, place)``, ``place`` in 0 .. counts[owner] - 1, in chunks."""
    ends = np.cumsum(counts)
    start, before = 0, 0
    while start < len(counts):
        stop = max(start + 1, int(np.searchsorted(ends, before + _CHUNK, side="right")))
        part = counts[start:stop]
        owner = np.repeat(np.arange(start, stop), part)
        first = np.repeat(ends[start:stop] - part, part)
        yield owner, np.arange(before, before + len(owner)) - first
        start, before = stop, int(ends[stop - 1])


def rasterize(screen: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Find the nearest triangle per pixel.

    Args:
        screen: ``[T, 3, 3]`` corners as :meth:`Camera.project` returns them.
        size: (width, height) in pixels.

    Returns:
        ``[height, width]`` index of the triangle (-1 in the background) and its nearness (0 in the
        background).
    """
    width, height = size
    buffer = np.zeros(width * height, np.int64)
    corners, plane = screen[..., :2], _planes(screen)
    nearest = screen[..., 2].max()
    first = np.clip(np.ceil(corners[..., 1].min(1) - 0.5), 0, height).astype(np.int64)
    last = np.clip(np.ceil(corners[..., 1].max(1) - 0.5), 0, height).astype(np.int64)
    for owner, place in _ragged(np.where(np.isfinite(plane[:, 2]), last - first, 0)):
        row = first[owner] + place
        left, right = _spans(corners[owner], row + 0.5, width)
        for part, offset in _ragged(right - left):
            column = left[part] + offset
            triangle, y = owner[part], row[part]
            a, b, c = plane[triangle].T
            near = a * (column + 0.5) + b * (y + 0.5) + c
            level = (np.clip(near / nearest, 0.0, 1.0) * (2**38)).astype(np.int64)
            key = (level << _ID_BITS) | (triangle + 1)
            np.maximum.at(buffer, y * width + column, key)
    number = (buffer & ((1 << _ID_BITS) - 1)).reshape(height, width) - 1
    depth = (buffer >> _ID_BITS).reshape(height, width) * (nearest / 2**38)
    return number, depth


def _planes(screen: np.ndarray) -> np.ndarray:
    """Return ``[T, 3]`` (a, b, c) of nearness = a x + b y + c; not finite if seen edge-on."""
    x, y, n = screen[..., 0], screen[..., 1], screen[..., 2]
    x1, y1, n1 = x[:, 1] - x[:, 0], y[:, 1] - y[:, 0], n[:, 1] - n[:, 0]
    x2, y2, n2 = x[:, 2] - x[:, 0], y[:, 2] - y[:, 0], n[:, 2] - n[:, 0]
    area = x1 * y2 - x2 * y1
    safe = np.where(np.abs(area) > 1e-9, area, np.nan)
    a = (n1 * y2 - n2 * y1) / safe
    b = (x1 * n2 - x2 * n1) / safe
    return np.stack((a, b, n[:, 0] - a * x[:, 0] - b * y[:, 0]), -1)


def _spans(corners: np.ndarray, y: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pixels ``left <= column < right`` of triangles ``[P, 3, 2]`` on lines ``y``."""
    left, right = np.full(len(y), np.inf), np.full(len(y), -np.inf)
    for i in range(3):
        (xa, ya), (xb, yb) = corners[:, i].T, corners[:, (i + 1) % 3].T
        crossing = (ya <= y) != (yb <= y)
        x = xa + (y - ya) * (xb - xa) / np.where(crossing, yb - ya, 1.0)
        left = np.where(crossing, np.minimum(left, x), left)
        right = np.where(crossing, np.maximum(right, x), right)
    empty = right < left
    start = np.ceil(np.clip(np.where(empty, 0, left), 0, width) - 0.5).astype(np.int64)
    end = np.ceil(np.clip(np.where(empty, 0, right), 0, width) - 0.5).astype(np.int64)
    return np.maximum(start, 0), np.maximum(end, np.maximum(start, 0))
