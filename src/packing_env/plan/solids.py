"""The solids of a plan: its items, read from their sources, and the edges that are cut off."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np

from packing_env.files import split_item
from packing_env.items import Mesh, MeshError, load_mesh
from packing_env.items.meshes.mesh import UNITS
from packing_env.items.shapes import SHAPES
from packing_env.plan.packing import Packing, PlacedItem, PlanError
from packing_env.reference.solids import Solid


def solid_of(item: PlacedItem, plan: Path) -> Solid:
    """Read the solid of an item from its source, in metres at the item's scale.

    Args:
        item: The item.
        plan: Path of its plan, for errors.

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
    factor, mesh = 1.0, item.mesh
    if mesh is None:
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
    file = split_item(item.source)[0]
    if not file.is_file():
        reason = "does not exist; put the mesh file in the folder of the plan"
        if item.source.startswith("mesh:"):
            reason = "was made in memory; write the mesh to a file and pack that file"
        raise PlanError(
            f"{plan}: item {item.order} ({item.name}) cannot be checked: its solid "
            f"{item.source!r} {reason}"
        )
    try:
        return _load(Path(item.source).resolve(), file.stat().st_mtime_ns, item.unit)
    except MeshError as error:
        raise PlanError(f"{plan}: item {item.order} ({item.name}): {error}") from error


def find_source(source: str, plan: Path) -> str:
    """Return the path of a mesh file that a plan names; unchanged if there is no such file.

    A folder with parts and plan may be moved, so several places are searched, in this order:

    1. the whole name, from the working directory and from the folder of the plan,
    2. the file name alone, in the folder of the plan,
    3. the whole name, from the folders above the plan: all those below the working directory if the
       plan is below it, otherwise only the first one.
    """
    own, *above = Path(os.path.abspath(plan)).parents
    here = Path.cwd()
    above = above[: above.index(here) if here in above else 1]
    places = [Path(source), own / source, own / Path(source).name]
    places += [folder / source for folder in above]
    # ``isfile`` is False, without an error, for names that the system refuses.
    return next((str(place) for place in places if os.path.isfile(split_item(place)[0])), source)


@cache
def _load(file: Path, modified_ns: int, unit: str) -> Mesh:
    return load_mesh(file, unit)


def cut_wedges(packing: Packing) -> np.ndarray:
    """Return the corners of the wedges where edges of the container are cut off, ``[C, 6, 3]``.

    The first four are the corners of the plane that cuts, the last two the ends of the edge;
    metres.
    """
    wedges = []
    for edge, *lengths in packing.constraints.get("cut", ()):
        axes, far = ["xyz".index(axis) for axis in edge[1::2]], [sign == "+" for sign in edge[::2]]
        corners = np.zeros((6, 3))
        corners[[2, 3, 5], 3 - sum(axes)] = packing.container[3 - sum(axes)]
        for axis, end in zip(axes, far, strict=True):
            corners[:, axis] = packing.container[axis] * end
        # Each end of the plane is on one wall, at the length that is cut off from the edge on.
        for number, (axis, length) in enumerate(zip(axes, lengths, strict=True)):
            corners[[number, 3 - number], axis] += -length if far[number] else length
        wedges.append(corners)
    return np.array(wedges).reshape(-1, 6, 3)
