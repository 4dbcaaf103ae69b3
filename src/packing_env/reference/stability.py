"""The specification of the stability rules, in plain loops, and their measurements on maps.

A rule looks at one placement and at the ground below it (:class:`Ground`) and says whether the item
stays where it is put. On maps the ground is a :class:`Touch`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from packing_env.reference.maps import FLOAT, supporting_cells, window_size


class Ground(Protocol):
    """All that a stability rule looks at: one placement and the ground below it, in one unit."""

    def support(self) -> tuple[int, int]:
        """Count the supporting cells, and the cells of the footprint."""

    def held_corners(self) -> int:
        """Count the corner cells that support the item."""

    def level_corners(self) -> tuple[int, bool]:
        """Count the corner cells at the level of the highest one, and test if it supports."""

    def centre_is_between(self) -> bool:
        """Test if the centre of the base is in the hull of the supporting cells' centres."""

    def mass_is_above(self) -> bool:
        """Test if the centre of mass is in the hull of the supporting cells' squares."""

    def mass_is_inside(self, percent: int) -> bool:
        """Test if it is farther than a margin inside of that hull; see :data:`MARGINS`."""


@dataclass
class Touch:
    """A placement on a heightmap and the ground below its window.

    Attributes:
        cells: Supporting cells of the footprint.
        level: ``[w, h]`` float32 ``heightmap - bottom`` over the item's window, which is cut to the
            last row and column of the footprint; -inf outside the footprint, where nothing rests.
        z: Rest height.
        com: Centre of mass, 1/64 cell from the window's corner.
        contact_tol: Metres.
    """

    cells: list[tuple[int, int]]
    level: np.ndarray
    z: np.float32
    com: tuple[int, int]
    contact_tol: float = 0.0

    def support(self) -> tuple[int, int]:
        """Count the supporting cells, and the cells of the footprint."""
        return len(self.cells), self.area()

    def area(self) -> int:
        """Count the cells of the footprint."""
        return int(np.isfinite(self.level).sum())

    def corners(self) -> list[tuple[int, int]]:
        """Return the four corner cells of the window; they coincide where it is one cell wide."""
        w, h = self.level.shape
        return [(0, 0), (w - 1, 0), (0, h - 1), (w - 1, h - 1)]

    def held_corners(self) -> int:
        """Count the corner cells that support the item."""
        return sum(corner in self.cells for corner in self.corners())

    def level_corners(self) -> tuple[int, bool]:
        """Count the corner cells at the level of the highest one, and test if it supports.

        Levels are equal up to the contact tolerance; a corner outside the footprint is infinitely
        low.
        """
        levels, tol = [self.level[corner] for corner in self.corners()], FLOAT(self.contact_tol)
        highest = max(levels)
        count = sum(bool(level >= FLOAT(highest - tol)) for level in levels)
        return count, bool(highest >= FLOAT(self.z - tol))

    def centre_is_between(self) -> bool:
        """Test if the window's centre is in the hull of the supporting cells' centres."""
        w, h = self.level.shape
        return in_hull([(64 * u + 32, 64 * v + 32) for u, v in self.cells], (32 * w, 32 * h))

    def mass_is_above(self) -> bool:
        """Test if the centre of mass is in the hull of the supporting cells' squares."""
        return com_hull(self.cells, self.com)

    def mass_is_inside(self, percent: int) -> bool:
        """Test if the corners of a rectangle about the centre of mass are in that hull."""
        x, y = self.com
        dx, dy = (margin(percent, cells) for cells in self.level.shape)
        about = [(x + a, y + b) for a in (-dx, dx) for b in (-dy, dy)]
        return all(com_hull(self.cells, point) for point in about)


def touch_at(
    heightmap: np.ndarray,
    bottom: np.ndarray,
    x: int,
    y: int,
    z: np.float32,
    com: tuple[int, int] = (0, 0),
    contact_tol: float = 0.0,
) -> Touch:
    """Describe the ground below a placement; the footprint must lie inside the container."""
    level = np.full(window_size(bottom), -np.inf, FLOAT)
    for u, v in np.argwhere(np.isfinite(bottom)):
        level[u, v] = FLOAT(heightmap[x + u, y + v] - bottom[u, v])
    cells = supporting_cells(heightmap, bottom, x, y, z, contact_tol)
    return Touch(cells, level, z, com, contact_tol)


