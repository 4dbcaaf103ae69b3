"""Meshes as solids: checks, repair and measures.

Each repair and each remaining defect becomes a line in `Mesh.warnings`. A surface that cannot be a
solid raises `MeshError` with the file and the remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from packing_env.items.meshes import limits, topology, volumes
from packing_env.items.meshes.surface import MeshError, damaged, named, widened
from packing_env.items.meshes.topology import WELD_TOLERANCE
from packing_env.values import UNITS as UNITS

SMALLEST_EXTENT, LARGEST_EXTENT = 1e-5, 1e6
"""Limits in metres for the longest side of a mesh; other meshes are refused."""
LEAST_DETAILED = 1e-3
"""Below this extent (metres) all vertices of a mesh may be so close that they are joined."""
FLAT = 1e-9
"""A face of less height (metres) has no area."""
_OFF_SIDE = 1e-9
"""Largest distance of a box's vertices from its sides, as a share of its length along the axis."""
LARGEST_DISTANCE = 1e9
"""A mesh further than this (metres) from its origin is refused."""
UNIT_HINT_EXTENT = 5.0
"""Above this extent (metres) a warning suggests another unit."""


class TooSmallError(MeshError):
    """A mesh, or each of its details, is too small for a solid."""


@dataclass(frozen=True)
class MeshSource:
    """Origin of a mesh: p_metres = scale * UNITS[unit] * p_file.

    Attributes:
        path: the file, or "" for a mesh made in memory.
        unit: the unit in which the file was read.
        scale: further factor.
    """

    path: str = ""
    unit: str = "m"
    scale: float = 1.0


@dataclass(frozen=True, eq=False)
class Mesh:
    """A triangle mesh in metres, in the frame of its source.

    Attributes:
        vertices: [V, 3] float64, metres.
        faces: [F, 3] int64, counter-clockwise seen from outside.
        volume: m^3 of the solid (of the union if parts overlap). If `volume_reliable` is False, it
            is only an estimate, and the catalogue uses the volume of the columns.
        com: [3] float64 centre of mass at uniform density, metres.
        watertight: no edge is open, and the faces agree on inside and outside.
        warnings: repairs and suspicious properties, one sentence each.
        name: a label, by default the file's stem.
        source: file, unit and scale.
        volume_reliable: False if the surface does not define a volume.
    """

    vertices: Float[Tensor, "V 3"]
    faces: Int[Tensor, "F 3"]
    volume: float
    com: Float[Tensor, " 3"]
    watertight: bool
    warnings: tuple[str, ...] = ()
    name: str = "mesh"
    source: MeshSource = MeshSource()
    volume_reliable: bool = True

    @property
    def extents(self) -> Float[Tensor, " 3"]:
        """Size of the axis-aligned bounding box, metres."""
        return self.vertices.amax(0) - self.vertices.amin(0)

    @property
    def is_box(self) -> bool:
        """True if the solid is its axis-aligned bounding box.

        A closed surface on the sides of a box that encloses the volume of the box has the whole box
        inside.
        """
        low, corners = self.vertices.amin(0), self.vertices[self.faces]
        places = (corners - low) / self.extents
        on_side = ((places <= _OFF_SIDE).all(1) | (places >= 1.0 - _OFF_SIDE).all(1)).any(1)
        volume = float(self.extents.prod())
        filled = abs(self.volume - volume) <= _OFF_SIDE * volume
        return self.watertight and filled and bool(on_side.all())

    def scaled(self, factor: float) -> Mesh:
        """Return the solid scaled by `factor` about the origin of its source frame."""
        if not factor > 0.0:
            raise MeshError(f"{self.name}: scale must be positive, got {factor}")
        return replace(
            self,
            vertices=self.vertices * factor,
            volume=self.volume * factor**3,
            com=self.com * factor,
            source=replace(self.source, scale=self.source.scale * factor),
        )


def mesh_from_arrays(
    vertices: Any,
    faces: Any,
    *,
    name: str = "mesh",
    source: MeshSource | None = None,
    strict: bool = False,
    part: Any = None,
    notes: Sequence[str] = (),
) -> Mesh:
    """Check, repair and measure a triangle mesh given as arrays.

    Args:
        vertices: [V, 3] metres, array-like. Single-precision values are converted by
            `surface.widened`.
        faces: [F, 3] vertex ids, array-like, counter-clockwise seen from outside.
        name: label used in messages.
        source: origin of the arrays; a mesh in memory by default.
        strict: raise `MeshError` instead of giving any warning.
        part: [V] int64. Coinciding vertices of different parts stay separate, so that solids that
            touch or overlap keep their own surfaces. By default there is one part.
        notes: earlier warnings about the source, to which new ones are added.

    Raises:
        MeshError: No faces, ids out of range, NaN or infinite coordinates, extents outside
            `SMALLEST_EXTENT` .. `LARGEST_EXTENT`, a flat surface, or any warning in strict mode.
    """
    source = source or MeshSource()
    points = torch.from_numpy(widened(torch.as_tensor(vertices).cpu().numpy()))
    triangles = torch.as_tensor(faces).to("cpu", torch.int64)
    with named(source.path or name):
        # 1. Check the arrays, drop degenerate faces, and weld open surfaces.
        _check_arrays(points, triangles)
        part = torch.zeros(len(points), dtype=torch.int64) if part is None else part
        points, triangles = _clean(points, triangles, torch.as_tensor(part))
        # 2. Orient the faces and measure the solid; both may warn.
        warnings = [*notes, *_size_warnings(points, source)]
        triangles, closed = _orient(points, triangles, warnings)
        volume, com, reliable = volumes.measure(points, triangles, closed, warnings)
        if strict and warnings:
            raise MeshError(
                f"refused in strict mode: {'; '.join(warnings)}; repair it or use strict=false"
            )
    return Mesh(points, triangles, volume, com, closed, tuple(warnings), name, source, reliable)


