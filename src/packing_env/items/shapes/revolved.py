"""Embedded items of the families `superquadrics`, `revolutions` and `cups`.

Lengths of revolutions and cups are written in centimetres.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from packing_env.items.shapes.layers import Outline
from packing_env.items.shapes.polygons import CM, Length, arc, rectangle, regular, shifted
from packing_env.items.shapes.prismatic import layered
from packing_env.items.shapes.solids import Maker, Solid, loft, revolution, superquadric


def revolved(
    *profile: tuple[Length, Length], segments: int = 24, closed: bool = False, unit: Length = CM
) -> Solid:
    """Make a solid of revolution from (radius, z) pairs, by default in centimetres."""
    return revolution([(r * unit, z * unit) for r, z in profile], segments, closed)


def _tapered(sides: int, *profile: tuple[Length, Length]) -> Solid:
    """Make a tapered solid over a regular polygon from (radius, z) pairs in centimetres."""
    radii, heights = (np.array(profile) * CM).T.tolist()
    return loft(regular(sides, 1.0, turn=np.pi / sides), heights, radii)


def bowl_profile(radius: Length, height: Length, wall: Length) -> list[tuple[float, float]]:
    """Make the profile of a round bowl with a flat foot: up to the rim, then down the cavity."""
    outside = [(radius * c, height * (1 - s)) for c, s in arc(1.0, 70, 0, 6)]
    inner = radius - wall
    inside = [(inner * c, height - (height - wall) * s) for c, s in arc(1.0, 0, 90, 6)]
    foot = (outside[0][0], 0.0)
    return [foot, *outside[1:], *inside[:-1], (0.0, wall)]


def _tray(outer: Outline, floor: Length, height: Length, *pockets: Outline) -> Solid:
    """Make an open box from the thickness of its floor and the height of its walls above that."""
    return layered(([outer], floor), ([outer, *pockets], height))


SUPERQUADRICS: dict[str, Maker] = {
    "sphere": partial(superquadric, (0.055, 0.055, 0.055)),
    "ellipsoid": partial(superquadric, (0.085, 0.055, 0.045)),
    "rounded_box": partial(superquadric, (0.06, 0.045, 0.04), (0.3, 0.3)),
    "rounded_cylinder": partial(superquadric, (0.045, 0.045, 0.065), (0.3, 1.0)),
    "pillow": partial(superquadric, (0.08, 0.065, 0.035), (1.0, 0.4)),
    "octahedron": partial(superquadric, (0.085, 0.085, 0.085), (2.0, 2.0), 8, 4),
    "bicone": partial(superquadric, (0.07, 0.07, 0.09), (2.0, 1.0), 24, 2),
    "pinched_star": partial(superquadric, (0.1, 0.1, 0.05), (0.6, 2.6), 24, 10),
}

REVOLUTIONS: dict[str, Maker] = {
    "cone": lambda: revolved((6.5, 0), (0, 16)),
    "vase": lambda: revolved((3.5, 0), (5.5, 3), (6, 6), (4.5, 10), (3, 13), (4, 16)),
    "bottle": lambda: revolved((4, 0), (4.2, 1), (4.2, 10), (3.5, 12), (1.6, 14.5), (1.6, 18)),
    "spool": lambda: revolved((6, 0), (6, 2), (3, 2), (3, 9), (6, 9), (6, 11)),
    "hourglass": lambda: revolved((6, 0), (5.5, 1.5), (2, 7), (5.5, 12.5), (6, 14)),
    "dome": lambda: revolved(*[(7.2 * c, 7.2 * s) for c, s in arc(1.0, 0, 90, 8)[:-1]], (0, 7.2)),
    "torus": lambda: revolved(
        *[(5.5 + 2.5 * c, 2.5 + 2.5 * s) for c, s in arc(1.0, -90, 240, 11)], closed=True
    ),
    "barrel": lambda: revolved((4.5, 0), (5.4, 3), (5.7, 6.5), (5.4, 10), (4.5, 13)),
    "pawn": lambda: revolved(
        *[(4.5, 0), (4.5, 2), (3, 3.5), (2, 9), (3.2, 9.8), (2, 10.6)],
        *[(3.2 * c, 13.3 + 3.2 * s) for c, s in arc(1.0, -50, 90, 6)[:-1]],
        (0, 16.5),
    ),
}

CUPS: dict[str, Maker] = {
    "tumbler": lambda: revolved((4, 0), (5, 12), (4, 12), (3.1, 1.2), (0, 1.2)),
    "deep_bowl": lambda: revolved(*bowl_profile(8.5, 7.0, 1.2)),
    "dish": lambda: revolved((7, 0), (8.5, 4), (7.3, 4), (6, 1.4), (0, 1.4), segments=28),
    "pipe": lambda: revolved((5.5, 0), (5.5, 13), (4, 13), (4, 0), closed=True),
    "funnel": lambda: revolved(
        (1.8, 0), (1.8, 5), (7.5, 11), (6.5, 11), (0.9, 4.6), (0.9, 0), closed=True
    ),
    "hexagon_cup": lambda: _tapered(6, (5, 0), (6.5, 9), (5.2, 9), (4, 1.5), (0, 1.5)),
    "planter": lambda: _tapered(4, (6, 0), (8.5, 10), (7, 10), (4.8, 1.5), (0, 1.5)),
    "open_box": lambda: _tray(rectangle(13, 10), 1, 8, rectangle(11, 8)),
    "tray": lambda: _tray(rectangle(18, 13), 1, 3, rectangle(16, 11)),
    "divided_tray": lambda: _tray(
        rectangle(18, 10), 1.5, 4, *(shifted(rectangle(7.5, 8), x, 0) for x in (-4.25, 4.25))
    ),
}
