"""The side of the voxels of a nest, if the user names none."""

from __future__ import annotations

import itertools
import logging
import math
import operator
from collections.abc import Sequence
from fractions import Fraction
from functools import partial

import numpy as np
import torch

from packing_env.constraints import Constraints
from packing_env.nesting.levels import EXACT, Array
from packing_env.planner.reading.containers import ContainerType
from packing_env.planner.reading.lengths import common_unit, exact, measured
from packing_env.planner.reading.parts import Part

_LOGGER = logging.getLogger("packing_env.planner")

VOXELS = 16_000_000
"""Number of voxels of a container if the user names no cell."""
SECONDS, LEAST_VOXELS = 30.0, 1_000_000
"""Time of a search that can use so many voxels; a shorter one of meshes has fewer in proportion."""
MAX_VOXELS = 100_000_000
"""Largest number of voxels of a container."""
_RANGE = 0.9, 1.1
"""Smallest and largest side of the voxels as shares of the side that gives `VOXELS` voxels."""


def default_cell(
    order: Sequence[Part],
    kind: ContainerType,
    rules: Constraints,
    yaw: float | None,
    seconds: float = SECONDS,
) -> float:
    """Return the side of the voxels, in metres.

    Voxels that divide the lengths of a part represent it exactly, if its faces lie along the axes
    and it is turned only by 90 degrees. If all parts are so, the voxels are the largest that divide
    all lengths. Otherwise there are about `VOXELS` voxels; if possible, they divide the lengths of
    all such parts, or of the boxes among them, or of the boxes with stated sides. If not, they suit
    the sides of the container.
    """
    # 1. The lengths that the voxels should divide, for the parts that fit.
    gap, walls = exact(rules.clearance or 0), exact(rules.walls)
    inner = [side - 2 * walls + gap for side in kind.size]
    sides = [[side + gap for side in part.exact_sides] for part in order]
    fits = [all(map(operator.le, sorted(each), sorted(inner))) for each in sides]
    faces = [_faces(part, gap) for part in order]
    stated = [fit and part.sides is not None for part, fit in zip(order, fits, strict=True)]
    boxes = [fit and part.is_box for part, fit in zip(order, fits, strict=True)]
    square = [fit and bool(face) for face, fit in zip(faces, fits, strict=True)]
    quantities = np.array([part.quantity for part in order])
    share = 1.0 if all(part.sides for part in order) else min(1.0, seconds / SECONDS)
    voxels = max(VOXELS * share, LEAST_VOXELS)
    best = partial(_best_cell, np.array(inner, float), np.array(sides, float), quantities, voxels)
    free = best(inner)
    volume, common, edges = math.prod(inner), Fraction(0), list[Fraction]()
    for box in rules.preplaced:
        low = [exact(place) - walls for place in box[:3]]
        edges += low + [one + exact(side) + gap for one, side in zip(low, box[3:], strict=True)]
    for chosen in filter(any, (square, boxes, stated)):
        lengths = [*edges, *itertools.chain(*itertools.compress(faces, chosen))]
        common = common_unit(lengths)
        # 2. All parts have faces along the axes: take the largest voxels that divide all lengths.
        alone = chosen is square and all(faces) and yaw is None
        most = VOXELS if all(part.is_box for part in order) else voxels
        if alone and volume <= most / _RANGE[0] ** 3 * common**3:
            return float(common)
        # 3. Otherwise take voxels of about the default size that divide the lengths.
        if divided := best([common_unit([*lengths, *inner]), common], free):
            return divided
    # 4. If no voxels of this size divide the stated sides, take the largest smaller ones that do.
    for unit in (common_unit([*lengths, *inner]), common) if any(stated) else ():
        side = unit / math.ceil(float(unit) / free - 1e-9)
        if volume <= VOXELS / _RANGE[0] ** 3 * side**3:
            return float(side)
    remedy = ""
    if any(boxes) and volume <= MAX_VOXELS * common**3:
        cell = f"--cell {1e3 * float(common):.6g}mm"
        remedy = f"; {cell} divides them, but the search then takes more time"
    if any(stated) or remedy:
        _LOGGER.warning("sides of boxes are rounded up to whole voxels%s", remedy)
    return free


def _faces(part: Part, gap: Fraction) -> list[Fraction]:
    """Return how far the faces of a part are from its lower corner; empty if one is oblique.

    Faces and corner are moved outwards by half the gap, so faces towards the corner stay as far.
    """
    if part.sides is not None:
        return [side + gap for side in part.exact_sides]
    mesh = part.load()
    corners = (mesh.vertices - mesh.vertices.amin(0))[mesh.faces]
    is_flat = corners.amax(1) - corners.amin(1) < EXACT
    if not bool(is_flat.any(1).all()):
        return []
    a, b, c = corners.unbind(1)
    normal = torch.linalg.cross(b - a, c - a)
    ahead, back = (a[is_flat & (sign * normal > 0)].unique().tolist() for sign in (1, -1))
    return [*{measured(place) + gap for place in ahead}, *{measured(place) for place in back}]


def _best_cell(
    inner: Array,
    parts: Array,
    quantities: Array,
    voxels: float,
    lengths: Sequence[Fraction],
    most: float | None = None,
) -> float:
    """Return a voxel side that gives about ``voxels`` voxels and wastes little room.

    The bounding boxes of the parts, ``[N, 3]``, still fit when they are rounded up to whole voxels.
    Then as little as possible is lost of the container, which is rounded down, and of the boxes.

    Args:
        inner: ``[3]`` sides of the container.
        parts: ``[N, 3]`` sides of the parts.
        quantities: ``[N]``.
        voxels: Number of voxels.
        lengths: The voxel side divides one of them.
        most: Largest voxel side; if none is smaller, the result is 0. None means any side.
    """
    about = float((inner.prod() / voxels) ** (1 / 3))
    sides = [about] if most is None else []
    for length in map(float, lengths):
        first, last = (length / about / share for share in reversed(_RANGE))
        sides += [length / count for count in range(math.ceil(first), int(last) + 1) if count]
    sides = [side for side in sides if most is None or side <= most * (1 + 1e-9)]

    def waste(side: float) -> tuple[float, float, float]:
        room, boxes = np.floor(inner / side + 1e-9), np.ceil(parts / side - 1e-9)
        too_large = (np.sort(boxes, 1) > np.sort(room)).any(1) @ quantities
        usable = (room * side).prod() / inner.prod()
        return float(too_large), -round(usable, 6), float((boxes * side).prod(1) @ quantities)

    return min(min(sides, key=waste, default=0.0), float(inner.min()))
