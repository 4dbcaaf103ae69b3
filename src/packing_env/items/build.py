"""Builds of catalogues: their checked settings, the rows of meshes, and the key of a build."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

import torch
from jaxtyping import Float
from torch import Tensor

from packing_env.items.inputs import (
    CatalogueError,
    Source,
    code_digest,
    fingerprint,
    item_names,
    mesh_of,
)
from packing_env.items.rotations import rotation_set
from packing_env.items.rows import Grid, MemoryEstimate, Row, mesh_row

Orientations = float | int | str | Tensor


def check_grid(cell: float | int, container: Sequence[float | int]) -> Grid:
    """Return the grid; raise unless it is positive and has whole cells along X and Y."""
    if len(container) != 3 or not all(length > 0 for length in (*container, cell)):
        raise CatalogueError(
            f"container must be (X, Y, H) in metres and cell positive, got {container}, {cell}"
        )
    x, y, height = (float(length) for length in container)
    grid = Grid(float(cell), (x, y, height))
    try:
        _ = grid.cells
    except ValueError as error:
        raise CatalogueError(str(error)) from error
    return grid


def check_rotations(orientations: Orientations) -> Float[Tensor, "R 3 3"]:
    """Return the rotations of an interval or a name, or given ones of the right shape."""
    if isinstance(orientations, Tensor):
        if orientations.ndim != 3 or orientations.shape[1:] != (3, 3) or len(orientations) == 0:
            raise CatalogueError(
                f"orientations must be rotations [R, 3, 3], got {tuple(orientations.shape)}"
            )
        return orientations.to("cpu", torch.float64)
    try:
        return rotation_set(orientations)
    except ValueError as error:
        raise CatalogueError(str(error)) from error


def check_scales(scales: Sequence[float | int]) -> tuple[float, ...]:
    """Return the scales; raise unless there is one and all are positive and finite."""
    values = tuple(float(scale) for scale in scales)
    if not values or not all(0.0 < scale < float("inf") for scale in values):
        raise CatalogueError(f"scales must be positive numbers, at least one, got {scales}")
    return values


@dataclass(frozen=True)
class MeshBuild:
    """One build of a catalogue from meshes.

    Attributes:
        inputs: the meshes, or where to load them from.
        grid: the container and its cells.
        rotations: [R, 3, 3] orientations to try.
        scales: sizes of each item.
        unit: unit of the files.
        strict: refuse meshes with warnings.
    """

    inputs: list[Source]
    grid: Grid
    rotations: Float[Tensor, "R 3 3"]
    scales: tuple[float, ...]
    unit: str
    strict: bool

    def rows(self) -> list[Row]:
        """Load and rasterise everything."""
        rows, memory = [], MemoryEstimate(len(self.inputs) * len(self.scales))
        for item, name in zip(self.inputs, item_names(self.inputs), strict=True):
            mesh = replace(mesh_of(item, self.unit, self.strict), name=name)
            rows += [
                mesh_row(mesh, scale, self.grid, self.rotations, memory) for scale in self.scales
            ]
        memory.check()
        return rows

    def key(self, version: int) -> str:
        """Hash all that the rows depend on, and the version of the file that holds them."""
        settings = [
            version,
            code_digest(),
            self.grid.cell,
            self.grid.container,
            self.rotations.flatten().tolist(),
            list(self.scales),
            self.unit,
            self.strict,
            find_spec("manifold3d") is not None,
            [fingerprint(item) for item in self.inputs],
        ]
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()
