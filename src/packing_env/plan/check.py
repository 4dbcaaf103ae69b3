"""Check of a plan file: reads its solids from their sources and runs the reference program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from packing_env.items import Mesh, MeshError, load_mesh
from packing_env.items.inputs import EmbeddedShape
from packing_env.items.meshes.mesh import UNITS
from packing_env.items.shapes import SHAPES
from packing_env.plan.document import ITEM_KEYS, PLAN_KEYS, parse, read_json
from packing_env.plan.packing import Packing, PlacedItem, PlanError
from packing_env.reference.checker import check
from packing_env.reference.claims import ItemClaim, PlanClaim, Report
from packing_env.reference.solids import Solid

Claim = TypeVar("Claim", ItemClaim, PlanClaim)


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
    document = read_json(path)
    packing = parse(path, document)
    with np.errstate(over="ignore", invalid="ignore"):  # the checker reports overflows
        items = tuple(
            _claim(ItemClaim, item, solid=_solid(item, Path(path)), corner=item.cell)
            for item in packing.items
        )
    report = check(_claim(PlanClaim, packing, items=items, utilization=packing.claimed))
    return replace(report, not_checked=(*report.not_checked, *_unknown_keys(document)))


def _claim(kind: type[Claim], source: Packing | PlacedItem, **others: Any) -> Claim:
    """Convert to a claim of the reference program; fields that are not given are the source's."""
    same = {f.name: getattr(source, f.name) for f in fields(kind) if f.name not in others}
    return kind(**same, **others)


def _solid(item: PlacedItem, plan: Path) -> Solid:
    """Read the solid of an item from its source, in metres at the item's scale."""
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
