"""The specification of the stability rules, in plain loops.

A rule reads a :class:`Touch`, which describes one placement and the ground below it, and decides
whether the item stays in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any

import numpy as np

from packing_env.reference.maps import FLOAT, levels, supporting_cells, window_size

Point = tuple[int, int]
Rectangle = tuple[int, int, int, int]
"""``(x0, y0, x1, y1)``."""


@dataclass
class Touch:
    """An item at rest and its contacts.

    On a heightmap, lengths are in cells and each supporting cell is a contact. Among boxes, lengths
    are in units and each rectangle in which an item touches a box below is a contact.

    Attributes:
        contacts: Rectangles that support the item; they do not overlap.
        area: Area of the footprint.
        window: Bounding rectangle of the footprint.
        corner_levels: Heights at which the item would rest if only one of the four :func:`corners`
            touched; -inf outside the footprint.
        z: Rest height.
        com: Centre of mass, 1/64 cell.
        contact_tol: Largest distance at which a cell supports, metres.
    """

    contacts: list[Rectangle]
    area: int
    window: Rectangle
    corner_levels: list[Any]
    z: Any
    com: Point
    contact_tol: float = 0.0

    @property
    def support(self) -> int:
        """Supported part of ``area``."""
        return sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in self.contacts)

    @property
    def support_ratio(self) -> float:
        """Supported share of ``area``."""
        return self.support / self.area

    @property
    def level_corners(self) -> int:
        """Number of corners that are level with the highest one, up to the contact tolerance."""
        level = FLOAT(max(self.corner_levels) - FLOAT(self.contact_tol))
        return sum(bool(each >= level) for each in self.corner_levels)

    @property
    def is_centred(self) -> bool:
        """True if the footprint's centre lies between the centres of supporting cells."""
        x0, y0, x1, y1 = self.window
        centres = [(64 * x + 32, 64 * y + 32) for each in self.contacts for x, y in corners(each)]
        return bool(centres) and is_inside(hull(centres), (32 * (x0 + x1), 32 * (y0 + y1)))

    def held_corners(self) -> int:
        """Count the corner cells that support the item."""
        return sum(
            any(x0 <= x < x1 and y0 <= y < y1 for x0, y0, x1, y1 in self.contacts)
            for x, y in corners(self.window)
        )


def corners(window: Rectangle) -> list[Point]:
    """Return the four corner cells of a window; they coincide if it is one cell wide."""
    x0, y0, x1, y1 = window
    return list(product((x0, x1 - 1), (y0, y1 - 1)))


def touch_at(
    heightmap: np.ndarray,
    bottom: np.ndarray,
    x: int,
    y: int,
    z: np.float32,
    com: Point = (0, 0),
    contact_tol: float = 0.0,
) -> Touch:
    """Describe the ground below a placement; the footprint must lie inside the container."""
    w, h = window_size(bottom)
    u, v, lifted = levels(heightmap, bottom, x, y)
    level = np.full((w, h), -np.inf, FLOAT)
    level[u, v] = lifted
    cells = supporting_cells(heightmap, bottom, x, y, z, contact_tol)
    return Touch(
        contacts=[(u, v, u + 1, v + 1) for u, v in cells],
        area=len(lifted),
        window=(0, 0, w, h),
        corner_levels=[level[cell] for cell in corners((0, 0, w, h))],
        z=z,
        com=com,
        contact_tol=contact_tol,
    )


# ---------------------------------------------------------------------- hulls, in exact integers


def cross(a: Point, b: Point, c: Point) -> int:
    """Return twice the signed area of the triangle ``a b c``; positive if it turns left."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def hull(points: list[Point]) -> list[Point]:
    """Return the hull's vertices counter-clockwise, without points in the middle of an edge."""
    ordered = sorted(set(points))
    if len(ordered) < 3:
        return ordered
    halves = []
    for run in (ordered, ordered[::-1]):
        half: list[Point] = []
        for point in run:
            while len(half) > 1 and cross(half[-2], half[-1], point) <= 0:
                half.pop()
            half.append(point)
        halves.append(half[:-1])
    return halves[0] + halves[1]


def is_inside(vertices: list[Point], point: Point) -> bool:
    """Test if a point lies in a hull or on its boundary; the hull may be a segment or a point."""
    if len(vertices) < 3:
        between = all(
            min(v[axis] for v in vertices) <= point[axis] <= max(v[axis] for v in vertices)
            for axis in range(2)
        )
        return between and cross(vertices[0], vertices[-1], point) == 0
    return all(cross(a, b, point) >= 0 for a, b in pairwise([*vertices, vertices[0]]))


