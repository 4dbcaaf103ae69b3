"""The side of the voxels of a nest, if the user names none."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import numpy as np

from packing_env.constraints import Constraints
from packing_env.nesting.levels import Array
from packing_env.planner.reading.containers import ContainerType
from packing_env.planner.reading.lengths import common_unit, exact
from packing_env.planner.reading.parts import Part

_LOGGER = logging.getLogger("packing_env.planner")

VOXELS = 16_000_000
"""Largest number of voxels of a container."""


def default_cell(
    order: Sequence[Part], kind: ContainerType, rules: Constraints, yaw: float | None
) -> float:
    """Return the side of the voxels, in metres.

    It divides the sides of all boxes, if the voxels are not too small then. Boxes that are only
    turned by 90 degrees need no smaller voxels. For other parts the voxels are as small as `VOXELS`
    allows, and also divide the sides of the container if possible.
    """
    gap, walls = exact(rules.clearance or 0), exact(rules.walls)
    inner = [side - 2 * walls + gap for side in kind.size]
    boxes = [side + gap for part in order if part.sides for side in part.exact_sides]
    if not boxes:
        return _free_cell(np.array(inner, float))
    for box in rules.preplaced:
        low = [exact(place) - walls for place in box[:3]]
        boxes += low + [one + exact(side) + gap for one, side in zip(low, box[3:], strict=True)]
    coarse = all(part.sides for part in order) and yaw is None
    for lengths in [boxes] if coarse else [[*boxes, *inner], boxes]:
        side = common_unit(lengths)
        fold = int((VOXELS / float(math.prod(inner) / side**3)) ** (1 / 3))
        if fold:
            return float(side if coarse else side / fold)
    _LOGGER.warning(
        "sides of boxes are rounded up to whole voxels; less room is lost if --cell divides them"
    )
    return _free_cell(np.array(inner, float))


def _free_cell(inner: Array) -> float:
    """Return a voxel side that wastes little of the container and gives about `VOXELS` voxels."""
    about = float((inner.prod() / VOXELS) ** (1 / 3))
    sides = [
        length / count
        for length in inner
        for count in range(math.ceil(length / about / 1.1), int(length / about / 0.9) + 1)
    ]
    return min(
        [about, *sides],
        key=lambda side: inner.prod() - float((np.floor(inner / side + 1e-9) * side).prod()),
    )
