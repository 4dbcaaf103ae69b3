"""Builds of catalogues: their checked settings, the rows of meshes, and the key of a build."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

import torch
from jaxtyping import Float
from torch import Tensor

from packing_env.items import inputs
from packing_env.items.handling import faces_up
from packing_env.items.inputs import CatalogueError
from packing_env.items.rotations import rotation_set
from packing_env.items.rows import Grid, MemoryEstimate, Row, mesh_row
from packing_env.memory import check_grid

PATIENCE = 5.0
"""Seconds of building without a word."""
_LOGGER = logging.getLogger(__name__)

Orientations = float | int | str | Tensor


def check_settings(
    cell: float | int,
    container: Sequence[float | int],
    orientations: Orientations,
    scales: Sequence[float | int],
    *,
    maps: bool = True,
) -> tuple[Grid, Float[Tensor, "R 3 3"], tuple[float, ...]]:
    """Return the grid, the rotations and the scales of a catalogue.

    Without ``maps`` the cell is a unit of length alone, of which a container may have many.

    Raises:
        CatalogueError: lengths that are not positive, X or Y not whole multiples of the cell,
            unknown orientations, or scales that are not positive and finite.
    """
    if len(container) != 3 or not all(length > 0 for length in (*container, cell)):
        raise CatalogueError(
            f"container must be (X, Y, H) in metres and cell positive, got {container}, {cell}"
        )
    if isinstance(orientations, Tensor) and (
        orientations.shape[1:] != (3, 3) or len(orientations) == 0
    ):
        shape = tuple(orientations.shape)
        raise CatalogueError(f"orientations must be rotations [R, 3, 3], got {shape}")
    sizes = tuple(float(scale) for scale in scales)
    if not sizes or not all(0.0 < scale < float("inf") for scale in sizes):
        raise CatalogueError(f"scales must be positive numbers, at least one, got {scales}")
    x, y, height = (float(length) for length in container)
    grid = Grid(float(cell), (x, y, height))
    try:
        if maps:
            check_grid(grid.container, grid.cell)
        if isinstance(orientations, Tensor):
            return grid, orientations.to("cpu", torch.float64), sizes
        return grid, rotation_set(orientations), sizes
    except ValueError as error:
        raise CatalogueError(str(error)) from error


@dataclass(frozen=True)
class MeshBuild:
    """One build of a catalogue from meshes.

    Attributes:
        items: the meshes, or where to load them from.
        grid: the container and its cells.
        rotations: [R, 3, 3] orientations to try.
        scales: sizes of each item.
        unit: unit of the files.
        strict: refuse meshes with warnings.
        faces: for each item those that may be up; empty for all.
    """

    items: list[inputs.Source]
    grid: Grid
    rotations: Float[Tensor, "R 3 3"]
    scales: tuple[float, ...]
    unit: str
    strict: bool
    faces: tuple[tuple[str, ...], ...] = ()

    def rows(self) -> list[Row]:
        """Load and rasterise everything."""
        rows, memory = [], MemoryEstimate(len(self.items) * len(self.scales))
        names, start, told = inputs.item_names(self.items), time.monotonic(), False
        for done, (item, name) in enumerate(zip(self.items, names, strict=True)):
            whole = (took := time.monotonic() - start) / max(1, done) * len(names)
            if not told and took > PATIENCE and whole > 3 * PATIENCE:
                text = "rasterising %d items in cells of %g m takes about %.0f s; it is cached"
                _LOGGER.warning(text, len(names), self.grid.cell, whole)
                told = True
            mesh = replace(inputs.mesh_of(item, self.unit, self.strict), name=name)
            faces = self.faces[done] if self.faces else ()
            turns = self.rotations[faces_up(self.rotations, faces)]
            if not len(turns):
                raise CatalogueError(
                    f"{name}: none of its orientations has {' or '.join(faces)} up; allow another "
                    "face, or orientations='pi/2'"
                )
            rows += [mesh_row(mesh, scale, self.grid, turns, memory) for scale in self.scales]
        memory.check()
        return rows

    def key(self, version: int) -> str:
        """Hash all that the rows depend on, and the version of the file that holds them."""
        code = [version, inputs.code_digest(), find_spec("manifold3d") is not None]
        grid, rotations = [self.grid.cell, self.grid.container], self.rotations.flatten().tolist()
        settings = [grid, rotations, self.scales, self.unit, self.strict, self.faces]
        items = [inputs.fingerprint(item) for item in self.items]
        return hashlib.sha256(json.dumps([code, settings, items]).encode()).hexdigest()