def _check_arrays(points: Tensor, triangles: Tensor) -> None:
    if points.ndim != 2 or points.shape[1] != 3 or triangles.ndim != 2 or triangles.shape[1] != 3:
        raise MeshError(
            f"needs vertices [V, 3] and faces [F, 3], got {tuple(points.shape)} and "
            f"{tuple(triangles.shape)}"
        )
    if len(points) == 0:
        raise damaged("no geometry (no vertices)")
    if len(triangles) == 0:
        raise MeshError(f"no faces, only {len(points)} vertices; export a triangulated surface")
    outside = ((triangles < 0) | (triangles >= len(points))).any(1)
    if bool(outside.any()):
        face, last = triangles[outside][0].tolist(), len(points) - 1
        raise damaged(f"face {face} refers to a vertex outside 0..{last}")


def _clean(points: Tensor, triangles: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    """Drop unreferenced vertices and degenerate faces, check the rest, and weld open surfaces.

    A surface that is already closed is not welded, so that touching solids stay separate.
    """
    used, triangles = torch.unique(triangles, return_inverse=True)
    points = points[used]
    _check_size(points)
    triangles = _without_repeats(triangles)
    edges = topology.edge_table(triangles, len(points))
    if edges.open_edges or edges.non_manifold_edges:
        triangles = _without_duplicates(_without_repeats(_welded(points, triangles, part[used])))
    triangles = _without_slivers(points, triangles)
    if len(triangles) == 0:
        _check_details(points)
        raise damaged("all faces are degenerate (no area)")
    used, triangles = torch.unique(triangles, return_inverse=True)
    _check_not_flat(points[used])
    return points[used], triangles


def _welded(points: Tensor, triangles: Tensor, part: Tensor) -> Tensor:
    """Join the coinciding vertices of each part, then of all parts that are open on their own.

    These may be patches of one surface, as the solids of an STL for flow simulations.
    """
    joined = topology.weld(points, WELD_TOLERANCE, part)[triangles]
    edges = topology.edge_table(joined, len(points))
    is_open = (edges.count % 2 == 1)[edges.edge_of_side].any(1)
    patches = part[joined[is_open, 0]].unique()
    if len(patches) < 2:
        return joined
    whole = torch.where(torch.isin(part, patches), patches[0], part)
    closer = topology.weld(points, WELD_TOLERANCE, whole)[triangles]
    fewer = topology.edge_table(closer, len(points)).open_edges < edges.open_edges
    return closer if fewer else joined


def _check_size(points: Tensor) -> None:
    finite = torch.isfinite(points).all(1)
    if not bool(finite.all()):
        vertex = points[~finite][0].tolist()
        raise damaged(f"non-finite vertex {vertex} (NaN or infinity)")
    extent = float((points.amax(0) - points.amin(0)).max())
    distance = float(points.abs().max())
    if extent > LARGEST_EXTENT:
        raise MeshError(
            f"extent {extent:.3g} m is beyond the limit ({LARGEST_EXTENT:.0e} m); check the unit "
            "option (unit='mm'?) or the file"
        )
    if distance > LARGEST_DISTANCE:
        raise MeshError(
            f"{distance:.3g} m from its origin ({LARGEST_DISTANCE:.0e} m at most); export it near "
            "the origin"
        )
    if extent < SMALLEST_EXTENT:
        raise TooSmallError(
            f"extent {extent:.3g} m is too small ({SMALLEST_EXTENT:.0e} m at least); "
            "check the unit option or the file"
        )


def _check_details(points: Tensor) -> None:
    """Raise if welding may have joined the vertices of all faces."""
    extent = float((points.amax(0) - points.amin(0)).max())
    if extent < LEAST_DETAILED:
        raise TooSmallError(
            f"extent {extent:.3g} m is too small for its details, because vertices within "
            f"{WELD_TOLERANCE:g} m are joined; check the unit option or the file"
        )


def _check_not_flat(points: Tensor) -> None:
    centred = points - points.mean(0)
    axes = torch.linalg.eigh(centred.T @ centred).eigenvectors
    along = centred @ axes[:, 0]
    thickness = float(along.max() - along.min())
    if thickness < WELD_TOLERANCE:
        raise MeshError(
            f"flat (thickness {thickness:.3g} m), so it has no volume; give it a thickness before "
            "exporting"
        )


def _without_repeats(triangles: Tensor) -> Tensor:
    """Drop faces that contain a vertex twice."""
    a, b, c = triangles.unbind(1)
    return triangles[(a != b) & (b != c) & (c != a)]


def _without_duplicates(triangles: Tensor) -> Tensor:
    """Drop repeated faces with the same winding; keep the order."""
    start = triangles.argmin(1, keepdim=True)
    canonical = triangles.gather(1, (start + torch.arange(3)) % 3)
    return triangles[topology.first_rows(canonical)]


def _without_slivers(points: Tensor, triangles: Tensor) -> Tensor:
    """Drop faces without area, unless the surface is closed only with them."""
    corners = points[triangles]
    longest = (corners - corners.roll(1, 1)).norm(dim=2).amax(1)
    has_area = 2.0 * topology.face_areas(points, triangles) > FLAT * longest
    with_area = triangles[has_area]
    if len(with_area) in (0, len(triangles)):
        return with_area
    all_open, kept_open = (
        topology.edge_table(t, len(points)).open_edges for t in (triangles, with_area)
    )
    return triangles if all_open < kept_open else with_area


def _size_warnings(points: Tensor, source: MeshSource) -> list[str]:
    warnings = []
    extent = float((points.amax(0) - points.amin(0)).max())
    if extent > UNIT_HINT_EXTENT:
        smaller = "mm" if source.unit == "m" else "a smaller unit"
        remedy = "pass that as unit" if source.path else "scale them"
        warnings.append(
            f"extent {extent:.4g} m is above {UNIT_HINT_EXTENT:g} m: read in unit "
            f"{source.unit!r}; if its lengths are in {smaller}, {remedy}"
        )
    distance = float(points.abs().max())
    rounding = distance * torch.finfo(torch.float32).eps
    if rounding > 1e-4 * extent:
        warnings.append(
            f"{distance:.4g} m from its origin: single-precision coordinates there are rounded "
            f"to {1e3 * rounding:.2g} mm; export it near the origin"
        )
    return warnings


def _agree(
    points: Tensor, triangles: Tensor, warnings: list[str]
) -> tuple[Tensor, topology.EdgeTable]:
    """Make the winding of neighbours agree; of a surface with two sides, keep one."""
    edges = topology.edge_table(triangles, len(points))
    if edges.non_manifold_edges:
        once = topology.first_rows(triangles.sort(1).values)
        if 2 * len(once) == len(triangles):
            triangles = triangles[once]
            edges = topology.edge_table(triangles, len(points))
            warnings.append("double-sided: one of each two equal faces is used")
    if not edges.consistent:
        flips = topology.winding_flips(edges)
        triangles = torch.where(flips[:, None], triangles.flip(1), triangles)
        edges = topology.edge_table(triangles, len(points))
        if bool(flips.any()):
            warnings.append(f"winding was inconsistent: {int(flips.sum())} faces flipped")
    return triangles, edges


def _orient(points: Tensor, triangles: Tensor, warnings: list[str]) -> tuple[Tensor, bool]:
    """Make the winding consistent and outward; return the faces and whether they are closed."""
    # 1. Make neighbours agree.
    triangles, edges = _agree(points, triangles, warnings)
    closed = edges.open_edges == 0 and edges.consistent
    if edges.open_edges:
        warnings.append(
            f"not watertight: {edges.open_edges} open edges, so the volume is unreliable; "
            "close the surface in a mesh editor"
        )
    elif not closed:
        warnings.append("surface cannot be oriented, so the volume is unreliable")
    if edges.non_manifold_edges:
        warnings.append(
            f"non-manifold: {edges.non_manifold_edges} edges belong to more than two faces"
        )
    # 2. Turn the whole surface if it is inside out.
    parts = topology.face_components(edges)
    limits.check_parts(int(parts.closed.sum()))
    centre = (points.amin(0) + points.amax(0)) / 2.0
    volume = topology.signed_moments(points - centre, triangles)[0]
    if edges.open_edges == 0 and float(volume.sum()) < 0.0:
        triangles, volume = triangles.flip(1), -volume
        warnings.append("inside out (negative signed volume): all faces flipped")
    # 3. Turn closed parts that are inside out and are not cavities.
    signed = topology.sum_by_label(volume, parts.label)
    inward = ((signed < 0.0) & parts.closed).nonzero().flatten().tolist()
    turned = [
        part
        for part in (inward if len(signed) > 1 else ())
        if volumes.parent(part, parts.label, points, triangles, signed) is None
    ]
    if turned:
        inside_out = torch.isin(parts.label, torch.tensor(turned))[:, None]
        triangles = torch.where(inside_out, triangles.flip(1), triangles)
        warnings.append(f"inside out: the faces of {len(turned)} of {len(signed)} parts flipped")
    return triangles, closed
