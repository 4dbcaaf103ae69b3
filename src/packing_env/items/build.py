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
from jaxtyping import Bool, Float
from torch import Tensor

from packing_env.items import inputs
from packing_env.items.handling import faces_up
from packing_env.items.inputs import CatalogueError
from packing_env.items.meshes.mesh import Mesh
from packing_env.items.poses import lowest_pose, resting_poses
from packing_env.items.rotations import rotation_set
from packing_env.items.rows import Grid, MemoryEstimate, Row, mesh_row
from packing_env.memory import check_grid
from packing_env.types import lid_tolerance

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
        resting: leave out poses in which an item topples alone on a floor; where no other fits, at
            its smallest size, it keeps the lowest that fits.
        faces: for each item those that may be up; empty for all.
    """

    items: list[inputs.Source]
    grid: Grid
    rotations: Float[Tensor, "R 3 3"]
    scales: tuple[float, ...]
    unit: str
    strict: bool
    resting: bool = False
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
            rotations, notes = self._poses(mesh, faces)
            mesh = replace(mesh, warnings=(*mesh.warnings, *notes))
            rows += [mesh_row(mesh, scale, self.grid, rotations, memory) for scale in self.scales]
        memory.check()
        return rows

    def _poses(
        self, mesh: Mesh, faces: tuple[str, ...]
    ) -> tuple[Float[Tensor, "R 3 3"], list[str]]:
        """Return the rotations to try for a mesh, and warnings about them."""
        rotations = self.rotations[faces_up(self.rotations, faces)]
        if not len(rotations):
            raise CatalogueError(
                f"{mesh.name}: none of its orientations has {' or '.join(faces)} up; allow another "
                "face, or orientations='pi/2'"
            )
        if not self.resting:
            return rotations, []
        fits = self._fits(mesh, rotations)
        rests = resting_poses(mesh.vertices, mesh.com, rotations)
        if bool((rests & fits).any()):
            return rotations[rests], []
        if not bool(fits.any()):  # the catalogue reports it as too large
            return rotations[rests] if bool(rests.any()) else rotations, []
        rotations = rotations[fits]
        lowest = lowest_pose(mesh.vertices, mesh.com, rotations)
        return rotations[lowest], [
            "topples alone on a flat floor in every pose that fits; it keeps the lowest"
        ]

    def _fits(self, mesh: Mesh, rotations: Float[Tensor, "R 3 3"]) -> Bool[Tensor, " R"]:
        """Return the rotations in which a mesh, at its smallest size, is within the container."""
        turned = [mesh.vertices.double() @ rotation.double().T for rotation in rotations]
        sides = torch.stack([each.amax(0) - each.amin(0) for each in turned])
        container = self.grid.container
        room = torch.tensor(container, dtype=torch.float64) + lid_tolerance(container[2])
        return (min(self.scales) * sides <= room).all(1)

    def key(self, version: int) -> str:
        """Hash all that the rows depend on, and the version of the file that holds them."""
        code = [version, inputs.code_digest(), find_spec("manifold3d") is not None]
        grid, rotations = [self.grid.cell, self.grid.container], self.rotations.flatten().tolist()
        poses = [self.resting, self.faces]
        settings = [grid, rotations, self.scales, self.unit, self.strict, poses]
        items = [inputs.fingerprint(item) for item in self.items]
        return hashlib.sha256(json.dumps([code, settings, items]).encode()).hexdigest()
