"""The embedded item library: named solids in eight families, and the functions that make them.

`build()` returns them all as meshes, in metres, sized for a container of 0.32 x 0.32 x 0.30 m. The
same functions make your own parts: `extrusion(outline, 0.05).mesh("part")`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packing_env.items.meshes.mesh import Mesh
from packing_env.items.shapes import polygons
from packing_env.items.shapes.layers import extrusion, stack
from packing_env.items.shapes.library import TABLES
from packing_env.items.shapes.solids import (
    Maker,
    Solid,
    box,
    loft,
    polycube,
    revolution,
    superquadric,
)

__all__ = [
    "FAMILIES",
    "SHAPES",
    "Shape",
    "Solid",
    "box",
    "build",
    "extrusion",
    "loft",
    "names",
    "polycube",
    "polygons",
    "revolution",
    "stack",
    "superquadric",
]

FAMILIES: tuple[str, ...] = tuple(TABLES)


@dataclass(frozen=True)
class Shape:
    """One embedded item.

    Attributes:
        name: Name of the shape, unique over all families.
        family: One of `FAMILIES`.
        make: Function that builds the solid; it always returns the same arrays.
    """

    name: str
    family: str
    make: Maker


SHAPES: tuple[Shape, ...] = tuple(
    Shape(name, family, make) for family, table in TABLES.items() for name, make in table.items()
)


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
    return [shape for shape in SHAPES if shape.family in chosen]


def names(family: str | None = None) -> list[str]:
    """Return the names of the embedded items of one family (default: all)."""
    return [shape.name for shape in select(None if family is None else [family])]


def build(families: Sequence[str] | None = None) -> list[Mesh]:
    """Build the meshes of the embedded items of some families (default: all)."""
    return [shape.make().mesh(shape.name) for shape in select(families)]
