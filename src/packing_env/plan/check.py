"""A plan and the reference program: its solids read from their sources, its claims handed over."""

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
    """Derive every claim of a plan again with the reference program.

    Reading a mesh file is shared with the program that made the plan; nothing else is. What a plan
    says of its origin (``instance``, ``item_id``, ``orientation``) is no claim about the packing.

    Args:
        path: The plan. Files that it names are looked for as named, then beside the plan.

    Returns:
        The first claim that does not hold, or none.

    Raises:
        PlanError: Not a plan, of another version, incomplete, or of solids that cannot be had.
    """
    from packing_env.reference.checker import check
    from packing_env.reference.claims import PlanClaim

    document = read_json(path)
    packing = parse(path, document)
    with np.errstate(over="ignore", invalid="ignore"):  # absurd sizes are left to the checker
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
    """What the plan says of an item, with its solid."""
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
    """The solid of an item from its source, metres at the item's scale."""
    from packing_env.reference.solids import Solid

    if item.source == "cuboid":
        if item.extent is None:
            raise PlanError(f"{plan}: item {item.order} ({item.name}) is a cuboid without extent")
        dx, dy, dz = (side * UNITS[item.unit] * item.scale for side in item.extent)
        return Solid.box((dx, dy, dz))
    mesh = _embedded(item, plan) if item.source.startswith("shapes:") else _file(item, plan)
    # A file may state its own unit: what the plan says must be that.
    factor = item.scale * UNITS[item.unit] / UNITS[mesh.source.unit]
    vertices, faces, com = mesh.vertices.numpy(), mesh.faces.numpy(), mesh.com.numpy()
    return Solid(vertices * factor, faces, com=com * factor)


def _embedded(item: PlacedItem, plan: Path) -> Mesh:
    """The mesh of ``shapes:NAME``."""
    name = item.source.removeprefix("shapes:")
    if name not in {shape.name for shape in SHAPES}:
        raise PlanError(f"{plan}: item {item.order}: there is no embedded shape {name!r}")
    return _shape(name)


@cache
def _shape(name: str) -> Mesh:
    return EmbeddedShape(name).mesh()


def _file(item: PlacedItem, plan: Path) -> Mesh:
    """The mesh of a file."""
    places = [Path(item.source), plan.parent / item.source, plan.parent / Path(item.source).name]
    found = [place for place in places if place.is_file()]
    if not found:
        what = "was made in memory" if item.source.startswith("mesh:") else "is not there"
        raise PlanError(
            f"{plan}: item {item.order} ({item.name}) cannot be checked: its solid "
            f"{item.source!r} {what}; put the mesh file beside the plan"
        )
    try:
        return _load(found[0].resolve(), found[0].stat().st_mtime_ns, item.unit)
    except MeshError as error:
        raise PlanError(f"{plan}: item {item.order} ({item.name}): {error}") from error


@cache
def _load(file: Path, changed: int, unit: str) -> Mesh:
    """A mesh file as it was at that time."""
    return load_mesh(file, unit)


def _unknown_keys(document: Mapping[str, Any]) -> Iterator[str]:
    """Keys that this program knows nothing about."""
    for key in document:
        if key not in PLAN_KEYS:
            yield f"the key {key!r}, which is unknown"
    for number, item in enumerate(document["items"]):
        for key in item:
            if key not in ITEM_KEYS:
                yield f"the key {key!r} of item {number}, which is unknown"
