"""The embedded item library: named solids in eight families.

Their triangles, in metres, are in ``shapes.npz``, sized for a container of 0.32 x 0.32 x 0.30 m.
``benchmarks/shapes.py`` models them and writes this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from packing_env.items.meshes.mesh import Mesh, MeshSource, mesh_from_arrays

FILE = Path(__file__).with_name("shapes.npz")


@dataclass(frozen=True)
class Shape:
    """One embedded item.

    Attributes:
        name: Name of the shape, unique over all families.
        family: One of `FAMILIES`.
    """

    name: str
    family: str

    def mesh(self) -> Mesh:
        """Return the mesh of the item."""
        vertices, faces = _solids()[self.name]
        source = MeshSource(path=f"shapes:{self.name}")
        return mesh_from_arrays(vertices, faces, name=self.name, source=source)


def _read_names() -> dict[str, Shape]:
    with np.load(FILE, allow_pickle=False) as arrays:
        pairs = [name.split("/") for name in arrays["names"].tolist()]
    return {name: Shape(name, family) for family, name in pairs}


@cache
def _solids() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the vertices ``[V, 3]`` and faces ``[F, 3]`` of each shape."""
    with np.load(FILE, allow_pickle=False) as arrays:
        ends = arrays["counts"].cumsum(0)[:-1]
        vertices = np.split(arrays["vertices"], ends[:, 0])
        faces = np.split(arrays["faces"].astype(np.int64), ends[:, 1])
    return dict(zip(SHAPES, zip(vertices, faces, strict=True), strict=True))


SHAPES = _read_names()
"""The embedded items by name."""
FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(shape.family for shape in SHAPES.values()))


def select(families: Sequence[str] | None = None) -> list[Shape]:
    """Return the shapes of some families (default: all), always in the order of `SHAPES`.

    Raises:
        ValueError: A family does not exist, or none is given.
    """
    chosen = FAMILIES if families is None else tuple(families)
    unknown = sorted(set(chosen) - set(FAMILIES))
    if unknown or not chosen:
        what = f"unknown shape families {unknown}" if unknown else "no shape family given"
        raise ValueError(f"{what}; choose from {', '.join(FAMILIES)}")
    return [shape for shape in SHAPES.values() if shape.family in chosen]
