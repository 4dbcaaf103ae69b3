"""The solids of a plan's items, read from their sources."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from packing_env.files import split_item
from packing_env.items import Mesh, MeshError, load_mesh
from packing_env.items.meshes.mesh import UNITS
from packing_env.items.shapes import SHAPES
from packing_env.plan.packing import PlacedItem, PlanError
from packing_env.reference.solids import Solid


def solid_of(item: PlacedItem, plan: Path) -> Solid:
    """Read the solid of an item from its source, in metres at the item's scale.

    Args:
        item: The item.
        plan: Path of its plan. Mesh files are also searched in its folder, and errors name this
            path.

    Raises:
        PlanError: The solid cannot be read.
    """
    if item.source == "cuboid":
        if item.extent is None:
            raise PlanError(
                f"{plan}: item {item.order} ({item.name}) is a cuboid without 'extent'; add its "
                "three sides"
            )
        dx, dy, dz = (side * UNITS[item.unit] * item.scale for side in item.extent)
        return Solid.box((dx, dy, dz))
    mesh = _embedded(item, plan) if item.source.startswith("shapes:") else _file(item, plan)
    # A file may state its own unit, but the plan states the unit in which it was read.
    factor = item.scale * UNITS[item.unit] / UNITS[mesh.source.unit]
    vertices, faces, com = mesh.vertices.numpy(), mesh.faces.numpy(), mesh.com.numpy()
    return Solid(vertices * factor, faces, com=com * factor)


def _embedded(item: PlacedItem, plan: Path) -> Mesh:
    name = item.source.removeprefix("shapes:")
    if name not in SHAPES:
        raise PlanError(
            f"{plan}: item {item.order}: there is no embedded shape {name!r}; "
            "packing_env.items.shapes.SHAPES lists the shapes"
        )
    return _shape(name)


@cache
def _shape(name: str) -> Mesh:
    return SHAPES[name].mesh()


def _file(item: PlacedItem, plan: Path) -> Mesh:
    """Load the mesh of a file, found under its name or in the folder of the plan."""
    places = [Path(item.source), plan.parent / item.source, plan.parent / Path(item.source).name]
    found = [place for place in places if split_item(place)[0].is_file()]
    if not found:
        reason = "was made in memory" if item.source.startswith("mesh:") else "does not exist"
        raise PlanError(
            f"{plan}: item {item.order} ({item.name}) cannot be checked: its solid "
            f"{item.source!r} {reason}; put the mesh file in the folder of the plan"
        )
    try:
        modified_ns = split_item(found[0])[0].stat().st_mtime_ns
        return _load(found[0].resolve(), modified_ns, item.unit)
    except MeshError as error:
        raise PlanError(f"{plan}: item {item.order} ({item.name}): {error}") from error


@cache
def _load(file: Path, modified_ns: int, unit: str) -> Mesh:
    return load_mesh(file, unit)
