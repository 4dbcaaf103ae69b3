"""The specification of the stability rules on maps, in plain loops.

A rule looks at one placement and at the ground below its window (:class:`Touch`) and says whether
the item stays where it is put.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from packing_env.reference.maps import FLOAT, supporting_cells, window_size


@dataclass
class Touch:
    """All that a stability rule looks at: one placement and the ground below its window.

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

    def area(self) -> int:
        """Count the cells of the footprint."""
        return int(np.isfinite(self.level).sum())

    def corners(self) -> list[tuple[int, int]]:
        """Return the four corner cells of the window; they coincide where it is one cell wide."""
        w, h = self.level.shape
        return [(0, 0), (w - 1, 0), (0, h - 1), (w - 1, h - 1)]


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


def center_hull(touch: Touch) -> bool:
    """Test if over half of the footprint is supported, or if its centre lies between the supports.

    The centre is the window's, and "between" means in the convex hull of the supporting cells'
    centres, boundary included; the hull may be a segment or a point. Xiong et al., RA-L 2024.
    (Their program, GOPT, rejects a hull that is a point.)
    """
    if 2 * len(touch.cells) > touch.area():
        return True
    w, h = touch.level.shape
    centres = [(64 * u + 32, 64 * v + 32) for u, v in touch.cells]
    return in_hull(centres, (32 * w, 32 * h))


def area_corners(touch: Touch) -> bool:
    """Test if enough of the footprint is supported; fewer supported corners require a larger share.

    Stable with more than 60 % and all four corners, more than 80 % and three, or more than 95 %.
    Zhao et al., AAAI 2021, as the paper prints it.
    """
    corners = sum(corner in touch.cells for corner in touch.corners())
    return is_enough(len(touch.cells), touch.area(), corners)


def is_enough(count: int, area: int, corners: int) -> bool:
    """Test :func:`area_corners` with ``count`` of ``area`` cells and ``corners`` supported."""
    return (
        (100 * count > 60 * area and corners == 4)
        or (100 * count > 80 * area and corners >= 3)
        or 100 * count > 95 * area
    )


def area_corners_code(touch: Touch) -> bool:
    """Test the area and corners rule as its authors' program computes it.

    First, three or four corners must lie at the level of the highest corner. Then more than 95 % of
    the footprint must be supported; or, if those corners are supported, more than 85 % (three
    corners) or 50 % (four).
    Zhao et al., AAAI 2021 (Online-3D-BPP-DRL, ``space.py``, ``check_box``). Their heights are
    integers; here corners are level up to the contact tolerance. Corners outside the footprint are
    infinitely low: a disc has no corner in its footprint, so all four tie and pass the first test.
    """
    count, area = len(touch.cells), touch.area()
    levels = [touch.level[corner] for corner in touch.corners()]
    tol = FLOAT(touch.contact_tol)
    highest = max(levels)
    corners = sum(bool(level >= FLOAT(highest - tol)) for level in levels)
    if corners < 3:
        return False
    if 100 * count > 95 * area:
        return True
    if highest < FLOAT(touch.z - tol):
        return False
    return 100 * count > (85 if corners == 3 else 50) * area


RULES: dict[str, Callable[[Touch], bool]] = {
    "none": lambda touch: True,
    "com_hull": lambda touch: com_hull(touch.cells, touch.com),
    "center_hull": center_hull,
    "area_corners": area_corners,
    "area_corners_code": area_corners_code,
}
"""The stability rules on maps."""


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
