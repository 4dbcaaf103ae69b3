"""Outlines and solids from which ``shapes.py`` models the embedded items.

Plane outlines are counter-clockwise corners ``[P, 2]``, metres; the last corner is joined to the
first. Solids are closed, outward-oriented triangle meshes. Layers of material are stacked on each
other: where two layers meet, the part of each that the other does not cover is triangulated. So the
union is closed by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from packing_env.items.meshes.triangulate import EPS, Triangle, clip_ears, doubled_area

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


# ---------------------------------------------------------------------- solids

Cell = tuple[int, int, int]
Corner = tuple[float, float, float]


class Solid(NamedTuple):
    """A closed triangle mesh.

    Attributes:
        vertices: Metres.
        faces: Corner indices, counter-clockwise seen from outside.
    """

    vertices: Float[np.ndarray, "V 3"]
    faces: Int[np.ndarray, "F 3"]

    def lying(self) -> Solid:
        """Lay the solid on its side: a quarter turn that maps z to x, x to y, and y to z."""
        return Solid(self.vertices[:, [2, 0, 1]].copy(), self.faces)


Maker = Callable[[], Solid]
"""Function that makes a solid of the library; it always returns the same arrays."""


def solid_of(vertices: Sequence[Corner] | np.ndarray, faces: Sequence[Cell] | np.ndarray) -> Solid:
    """Make a solid from anything array-like."""
    points = np.asarray(vertices, dtype=np.float64).reshape(-1, 3)
    return Solid(points, np.asarray(faces, dtype=np.int64).reshape(-1, 3))


def polycube(cells: Iterable[Cell], cell: Length = 0.04) -> Solid:
    """Make the union of cubes of edge `cell` metres at integer positions, joined by their faces."""
    # The sides of cells without a neighbour form the surface.
    filled = set(cells)
    vertex_of: dict[Cell, int] = {}
    faces: list[Cell] = []
    for here in sorted(filled):
        for axis in range(3):
            for side in (0, 1):
                if _moved(here, axis, 2 * side - 1) not in filled:
                    ring = _cube_side(here, axis, side)
                    a, b, c, d = (vertex_of.setdefault(p, len(vertex_of)) for p in ring)
                    faces += [(a, b, c), (a, c, d)]
    vertices = np.array(list(vertex_of), dtype=np.float64) * cell
    return solid_of(vertices - vertices.min(axis=0), faces)


def _moved(cell: Cell, axis: int, step: int) -> Cell:
    x, y, z = (at + step * (i == axis) for i, at in enumerate(cell))
    return x, y, z


def _cube_side(cell: Cell, axis: int, side: int) -> list[Cell]:
    """Return the four corners of a unit cube's side, counter-clockwise seen from outside."""
    base = _moved(cell, axis, side)
    second, third = (axis + 1) % 3, (axis + 2) % 3
    across = _moved(base, second, 1)
    ring = [base, across, _moved(across, third, 1), _moved(base, third, 1)]
    return ring if side else ring[::-1]


def box(width: Length, depth: Length, height: Length) -> Solid:
    """Make a cuboid of the given extents in x, y and z."""
    unit = polycube([(0, 0, 0)], 1.0)
    return solid_of(unit.vertices * np.array([width, depth, height]), unit.faces)


