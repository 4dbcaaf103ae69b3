"""Plane outlines for the procedural solids, and their triangulation.

An outline is a counter-clockwise array of corners ``[P, 2]`` in metres, not closed (the last corner
joins the first one). Triangulation is ear clipping with bridge edges for the holes, so nothing
beyond NumPy is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

Triangle = tuple[int, int, int]
Length = int | float  # metres or degrees; whole numbers are welcome

_EPS = 1e-14  # m^2: twice the area below which three corners count as collinear


def signed_area(outline: Float[np.ndarray, "P 2"]) -> float:
    """Area by the shoelace formula, positive for a counter-clockwise outline."""
    x, y = outline[:, 0], outline[:, 1]
    return float(0.5 * np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y))


def contains(outline: Float[np.ndarray, "P 2"], point: Float[np.ndarray, " 2"]) -> bool:
    """Whether `point` lies inside, by the parity of the edges a ray to the right crosses."""
    start, end = outline, np.roll(outline, -1, axis=0)
    straddles = (start[:, 1] > point[1]) != (end[:, 1] > point[1])
    rise = np.where(straddles, end[:, 1] - start[:, 1], 1.0)
    crossing = start[:, 0] + (point[1] - start[:, 1]) * (end[:, 0] - start[:, 0]) / rise
    return bool(np.count_nonzero(straddles & (point[0] < crossing)) % 2)


def shifted(outline: Float[np.ndarray, "P 2"], x: Length, y: Length) -> Float[np.ndarray, "P 2"]:
    """The outline moved by (x, y) metres."""
    return outline + np.array([x, y])


def polygon(*corners: tuple[Length, Length]) -> Float[np.ndarray, "P 2"]:
    """An outline from its corners in metres, in counter-clockwise order."""
    return np.array(corners, dtype=np.float64)


def rectangle(width: Length, depth: Length) -> Float[np.ndarray, "4 2"]:
    """A `width` x `depth` rectangle centred on the origin."""
    x, y = width / 2, depth / 2
    return polygon((-x, -y), (x, -y), (x, y), (-x, y))


def regular(sides: int, radius: Length, turn: Length = 0.0) -> Float[np.ndarray, "P 2"]:
    """A regular polygon with corners on the circle of `radius`, the first one at angle `turn`."""
    angle = turn + 2 * np.pi * np.arange(sides) / sides
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def superellipse(exponent: Length, sides: int) -> Float[np.ndarray, "P 2"]:
    """The unit curve (cos^e, sin^e): e = 1 a circle, towards 0 a square, 2 a diamond."""
    return _power(regular(sides, 1.0), exponent)


def star(points: int, radius: Length, inner: Length) -> Float[np.ndarray, "P 2"]:
    """A star whose points reach `radius` and whose notches reach `inner`."""
    outline = regular(2 * points, 1.0, turn=np.pi / 2)
    return outline * np.where(np.arange(2 * points) % 2 == 0, radius, inner)[:, None]


def gear(teeth: int, radius: Length, root: Length) -> Float[np.ndarray, "P 2"]:
    """A gear with trapezoidal teeth between the root circle and the tip circle of `radius`."""
    pitch = 2 * np.pi / teeth
    steps = np.array([0.0, 0.25, 0.4, 0.85]) * pitch  # root, root, tip, tip of one tooth
    angle = (np.arange(teeth)[:, None] * pitch + steps).ravel()
    reach = np.tile([root, root, radius, radius], teeth)
    return reach[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def arc(radius: Length, start: Length, end: Length, steps: int) -> list[tuple[float, float]]:
    """Points along the circle of `radius` from angle `start` to `end` (degrees), ends included."""
    angle = np.deg2rad(np.linspace(start, end, steps + 1))
    return [(float(radius * np.cos(a)), float(radius * np.sin(a))) for a in angle]


def _power(values: np.ndarray, exponent: Length) -> np.ndarray:
    """sign(v) |v|^e, with the rounding noise of cos and sin around zero removed first."""
    clean = np.where(np.abs(values) < 1e-12, 0.0, values)
    return np.sign(clean) * np.abs(clean) ** exponent


def triangulate(
    points: Float[np.ndarray, "P 2"], outer: Sequence[int], holes: Sequence[Sequence[int]] = ()
) -> list[Triangle]:
    """Split a polygon with holes into counter-clockwise triangles of positive area.

    Args:
        points: Coordinates that the index lists refer to, metres.
        outer: The outline, counter-clockwise.
        holes: Outlines of the holes, clockwise, disjoint and strictly inside.

    Returns:
        Triples of indices into `points`. Only the given corners are used, so the result joins the
        walls built on the same outlines without a gap.

    Raises:
        ValueError: The outline crosses or touches itself or one of its holes.
    """
    ring = list(outer)
    waiting = sorted((list(hole) for hole in holes), key=lambda h: -points[h, 0].max())
    while waiting:
        hole = waiting.pop(0)
        first = int(np.argmax(points[hole, 0]))
        hole = hole[first:] + hole[:first]
        at = _bridge(points, ring, hole, waiting)
        ring = [*ring[: at + 1], *hole, hole[0], *ring[at:]]
    return _flip_edges(points, _clip_ears(points, ring))


def _turn(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Twice the signed area of the triangles a b c."""
    left, right = b - a, c - a
    return np.asarray(left[..., 0] * right[..., 1] - left[..., 1] * right[..., 0])


