"""Filled containers of boxes as packings, which are saved, drawn and checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from packing_env.items.handling import allowed
from packing_env.items.meshes.mesh import MeshSource
from packing_env.items.rotations import rotation_set
from packing_env.plan import LoadedBox, Packing, PlacedItem
from packing_env.plan.loading.problem import Cuboid
from packing_env.planner.boxes.order import BoxOrder, Filled
from packing_env.planner.reading.lengths import metres


def packing_of_boxes(order: BoxOrder, filled: Filled, num_items: int) -> Packing:
    """Return a filled container as a packing.

    Args:
        order: The boxes.
        filled: The container.
        num_items: Number of boxes to pack, including those left over.
    """
    unit = float(order.unit)
    rules, (length, width, _) = filled.room.rules, filled.room.sides
    over_x, over_y = rules.overhang
    floor = (over_x, over_y, -1, length - over_x, width - over_y, 0)
    corners = np.array([box.corner for box in filled.boxes], np.int64).reshape(-1, 3)
    sides = np.array(
        [order.orientations[box.kind][box.orientation] for box in filled.boxes], np.int64
    ).reshape(-1, 3)
    supports = _support(corners, sides, [floor, *rules.before])
    kinds = {(box.kind, box.orientation): box for box in filled.boxes}
    turned = {key: _at_the_corner(order, box) for key, box in kinds.items()}
    # Exact products, rounded once; many boxes share a coordinate.
    metre = {step: float(order.unit * step) for step in np.unique(corners).tolist()}
    places = np.array([[metre[step] for step in corner] for corner in corners.tolist()])
    x, y, height = (float(order.unit * side) for side in filled.room.sides)
    return Packing(
        container=(x, y, height),
        cell=unit,
        stability=filled.room.rules.stability,
        items=tuple(
            _placed(turned[box.kind, box.orientation], box, number, places[number], support)
            for number, (box, support) in enumerate(
                zip(filled.boxes, supports.tolist(), strict=True)
            )
        ),
        num_items=num_items,
        geometry="boxes",
        unit=unit,
        constraints=filled.room.constraints.to_json(),
        name=filled.room.type.name,
        container_unit=filled.room.type.unit,
    )


def _at_the_corner(order: BoxOrder, box: LoadedBox) -> PlacedItem:
    """Return a turned box in the lower corner of its container."""
    part, rotation = order.parts[box.kind], _rotation(order, box)
    sides = [order.unit * length for length in order.lengths[box.kind]]
    low, origin, source, extent = np.zeros(3), MeshSource(unit=part.unit), "cuboid", None
    if part.sides is None:  # a mesh, whose origin may be anywhere
        mesh = part.load()
        low, origin = mesh.vertices.amin(0).numpy(), mesh.source
        source = origin.path or f"mesh:{part.label}"
    else:
        a, b, c = (float(side / metres(part.unit)) for side in sides)
        extent = a, b, c
    high = low + [float(side) for side in sides]
    return PlacedItem(
        order=0,
        name=part.label,
        source=source,
        unit=origin.unit,
        scale=origin.scale,
        extent=extent,
        rotation=rotation,
        translation=-np.minimum(rotation @ low, rotation @ high),
        cell=(0, 0),
        z=0.0,
        orientation=box.orientation,
        item_id=box.kind,
        support_ratio=1.0,
        volume=float(math.prod(sides)),
        handling={**part.handling, **part.poses},
        mesh=part.load() if part.sides is None else None,
    )


def _placed(
    item: PlacedItem, box: LoadedBox, number: int, place: np.ndarray, support: float
) -> PlacedItem:
    return replace(
        item,
        order=number,
        translation=place + item.translation,
        cell=box.corner[:2],
        z=float(place[2]),
        support_ratio=support,
    )


def _rotation(order: BoxOrder, box: LoadedBox) -> np.ndarray:
    """Return the rotation that gives a box its sides with an allowed face up."""
    part, sides = order.parts[box.kind], order.orientations[box.kind][box.orientation]
    lengths = order.lengths[box.kind]
    for axes, rotation in _rotations(part.faces, part.turn):
        if [lengths[axis] for axis in axes] == list(sides):
            return rotation
    raise RuntimeError(f"{part.label} has no rotation with sides {sides}")


@cache
def _rotations(faces: tuple[str, ...], turn: bool) -> list[tuple[list[int], np.ndarray]]:
    """Return the allowed rotations, each with the axes of the box that lie along x, y and z."""
    rotations = allowed(rotation_set(), faces, turn)
    return list(zip(rotations.abs().argmax(2).tolist(), rotations.numpy(), strict=True))


def _support(corners: np.ndarray, sides: np.ndarray, fixed: Sequence[Cuboid]) -> np.ndarray:
    """Return the supported share of the base of each box, ``[N]``."""
    lower = np.concatenate([np.array(fixed, np.int64)[:, :3], corners])
    upper = np.concatenate([np.array(fixed, np.int64)[:, 3:], corners + sides])
    by_top = np.argsort(upper[:, 2], kind="stable")
    first = np.searchsorted(upper[by_top, 2], corners[:, 2], "left")
    end = np.searchsorted(upper[by_top, 2], corners[:, 2], "right")
    shares = np.ones(len(corners))
    for n, (low, side) in enumerate(zip(corners, sides, strict=True)):
        below = by_top[first[n] : end[n]]
        below = below[below < len(fixed) + n]  # what was placed before
        overlap = np.minimum(upper[below, :2], low[:2] + side[:2]) - np.maximum(
            lower[below, :2], low[:2]
        )
        area = np.maximum(overlap, 0).astype(np.float64).prod(1).sum()
        shares[n] = area / float(side[0] * side[1])
    return shares