def loft(
    outline: Float[np.ndarray, "P 2"],
    heights: Sequence[Length],
    scales: Sequence[Length] | Sequence[tuple[Length, Length]],
    offsets: Sequence[tuple[Length, Length]] | None = None,
    closed: bool = False,
) -> Solid:
    """Join scaled and shifted copies of one outline at the given heights by a skin of triangles.

    The list runs up the outside of the solid and, for a cavity, down its inside: bottom centre,
    outer wall, rim, inner wall, floor. Open ends are closed by flat caps.

    Args:
        outline: Counter-clockwise, star-shaped around the origin.
        heights: z of every section, metres.
        scales: Factor, or factors in x and y, of every section. 0 is a tip, which is allowed only
            at the ends.
        offsets: Shift in x and y of every section, metres.
        closed: Join the last section to the first one (a ring or tube) instead of closing the ends
            with caps.
    """
    # 1. One row per section: z, scales, shifts.
    z = np.asarray(heights, dtype=np.float64)
    scale = np.asarray(scales, dtype=np.float64)
    scale = np.repeat(scale[:, None], 2, axis=1) if scale.ndim == 1 else scale
    shift = np.zeros_like(scale) if offsets is None else np.asarray(offsets, dtype=np.float64)
    rows = np.column_stack([z, scale, shift])
    # 2. Join the ends, or close them by tips at their own height.
    if closed:
        rows = np.vstack([rows, rows[:1]])
    else:
        tip = np.array([1.0, 0.0, 0.0, 1.0, 1.0])
        ends = [rows[:1] * tip] * bool(rows[0, 1] > 0), [rows[-1:] * tip] * bool(rows[-1, 1] > 0)
        rows = np.vstack([*ends[0], rows, *ends[1]])
    faces = _skin(len(outline), rows[:, 1] > 0, closed)
    return solid_of(_section_points(outline, rows, closed), faces)


def _section_points(outline: np.ndarray, rows: np.ndarray, closed: bool) -> np.ndarray:
    points = []
    for z, a, b, x, y in rows[:-1] if closed else rows:
        ring = outline * [a, b] + [x, y] if a > 0 else np.array([[x, y]])
        points.append(np.column_stack([ring, np.full(len(ring), z)]))
    return np.concatenate(points)


def _skin(corners: int, is_ring: np.ndarray, closed: bool) -> list[Cell]:
    size = np.where(is_ring, corners, 1)
    first = np.concatenate([[0], np.cumsum(size)[:-1]])
    if closed:
        first[-1] = 0
    faces: list[Cell] = []
    sections = zip(first.tolist(), is_ring, strict=True)
    for (low, ring_low), (high, ring_high) in pairwise(sections):
        for j in range(corners):
            k = (j + 1) % corners
            if ring_low:
                faces.append((low + j, low + k, high + k if ring_high else high))
            if ring_high:
                faces.append((low + j if ring_low else low, high + k, high + j))
    return faces


def revolution(
    profile: Sequence[tuple[Length, Length]], segments: int = 24, closed: bool = False
) -> Solid:
    """Make a solid of revolution about z with flat facets.

    Args:
        profile: Points (radius, z), metres; see `loft`.
        segments: Number of facets around; the corners lie on the circles, so a multiple of 4 keeps
            diameters.
        closed: Join the last point to the first one (tubes, tori) instead of to the axis.
    """
    radii, heights = zip(*profile, strict=True)
    return loft(regular(segments, 1.0), heights, radii, closed=closed)


