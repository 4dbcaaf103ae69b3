"""Triangles from a file, before any repair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped

Matrix = Float[np.ndarray, "4 4"]


class MeshError(ValueError):
    """A mesh cannot be used; the message names the file and the remedy."""


def damaged(what: str) -> MeshError:
    """Return the error for a file that must be exported again."""
    return MeshError(f"{what}; export it again")


def unsupported(extension: str) -> MeshError:
    """Return the error for a file that needs an unsupported extension of its format."""
    return MeshError(f"needs the extension {extension}, which is not supported; export it without")


@contextmanager
def named(what: object) -> Iterator[None]:
    """Put the name of a file or a mesh in front of the message of a `MeshError`."""
    try:
        yield
    except MeshError as error:
        raise type(error)(f"{what}: {error}") from error


@dataclass(frozen=True, eq=False)
class Surface:
    """Triangles in the units of their file.

    Attributes:
        vertices: [V, 3] float64 in file units.
        faces: [F, 3] int64.
        part: [V] int64; equal for vertices of one body (see `mesh_from_arrays`).
        unit: the unit that the file states, or None.
        warnings: one sentence for each thing in the file that was ignored.
    """

    vertices: Float[np.ndarray, "V 3"]
    faces: Int[np.ndarray, "F 3"]
    part: Int[np.ndarray, " V"]
    unit: str | None = None
    warnings: tuple[str, ...] = ()

    def moved(self, matrix: Matrix) -> Surface:
        """Return the surface after ``p -> matrix @ p``; if this mirrors it, flip the faces."""
        linear, shift = matrix[:3, :3], matrix[:3, 3]
        faces = self.faces[:, ::-1].copy() if np.linalg.det(linear) < 0.0 else self.faces
        return replace(self, vertices=self.vertices @ linear.T + shift, faces=faces)


def surface(vertices: Any, faces: Any, warnings: Sequence[str] = ()) -> Surface:
    """Make a surface of one part from anything array-like; empty lists become empty arrays."""
    points = widened(np.asarray(vertices)).reshape(-1, 3)
    triangles = np.array(faces, dtype=np.int64).reshape(-1, 3)
    part = np.zeros(len(points), dtype=np.int64)
    return Surface(points, triangles, part, warnings=tuple(warnings))


def merged(pieces: Sequence[Surface], unit: str | None = None) -> Surface:
    """Merge surfaces into one; bodies of different surfaces stay separate."""
    if not pieces:
        return surface([], [])
    faces, parts = [], []
    num_vertices = num_parts = 0
    for piece in pieces:
        faces.append(piece.faces + num_vertices)
        parts.append(piece.part + num_parts)
        num_vertices += len(piece.vertices)
        num_parts += int(piece.part.max(initial=0)) + 1
    return Surface(
        np.concatenate([piece.vertices for piece in pieces]),
        np.concatenate(faces),
        np.concatenate(parts),
        unit,
        tuple(dict.fromkeys(warning for piece in pieces for warning in piece.warnings)),
    )


def widened(values: Shaped[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Convert coordinates to double precision, through the shortest decimals of single precision.

    0.3 stored in single precision is 0.300000012, which is too long by more than a millionth of a 1
    cm cell. With this value, a box of 30 cells from a binary STL would cover 31 cells.
    """
    if values.dtype not in (np.float16, np.float32):
        return values.astype(np.float64)
    distinct, where = np.unique(values, return_inverse=True)
    return distinct.astype(np.str_).astype(np.float64)[where].reshape(values.shape)
