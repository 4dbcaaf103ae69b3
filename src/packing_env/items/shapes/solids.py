"""Procedural solids: closed, outward-oriented triangle meshes.

The makers do not check their arguments; :meth:`Solid.mesh` checks what they made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from packing_env.items.meshes.mesh import Mesh, mesh_from_arrays
from packing_env.items.shapes.polygons import Length, regular, superellipse

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

    def mesh(self, name: str) -> Mesh:
        """Convert the solid to an item mesh."""
        return mesh_from_arrays(self.vertices, self.faces, name=name)


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
