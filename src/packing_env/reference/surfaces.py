"""Surfaces of solids in space: near triangles, their exact distances, crossings, points inside.

The triangles of a surface are sorted along a Z-order curve and grouped into blocks of
:data:`_BLOCK`. Two triangles are compared only if the bounds of their blocks meet.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_BLOCK = 32
_PAIRS = 1 << 15
"""Pairs of triangles that are compared at a time."""
_PAIRS_OF_BLOCKS = 1 << 22
"""Pairs of blocks that are compared at a time."""
_FAR = 1e300
"""Bounds of unused places of a block."""
ALL_THE_WAY = 1e12
"""Metres; farther than anything in a plan."""


class Surface:
    """The triangles of a solid in the container.

    Args:
        triangles: ``[T, 3, 3]`` metres, counter-clockwise seen from outside.

    Attributes:
        triangles: The same triangles, in blocks.
        low: ``[K, _BLOCK, 3]`` lower corners of their bounds.
        high: ``[K, _BLOCK, 3]`` upper corners.
    """

    def __init__(self, triangles: np.ndarray) -> None:
        self.triangles = triangles[_z_order(triangles.mean(1))]
        padding = np.full((-len(triangles) % _BLOCK, 3), _FAR)
        self.low = np.concatenate((self.triangles.min(1), padding)).reshape(-1, _BLOCK, 3)
        self.high = np.concatenate((self.triangles.max(1), -padding)).reshape(-1, _BLOCK, 3)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper corner ``[3]`` of the solid."""
        return self.low.min((0, 1)), self.high.max((0, 1))

    def turned(self, direction: str) -> Surface:
        """Return the surface in axes whose z points in a direction, such as ``"-x"``.

        For negative directions the axes are mirrored.
        """
        last = "xyz".index(direction[1])
        axes = [(last + 1) % 3, (last + 2) % 3, last]
        turned = Surface.__new__(Surface)
        turned.triangles, turned.low, turned.high = (
            array[..., axes] for array in (self.triangles, self.low, self.high)
        )
        if direction[0] == "-":
            turned.triangles[..., 2] *= -1.0
            turned.low[..., 2], turned.high[..., 2] = -turned.high[..., 2], -turned.low[..., 2]
        return turned


def _z_order(points: np.ndarray) -> np.ndarray:
    """Return the order of points ``[N, 3]`` along a Z-order curve of 1024 steps a side."""
    if not len(points):
        return np.zeros(0, np.int64)
    low, high = points.min(0), points.max(0)
    steps = (1023 * (points - low) / max(float((high - low).max()), 1e-300)).astype(np.int64)
    code = np.zeros(len(points), np.int64)
    for bit in range(10):
        for axis in range(3):
            code |= (steps[:, axis] >> bit & 1) << (3 * bit + axis)
    return np.argsort(code, kind="stable")


