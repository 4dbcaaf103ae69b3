"""Procedural solids: closed, outward-oriented triangle meshes with a known formula for the volume.

Every maker raises ValueError if its arguments do not define a solid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from packing_env.items.meshes.mesh import Mesh, mesh_from_arrays
from packing_env.items.shapes.polygons import Length, regular, signed_area, superellipse

Cell = tuple[int, int, int]
Corner = tuple[float, float, float]


class Solid(NamedTuple):
    """A closed triangle mesh and its exact volume.

    Attributes:
        vertices: Metres.
        faces: Corner indices, counter-clockwise seen from outside.
        volume: Exact volume of this tessellation, m^3.
    """

    vertices: Float[np.ndarray, "V 3"]
    faces: Int[np.ndarray, "F 3"]
    volume: float

    def lying(self) -> Solid:
        """Lay the solid on its side: a quarter turn that maps z to x, x to y, and y to z."""
        return Solid(self.vertices[:, [2, 0, 1]].copy(), self.faces, self.volume)

    def mesh(self, name: str) -> Mesh:
        """Convert the solid to an item mesh."""
        return mesh_from_arrays(self.vertices, self.faces, name=name)


Maker = Callable[[], Solid]
"""Function that makes a solid of the library; it always returns the same arrays."""


def closed_solid(
    vertices: Sequence[Corner] | np.ndarray, faces: Sequence[Cell] | np.ndarray, volume: Length
) -> Solid:
    """Make a `Solid`; raise unless each edge joins exactly two oppositely oriented faces.

    Raises:
        ValueError: The surface is open or touches itself along an edge, or volume <= 0.
    """
    points = np.asarray(vertices, dtype=np.float64).reshape(-1, 3)
    triangles = np.asarray(faces, dtype=np.int64).reshape(-1, 3)
    edges = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    keys = edges @ np.array([len(points), 1])
    reverse = edges @ np.array([1, len(points)])
    if len(np.unique(keys)) != len(keys) or not np.array_equal(np.sort(keys), np.sort(reverse)):
        raise ValueError("the parts of this solid touch along an edge only, or leave it open")
    if not volume > 0:
        raise ValueError("the volume is not positive; is an outline or profile in reverse order?")
    return Solid(points, triangles, float(volume))


def polycube(cells: Iterable[Cell], cell: Length = 0.04) -> Solid:
    """Make the union of cubes of edge `cell` metres at integer positions.

    Raises:
        ValueError: There is no cell, cells are not joined by faces, or cells meet only in an edge.
    """
    # 1. Check that all cells can be reached through faces.
    filled = set(cells)
    if not filled:
        raise ValueError("a polycube needs at least one cell")
    reached, front = set(), [min(filled)]
    while front:
        here = front.pop()
        if here in filled and here not in reached:
            reached.add(here)
            front += [_moved(here, axis, step) for axis in range(3) for step in (-1, 1)]
    if reached != filled:
        raise ValueError("the cells of a polycube must be joined by their faces")
    # 2. The sides of cells without a neighbour form the surface.
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
    return closed_solid(vertices - vertices.min(axis=0), faces, len(filled) * cell**3)


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
    extent = np.array([width, depth, height])
    return closed_solid(unit.vertices * extent, unit.faces, width * depth * height)


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

    Raises:
        ValueError: The lists differ in length, a tip is in the middle, or the profile is reversed.
    """
    # 1. One row per section: z, scales, shifts.
    z = np.asarray(heights, dtype=np.float64)
    scale = np.asarray(scales, dtype=np.float64)
    scale = np.repeat(scale[:, None], 2, axis=1) if scale.ndim == 1 else scale
    shift = np.zeros_like(scale) if offsets is None else np.asarray(offsets, dtype=np.float64)
    if not len(z) == len(scale) == len(shift) or len(z) < 2:
        raise ValueError("heights, scales and offsets must be of one length, at least two")
    rows = np.column_stack([z, scale, shift])
    # 2. Join the ends, or close them by tips at their own height.
    if closed:
        rows = np.vstack([rows, rows[:1]])
    else:
        tip = np.array([1.0, 0.0, 0.0, 1.0, 1.0])
        ends = [rows[:1] * tip] * bool(rows[0, 1] > 0), [rows[-1:] * tip] * bool(rows[-1, 1] > 0)
        rows = np.vstack([*ends[0], rows, *ends[1]])
    if np.any(rows[1:-1, 1:3] <= 0):
        raise ValueError("only the first and the last section of a profile may be a tip")
    faces = _skin(len(outline), rows[:, 1] > 0, closed)
    return closed_solid(_section_points(outline, rows, closed), faces, _loft_volume(outline, rows))


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


def _loft_volume(outline: np.ndarray, rows: np.ndarray) -> float:
    # Cavalieri: the cross-section between two sections is the outline with interpolated scales a,
    # b.
    dz = np.diff(rows[:, 0])
    a0, a1, b0, b1 = rows[:-1, 1], rows[1:, 1], rows[:-1, 2], rows[1:, 2]
    blended = np.sum(dz * (2 * a0 * b0 + a0 * b1 + a1 * b0 + 2 * a1 * b1) / 6)
    # A quad whose lower and upper edges are not parallel is split along a diagonal. Its two
    # triangles differ from the bilinear patch by half the tetrahedron of its corners.
    edge = np.roll(outline, -1, axis=0) - outline
    twist = np.sum(edge[:, 0] * edge[:, 1]) * np.sum(dz * (a1 * b0 - a0 * b1)) / 12
    return signed_area(outline) * float(blended) + float(twist)


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
