"""Solids from mesh files of any supported format."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from packing_env.files import split_item
from packing_env.items.meshes.formats import readers, threemf, urdf
from packing_env.items.meshes.mesh import UNITS, Mesh, MeshSource, mesh_from_arrays
from packing_env.items.meshes.surface import MeshError, Surface

SUPPORTED = (*readers.READERS, ".urdf")
FORMAT_UNITS = {".glb": "m", ".urdf": "m"}
"""Unit of each format that prescribes one, by suffix."""


def load_mesh(path: str | Path, unit: str = "m", strict: bool = False) -> Mesh:
    """Load a solid from STL, OBJ, PLY, OFF, GLB, 3MF or a URDF tree.

    A URDF tree becomes one rigid solid at its zero configuration. It is made of the visual
    geometry, or of the collision geometry for a link without visual geometry. In a GLB file +Y is
    up; the solid is turned so that +Z is up: (x, y, z) becomes (x, -z, y).

    Args:
        path: the file. `plate.3mf#2` is the second item on the plate of a 3MF file; otherwise
            all of its items are one solid.
        unit: unit of the coordinates in the file, a key of `UNITS`. 3MF and URDF files state their
            own unit, which replaces this one (and is recorded in `source`). GLB files are in metres
            by definition of the format; give another unit for files that violate this.
        strict: raise `MeshError` instead of giving any warning.

    Returns:
        The solid in metres, in the frame of the file; `warnings` lists the repairs.

    Raises:
        MeshError: The file is missing, unreadable, damaged or not a solid; the message names the
            file and the remedy.
    """
    file, number = split_item(path)
    if unit not in UNITS:
        raise MeshError(f"{file}: unknown unit {unit!r}; use one of {', '.join(UNITS)}")
    formats: dict[str, Callable[[bytes], Surface]] = {
        **readers.READERS,
        ".urdf": partial(urdf.read_tree, file),
        ".3mf": partial(threemf.read_3mf, number=number),
    }
    with np.errstate(over="ignore", invalid="ignore"):  # `mesh_from_arrays` refuses infinities
        surface = readers.read(file, formats)
    unit = surface.unit or unit
    return mesh_from_arrays(
        surface.vertices * UNITS[unit],
        surface.faces,
        name=file.stem,
        source=MeshSource(path=str(path), unit=unit),
        strict=strict,
        part=surface.part,
        notes=surface.warnings,
    )