def superquadric(
    half: tuple[Length, Length, Length],
    exponents: tuple[Length, Length] = (1.0, 1.0),
    segments: int = 24,
    rings: int = 12,
) -> Solid:
    """Make a superellipsoid standing on z = 0.

    x = a cos^e1(n) cos^e2(w), y = b cos^e1(n) sin^e2(w), z = c (1 + sin^e1(n)): sections are scaled
    copies of one superellipse. See Barr, "Superquadrics and Angle-Preserving Transformations", IEEE
    CG&A 1981.

    Args:
        half: Half extents a, b, c in metres.
        exponents: e1 (profile) and e2 (plan): 1 is round, towards 0 boxy, 2 a bevel, above 2
            pinched.
        segments: Number of corners of a section, a multiple of 4.
        rings: Number of bands from bottom to top, an even number.
    """
    a, b, c = half
    profile = superellipse(exponents[0], 2 * rings)[: rings + 1]  # from (1, 0) over (0, 1)
    quarter = profile[: rings // 2 + 1]
    scales = np.concatenate([quarter[::-1, 0], quarter[1:, 0]])
    heights = np.concatenate([-quarter[::-1, 1], quarter[1:, 1]])
    outline = superellipse(exponents[1], segments) * [a, b]
    return loft(outline, (c * (1 + heights)).tolist(), scales.tolist())


# ---------------------------------------------------------------------- layers

Outline = Float[np.ndarray, "_ 2"]
Layer = tuple[Sequence[Outline], Length]

Point = tuple[int, int]  # nanometres: shared corners are equal
Edges = dict[Point, Point]


def extrusion(outline: Outline, height: Length, holes: Sequence[Outline] = ()) -> Solid:
    """Make a prism over an outline with disjoint holes strictly inside, standing on z = 0."""
    return stack([([outline, *holes], height)])


def stack(layers: Sequence[Layer]) -> Solid:
    """Stack layers of material on each other, from z = 0 upwards.

    A layer is (outlines, thickness); its material is the area inside an odd number of outlines.
    Outlines of neighbouring layers may be nested, apart or equal, or share edges. They must not
    cross, touch in a point, or overlap along a part of an edge (if they do, add a corner to both
    where the shared part ends).
    """
    edges = [
        {},
        *(_layer_edges(outlines) for outlines, _ in layers),
        {},
    ]  # no layer below the first and above the last
    levels = np.concatenate([[0.0], np.cumsum([thickness for _, thickness in layers])])
    vertex_of: dict[tuple[Point, int], int] = {}
    faces: list[tuple[int, int, int]] = []

    def vertex(point: Point, level: int) -> int:
        return vertex_of.setdefault((point, level), len(vertex_of))

    for level in range(len(levels)):
        for a, b, c in _cap(edges[level], edges[level + 1]):
            faces.append((vertex(a, level), vertex(b, level), vertex(c, level)))
        for a, b in edges[level + 1].items():
            low_a, low_b = vertex(a, level), vertex(b, level)
            high_a, high_b = vertex(a, level + 1), vertex(b, level + 1)
            faces += [(low_a, low_b, high_b), (low_a, high_b, high_a)]
    vertices: list[Corner] = [(x * 1e-9, y * 1e-9, levels[at]) for (x, y), at in vertex_of]
    return solid_of(vertices, faces)


def _layer_edges(outlines: Sequence[Outline]) -> Edges:
    """Return the directed boundary of a layer, with the material on its left."""
    edges: Edges = {}
    for i, outline in enumerate(outlines):
        others = [other for j, other in enumerate(outlines) if j != i]
        is_hole = sum(contains(other, outline[0]) for other in others) % 2 == 1
        ring = outline if (signed_area(outline) > 0) != is_hole else outline[::-1]
        points = [(round(x * 1e9), round(y * 1e9)) for x, y in ring.tolist()]
        edges |= dict(zip(points, points[1:] + points[:1], strict=True))
    return edges


def _cap(below: Edges, above: Edges) -> list[tuple[Point, Point, Point]]:
    """Close the areas that only one of two layers covers, by triangles that face outwards."""
    # 1. The boundary of those areas, as closed loops.
    boundary = {a: b for a, b in below.items() if above.get(a) != b}
    boundary |= {b: a for a, b in above.items() if below.get(a) != b}
    loops = _loops(boundary)
    arrays = [np.array(loop, dtype=np.float64) * 1e-9 for loop in loops]
    # 2. Loops inside an even number of other loops are outlines; holes are one level further in.
    depth = [sum(contains(o, a[0]) for o in arrays if o is not a) for a in arrays]
    triangles: list[tuple[Point, Point, Point]] = []
    for i, outer in enumerate(arrays):
        if depth[i] % 2 == 0:
            nested = zip(loops, arrays, depth, strict=True)
            holes = [h for h, o, d in nested if d == depth[i] + 1 and contains(outer, o[0])]
            triangles += _region(loops[i], holes, signed_area(outer) > 0)
    return triangles


def _region(
    outer: list[Point], holes: list[list[Point]], faces_up: bool
) -> list[tuple[Point, Point, Point]]:
    """Split one connected region into triangles, counter-clockwise where it faces up."""
    loops = [loop if faces_up else loop[::-1] for loop in (outer, *holes)]
    points, at = [point for loop in loops for point in loop], count()
    ring, *rings = ([next(at) for _ in loop] for loop in loops)
    metres = np.array(points, dtype=np.float64) * 1e-9
    triangles = _flip_edges(metres, clip_ears(metres, _joined(metres, ring, rings)))
    ordered = (triangle if faces_up else triangle[::-1] for triangle in triangles)
    return [(points[a], points[b], points[c]) for a, b, c in ordered]


def _joined(points: np.ndarray, outer: list[int], holes: Sequence[list[int]]) -> list[int]:
    """Join holes to an outline by bridges; begin with the hole that is farthest right.

    Holes are clockwise, disjoint, and strictly inside the outline.

    Raises:
        ValueError: The outline touches one of its holes.
    """
    ring = list(outer)
    waiting = sorted(holes, key=lambda hole: -points[hole, 0].max())
    while waiting:
        hole = waiting.pop(0)
        first = int(np.argmax(points[hole, 0]))
        hole = hole[first:] + hole[:first]
        at = _bridge(points, ring, hole, waiting)
        ring = [*ring[: at + 1], *hole, hole[0], *ring[at:]]
    return ring


def _bridge(points: np.ndarray, ring: list[int], hole: list[int], waiting: list[list[int]]) -> int:
    """Return the index in `ring` of the nearest corner visible from the first corner of `hole`."""
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
    """Return whether the direction from `corner` to `point` leads into the polygon."""
    is_left = [doubled_area(*line, point) > EPS for line in ((before, corner), (corner, after))]
    return all(is_left) if doubled_area(before, corner, after) > EPS else any(is_left)


def _clear(a: np.ndarray, b: np.ndarray, start: np.ndarray, end: np.ndarray) -> bool:
    """Return whether the segment a b meets no edge, apart from edges that end in a or b."""
    own = np.any([(ends == tip).all(1) for ends in (start, end) for tip in (a, b)], axis=0)
    start, end = start[~own], end[~own]
    # Two segments are apart if both ends of one lie on the same side of the other.
    edges = np.array([doubled_area(a, b, start), doubled_area(a, b, end)])
    segment = np.array([doubled_area(start, end, a), doubled_area(start, end, b)])
    apart = [(ends.min(0) > EPS) | (ends.max(0) < -EPS) for ends in (edges, segment)]
    return bool(np.all(apart[0] | apart[1]))


def _flip_edges(points: np.ndarray, triangles: list[Triangle]) -> list[Triangle]:
    """Swap diagonals until the triangulation is Delaunay, which avoids needles where possible."""
    apex: dict[tuple[int, int], int] = {}  # the third corner of the triangle at a directed edge
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
    """Return whether the angles at c and d, opposite the edge a b, sum to more than 180 degrees."""
    if doubled_area(a, d, c) <= EPS or doubled_area(d, b, c) <= EPS:
        return False
    cos_c, cos_d = float((a - c) @ (b - c)), float((a - d) @ (b - d))
    sin_c, sin_d = float(doubled_area(a, b, c)), float(doubled_area(b, a, d))
    size = np.hypot(sin_c, cos_c) * np.hypot(sin_d, cos_d)
    return bool(sin_c * cos_d + cos_c * sin_d < -1e-9 * size)


def _loops(boundary: Edges) -> list[list[Point]]:
    rest = dict(boundary)
    loops = []
    while rest:
        start = min(rest)
        loop, point = [start], rest.pop(start)
        while point != start:
            loop.append(point)
            point = rest.pop(point)
        loops.append(loop)
    return loops
