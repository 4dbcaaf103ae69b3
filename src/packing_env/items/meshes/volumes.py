"""Volume and centre of mass of a closed surface: its parts, their cavities, and their union."""

from __future__ import annotations

import torch
from torch import Tensor

from packing_env.items.meshes import topology
from packing_env.items.meshes.topology import WELD_TOLERANCE


def measure(
    points: Tensor, triangles: Tensor, closed: bool, warnings: list[str]
) -> tuple[float, Tensor, bool]:
    """Return volume, centre of mass, and whether the volume is reliable; append warnings."""
    # 1. A surface that is open or encloses nothing gets a rough volume, and the centre of its area.
    centre = (points.amin(0) + points.amax(0)) / 2.0
    volume, moment = topology.signed_moments(points - centre, triangles)
    total = float(volume.sum())
    box = float((points.amax(0) - points.amin(0)).prod())
    if not closed or total <= 1e-9 * box:
        if closed:
            warnings.append("encloses no volume: the volume is unreliable")
        areas = topology.face_areas(points, triangles)
        com = (points[triangles].mean(1) * areas[:, None]).sum(0) / areas.sum()
        return min(abs(total), box), com, False
    # 2. The sum of the signed volumes is right for a single part, and for parts that do not
    #    overlap.
    parts = topology.face_components(topology.edge_table(triangles, len(points)))
    if not parts.separable:  # leave out walls between solids, which look to both sides
        walls = torch.unique(
            triangles.sort(1).values, dim=0, return_inverse=True, return_counts=True
        )
        outside = walls[2][walls[1]] == 1
        triangles, volume = triangles[outside], volume[outside]
        parts = topology.face_components(topology.edge_table(triangles, len(points)))
    signed = topology.sum_by_label(volume, parts.label)
    com = centre + moment.sum(0) / total
    if len(signed) == 1 or not parts.separable:
        return total, com, parts.separable
    solids = _group_solids(points, triangles, parts.label, signed)
    if len(solids) > 1:
        warnings.append(f"{len(solids)} separate components, kept as one rigid item")
    if not _boxes_overlap(points, solids):
        return total, com, True
    # 3. Count the overlap of parts once.
    return _measure_union(points, solids, (total, com), warnings)


def _group_solids(
    points: Tensor, triangles: Tensor, component: Tensor, signed: Tensor
) -> list[Tensor]:
    """Return the faces of each solid: an outward component together with its cavities."""
    members: dict[int, list[int]] = {
        part: [part] for part in (signed > 0.0).nonzero().flatten().tolist()
    }
    for part in (signed <= 0.0).nonzero().flatten().tolist():
        around = parent(part, component, points, triangles, signed)
        members.setdefault(part if around is None else around, []).append(part)
    return [triangles[torch.isin(component, torch.tensor(parts))] for parts in members.values()]


def _boxes_overlap(points: Tensor, solids: list[Tensor]) -> bool:
    low = torch.stack([points[faces.unique()].amin(0) for faces in solids])
    high = torch.stack([points[faces.unique()].amax(0) for faces in solids])
    shared = torch.minimum(high[:, None], high[None]) - torch.maximum(low[:, None], low[None])
    overlap = (shared > WELD_TOLERANCE).all(2)
    return bool(overlap.fill_diagonal_(False).any())


def _measure_union(
    points: Tensor, solids: list[Tensor], simple: tuple[float, Tensor], warnings: list[str]
) -> tuple[float, Tensor, bool]:
    """Measure the union of solids by an exact boolean; return `simple` if that fails."""
    try:
        union = _boolean_union(points, solids)
    except ImportError:
        warnings.append(
            "parts may overlap, so the volume is an upper bound; for the volume of the union "
            "run: pip install manifold3d"
        )
        return *simple, False
    if union is None:
        warnings.append("parts may overlap and have no boolean union: the volume is unreliable")
        return *simple, False
    volume, com = union
    if volume < simple[0] * (1.0 - 1e-6):
        warnings.append(
            f"parts overlap: volume {volume:.6g} m^3 is that of their union "
            f"(the parts sum to {simple[0]:.6g} m^3)"
        )
        return volume, com, True
    return *simple, True


def _boolean_union(points: Tensor, solids: list[Tensor]) -> tuple[float, Tensor] | None:
    """Measure the boolean union by manifold3d; return None if there is none.

    Raises:
        ImportError: manifold3d is not installed.
    """
    import manifold3d

    centre = points.mean(0)
    parts = []
    for faces in solids:
        used, renumbered = torch.unique(faces, return_inverse=True)
        shell = manifold3d.Mesh64(
            vert_properties=(points[used] - centre).numpy(),
            tri_verts=renumbered.numpy().astype("uint64"),
        )
        part = manifold3d.Manifold(shell)
        if part.status() != manifold3d.Error.NoError:
            return None
        parts.append(part)
    whole = manifold3d.Manifold.batch_boolean(parts, manifold3d.OpType.Add).to_mesh64()
    corners = torch.as_tensor(whole.vert_properties[:, :3].astype("float64"))
    surface = torch.as_tensor(whole.tri_verts.astype("int64"))
    volume, moment = topology.signed_moments(corners, surface)
    return float(volume.sum()), centre + moment.sum(0) / volume.sum()


def parent(
    part: int, component: Tensor, points: Tensor, triangles: Tensor, signed: Tensor
) -> int | None:
    """Return the smallest outward component around an inward one; None if it is not a cavity."""
    mine = points[triangles[component == part].unique()]
    inside = []
    for other in (signed > 0.0).nonzero().flatten().tolist():
        around = triangles[component == other]
        theirs = points[around.unique()]
        boxed = (mine.amin(0) >= theirs.amin(0)) & (mine.amax(0) <= theirs.amax(0))
        if bool(boxed.all()) and topology.winding_number(mine[0], points, around) > 0.5:
            inside.append((float(signed[other]), other))
    return min(inside)[1] if inside else None
