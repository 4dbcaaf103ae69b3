"""Connectivity of triangle meshes: welding, edges, components, winding, signed volume."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, product

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

WELD_TOLERANCE = 1e-6
"""Vertices at most this far apart (metres) are one vertex."""


@dataclass(frozen=True, eq=False)
class EdgeTable:
    """The undirected edges of a triangle mesh.

    Attributes:
        edge_of_side: [F, 3] edge id of each side (i, i+1) of a face.
        direction: [F, 3] +1 if the side runs from the lower to the higher vertex id, otherwise -1.
        count: [E] number of faces at the edge.
        balance: [E] sum of the directions at the edge; 0 if the faces at it agree.
    """

    edge_of_side: Int[Tensor, "F 3"]
    direction: Int[Tensor, "F 3"]
    count: Int[Tensor, " E"]
    balance: Int[Tensor, " E"]

    @property
    def open_edges(self) -> int:
        """Number of edges with an odd number of faces: holes and fins."""
        return int((self.count % 2).sum())

    @property
    def non_manifold_edges(self) -> int:
        """Number of edges shared by more than two faces."""
        return int((self.count > 2).sum())

    @property
    def consistent(self) -> bool:
        """True if the faces at every closed edge run equally often in both directions."""
        return bool((self.balance[self.count % 2 == 0] == 0).all())


def connected_labels(
    num_nodes: int, first: Int[Tensor, " E"], second: Int[Tensor, " E"]
) -> Int[Tensor, " N"]:
    """Label each node of a graph with the smallest node id of its connected component.

    Shiloach, Vishkin, "An O(log n) parallel connectivity algorithm", 1982.
    """
    labels = torch.arange(num_nodes)
    while True:
        # Roots hook onto the smallest neighbouring root; then paths are compressed.
        root_a, root_b = labels[first], labels[second]
        low = torch.minimum(root_a, root_b)
        hooked = labels.scatter_reduce(0, torch.cat([root_a, root_b]), low.repeat(2), "amin")
        jumped = hooked[hooked]
        while not torch.equal(jumped, hooked):
            hooked, jumped = jumped, jumped[jumped]
        if torch.equal(hooked, labels):
            return labels
        labels = hooked


def weld(
    vertices: Float[Tensor, "V 3"], tolerance: float, part: Int[Tensor, " V"]
) -> Int[Tensor, " V"]:
    """Map each vertex to the lowest id among the coinciding vertices of its part.

    A chain of vertices, each at most `tolerance` from the next, becomes one vertex.
    """
    # 1. Vertices with the same coordinates, which are most of an STL file; sorting is stable.
    order = torch.from_numpy(np.lexsort((part.numpy(), *vertices.mT.numpy())))
    rows, parts = vertices[order], part[order]
    is_first = torch.ones(len(order), dtype=torch.bool)
    is_first[1:] = (rows[1:] != rows[:-1]).any(1) | (parts[1:] != parts[:-1])
    lowest, place = order[is_first].sort()
    alike = torch.empty_like(order)
    alike[order] = place.argsort()[is_first.cumsum(0) - 1]
    # 2. Use eight grids: along each axis, a grid is shifted by half a pitch or not. Points that
    #    coincide lie in one cell of at least one grid.
    points, part = vertices[lowest], part[lowest]
    pitch = 4.0 * tolerance
    origin = points.amin(0)
    pairs: list[Int[Tensor, "2 P"]] = []
    primes = torch.tensor([73856093, 19349663, 83492791])
    for shift in product((0.0, 0.5), repeat=3):
        cell = torch.floor((points - origin + points.new_tensor(shift) * pitch) / pitch).long()
        key = (cell * primes).sum(1) + 19 * part
        pairs += [p[:, part[p[0]] == part[p[1]]] for p in _near_pairs(points, key, tolerance)]
    if pairs:
        first, second = torch.cat(pairs, dim=1)
        lowest = lowest[connected_labels(len(points), first, second)]
    return lowest[alike]


def _near_pairs(
    vertices: Float[Tensor, "V 3"], key: Int[Tensor, " V"], tolerance: float
) -> Iterator[Int[Tensor, "2 P"]]:
    """Yield the pairs of vertices that have the same key and are at most `tolerance` apart."""
    key, order = key.sort()
    start = torch.arange(len(key))
    for step in count(1):
        start = start[start + step < len(key)]
        start = start[key[start] == key[start + step]]
        if start.numel() == 0:
            return
        a, b = order[start], order[start + step]
        near = (vertices[a] - vertices[b]).norm(dim=1) <= tolerance
        yield torch.stack([a[near], b[near]])


def edge_table(faces: Int[Tensor, "F 3"], num_vertices: int) -> EdgeTable:
    """Group the sides of all faces into undirected edges."""
    start, end = faces, faces.roll(-1, dims=1)
    key = torch.minimum(start, end) * num_vertices + torch.maximum(start, end)
    _, edge, count = torch.unique(key, return_inverse=True, return_counts=True)
    direction = torch.where(start < end, 1, -1)
    balance = torch.zeros_like(count).scatter_add(0, edge.flatten(), direction.flatten())
    return EdgeTable(edge, direction, count, balance)


@dataclass(frozen=True, eq=False)
class Components:
    """The connected parts of a surface.

    Attributes:
        label: [F] part of each face, 0, 1, ...
        closed: [C] True for parts without an open edge.
        separable: False if parts that meet at a non-manifold edge cannot be separated.
    """

    label: Int[Tensor, " F"]
    closed: Bool[Tensor, " C"]
    separable: bool


def face_components(edges: EdgeTable) -> Components:
    """Split a surface into parts.

    Faces that meet at an edge of two faces form a patch. At an edge of more faces, the patches are
    separate parts if each of them is closed (solids that touch). Otherwise they form one part.
    """
    # 1. Patches: faces that are joined by edges of two faces.
    side, count = edges.edge_of_side, edges.count
    first, second = _faces_at_two_face_edges(edges)
    patch = connected_labels(len(side), first // 3, second // 3)
    # 2. Whether the patches at other edges are closed on their own.
    separable = True
    if edges.non_manifold_edges:
        shared = torch.unique(side * len(side) + patch[:, None], return_inverse=True)[1]
        balance = sum_by_label(edges.direction.flatten(), shared.flatten())
        separable = bool((balance == 0).all())
    if not separable:
        labels = connected_labels(len(count), side[:, :2].flatten(), side[:, 1:].flatten())
        patch = labels[side[:, 0]]
    # 3. Number the parts, and find which of them are closed.
    label = torch.unique(patch, return_inverse=True)[1]
    num_open = sum_by_label((count % 2)[side].sum(1), label)
    return Components(label, num_open == 0, separable)


def sum_by_label(values: Tensor, label: Tensor) -> Tensor:
    """Sum the values of each label 0..C-1; the result is [C]."""
    return values.new_zeros(int(label.max()) + 1).scatter_add(0, label, values)


def first_rows(rows: Shaped[Tensor, "S D"]) -> Int[Tensor, " R"]:
    """Return the indices of the rows that do not repeat an earlier row, in order."""
    groups, group = torch.unique(rows, dim=0, return_inverse=True)
    order = torch.arange(len(rows), device=rows.device)
    first = torch.full((len(groups),), len(rows), device=rows.device)
    return first.scatter_reduce(0, group, order, "amin").sort().values


def _faces_at_two_face_edges(edges: EdgeTable) -> tuple[Int[Tensor, " P"], Int[Tensor, " P"]]:
    """Return the positions (3 * face + side) of both sides of each edge of exactly two faces."""
    flat = edges.edge_of_side.flatten()
    order = flat.argsort(stable=True)
    first, second = order[edges.count[flat[order]] == 2].view(-1, 2).unbind(1)
    return first, second


def winding_flips(edges: EdgeTable) -> Bool[Tensor, " F"]:
    """Choose the faces to flip so that the faces agree at each edge that two faces share.

    Within each orientable patch, the smaller set of faces is flipped. A patch that cannot be
    oriented (a Moebius strip) is left unchanged.
    """
    # 1. Connect states that agree: node f is face f as it is, node F + f is face f flipped.
    num_faces = len(edges.edge_of_side)
    first, second = _faces_at_two_face_edges(edges)
    direction = edges.direction.flatten()
    clash = direction[first] == direction[second]
    face_a, face_b = first // 3, second // 3
    partner = face_b + num_faces * clash
    mirror = face_b + num_faces * ~clash
    labels = connected_labels(
        2 * num_faces, torch.cat([face_a, face_a + num_faces]), torch.cat([partner, mirror])
    )
    # 2. An orientable patch has two components; flip the faces of the smaller one.
    as_given, flipped = labels[:num_faces], labels[num_faces:]
    patch = torch.minimum(as_given, flipped)
    on_other_side = as_given != patch
    size = torch.bincount(patch, minlength=num_faces)
    num_other = torch.bincount(patch[on_other_side], minlength=num_faces)
    flip_other = 2 * num_other[patch] <= size[patch]
    return (as_given != flipped) & (on_other_side == flip_other)


def signed_moments(
    vertices: Float[Tensor, "V 3"], faces: Int[Tensor, "F 3"]
) -> tuple[Float[Tensor, " F"], Float[Tensor, "F 3"]]:
    """Compute the signed volume and the first moment of each face's tetrahedron with the origin."""
    a, b, c = vertices[faces].unbind(1)
    volume = (a * torch.linalg.cross(b, c)).sum(1) / 6.0
    return volume, volume[:, None] * (a + b + c) / 4.0


def face_areas(vertices: Float[Tensor, "V 3"], faces: Int[Tensor, "F 3"]) -> Float[Tensor, " F"]:
    """Compute the area of each face."""
    a, b, c = vertices[faces].unbind(1)
    return torch.linalg.cross(b - a, c - a).norm(dim=1) / 2.0


def winding_number(
    point: Float[Tensor, " 3"], vertices: Float[Tensor, "V 3"], faces: Int[Tensor, "F 3"]
) -> float:
    """Compute the winding number of the faces around a point: 1 inside an outward solid, 0 outside.

    It is a sum of signed solid angles (Van Oosterom and Strackee, IEEE Trans. Biomed. Eng. 1983,
    Eq. 8).
    """
    a, b, c = (vertices[faces] - point).unbind(1)
    la, lb, lc = a.norm(dim=1), b.norm(dim=1), c.norm(dim=1)
    numerator = (a * torch.linalg.cross(b, c)).sum(1)
    dot_ab, dot_bc, dot_ca = (a * b).sum(1), (b * c).sum(1), (c * a).sum(1)
    denominator = la * lb * lc + dot_ab * lc + dot_bc * la + dot_ca * lb
    return float(2.0 * torch.atan2(numerator, denominator).sum() / (4.0 * torch.pi))
