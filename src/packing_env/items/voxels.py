"""Conservative voxels of solids: every voxel that the open solid or its margin meets is occupied.

A triangle meets a cube if no axis separates them: the normals of the cube, the normal of the
triangle, or a cross product of an edge with an axis (Akenine-Möller, J. Graphics Tools 2001). With
a margin, an axis separates them if they are at least the margin apart along it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from packing_env.items.meshes.mesh import Mesh
from packing_env.items.rasterization import CELL_MARGIN, MAX_CELLS, pairs

_LONGEST_EDGE = 8.0
"""Length in cells above which edges are halved, so that bounding boxes of triangles are small."""
_SLACK = 4e-10
"""Metres by which voxels may be smaller than their cells. So two solids whose voxels are disjoint
overlap by less than a billionth of a metre."""
_RAY = (0.5137, 0.4911)
"""Position of the rays in a cell, seen from above."""


@dataclass(frozen=True, eq=False)
class Voxels:
    """The voxels of a solid in one orientation.

    Attributes:
        occupied: [U, V, W]; False where the solid with its margin does not meet the voxel.
        low: [3] metres, the corner of voxel (0, 0, 0) in the frame of the (turned) solid.
    """

    occupied: Bool[Tensor, "U V W"]
    low: Float[Tensor, " 3"]


def voxelize(
    mesh: Mesh,
    cell: float,
    margin: float = 0.0,
    rotation: Float[Tensor, "3 3"] | None = None,
) -> Voxels:
    """Return the voxels that a solid occupies.

    If the surface is not closed, voxels between voxels of the surface along at least two axes count
    as inside.

    Args:
        mesh: The solid, in metres.
        cell: Side of a voxel, metres.
        margin: Distance that is kept around the solid, metres: voxels that are nearer are occupied.
            Two solids whose voxels are disjoint are at least two margins apart: the voxel at the
            middle of a shorter gap would be nearer than the margin to both.
        rotation: From the frame of the mesh; by default none.

    Raises:
        ValueError: The cell is not positive, or there would be more than `MAX_CELLS` voxels.
    """
    if not cell > 0.0 or not margin >= 0.0:
        raise ValueError(f"cell must be positive and margin at least 0, got {cell} and {margin}")
    # 1. Lay a window of whole voxels around the solid, centred.
    points = mesh.vertices if rotation is None else mesh.vertices @ rotation.to(torch.float64).mT
    low, high = points.amin(0), points.amax(0)
    lengths = (high - low + 2 * margin) / cell
    slack = min(CELL_MARGIN, _SLACK / cell)
    counts = torch.ceil(lengths - slack).clamp(min=1.0)
    if float(counts.prod()) > MAX_CELLS:
        raise ValueError(
            f"{mesh.name}: {[int(n) for n in counts.tolist()]} voxels of {cell} m are too many; "
            "check the unit of the mesh, or use larger cells"
        )
    low = (low + high - counts * cell) / 2
    # 2. Mark the voxels of the surface, then those that are wholly inside.
    counts = counts.to(torch.int64)
    triangles = ((points - low) / cell)[mesh.faces]
    # A wall of an open surface may lie exactly between two layers of voxels. Cubes that are a
    # little larger than voxels meet it.
    half = 0.5 + (-slack if mesh.watertight else slack)
    surface = _surface(_short_edges(triangles), counts, half, margin / cell)
    inside = _enclosed(triangles, counts) if mesh.watertight else _between(surface)
    return Voxels(surface | inside, low)


def _short_edges(triangles: Float[Tensor, "F 3 3"]) -> Float[Tensor, "F2 3 3"]:
    """Split triangles at the middle of their longest edge until all edges are short."""
    finished = []
    while len(triangles):
        edges = (triangles.roll(-1, 1) - triangles).norm(dim=2)
        long = edges.amax(1) > _LONGEST_EDGE
        finished.append(triangles[~long])
        triangles, first = triangles[long], edges[long].argmax(1)
        order = (first[:, None] + torch.arange(3, device=triangles.device)) % 3
        a, b, c = triangles.gather(1, order[..., None].expand(-1, -1, 3)).unbind(1)
        middle = (a + b) / 2
        triangles = torch.cat([torch.stack([a, middle, c], 1), torch.stack([middle, b, c], 1)])
    return torch.cat(finished)


def _surface(
    triangles: Float[Tensor, "F 3 3"], counts: Tensor, half: float, margin: float
) -> Bool[Tensor, "U V W"]:
    """Return the voxels near triangles.

    Around each voxel is a cube of side ``2 * half`` cells. The voxel is marked if this cube is
    nearer to a triangle than the margin.

    Where a corner of a cube faces a corner of a triangle, the cube may be a little further away.
    """
    reach = half + margin
    first = torch.ceil(triangles.amin(1) - 0.5 - reach).clamp(min=0).to(torch.int64)
    last = torch.floor(triangles.amax(1) - 0.5 + reach).to(torch.int64).minimum(counts - 1)
    occupied = torch.zeros(*counts.tolist(), dtype=torch.bool, device=triangles.device)
    for owner, cell in pairs(first, last):
        meets = _meets(triangles[owner] - (cell + 0.5)[:, None], half, margin).nonzero().flatten()
        occupied[cell[meets].unbind(1)] = True
    return occupied


def _meets(triangles: Float[Tensor, "P 3 3"], half: float, margin: float) -> Bool[Tensor, " P"]:
    """Return whether no axis separates triangles from the cube [-half, half]^3 by the margin.

    The axes of the cube need no test: the bounding boxes of the triangles are near enough.
    """
    edges = triangles.roll(-1, 1) - triangles
    normal = torch.linalg.cross(edges[:, 0], edges[:, 1])
    distance = (normal * triangles[:, 0]).sum(1).abs()
    meets = distance <= half * normal.abs().sum(1) + margin * normal.norm(dim=1)
    for k in range(3):
        i, j = (k + 1) % 3, (k + 2) % 3
        # The cross product of the axis k with an edge is (-edge[j], edge[i]) in the plane (i, j).
        along = (
            triangles[:, None, :, j] * edges[:, :, None, i]
            - triangles[:, None, :, i] * edges[:, :, None, j]
        )
        radius = half * (edges[:, :, i].abs() + edges[:, :, j].abs())
        radius = radius + margin * torch.hypot(edges[:, :, i], edges[:, :, j])
        meets &= ((along.amin(2) <= radius) & (along.amax(2) >= -radius)).all(1)
    return meets


def _enclosed(triangles: Float[Tensor, "F 3 3"], counts: Tensor) -> Bool[Tensor, "U V W"]:
    """Return whether a point near the centre of each voxel is inside a closed surface.

    Rays along z count the surfaces that they enter and leave. The points are a little beside the
    centres, where the edges of meshes rarely are.
    """
    # 1. Pair each triangle with the rays that its bounding box contains.
    rays = triangles[:, :, :2] - torch.tensor(_RAY, dtype=torch.float64, device=triangles.device)
    first = torch.ceil(rays.amin(1)).clamp(min=0).to(torch.int64)
    last = torch.floor(rays.amax(1)).to(torch.int64).minimum(counts[:2] - 1)
    change = triangles.new_zeros(*counts[:2].tolist(), int(counts[2]) + 1, dtype=torch.int64)
    for owner, ray in pairs(first, last):
        # 2. Find where the rays cross their triangles, by the signed areas opposite to the corners.
        corners = rays[owner] - ray[:, None]
        to = corners.roll(-1, 1)
        area = corners[..., 0] * to[..., 1] - corners[..., 1] * to[..., 0]
        total = area.sum(1)
        crosses = ((area > 0).all(1) | (area < 0).all(1)).nonzero().flatten()
        area, total, ray, owner = area[crosses], total[crosses], ray[crosses], owner[crosses]
        height = (area.roll(-1, 1) * triangles[owner, :, 2]).sum(1) / total
        # 3. Above a triangle that faces down, voxels are inside one more surface; above one that
        #    faces up, one fewer.
        above = torch.ceil(height - 0.5).clamp(min=0).to(torch.int64).minimum(counts[2])
        where = ray[:, 0], ray[:, 1], above
        change.index_put_(where, -total.sign().to(torch.int64), accumulate=True)
    return change.cumsum(2)[..., :-1] > 0


def _between(surface: Bool[Tensor, "U V W"]) -> Bool[Tensor, "U V W"]:
    """Return the voxels between voxels of the surface along at least two axes."""
    number = torch.zeros_like(surface, dtype=torch.int64)
    for axis in range(3):
        before = surface.cumsum(axis) > 0
        after = surface.flip(axis).cumsum(axis).flip(axis) > 0
        number += before & after
    return number >= 2
