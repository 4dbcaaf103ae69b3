"""Extrusions and layered solids: flat layers with outlines and holes, stacked on each other.

Where two layers meet, the part of each layer that the other does not cover is triangulated. So the
union is closed by construction.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np
from jaxtyping import Float

from packing_env.items.meshes.triangulate import triangulate
from packing_env.items.shapes.polygons import Length, contains, signed_area
from packing_env.items.shapes.solids import Corner, Solid, solid_of

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
    triangles = triangulate(np.array(points, dtype=np.float64) * 1e-9, ring, rings)
    ordered = (triangle if faces_up else triangle[::-1] for triangle in triangles)
    return [(points[a], points[b], points[c]) for a, b, c in ordered]


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
