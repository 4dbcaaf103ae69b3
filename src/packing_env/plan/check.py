"""Check of a plan file: reads its solids from their sources and runs the reference program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from packing_env.items import Mesh, MeshError, load_mesh
from packing_env.items.inputs import EmbeddedShape
from packing_env.items.meshes.mesh import UNITS
from packing_env.items.shapes import SHAPES
from packing_env.plan.document import ITEM_KEYS, PLAN_KEYS, parse, read_json
from packing_env.plan.packing import PlacedItem, PlanError

if TYPE_CHECKING:
    from packing_env.reference.claims import ItemClaim, Report
    from packing_env.reference.solids import Solid


def check_plan(path: str | Path) -> Report:
    """Check every claim of a plan with the reference program.

    Only the reading of mesh files is shared with the program that made the plan. The origin of a
    plan (``instance``, ``item_id``, ``orientation``) is not a claim and is not checked.

    Args:
        path: The plan. The mesh files that it names are searched as named, then beside the plan.

    Returns:
        The report, with the first claim that does not hold, if any.

    Raises:
        PlanError: Not a plan, of another version, incomplete, or with a solid that cannot be read.
    """
    from packing_env.reference.checker import check
    from packing_env.reference.claims import PlanClaim

    document = read_json(path)
    packing = parse(path, document)
    with np.errstate(over="ignore", invalid="ignore"):  # the checker reports overflows
        items = tuple(_claim(item, Path(path)) for item in packing.items)
    claim = PlanClaim(
        container=packing.container,
        cell=packing.cell,
        stability=packing.stability,
        contact_tol=packing.contact_tol,
        items=items,
        num_items=packing.num_items,
        utilization=packing.claimed,
        geometry=packing.geometry,
        unit=packing.unit,
    )
    report = check(claim)
    return replace(report, not_checked=(*report.not_checked, *_unknown_keys(document)))


def _claim(item: PlacedItem, plan: Path) -> ItemClaim:
    """Convert an item of a plan to the reference program's claim, with its solid."""
    from packing_env.reference.claims import ItemClaim

    return ItemClaim(
        order=item.order,
        name=item.name,
        solid=_solid(item, plan),
        rotation=item.rotation,
        translation=item.translation,
        corner=item.cell,
        z=item.z,
        support_ratio=item.support_ratio,
        volume=item.volume,
        quaternion=item.quaternion,
    )


def _solid(item: PlacedItem, plan: Path) -> Solid:
    """Read the solid of an item from its source, in metres at the item's scale."""
    from packing_env.reference.solids import Solid

    if item.source == "cuboid":
        if item.extent is None:
            raise PlanError(
                f"{plan}: item {item.order} ({item.name}) is a cuboid without 'extent'; add its "
                "three sides"
            )
        dx, dy, dz = (side * UNITS[item.unit] * item.scale for side in item.extent)
        return Solid.box((dx, dy, dz))
    mesh = _embedded(item, plan) if item.source.startswith("shapes:") else _file(item, plan)
    # A file may state its own unit; the plan's vertices are in the plan's unit.
    factor = item.scale * UNITS[item.unit] / UNITS[mesh.source.unit]
    vertices, faces, com = mesh.vertices.numpy(), mesh.faces.numpy(), mesh.com.numpy()
    return Solid(vertices * factor, faces, com=com * factor)


def _embedded(item: PlacedItem, plan: Path) -> Mesh:
    """Return the mesh of ``shapes:NAME``."""
    name = item.source.removeprefix("shapes:")
    if name not in {shape.name for shape in SHAPES}:
        raise PlanError(
            f"{plan}: item {item.order}: there is no embedded shape {name!r}; "
            "packing_env.items.shapes.SHAPES lists them"
        )
    return _shape(name)


@cache
def _shape(name: str) -> Mesh:
    return EmbeddedShape(name).mesh()


def _file(item: PlacedItem, plan: Path) -> Mesh:
    """Load the mesh of a file, as named or beside the plan."""
    places = [Path(item.source), plan.parent / item.source, plan.parent / Path(item.source).name]
    found = [place for place in places if place.is_file()]
    if not found:
        reason = "was made in memory" if item.source.startswith("mesh:") else "does not exist"
        raise PlanError(
            f"{plan}: item {item.order} ({item.name}) cannot be checked: its solid "
            f"{item.source!r} {reason}; put the mesh file beside the plan"
        )
    try:
        return _load(found[0].resolve(), found[0].stat().st_mtime_ns, item.unit)
    except MeshError as error:
        raise PlanError(f"{plan}: item {item.order} ({item.name}): {error}") from error


@cache
def _load(file: Path, modified_ns: int, unit: str) -> Mesh:
    """Load a mesh file; cached until its time of modification changes."""
    return load_mesh(file, unit)


def _unknown_keys(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a note for every key of the plan that is not part of the format."""
    for key in document:
        if key not in PLAN_KEYS:
            yield f"the key {key!r}, which is unknown"
    for number, item in enumerate(document["items"]):
        for key in item:
            if key not in ITEM_KEYS:
                yield f"the key {key!r} of item {number}, which is unknown"
