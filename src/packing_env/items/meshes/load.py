"""Solids from mesh files of any supported format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from packing_env import files
from packing_env.items.meshes import readers, urdf
from packing_env.items.meshes.mesh import UNITS, Mesh, MeshSource, mesh_from_arrays
from packing_env.items.meshes.surface import MeshError, Surface, damaged

READERS = {**readers.READERS, ".urdf": urdf.read_tree}
"""Reader of each supported suffix."""
SUPPORTED = tuple(READERS)
FORMAT_UNITS = {".glb": "m", ".urdf": "m"}
"""Unit of the formats that have one, by suffix."""


def load_mesh(path: str | Path, unit: str = "m", strict: bool = False) -> Mesh:
    """Load a solid from STL, OBJ, PLY, OFF, GLB, 3MF or a URDF tree.

    A URDF tree becomes one rigid solid at its zero configuration, from visual geometry, or
    collision geometry where a link has no visual. The solid of a GLB file, which has +Y up, is
    turned so that +Z is up: (x, y, z) becomes (x, -z, y).

    Args:
        path: the file. PLY needs `pip install packing-env[mesh]`, the others no extra.
        unit: unit of the coordinates in the file, a key of `UNITS`. 3MF and URDF files state their
            own unit, which is used (and recorded in `source`) instead. GLB files are in metres by
            their format; another unit is for files that do not keep to it.
        strict: raise `MeshError` on anything that would be a warning.

    Returns:
        The solid in metres, in the frame of the file, with `warnings` that say what was repaired.

    Raises:
        MeshError: The file is missing, unreadable, damaged or not a solid; names file and remedy.
    """
    file = Path(path)
    if unit not in UNITS:
        raise MeshError(f"{file}: unknown unit {unit!r}; use one of {', '.join(UNITS)}")
    surface = _read(file)
    unit = surface.unit or unit
    return mesh_from_arrays(
        torch.from_numpy(surface.vertices) * UNITS[unit],
        torch.from_numpy(surface.faces),
        name=file.stem,
        source=MeshSource(path=str(file), unit=unit),
        strict=strict,
        part=torch.from_numpy(surface.part),
        notes=surface.warnings,
    )


def _read(path: Path) -> Surface:
    suffix = path.suffix.lower()
    if path.is_dir():
        raise MeshError(f"{path}: is a directory, not a mesh file; name a file in it")
    if suffix not in READERS:
        raise MeshError(
            f"{path}: unsupported format {suffix!r}; supported are {', '.join(SUPPORTED)}"
        )
    try:
        data = files.read_bytes(path)
    except OSError as error:
        raise MeshError(f"{path}: cannot be read ({files.reason(error)})") from error
    if not data:
        raise damaged(path, "empty file (0 bytes)")
    with np.errstate(over="ignore", invalid="ignore"):  # `mesh_from_arrays` refuses infinities
        return READERS[suffix](path, data)
