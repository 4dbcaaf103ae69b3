"""Polygons to triangles by ear clipping: faces of mesh files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from packing_env.items.meshes.surface import MeshError, damaged

Triangle = tuple[int, int, int]

EPS = 1e-14
"""Twice the area, in squared units of the points, up to which three corners are collinear."""
BLOCK = 2**16
"""Number of polygons that are checked at once."""


def triangulate_faces(
    vertices: Any,
    polygons: Sequence[tuple[int, Sequence[int]]],
    place: str = "line",
    first: int = 0,
) -> list[Sequence[int]]:
    """Split the polygons of a mesh file into triangles: convex ones as fans, others by ears.

    Args:
        vertices: [V, 3].
        polygons: for each polygon, its number and its vertex ids, which start at 0.
        place: what the numbers count, for messages, such as line.
        first: number of the file's first vertex.

    Raises:
        MeshError: A polygon crosses itself, has fewer than three vertices, or has an id out of
            range.
    """
    points = np.array(vertices, dtype=np.float64).reshape(-1, 3)
    for number, ids in polygons:
        where = f"{place} {number}"
        if len(ids) < 3:
            raise damaged(f"{where}: a face has fewer than three vertices")
        if min(ids) < 0 or max(ids) >= len(points):
            vertex = first + next(i for i in ids if not 0 <= i < len(points))
            what = f"vertex {vertex} of {len(points)} (counted from {first})"
            raise damaged(f"{where}: a face refers to {what}")
    triangles: list[Sequence[int]] = []
    convex = _convex(points, [ids for _, ids in polygons])
    for (number, ids), is_fan in zip(polygons, convex, strict=True):
        if is_fan:
            triangles += [(ids[0], *ids[i : i + 2]) for i in range(1, len(ids) - 1)]
            continue
        try:
            triangles += [tuple(ids[i] for i in triple) for triple in _split_polygon(points[ids])]
        except ValueError as error:
            what = f"{place} {number}: the polygon crosses itself ({error})"
            raise MeshError(f"{what}; triangulate it before exporting") from error
    return triangles


def _convex(points: Float[np.ndarray, "V 3"], polygons: Any) -> Bool[np.ndarray, " F"]:
    """Return which polygons are convex, or not finite: a later check names their vertex."""
    sizes = np.array([len(ids) for ids in polygons], dtype=np.int64)
    convex = sizes <= 3
    for size in np.unique(sizes[~convex]):
        same = np.flatnonzero(sizes == size)
        for block in np.split(same, range(BLOCK, len(same), BLOCK)):
            corners = points[np.array([polygons[number] for number in block])]
            with np.errstate(invalid="ignore"):
                # Corners that turn against the normal are concave.
                ahead = np.roll(corners, -1, axis=1)
                turns = np.cross(ahead - corners, np.roll(ahead, -1, axis=1) - ahead)
                normal = _normals(corners)
                bends = np.einsum("fpi,fi->fp", turns, normal)
                least = -1e-9 * (normal * normal).sum(1, keepdims=True)
            convex[block] = (bends >= least).all(1) | ~np.isfinite(corners).all((1, 2))
    return convex


def _normals(corners: Float[np.ndarray, "F P 3"]) -> Float[np.ndarray, "F 3"]:
    """Return normals by Newell's method (Sutherland et al., ACM Comput. Surv. 1974)."""
    return np.cross(corners, np.roll(corners, -1, axis=1)).sum(1)


def _split_polygon(corners: Float[np.ndarray, "P 3"]) -> list[Triangle]:
    """Split a polygon by ears."""
    # Project along the normal's largest axis, counter-clockwise, scaled to the unit square.
    normal = _normals(corners[None])[0]
    drop = int(np.abs(normal).argmax())
    axes = [(drop + 1) % 3, (drop + 2) % 3]
    flat = corners[:, axes if normal[drop] > 0 else axes[::-1]]
    flat = (flat - flat.min(0)) / max(float(np.ptp(flat, axis=0).max()), 1e-300)
    return clip_ears(flat, list(range(len(corners))))


def doubled_area(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return twice the signed area of the triangles a b c, positive for left turns."""
    left, right = b - a, c - a
    return np.asarray(left[..., 0] * right[..., 1] - left[..., 1] * right[..., 0])


def clip_ears(points: Float[np.ndarray, "P 2"], ring: list[int]) -> list[Triangle]:
    """Split a polygon into counter-clockwise triangles of positive area.

    The best-shaped ear is cut off until a triangle remains; this avoids slivers.

    Args:
        points: Coordinates in any unit; triangles hold indices of points.
        ring: The outline, counter-clockwise; it is cut down to a triangle.

    Raises:
        ValueError: The outline crosses or touches itself.
    """
    quality: list[float] = []
    triangles: list[Triangle] = []
    while len(ring) > 3:
        if max(quality, default=0.0) <= 0:
            quality = [_ear_quality(points, ring, i) for i in range(len(ring))]
        best = int(np.argmax(quality))
        if quality[best] <= 0:
            raise ValueError("the outline crosses itself or touches itself")
        triangles.append((ring[best - 1], ring[best], ring[(best + 1) % len(ring)]))
        del ring[best], quality[best]
        for i in ((best - 1) % len(ring), best % len(ring)):
            quality[i] = _ear_quality(points, ring, i)
    if doubled_area(*points[ring]) <= EPS:
        raise ValueError("the outline crosses itself, or its corners are collinear")
    return [*triangles, (ring[0], ring[1], ring[2])]


def _ear_quality(points: np.ndarray, ring: list[int], at: int) -> float:
    """Return area over squared longest side of the triangle at corner `at`; 0 if no ear."""
    a, b, c = points[[ring[at - 1], ring[at], ring[(at + 1) % len(ring)]]]
    area = float(doubled_area(a, b, c))
    if area <= EPS:
        return 0.0
    rest = points[ring]
    rest = rest[~np.any([(rest == tip).all(1) for tip in (a, b, c)], axis=0)]
    sides = (a, b), (b, c), (c, a)
    if np.all([doubled_area(p, q, rest) >= -EPS for p, q in sides], axis=0).any():
        return 0.0
    return area / max(float(np.sum((p - q) ** 2)) for p, q in sides)
