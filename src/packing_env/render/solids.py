"""The triangles of placed items: their meshes if available, otherwise the columns of their maps."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from packing_env.plan import Packing, PlacedItem, PlanError
from packing_env.plan.solids import solid_of

MAX_FACES = 30_000
"""Meshes with more faces than this are drawn as columns in pictures, if their maps are known."""

Triangles = np.ndarray
"""``[T, 3, 3]`` float64: triangle, corner, coordinate."""

_WELD = 1e-6
"""Metres; corners that are closer are one vertex."""
_SMOOTH = 0.82
"""Cosine of the sharpest bend that is drawn as smooth."""
_HASH = np.array([1, 0x9E3779B97F4A7C1, 0x3C6EF372FE94F83])
CORNERS = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], np.float64)
"""``[8, 3]`` corners of the unit cube."""
EDGES = np.array([(i, j) for i, j in combinations(range(8), 2) if (i ^ j).bit_count() == 1])
"""``[12, 2]`` ends of its edges."""


def floor_of(packing: Packing) -> tuple[float, float, float, float]:
    """Return the rectangle ``(x0, y0, x1, y1)`` of the floor, or of a pallet's deck."""
    over_x, over_y = packing.constraints.get("overhang", (0.0, 0.0))
    ends = [over_x, over_y, packing.container[0] - over_x, packing.container[1] - over_y]
    for edge, length, _ in packing.constraints.get("cut", ()):
        if edge[2:] == "-z":
            axis = "xy".index(edge[1])
            ends[axis + 2 * (edge[0] == "+")] += -length if edge[0] == "+" else length
    return ends[0], ends[1], ends[2], ends[3]


class PlacedSolid(NamedTuple):
    """A solid, and the motion that places it: ``p_world = turn @ p + move``, metres.

    Attributes:
        key: A key that is equal for equal solids.
        solid: ``[T, 3, 3]``, counter-clockwise seen from outside.
        turn: ``[3, 3]``.
        move: ``[3]``.
    """

    key: Hashable
    solid: Triangles
    turn: np.ndarray
    move: np.ndarray

    def placed(self) -> Triangles:
        """Return the triangles at their place in the container."""
        return np.asarray(self.solid @ self.turn.T + self.move)


def placed_solid(item: PlacedItem, cell: float, most: int | None = None) -> PlacedSolid:
    """Return the solid of an item and its motion.

    If maps are known, and the solid cannot be read or has more than ``most`` faces, the result
    consists of the columns of the item's maps.

    Raises:
        PlanError: Neither its solid nor its maps are available.
    """
    mapped = item.top is not None and item.bottom is not None
    try:
        source = solid_of(item, Path())
    except PlanError as error:
        if not mapped:
            raise PlanError(
                f"cannot draw item {item.order}: its solid {item.source} does not exist; put the "
                "mesh file there or draw from a state"
            ) from error
    else:
        if most is None or len(source.faces) <= most or not mapped:
            key = (item.source, item.unit, item.scale, item.extent)
            solid = source.vertices[source.faces]
            return PlacedSolid(key, solid, item.rotation, item.translation)
    assert item.top is not None
    assert item.bottom is not None
    corner = np.array([item.cell[0] * cell, item.cell[1] * cell, item.z])
    of_maps = (item.source, item.scale, item.item_id, item.orientation)
    return PlacedSolid(of_maps, columns(item.top, item.bottom, cell), np.eye(3), corner)


def triangles(item: PlacedItem, cell: float) -> Triangles:
    """Return an item's triangles for a picture, in the container, metres.

    Raises:
        PlanError: Neither its solid nor its maps are available.
    """
    return placed_solid(item, cell, MAX_FACES).placed()


def seen(solids: Sequence[Triangles]) -> list[np.ndarray]:
    """Return for each solid which of its triangles may be seen.

    The sides on which two boxes touch are hidden if they are equal: the upper side of one box, and
    the lower side of the other. Without these, the picture of a high stack of sheets takes seconds
    instead of minutes.
    """
    visible = [np.ones(len(solid), bool) for solid in solids]
    boxes = [n for n, solid in enumerate(solids) if _is_box(solid)]
    if not boxes:
        return visible
    # 1. The bounds of each triangle, in whole steps; and on which side of its box it lies.
    corners = np.stack([solids[n] for n in boxes])  # [K, 12, 3, 3]
    steps = np.round(corners / _WELD).astype(np.int64)
    low, high = steps.min(2), steps.max(2)
    upper = ((low == high) & (high == high.max(1, keepdims=True))).any(2).reshape(-1)
    # 2. A side is hidden if a lower and an upper side have its bounds.
    bounds = np.concatenate((low, high), 2).reshape(-1, 6)
    _, side = np.unique(bounds, axis=0, return_inverse=True)
    side = side.reshape(-1)
    hidden = np.isin(side, side[upper]) & np.isin(side, side[~upper])
    for n, mine in zip(boxes, hidden.reshape(-1, 12), strict=True):
        visible[n] = ~mine
    return visible


