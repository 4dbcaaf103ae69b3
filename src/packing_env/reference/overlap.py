"""Overlaps of pairs of triangles, seen from above (along z).

Two triangles overlap in a convex polygon. Its corners are among 15 points: the corners of each
triangle inside the other, and the intersections of their sides. The vertical distance is linear
over the polygon, so it is smallest and largest at one of these points.
"""

from __future__ import annotations

import numpy as np

_SHADOW = 1e-9
"""Metres by which a point may lie beside a triangle, seen from above."""


def is_wide(triangles: np.ndarray, strip: float) -> np.ndarray:
    """Test which triangles ``[T, 3, 3]`` are wider than a strip, seen from above."""
    a, b, c = np.moveaxis(triangles[..., :2], 1, 0)
    doubled = np.abs((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0])
    long = np.max([np.hypot(*(p - q).T) for p, q in ((a, b), (b, c), (c, a))], axis=0)
    return np.asarray(doubled > strip * long)


def corners(one: np.ndarray, two: np.ndarray, strip: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners ``[C, 3]`` of each pair's overlap, on its first triangle, and the gaps.

    Pairs that overlap at most in a strip have no corners.
    """
    places = [one[..., :2], two[..., :2], _crossings(one, two)]
    flat = np.concatenate(places, 1)
    there = _covers(one, flat) & _covers(two, flat)
    there &= (_spread(flat, there) > strip)[:, None]
    high = _heights(one, flat)
    gaps = high - _heights(two, flat)
    return np.concatenate((flat, high[..., None]), -1)[there], gaps[there]


def _crossings(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Return where the side lines of pairs intersect, seen from above, ``[P, 9, 2]``.

    Parallel lines intersect infinitely far away.
    """
    start, other = one[:, :, None, :2], two[:, None, :, :2]
    along = np.roll(one, -1, 1)[:, :, None, :2] - start
    across = np.roll(two, -1, 1)[:, None, :, :2] - other
    turn = along[..., 0] * across[..., 1] - along[..., 1] * across[..., 0]
    between = other - start
    share = between[..., 0] * across[..., 1] - between[..., 1] * across[..., 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(turn == 0.0, 1e9, share / turn)
    return (start + np.clip(share, -1e9, 1e9)[..., None] * along).reshape(len(one), 9, 2)


def _covers(triangles: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Test which points ``[P, K, 2]`` triangles ``[P, 3, 3]`` cover, seen from above."""
    inside = np.ones(points.shape[:2], bool)
    a, b, c = np.moveaxis(triangles[..., :2], 1, 0)
    one, two = b - a, c - a
    side = np.sign(one[:, 0] * two[:, 1] - one[:, 1] * two[:, 0])[:, None]
    for start, end in ((a, b), (b, c), (c, a)):
        along = end - start
        length = np.hypot(along[:, 0], along[:, 1])[:, None]
        away = points - start[:, None]
        turn = along[:, None, 0] * away[..., 1] - along[:, None, 1] * away[..., 0]
        inside &= side * turn >= -_SHADOW * length
    return inside


def _heights(triangles: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return heights ``[P, K]`` of triangles at points ``[P, K, 2]``, limited to their bounds."""
    a, b, c = np.moveaxis(triangles, 1, 0)
    normal = np.cross(b - a, c - a)
    away = points - a[:, None, :2]
    drop = away[..., 0] * normal[:, None, 0] + away[..., 1] * normal[:, None, 1]
    z = a[:, None, 2] - drop / normal[:, None, 2]
    return np.clip(z, triangles[..., 2].min(1)[:, None], triangles[..., 2].max(1)[:, None])


def _spread(points: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Return the widths ``[P]`` of points ``[P, K, 2]``, across the line of the farthest two."""
    first = np.argmax(there, 1)[:, None, None]
    away = np.where(there[..., None], points - np.take_along_axis(points, first, 1), 0.0)
    distance = np.hypot(away[..., 0], away[..., 1])
    far = np.take_along_axis(away, np.argmax(distance, 1)[:, None, None], 1)
    off = far[..., 0] * away[..., 1] - far[..., 1] * away[..., 0]
    return np.asarray(np.ptp(off, axis=1) / np.maximum(distance.max(1), 1e-300))
