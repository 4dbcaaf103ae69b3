"""Building catalogues: check the settings, make the rows of meshes, compute the cache key."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from packing_env.items import inputs
from packing_env.items.handling import allowed
from packing_env.items.inputs import CatalogueError
from packing_env.items.meshes.mesh import UNITS, Mesh
from packing_env.items.poses import lowest_pose, resting_poses
from packing_env.items.rotations import rotation_set
from packing_env.items.rows import Grid, MemoryEstimate, Row, mesh_row
from packing_env.types import lid_tolerance
from packing_env.values import Length, Option, Positive, check_choice, check_container, read

PATIENCE = 5.0
"""A log line is printed if building is estimated to take at least this many seconds."""
_LOGGER = logging.getLogger(__name__)
_Scales = Annotated[tuple[Positive, ...], Option(filled=True)]


class Settings(NamedTuple):
    """The checked settings of a catalogue; see :func:`read_settings`."""

    grid: Grid
    rotations: Float[Tensor, "R 3 3"]
    scales: tuple[float, ...]
    unit: str


def read_settings(
    *,
    cell: float | int,
    container: Sequence[float | int],
    orientations: float | int | str | Tensor = "pi/2",
    scales: Sequence[float | int] = (1.0,),
    unit: str = "m",
) -> Settings:
    """Check the settings that catalogues of meshes and catalogues of cuboids share.

    Args:
        cell: side of a cell, metres.
        container: (X, Y, H), metres; X and Y are whole multiples of the cell.
        orientations: interval or name for `rotation_set`, or rotations [R, 3, 3].
        scales: sizes of each item; each size becomes a row.
        unit: unit of the files or extents, a key of `UNITS`.

    Raises:
        CatalogueError: A setting is invalid.
    """
    try:
        grid = Grid(read("cell", cell, Length), check_container(container))
        if not isinstance(orientations, Tensor):
            orientations = rotation_set(orientations)
        elif orientations.shape[1:] != (3, 3) or len(orientations) == 0:
            shape = tuple(orientations.shape)
            raise CatalogueError(f"orientations must be rotations [R, 3, 3], got {shape}")
        return Settings(
            grid,
            orientations.to("cpu", torch.float64),
            read("scales", scales, _Scales),
            check_choice("unit", unit, UNITS),
        )
    except ValueError as error:
        raise CatalogueError(str(error)) from error


@dataclass(frozen=True)
class MeshBuild:
    """One build of a catalogue from meshes, with the arguments of `Catalogue.from_meshes`."""

    items: list[inputs.Source]
    settings: Settings
    strict: bool
    resting: bool
    faces: tuple[tuple[str, ...], ...]
    turn: tuple[bool, ...]
    voxels: bool = False

    def rows(self) -> list[Row]:
        """Load and rasterise all items."""
        grid, _, scales, unit = self.settings
        names, rows = inputs.item_names(self.items), list[Row]()
        memory = MemoryEstimate(len(names) * len(scales), grid, voxels=self.voxels)
        start, is_announced = time.monotonic(), False
        for done, (item, name) in enumerate(zip(self.items, names, strict=True)):
            # 1. If building takes long, log an estimate once.
            took = time.monotonic() - start
            whole = took / max(1, done) * len(names)
            if not is_announced and took > PATIENCE and whole > 3 * PATIENCE:
                text = (
                    "rasterising %d items in cells of %g m takes about %.0f s; the result is cached"
                )
                _LOGGER.warning(text, len(names), grid.cell, whole)
                is_announced = True
            # 2. Load the mesh and choose its poses; each scale is a row.
            mesh = replace(inputs.mesh_of(item, unit, self.strict), name=name)
            rotations, notes = self._poses(mesh, done)
            mesh = replace(mesh, warnings=(*mesh.warnings, *notes))
            rows += [
                mesh_row(mesh, scale, grid, rotations, memory, voxels=self.voxels)
                for scale in scales
            ]
        memory.check()
        return rows

    def _poses(self, mesh: Mesh, item: int) -> tuple[Float[Tensor, "R 3 3"], list[str]]:
        """Return the rotations to try for the mesh of an item, and warnings about them."""
        faces = self.faces[item] if self.faces else ()
        turn = not self.turn or self.turn[item]
        rotations = allowed(self.settings.rotations, faces, turn)
        if not len(rotations):
            turned = "" if turn else " unless it is turned about z"
            raise CatalogueError(
                f"{mesh.name}: none of its orientations has {' or '.join(faces)} up{turned}; allow "
                "another face, or orientations='pi/2'"
            )
        if not self.resting:
            return rotations, []
        fits = self._fits(mesh, rotations)
        rests = resting_poses(mesh.vertices, mesh.com, rotations)
        if bool((rests & fits).any()):
            return rotations[rests], []
        if not bool(fits.any()):  # the catalogue reports it as too large
            return rotations[rests] if bool(rests.any()) else rotations, []
        # No resting pose fits, even at the smallest size.
        rotations = rotations[fits]
        lowest = lowest_pose(mesh.vertices, mesh.com, rotations)
        return rotations[lowest], [
            "topples on a flat floor in every pose that fits; the lowest of these poses is used"
        ]

    def _fits(self, mesh: Mesh, rotations: Float[Tensor, "R 3 3"]) -> Bool[Tensor, " R"]:
        """Return the rotations in which a mesh at its smallest size fits into the container."""
        turned = [mesh.vertices.double() @ rotation.double().T for rotation in rotations]
        sides = torch.stack([points.amax(0) - points.amin(0) for points in turned])
        container = self.settings.grid.container
        room = torch.tensor(container, dtype=torch.float64) + lid_tolerance(container[2])
        return (min(self.settings.scales) * sides <= room).all(1)

    def key(self, version: int) -> str:
        """Hash everything on which the rows depend, and the version of the file format."""
        grid, rotations, scales, unit = self.settings
        content = [
            [version, inputs.code_digest(), find_spec("manifold3d") is not None],
            [grid.cell, grid.container, rotations.flatten().tolist(), scales, unit],
            [self.strict, self.resting, self.faces, self.turn, self.voxels],
            [inputs.fingerprint(item) for item in self.items],
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()
