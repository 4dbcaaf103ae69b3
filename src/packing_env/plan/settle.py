"""Items lowered from their heights on the grid until their solids touch a solid below."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from packing_env.plan.drop import Drop, Ground, hull
from packing_env.plan.packing import Packing, PlacedItem, PlanError
from packing_env.plan.solids import solid_of
from packing_env.reference.solids import Solid

NARROW = 4e-6
"""Share of a cell; solids whose overlap, seen from above, is narrower do not touch."""
STILL = 1e-9
"""Metres; an item whose distance to the solids below is smaller is not moved."""
EXACT = 1e-6
"""Share of a cell; cuboids whose sides are whole cells, up to this tolerance, are exact on maps."""

_Placed = tuple[Solid, np.ndarray]
"""A solid in its own frame, and its triangles in the container ``[T, 3, 3]``."""


def settle(packing: Packing) -> Packing:
    """Lower every item, in packing order, until its solid touches a solid below it.

    Maps are conservative, so items on the grid are up to some millimetres above the solids that
    carry them. Every item was put down from above, so nothing obstructs its way down.

    ``z`` and ``translation`` become those of the settled pose, and ``z_grid``, ``gap``,
    ``contacts`` and ``balanced`` are set (:class:`PlacedItem`). In four cases the packing is
    returned unchanged: the maps are exact (cuboids of whole cells, geometry ``"boxes"``) or there
    are none (geometry ``"solids"``); a constraint depends on contacts or on distances between
    items; the packing is settled already; or the solid of an item cannot be read.
    """
    if not _may_settle(packing):
        return packing
    try:
        solids = [solid_of(item, Path()) for item in packing.items]
    except PlanError:
        return packing
    placed = [
        (solid, (solid.vertices @ item.rotation.T + item.translation)[solid.faces])
        for solid, item in zip(solids, packing.items, strict=True)
    ]
    return replace(packing, items=_lowered(packing, placed))


def _may_settle(packing: Packing) -> bool:
    rules = packing.constraints
    of_contacts = ("no_stacking", "max_load", "clearance")
    if rules.get("fragile") == "top" or any(rules.get(name) for name in of_contacts):
        return False
    exact = all(_is_exact(item, packing.cell) for item in packing.items)
    settled = any(item.z_grid is not None for item in packing.items)
    return packing.geometry == "maps" and not (exact or settled)


def _is_exact(item: PlacedItem, cell: float) -> bool:
    """Test if an item is a cuboid of whole cells, parallel to the axes."""
    if item.extent is None or np.abs(item.rotation).max(0).min() < 1 - 1e-9:
        return False
    lower, upper = item.to_world(np.array([[0.0, 0.0, 0.0], item.extent])) / cell
    sides = np.abs(upper - lower)
    return bool(np.abs(sides - np.round(sides)).max() < EXACT)


def _lowered(packing: Packing, placed: list[_Placed]) -> tuple[PlacedItem, ...]:
    ground = Ground(packing.container, packing.constraints.get("preplaced", []))
    items = []
    for item, (solid, triangles) in zip(packing.items, placed, strict=True):
        drop = ground.drop(triangles, NARROW * packing.cell)
        fall = drop.distance if drop.distance > STILL else 0.0
        down = np.array([0.0, 0.0, fall])
        ground.put(triangles - down)
        above = (item.rotation @ solid.centre + item.translation)[:2]
        items.append(
            replace(
                item,
                z=item.z - fall,
                z_grid=item.z,
                translation=item.translation - down,
                gap=drop.distance - fall,
                contacts=drop.contacts - down,
                balanced=_is_over(above, drop),
            )
        )
    return tuple(items)


def _is_over(point: np.ndarray, drop: Drop) -> bool:
    """Return whether a point ``[2]`` lies in the hull of contacts, seen from above."""
    corners = hull(drop.contacts)[:, :2]
    if len(corners) < 3:
        return False
    sides = np.roll(corners, -1, 0) - corners
    away = point - corners
    turn = sides[:, 0] * away[:, 1] - sides[:, 1] * away[:, 0]
    return bool((turn >= -STILL * np.linalg.norm(sides, axis=1)).all())