def pairs(
    one: Surface, two: Surface, below: np.ndarray, above: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the indices ``[P]`` of triangles of both surfaces whose bounds meet.

    Args:
        one: The first surface. The bounds of its triangles are enlarged.
        two: The second surface.
        below: ``[3]`` metres by which lower corners are moved down; may be negative.
        above: ``[3]`` metres by which upper corners are moved up.
    """
    low, high = one.low - below, one.high + above
    step = max(1, _PAIRS // _BLOCK**2)
    for first, second in _pairs_of_blocks(low, high, two):
        for start in range(0, len(first), step):
            k, m = first[start : start + step], second[start : start + step]
            ends = (
                low[k][:, :, None],
                high[k][:, :, None],
                two.low[m][:, None],
                two.high[m][:, None],
            )
            pair, i, j = np.nonzero(_meeting(*ends))
            if len(pair):
                yield k[pair] * _BLOCK + i, m[pair] * _BLOCK + j


def _pairs_of_blocks(
    low: np.ndarray, high: np.ndarray, two: Surface
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the indices of blocks whose bounds meet, for some blocks of the first surface."""
    # 1. Keep the blocks of each surface that meet the bounds of the whole other one.
    low, high, low_of_two, high_of_two = low.min(1), high.max(1), two.low.min(1), two.high.max(1)
    first = np.nonzero(_meeting(low, high, *two.bounds))[0]
    second = np.nonzero(_meeting(low_of_two, high_of_two, low.min(0), high.max(0)))[0]

    # 2. Compare them, some blocks at a time, because surfaces may have tens of thousands.
    step = max(1, _PAIRS_OF_BLOCKS // max(1, len(second)))
    for start in range(0, len(first), step):
        k = first[start : start + step]
        ends = low[k][:, None], high[k][:, None], low_of_two[second], high_of_two[second]
        i, j = np.nonzero(_meeting(*ends))
        yield k[i], second[j]


def _meeting(
    low: np.ndarray, high: np.ndarray, low_of_other: np.ndarray, high_of_other: np.ndarray
) -> np.ndarray:
    """Test which bounds ``[..., 3]`` meet."""
    x, y, z = (
        (low[..., axis] <= high_of_other[..., axis]) & (high[..., axis] >= low_of_other[..., axis])
        for axis in range(3)
    )
    return np.asarray(x & y & z)


def are_near(one: np.ndarray, two: np.ndarray, reach: float) -> np.ndarray:
    """Test which triangles ``[P, 3, 3]`` may be as near as ``reach`` to each other.

    The others are farther apart along the normal of one of the two.
    """
    near = np.ones(len(one), bool)
    for triangles in (one, two):
        normal = _normals(triangles)
        first, second = (np.einsum("pke,pe->pk", corners, normal) for corners in (one, two))
        near &= second.min(1) - first.max(1) <= reach
        near &= first.min(1) - second.max(1) <= reach
    return near


def distances(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Return the distances ``[P]`` of pairs of triangles ``[P, 3, 3]`` that do not cross.

    The nearest points are a corner and a point of the other triangle, or lie on two sides.
    """
    corners = np.minimum(to_triangles(one, two), to_triangles(two, one))
    return np.minimum(corners, _between_sides(one, two))


def to_triangles(points: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Return the least distance ``[P]`` of points ``[P, K, 3]`` from triangles ``[P, 3, 3]``.

    The nearest point of a triangle is the foot of the perpendicular or a point on a side.
    """
    # 1. The distances from the sides; axes: pair, point, side.
    along = np.roll(triangles, -1, 1) - triangles
    away = points[:, :, None] - triangles[:, None]
    squared = np.maximum((along * along).sum(-1), 1e-300)
    share = np.clip(np.einsum("pkse,pse->pks", away, along) / squared[:, None], 0.0, 1.0)
    off = away - share[..., None] * along[:, None]
    sides = np.sqrt((off * off).sum(-1).min((1, 2)))

    # 2. The distances from the planes, where the foot of the perpendicular is in the triangle.
    normal = _normals(triangles)
    inward = np.cross(normal[:, None], along)
    over = (np.einsum("pkse,pse->pks", away, inward) >= 0.0).all(2)
    height = np.abs(np.einsum("pke,pe->pk", away[:, :, 0], normal))
    over &= (np.abs(normal).max(1) > 0.0)[:, None]
    return np.minimum(sides, np.where(over, height, np.inf).min(1))


def _between_sides(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Return the least distance ``[P]`` of the sides of two triangles, for their inner points.

    It is measured between the nearest points of the two lines (Ericson, Real-Time Collision
    Detection, 2005, 5.1.9), moved to the end of a side if they lie beyond it. Both points are on
    the sides, so the distance is never too small.
    """
    start, other = one[:, :, None], two[:, None]
    along = np.roll(one, -1, 1)[:, :, None] - start
    across = np.roll(two, -1, 1)[:, None] - other
    between = start - other
    a, e, b, c, f = (
        (u * v).sum(-1)
        for u, v in (
            (along, along),
            (across, across),
            (along, across),
            (along, between),
            (across, between),
        )
    )
    turn = a * e - b * b
    s = np.clip((b * f - c * e) / np.where(turn > 0.0, turn, 1.0), 0.0, 1.0)
    t = np.clip((b * s + f) / np.maximum(e, 1e-300), 0.0, 1.0)
    s = np.clip((b * t - c) / np.maximum(a, 1e-300), 0.0, 1.0)
    off = between + s[..., None] * along - t[..., None] * across
    return np.asarray(np.sqrt((off * off).sum(-1).min((1, 2))))


def cross(one: np.ndarray, two: np.ndarray, tolerance: float) -> np.ndarray:
    """Test which pairs of triangles ``[P, 3, 3]`` cross, by more than a tolerance in metres.

    Each triangle has corners on both sides of the other's plane, and the parts of the common line
    of both planes that are in the triangles overlap. Triangles that only touch do not cross.
    """
    # 1. The distances of all corners from the other triangle's plane.
    normals = _normals(one), _normals(two)
    sides = (
        np.einsum("pke,pe->pk", one - two[:, :1], normals[1]),
        np.einsum("pke,pe->pk", two - one[:, :1], normals[0]),
    )
    both = np.ones(len(one), bool)
    for side in sides:
        both &= (side.min(1) < -tolerance) & (side.max(1) > tolerance)

    # 2. The part of the common line in each triangle.
    crossing = np.nonzero(both)[0]
    line = np.cross(normals[0][crossing], normals[1][crossing])
    line /= np.maximum(np.linalg.norm(line, axis=1, keepdims=True), 1e-300)
    starts, ends = zip(
        *(
            _part(each[crossing], side[crossing], line)
            for each, side in zip((one, two), sides, strict=True)
        ),
        strict=True,
    )
    both[crossing] = np.minimum(*ends) - np.maximum(*starts) > tolerance
    return both


def _part(
    triangles: np.ndarray, side: np.ndarray, line: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends ``[P]`` of the part of a triangle that is in a plane, along a line.

    ``side [P, 3]`` has the distances of the corners from the plane.
    """
    following = np.roll(side, -1, 1)
    meets = (side * following <= 0.0) & (side != following)
    share = side / np.where(meets, side - following, 1.0)
    place = np.einsum("pke,pe->pk", triangles, line)
    place = place + share * (np.roll(place, -1, 1) - place)
    return np.where(meets, place, np.inf).min(1), np.where(meets, place, -np.inf).max(1)


def _normals(triangles: np.ndarray) -> np.ndarray:
    """Return unit normals ``[P, 3]``, zero for triangles without an area."""
    normal = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    length = np.linalg.norm(normal, axis=1, keepdims=True)
    return np.where(length > 1e-30, normal / np.maximum(length, 1e-300), 0.0)


def inner_points(triangles: np.ndarray, depth: float) -> np.ndarray:
    """Return the points ``[T, 3]`` that lie below the middles of triangles ``[T, 3, 3]``."""
    return np.asarray(triangles.mean(1) - depth * _normals(triangles))


def is_inside(points: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Test which points ``[N, 3]`` are inside a closed surface ``[T, 3, 3]``.

    It sums the solid angles of the triangles (Van Oosterom and Strackee, IEEE TBME 1983): 4 pi
    inside, 0 outside.
    """
    inside = np.zeros(len(points), bool)
    step = max(1, (1 << 18) // len(triangles))
    for start in range(0, len(points), step):
        a, b, c = np.moveaxis(triangles - points[start : start + step, None, None], 2, 0)
        la, lb, lc = (np.sqrt((each * each).sum(-1)) for each in (a, b, c))
        volume = (a * np.cross(b, c)).sum(-1)
        angles = (a * b).sum(-1) * lc + (b * c).sum(-1) * la + (c * a).sum(-1) * lb
        total = 2.0 * np.arctan2(volume, la * lb * lc + angles).sum(1)
        inside[start : start + step] = total > 2.0 * np.pi
    return inside