def in_hull_of_contacts(contacts: list[Rectangle], points: list[Point]) -> bool:
    """Test if all points, in 1/64 cell, lie in the hull of the contacts or on its boundary."""
    if not contacts:
        return False
    squares = [(64 * x, 64 * y) for x0, y0, x1, y1 in contacts for x in (x0, x1) for y in (y0, y1)]
    vertices = hull(squares)
    return all(is_inside(vertices, point) for point in points)


# ---------------------------------------------------------------------- the rules


def com_hull(touch: Touch) -> bool:
    """Test if the centre of mass lies in the hull of the supporting squares."""
    return in_hull_of_contacts(touch.contacts, [touch.com])


def com_hull_with_margin(touch: Touch, percent: int) -> bool:
    """Test if a rectangle around the centre of mass lies in the hull of the supporting squares.

    In each direction it extends by a share of the window's side, rounded down to 1/64 cell, but by
    at least 1/64 cell.
    """
    x, y = touch.com
    x0, y0, x1, y1 = touch.window
    dx, dy = (max(1, 64 * side * percent // 100) for side in (x1 - x0, y1 - y0))
    return in_hull_of_contacts(
        touch.contacts, [(x + a, y + b) for a in (-dx, dx) for b in (-dy, dy)]
    )


def center_hull(touch: Touch) -> bool:
    """Test if over half of the footprint is supported, or if its centre lies between the supports.

    "Between" means in the convex hull of the supporting cells' centres or on its boundary; the hull
    may be a segment or a point. Xiong et al., RA-L 2024. (Their program, GOPT, rejects a hull that
    is a point.)
    """
    return 2 * touch.support > touch.area or touch.is_centred


def area_corners(touch: Touch) -> bool:
    """Test if enough of the footprint is supported; with fewer supported corners, more is required.

    A placement is stable with more than 60 % and all four corners, with more than 80 % and three,
    or with more than 95 %. The source is Zhao et al., AAAI 2021, as the paper prints it.
    """
    percent, held = 100 * touch.support, touch.held_corners()
    return (
        (percent > 60 * touch.area and held == 4)
        or (percent > 80 * touch.area and held >= 3)
        or percent > 95 * touch.area
    )


def area_corners_code(touch: Touch) -> bool:
    """Test the rule of :func:`area_corners` as its authors' program computes it.

    First, three or four corners must be level with the highest corner. Then more than 95 % of the
    footprint must be supported. If those corners are supported, more than 85 % (three corners) or
    more than 50 % (four) is enough. The source is Zhao et al., AAAI 2021
    (Online-3D-BPP-DRL, ``space.py``, ``check_box``). Their heights are integers; here corners are
    level if they differ by at most the contact tolerance. Corners outside the footprint are
    infinitely low. So a disc, which has no corner in its footprint, passes the first test: all four
    corners tie.
    """
    percent, level = 100 * touch.support, touch.level_corners
    if level < 3:
        return False
    if percent > 95 * touch.area:
        return True
    if max(touch.corner_levels) < FLOAT(touch.z - FLOAT(touch.contact_tol)):
        return False
    return percent > (85 if level == 3 else 50) * touch.area


MARGINS = {"com_hull_strict": 0, "com_hull_10": 10, "com_hull_20": 20}
"""Rules that keep the centre of mass inside the hull by a margin, in percent of the item's window.

The margin is at least 1/64 cell. An item whose centre of mass is on the boundary falls at the
slightest push, and among boxes of whole cells such ties are common.
"""

RULES: dict[str, Callable[[Touch], bool]] = {
    "none": lambda touch: True,
    "com_hull": com_hull,
    "center_hull": center_hull,
    "area_corners": area_corners,
    "area_corners_code": area_corners_code,
    **{name: partial(com_hull_with_margin, percent=percent) for name, percent in MARGINS.items()},
}
"""The stability rules that consider only the supports directly below an item."""


def by_formula(rule: Any) -> Callable[[Touch], bool]:
    """Return a user's rule as a function of a touch.

    ``rule`` holds a formula of six measurements, as in ``packing_env.kernels.stability_rules``.
    They are measured here, in plain loops.
    """

    def judge(touch: Touch) -> bool:
        bar = FLOAT(touch.z - FLOAT(touch.contact_tol))
        measured = SimpleNamespace(
            count=touch.support,
            limits=tuple(percent * touch.area // 100 for percent in rule.percents),
            corners=touch.level_corners if rule.corners == "highest" else touch.held_corners(),
            touching=bool(max(touch.corner_levels) >= bar),
            in_hull=touch.is_centred if rule.hull == "centres" else com_hull(touch),
            area=touch.area,
        )
        return bool(rule.formula(measured))

    return judge


def is_stable(rule: str, touch: Touch) -> bool:
    """Test one placement by a named rule; raise ValueError if the reference does not define it."""
    if rule not in RULES:
        raise ValueError(f"the reference has no stability rule {rule!r}; it has {', '.join(RULES)}")
    return RULES[rule](touch)
