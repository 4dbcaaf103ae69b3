"""Plane outlines for the procedural solids: counter-clockwise corners ``[P, 2]``, metres.

The last corner is joined to the first.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

Length = int | float  # metres or degrees; integers are accepted too
CM, MM = 0.01, 0.001


def signed_area(outline: Float[np.ndarray, "P 2"]) -> float:
    """Compute the area by the shoelace formula, positive for a counter-clockwise outline."""
    x, y = outline[:, 0], outline[:, 1]
    return float(0.5 * np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y))


def contains(outline: Float[np.ndarray, "P 2"], point: Float[np.ndarray, " 2"]) -> bool:
    """Return whether `point` is inside, by the number of edges that a ray to the right crosses."""
    start, end = outline, np.roll(outline, -1, axis=0)
    straddles = (start[:, 1] > point[1]) != (end[:, 1] > point[1])
    rise = np.where(straddles, end[:, 1] - start[:, 1], 1.0)
    crossing = start[:, 0] + (point[1] - start[:, 1]) * (end[:, 0] - start[:, 0]) / rise
    return bool(np.count_nonzero(straddles & (point[0] < crossing)) % 2)


def shifted(outline: Float[np.ndarray, "P 2"], x: Length, y: Length) -> Float[np.ndarray, "P 2"]:
    """Return the outline moved by (x, y) metres."""
    return outline + np.array([x, y])


def polygon(*corners: tuple[Length, Length]) -> Float[np.ndarray, "P 2"]:
    """Make an outline from its corners in metres, in counter-clockwise order."""
    return np.array(corners, dtype=np.float64)


def rectangle(width: Length, depth: Length) -> Float[np.ndarray, "4 2"]:
    """Make a `width` x `depth` rectangle centred on the origin."""
    x, y = width / 2, depth / 2
    return polygon((-x, -y), (x, -y), (x, y), (-x, y))


def regular(sides: int, radius: Length, turn: Length = 0.0) -> Float[np.ndarray, "P 2"]:
    """Make a regular polygon with corners on the circle of `radius`, the first at angle `turn`."""
    angle = turn + 2 * np.pi * np.arange(sides) / sides
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def superellipse(exponent: Length, sides: int) -> Float[np.ndarray, "P 2"]:
    """Make the unit curve (cos^e, sin^e): e = 1 is a circle, towards 0 a square, 2 a diamond."""
    values = regular(sides, 1.0)
    values[np.abs(values) < 1e-12] = 0.0  # rounding noise of cos and sin
    curve: np.ndarray = np.sign(values) * np.abs(values) ** exponent
    return curve


def star(points: int, radius: Length, inner: Length) -> Float[np.ndarray, "P 2"]:
    """Make a star whose points reach `radius` and whose notches reach `inner`."""
    outline = regular(2 * points, 1.0, turn=np.pi / 2)
    return outline * np.where(np.arange(2 * points) % 2 == 0, radius, inner)[:, None]


def gear(teeth: int, radius: Length, root: Length) -> Float[np.ndarray, "P 2"]:
    """Make a gear with trapezoidal teeth between the root circle and the circle of `radius`."""
    pitch = 2 * np.pi / teeth
    steps = np.array([0.0, 0.25, 0.4, 0.85]) * pitch  # root, root, tip, tip of one tooth
    angle = (np.arange(teeth)[:, None] * pitch + steps).ravel()
    reach = np.tile([root, root, radius, radius], teeth)
    return reach[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def arc(radius: Length, start: Length, end: Length, steps: int) -> list[tuple[float, float]]:
    """Return points along a circle from angle `start` to `end` (degrees), ends included."""
    angle = np.deg2rad(np.linspace(start, end, steps + 1))
    return [(float(radius * np.cos(a)), float(radius * np.sin(a))) for a in angle]
