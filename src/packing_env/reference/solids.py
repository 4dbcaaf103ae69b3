"""The solids of a plan: their surfaces, volumes and rotations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_NEAR = 1e-8
"""A cuboid's vertices are this close to its sides, as a share of its longest side."""


@dataclass(frozen=True, eq=False)
class Solid:
    """The geometry of an item in its source's frame, in metres at the item's scale.

    Attributes:
        vertices: ``[V, 3]``.
        faces: ``[F, 3]`` counter-clockwise seen from outside.
        extent: Sides of a cuboid that has a corner at the origin; ``None`` for other solids.
        com: ``[3]`` centre of mass as the reader of the source computed it, or ``None``.
    """

    vertices: np.ndarray
    faces: np.ndarray
    extent: tuple[float, float, float] | None = None
    com: np.ndarray | None = None

    @classmethod
    def box(cls, extent: tuple[float, float, float]) -> Solid:
        """Build a cuboid that has a corner at the origin."""
        corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
        sides = ((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3))
        faces = [(a, b, c) for a, b, c, _ in sides] + [(a, c, d) for a, _, c, d in sides]
        return cls(corners * extent, np.array(faces), extent)

    @property
    def is_cuboid(self) -> bool:
        """True if a closed surface on the sides of the bounding box encloses the box's volume."""
        if self.extent is not None:
            return True
        low, high = self.vertices.min(0), self.vertices.max(0)
        corners, near = self.vertices[self.faces], _NEAR * (high - low).max()
        at_side = (abs(corners - low) <= near).all(1) | (abs(corners - high) <= near).all(1)
        there, back = _directed_edges(self.faces)
        closed = np.array_equal(np.sort(there), np.sort(back))
        volume = (high - low).prod()
        filled = abs(measure(self)[0] - volume) <= _NEAR * volume
        return bool(closed and filled and at_side.any(1).all())

    @property
    def centre(self) -> np.ndarray:
        """``[3]`` centre of mass: ``com``, or else that of the enclosed volume."""
        return measure(self)[1] if self.com is None else self.com


def measure(solid: Solid) -> tuple[float, np.ndarray]:
    """Compute the signed volume and the centre of mass ``[3]`` of the solid inside a surface.

    It sums over the tetrahedra between each face and one point (the divergence theorem).
    """
    middle = (solid.vertices.min(0) + solid.vertices.max(0)) / 2.0
    a, b, c = np.moveaxis(solid.vertices[solid.faces] - middle, 1, 0)
    volumes = np.einsum("fi,fi->f", a, np.cross(b, c)) / 6.0
    total = float(volumes.sum())
    if total == 0.0:
        return 0.0, middle
    return total, middle + (volumes[:, None] * (a + b + c)).sum(0) / (4.0 * total)


def is_one_closed_shell(faces: np.ndarray) -> bool:
    """Test if each edge joins two consistently wound faces and all faces are connected."""
    there, back = _directed_edges(faces)
    if len(np.unique(there)) != len(there) or not np.array_equal(np.sort(there), np.sort(back)):
        return False
    return len(first_faces(faces)) == 1


def _directed_edges(faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a number for each side of each face, and the number of the same side reversed."""
    start, end = faces.reshape(-1), np.roll(faces, -1, 1).reshape(-1)
    count = int(faces.max()) + 1
    return start * count + end, end * count + start


def first_faces(faces: np.ndarray) -> np.ndarray:
    """Return one face number ``[S]`` of each shell, a part of the surface that is connected."""
    edges = np.stack((faces, np.roll(faces, -1, 1)), -1).reshape(-1, 2)
    edges = np.concatenate((edges, edges[:, ::-1]))
    label = np.arange(int(faces.max()) + 1)
    while True:  # each label takes the smallest one among the neighbours of its vertices
        least = label.copy()
        np.minimum.at(least, label[edges[:, 0]], label[edges[:, 1]])
        least = least[least]
        if np.array_equal(least, label):
            return np.unique(label[faces[:, 0]], return_index=True)[1]
        label = least


def matrix(quaternion: np.ndarray) -> np.ndarray:
    """Return the rotation ``[3, 3]`` of a unit quaternion ``(w, x, y, z)``."""
    w, x, y, z = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
