"""Warning about parts whose size suits the container only if they are in another unit."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from packing_env.planner.reading.lengths import exact, metres
from packing_env.values import UNITS

_LOGGER = logging.getLogger("packing_env.planner")

_TOO_LONG = 8
"""Factor between the longest sides of parts and container that suggests a mistake in units."""
_LITTLE = Fraction(1, 100)
"""Share of the container; an order that takes less may be in a larger unit."""


def check_stated(path: Path, boxes: Sequence[tuple[str, bool]], unit: str) -> None:
    """Log a line if some boxes of a file, given as (label, whether it lacks a unit), lack one."""
    lacking = [label for label, lacks in boxes if lacks]
    if 0 < len(lacking) < len(boxes):
        _LOGGER.warning(
            "%s: some boxes state a unit and others, such as %s, none; these are read in %s",
            path, ", ".join(lacking[:8]), unit,
        )  # fmt: skip


class Size(NamedTuple):
    """A kind of part: the label, the number of pieces, the sides of the bounding box in metres."""

    label: str
    quantity: int
    sides: tuple[Fraction, Fraction, Fraction]


def check_scale(parts: Sequence[Size], unit: str, container: Sequence[float | Fraction]) -> None:
    """Log a line if parts without a stated unit suit the container only in another unit.

    This is assumed in two cases: the parts take less than :data:`_LITTLE` of the container and
    would all fit in a larger unit, or the largest part is far too long for the container.
    """
    own = metres(unit)
    room = sorted(exact(side) / own for side in container)
    boxes = [sorted(side / own for side in part.sides) for part in parts]
    longest, largest = max(zip(boxes, parts, strict=True), key=lambda pair: pair[0][-1])
    volumes = [math.prod(box) * part.quantity for box, part in zip(boxes, parts, strict=True)]
    share = sum(volumes) / math.prod(room)

    def suits(other: str) -> bool:
        factor = metres(other) / own
        fitting = all(side * factor <= r for b in boxes for side, r in zip(b, room, strict=True))
        return factor > 1 and fitting and share * factor**3 <= 1

    if longest[-1] < room[-1] * _TOO_LONG and (share >= _LITTLE or not any(map(suits, UNITS))):
        return
    _LOGGER.warning(
        "no unit stated, read in %s, the container's unit: the largest part (%s) is %s %s, and "
        "the longest side of the container %g %s; if this is wrong, give --unit or a column unit",
        unit, largest.label, " x ".join(f"{float(side):.4g}" for side in reversed(longest)),
        unit, float(room[-1]), unit,
    )  # fmt: skip
