"""The side of the voxels of a nest, if the user names none."""

from __future__ import annotations

import itertools
import logging
import math
import operator
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from packing_env.constraints import Constraints
from packing_env.nesting.levels import Array
from packing_env.planner.reading.containers import ContainerType
from packing_env.planner.reading.lengths import common_unit, exact
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

    Boxes that are only turned by 90 degrees need no smaller voxels than those that divide their
    sides. For other parts there are about `VOXELS` voxels, which then divide the sides of the
    boxes, or suit those of the container and the parts. Boxes with stated sides come first; meshes
    of boxes may have any sides.
    """
    # 1. The lengths that the voxels should divide, for the boxes that fit.
    gap, walls = exact(rules.clearance or 0), exact(rules.walls)
    inner = [side - 2 * walls + gap for side in kind.size]
    sides = [[side + gap for side in part.exact_sides] for part in order]
    fits = [all(map(operator.le, sorted(each), sorted(inner))) for each in sides]
    stated = [fit and part.sides is not None for part, fit in zip(order, fits, strict=True)]
    quantities = np.array([part.quantity for part in order])
    share = 1.0 if any(stated) else min(1.0, seconds / SECONDS)
    voxels = max(VOXELS * share, LEAST_VOXELS)
    free = _free_cell(np.array(inner, float), np.array(sides, float), quantities, voxels)
    is_box = [part.is_box for part in order]
    volume, common, edges = math.prod(inner), Fraction(0), list[Fraction]()
    for box in rules.preplaced:
        low = [exact(place) - walls for place in box[:3]]
        edges += low + [one + exact(side) + gap for one, side in zip(low, box[3:], strict=True)]
    boxes = [fit and box for fit, box in zip(fits, is_box, strict=True)]
    for chosen in (boxes, stated):
        if not any(chosen):
            return free
        lengths = [*edges, *itertools.chain(*itertools.compress(sides, chosen))]
        common = common_unit(lengths)
        # 2. Boxes alone: the largest voxels.
        if chosen is boxes and all(is_box) and yaw is None and volume <= _most(VOXELS) * common**3:
            return float(common)
        # 3. Other parts, too: voxels that divide the lengths, but no larger ones than without them.
        folds = [
            (side, int((_most(voxels) * float(side**3 / volume)) ** (1 / 3)))
            for side in (common_unit([*lengths, *inner]), common)
        ]
        divided = min((float(side / fold) for side, fold in folds if fold), default=math.inf)
        if divided <= free:
            return divided
    remedy = ""
    if volume <= MAX_VOXELS * common**3:
        cell = f"--cell {1e3 * float(common):.6g}mm"
        remedy = f"; {cell} divides them, but the search then takes more time"
    _LOGGER.warning("sides of boxes are rounded up to whole voxels%s", remedy)
    return free


def _most(voxels: float) -> float:
    return voxels / _RANGE[0] ** 3


def _free_cell(inner: Array, parts: Array, quantities: Array, voxels: float) -> float:
    """Return a voxel side that gives about ``voxels`` voxels and wastes little room.

    The bounding boxes of the parts, ``[N, 3]``, still fit when they are rounded up to whole voxels.
    Then as little as possible is lost of the container, which is rounded down, and of the boxes.
    """
    about = float((inner.prod() / voxels) ** (1 / 3))
    sides = [
        length / count
        for length in inner
        for count in range(
            math.ceil(length / about / _RANGE[1]), int(length / about / _RANGE[0]) + 1
        )
    ]

    def waste(side: float) -> tuple[float, float, float]:
        room, boxes = np.floor(inner / side + 1e-9), np.ceil(parts / side - 1e-9)
        too_large = (np.sort(boxes, 1) > np.sort(room)).any(1) @ quantities
        usable = (room * side).prod() / inner.prod()
        return float(too_large), -round(usable, 6), float((boxes * side).prod(1) @ quantities)

    return min(min([about, *sides], key=waste), float(inner.min()))