def _bridge(points: np.ndarray, ring: list[int], hole: list[int], waiting: list[list[int]]) -> int:
    """Position in `ring` of the nearest corner that the first corner of `hole` can see."""
    loops = [ring, hole, *waiting]
    start = points[np.concatenate(loops)]
    end = points[np.concatenate([loop[1:] + loop[:1] for loop in loops])]
    eye = points[hole[0]]
    distance = np.linalg.norm(points[ring] - eye, axis=1)
    for at in np.argsort(distance, kind="stable"):
        corner = points[ring[at]]
        before, after = points[ring[at - 1]], points[ring[(at + 1) % len(ring)]]
        if _inside_corner(before, corner, after, eye) and _clear(eye, corner, start, end):
            return int(at)
    raise ValueError("a hole of the outline is not strictly inside it, or overlaps another one")


def _inside_corner(
    before: np.ndarray, corner: np.ndarray, after: np.ndarray, point: np.ndarray
) -> bool:
    """Whether the direction from `corner` to `point` enters the polygon at that corner."""
    left_of_in = _turn(before, corner, point) > _EPS
    left_of_out = _turn(corner, after, point) > _EPS
    if _turn(before, corner, after) > _EPS:
        return bool(left_of_in and left_of_out)
    return bool(left_of_in or left_of_out)


def _clear(a: np.ndarray, b: np.ndarray, start: np.ndarray, end: np.ndarray) -> bool:
    """Whether the segment a b meets none of the edges, apart from those that end in a or b."""
    own = np.zeros(len(start), dtype=bool)
    for tip in (a, b):
        own |= np.all(start == tip, axis=1) | np.all(end == tip, axis=1)
    start, end = start[~own], end[~own]
    side_start, side_end = _turn(a, b, start), _turn(a, b, end)
    side_a, side_b = _turn(start, end, a), _turn(start, end, b)
    apart = (np.minimum(side_start, side_end) > _EPS) | (np.maximum(side_start, side_end) < -_EPS)
    apart |= (np.minimum(side_a, side_b) > _EPS) | (np.maximum(side_a, side_b) < -_EPS)
    return bool(np.all(apart))


def _clip_ears(points: np.ndarray, ring: list[int]) -> list[Triangle]:
    """Cut the best-shaped ear again and again: this keeps slivers and zero areas away."""
    ring = list(ring)
    quality = [_ear_quality(points, ring, i) for i in range(len(ring))]
    triangles: list[Triangle] = []
    while len(ring) > 3:
        best = int(np.argmax(quality))
        if quality[best] <= 0:
            quality = [_ear_quality(points, ring, i) for i in range(len(ring))]
            best = int(np.argmax(quality))
            if quality[best] <= 0:
                raise ValueError("the outline crosses itself or touches itself")
        triangles.append((ring[best - 1], ring[best], ring[(best + 1) % len(ring)]))
        del ring[best], quality[best]
        for i in ((best - 1) % len(ring), best % len(ring)):
            quality[i] = _ear_quality(points, ring, i)
    if _turn(*points[ring]) <= _EPS:
        raise ValueError("the outline crosses itself, or its corners are collinear")
    return [*triangles, (ring[0], ring[1], ring[2])]


def _ear_quality(points: np.ndarray, ring: list[int], at: int) -> float:
    """Area over squared longest side of the triangle at corner `at`; 0 where it is no ear."""
    a, b, c = points[[ring[at - 1], ring[at], ring[(at + 1) % len(ring)]]]
    area = float(_turn(a, b, c))
    if area <= _EPS:
        return 0.0
    rest = points[ring]
    tips = [np.all(rest == tip, axis=1) for tip in (a, b, c)]
    rest = rest[~(tips[0] | tips[1] | tips[2])]
    inside = (_turn(a, b, rest) >= -_EPS) & (_turn(b, c, rest) >= -_EPS)
    inside &= _turn(c, a, rest) >= -_EPS
    if np.any(inside):
        return 0.0
    longest = max(float(np.sum((p - q) ** 2)) for p, q in ((a, b), (b, c), (c, a)))
    return area / longest


def _flip_edges(points: np.ndarray, triangles: list[Triangle]) -> list[Triangle]:
    """Swap diagonals until the triangulation is Delaunay: no needles where corners allow better."""
    apex: dict[tuple[int, int], int] = {}
    for triangle in triangles:
        _enter(apex, triangle)
    queue = list(apex)
    while queue:
        a, b = queue.pop()
        if (a, b) not in apex or (b, a) not in apex:
            continue
        c, d = apex[a, b], apex[b, a]
        if _swap_helps(*points[[a, b, c, d]]):
            for edge in ((a, b), (b, a), (b, c), (c, a), (a, d), (d, b)):
                del apex[edge]
            _enter(apex, (a, d, c))
            _enter(apex, (d, b, c))
            queue += [(a, d), (d, b), (b, c), (c, a)]
    return [(a, b, c) for (a, b), c in apex.items() if a < b and a < c]


def _enter(apex: dict[tuple[int, int], int], triangle: Triangle) -> None:
    a, b, c = triangle
    apex[a, b], apex[b, c], apex[c, a] = c, a, b


def _swap_helps(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> bool:
    """Whether the angles at c and d, facing the edge a b, add up to more than half a turn."""
    if _turn(a, d, c) <= _EPS or _turn(d, b, c) <= _EPS:
        return False
    cos_c, cos_d = float((a - c) @ (b - c)), float((a - d) @ (b - d))
    sin_c, sin_d = float(_turn(a, b, c)), float(_turn(b, a, d))
    size = np.hypot(sin_c, cos_c) * np.hypot(sin_d, cos_d)
    return bool(sin_c * cos_d + cos_c * sin_d < -1e-9 * size)