def _is_box(solid: Triangles) -> bool:
    """Return whether a solid is a box along the axes: 12 triangles on its bounds, 8 corners."""
    if len(solid) != 12:
        return False
    corners = np.round(solid.reshape(-1, 3) / _WELD)
    low, high = corners.min(0), corners.max(0)
    at_bounds = bool(((corners == low) | (corners == high)).all())
    flat = (np.ptp(corners.reshape(12, 3, 3), axis=1) == 0).sum(1)
    return at_bounds and bool((flat == 1).all()) and len(np.unique(corners, axis=0)) == 8


def corner_normals(solid: Triangles) -> np.ndarray:
    """Return ``[T, 3, 3]`` float32 unit normals at the corners, smooth over bends below 35 deg."""
    edges = solid[:, 1:] - solid[:, :1]
    weighted = np.cross(edges[:, 0], edges[:, 1])
    own = weighted / np.maximum(np.linalg.norm(weighted, axis=-1, keepdims=True), 1e-300)
    steps = np.round(solid.reshape(-1, 3) / _WELD).astype(np.int64)
    _, vertex = np.unique(steps @ _HASH, return_inverse=True)
    order = np.argsort(vertex, kind="stable")
    count = np.bincount(vertex)[vertex]
    start = np.searchsorted(vertex[order], vertex)
    # All pairs of triangle corners that meet at the same vertex.
    corner = np.repeat(np.arange(len(vertex)), count)
    place = np.arange(len(corner)) - np.repeat(np.cumsum(count) - count, count)
    partner = order[start[corner] + place] // 3
    smooth = np.einsum("pi,pi->p", own[corner // 3], own[partner]) > _SMOOTH
    total = np.zeros((len(vertex), 3))
    for axis in range(3):
        shares = np.where(smooth, weighted[partner, axis], 0.0)
        total[:, axis] = np.bincount(corner, shares, len(vertex))
    total /= np.maximum(np.linalg.norm(total, axis=-1, keepdims=True), 1e-300)
    return total.reshape(solid.shape).astype(np.float32)


def quads(corners: np.ndarray) -> Triangles:
    """Split quadrilaterals ``[Q, 4, 3]`` into triangles ``[2 Q, 3, 3]``."""
    return np.concatenate((corners[:, [0, 1, 2]], corners[:, [0, 2, 3]]))


def columns(top: np.ndarray, bottom: np.ndarray, cell: float) -> Triangles:
    """Return the surface of the columns of maps ``[w, h]``: tops, bottoms, exposed sides."""
    there = np.isfinite(bottom)
    upper = np.pad(np.where(there, top, 0.0).astype(np.float64), 1)
    lower = np.pad(np.where(there, bottom, 0.0).astype(np.float64), 1)
    solid = np.pad(there, 1)
    u, v = np.nonzero(solid)
    x, y, high, low = (u - 1) * cell, (v - 1) * cell, upper[u, v], lower[u, v]
    right, far = x + cell, y + cell
    faces = [
        _quad((x, y, high), (right, y, high), (right, far, high), (x, far, high)),
        _quad((x, y, low), (x, far, low), (right, far, low), (right, y, low)),
    ]
    # Each side of a cell: its neighbour, and its lower edge from (ax, ay) to (bx, by), oriented so
    # that the side faces outward.
    for du, dv, ax, ay, bx, by in (
        (1, 0, right, y, right, far),
        (-1, 0, x, far, x, y),
        (0, 1, right, far, x, far),
        (0, -1, x, y, right, y),
    ):
        beside = solid[u + du, v + dv]
        # A neighbour's column hides a part of this side: draw the parts above and below it.
        other_high = np.where(beside, upper[u + du, v + dv], low)
        other_low = np.where(beside, lower[u + du, v + dv], low)
        for start, end in (
            (np.maximum(low, np.minimum(other_high, high)), high),
            (low, np.minimum(high, np.maximum(other_low, low))),
        ):
            exposed = end > start
            corners = ((ax, ay, start), (bx, by, start), (bx, by, end), (ax, ay, end))
            faces.append(_quad(*corners)[exposed])
    return quads(np.concatenate(faces))


def _quad(*corners: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    return np.stack([np.stack(corner, -1) for corner in corners], 1)
