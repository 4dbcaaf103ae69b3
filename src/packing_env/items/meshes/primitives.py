"""Boxes and solids of revolution as triangles, without any file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from packing_env.items.meshes.surface import Surface, surface

_CORNERS = np.array(
    [(0, 0, 1), (0, 1, 1), (0, 1, 0), (0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1), (1, 0, 1)]
)
_SIDES = ((0, 1, 2, 3), (4, 5, 6, 7), (4, 7, 0, 3), (2, 1, 6, 5), (2, 5, 4, 3), (0, 7, 6, 1))
"""Corners of each side of a box, counter-clockwise seen from outside."""


def box(sides: Sequence[float]) -> Surface:
    """Return a box with a corner at the origin."""
    faces = [triangle for a, b, c, d in _SIDES for triangle in ((a, b, c), (a, c, d))]
    return surface(_CORNERS * np.array(sides), faces)


def revolved(radii: Sequence[float], heights: Sequence[float], steps: int) -> Surface:
    """Return a solid of revolution about z whose facets touch its circles.

    Args:
        radii: Radius at each height, metres; 0 at both ends.
        heights: Ascending, metres.
        steps: Number of facets around, a multiple of 4: facets then touch the circles on the axes.
    """
    # 1. A ring of corners at each height between the two tips.
    angles = np.pi / steps * (2 * np.arange(steps) + 1)
    circle = np.stack([np.cos(angles), np.sin(angles)], 1) / np.cos(np.pi / steps)
    rings = [
        np.column_stack([radius * circle, np.full(steps, z)])
        for radius, z in zip(radii[1:-1], heights[1:-1], strict=True)
    ]
    tips = np.array([[0.0, 0.0, heights[0]]]), np.array([[0.0, 0.0, heights[-1]]])
    # 2. Two fans, and two triangles for each facet between two rings.
    here = 1 + np.arange(steps)
    beside = 1 + (np.arange(steps) + 1) % steps
    top, last = steps * (len(rings) - 1), np.full(steps, 1 + steps * len(rings))
    faces = [np.stack([0 * here, beside, here], 1), np.stack([here + top, beside + top, last], 1)]
    for low in range(0, top, steps):
        high = low + steps
        faces.append(np.stack([here + low, beside + low, beside + high], 1))
        faces.append(np.stack([here + low, beside + high, here + high], 1))
    return surface(np.concatenate([tips[0], *rings, tips[1]]), np.concatenate(faces))