def in_hull(points: list[tuple[int, int]], at: tuple[int, int]) -> bool:
    """Test if ``at`` lies in the convex hull of the points, boundary included.

    The line through ``at`` parallel to y must meet the hull both above and below it. With ``slope =
    dy / |dx|`` of each point relative to ``at``, the steepest points on the left and on the right
    span the chord above (sum of slopes >= 0), the least steep ones the chord below (sum <= 0).
    Points with ``dx = 0`` count on both sides, with slope ``2^20 dy``.
    """
    left, right = [], []
    for point_x, point_y in points:
        dx, dy = point_x - at[0], point_y - at[1]
        slope = float(dy) / abs(dx) if dx else 2.0**20 * dy
        if dx <= 0:
            left.append(slope)
        if dx >= 0:
            right.append(slope)
    if not left or not right:
        return False
    return max(left) + max(right) >= 0 and min(left) + min(right) <= 0


def com_hull(cells: list[tuple[int, int]], com: tuple[int, int]) -> bool:
    """Test if the centre of mass lies in the hull of the supporting squares, boundary included.

    Args:
        cells: Supporting cells; each contributes the four corners of its square.
        com: Centre of mass, 1/64 cell from the window's corner.
    """
    return in_hull(
        [(64 * x, 64 * y) for u, v in cells for x in (u, u + 1) for y in (v, v + 1)], com
    )


def margin(percent: int, cells: int) -> int:
    """Return a share of a window's side in 1/64 cell, rounded down, and at least one of them."""
    return max(1, 64 * cells * percent // 100)


def center_hull(ground: Ground) -> bool:
    """Test if over half of the footprint is supported, or if its centre lies between the supports.

    "Between" means in the convex hull of the supporting cells' centres, boundary included; the hull
    may be a segment or a point. Xiong et al., RA-L 2024. (Their program, GOPT, rejects a hull that
    is a point.)
    """
    count, area = ground.support()
    return 2 * count > area or ground.centre_is_between()


def area_corners(ground: Ground) -> bool:
    """Test if enough of the footprint is supported; fewer supported corners require a larger share.

    Stable with more than 60 % and all four corners, more than 80 % and three, or more than 95 %.
    Zhao et al., AAAI 2021, as the paper prints it.
    """
    (count, area), corners = ground.support(), ground.held_corners()
    return (
        (100 * count > 60 * area and corners == 4)
        or (100 * count > 80 * area and corners >= 3)
        or 100 * count > 95 * area
    )


def area_corners_code(ground: Ground) -> bool:
    """Test the area and corners rule as its authors' program computes it.

    First, three or four corners must lie at the level of the highest corner. Then more than 95 % of
    the footprint must be supported; or, if those corners are supported, more than 85 % (three
    corners) or 50 % (four).
    Zhao et al., AAAI 2021 (Online-3D-BPP-DRL, ``space.py``, ``check_box``). Their heights are
    integers; here corners are level up to the contact tolerance. Corners outside the footprint are
    infinitely low: a disc has no corner in its footprint, so all four tie and pass the first test.
    """
    (count, area), (corners, held) = ground.support(), ground.level_corners()
    if corners < 3:
        return False
    if 100 * count > 95 * area:
        return True
    if not held:
        return False
    return 100 * count > (85 if corners == 3 else 50) * area


MARGINS = {"com_hull_strict": 0, "com_hull_10": 10, "com_hull_20": 20}
"""Rules of a centre of mass inside of the hull by a margin: percents of the item's window.

The margin is at least 1/64 cell, so a centre of mass on the boundary, from which an item falls at
the slightest push, is refused. Among boxes of whole cells such ties are common.
"""


def _inside(percent: int) -> Callable[[Ground], bool]:
    """Return the rule of a margin."""
    return lambda ground: ground.mass_is_inside(percent)


RULES: dict[str, Callable[[Ground], bool]] = {
    "none": lambda ground: True,
    "com_hull": lambda ground: ground.mass_is_above(),
    "center_hull": center_hull,
    "area_corners": area_corners,
    "area_corners_code": area_corners_code,
    **{name: _inside(percent) for name, percent in MARGINS.items()},
}
"""The stability rules that look at the ground below one placement only."""


def is_stable(rule: str, touch: Touch) -> bool:
    """Test one placement by a named rule.

    Raises:
        ValueError: The reference does not implement the rule on maps.
    """
    if rule not in RULES:
        raise ValueError(
            f"the reference has no stability rule {rule!r} on maps; it has {', '.join(RULES)}"
        )
    return RULES[rule](touch)
