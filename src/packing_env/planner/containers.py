"""Containers as users name them, and the grid of cells that the planner lays into them."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from typing import Any

from packing_env.items.meshes.mesh import UNITS
from packing_env.types import PackingParams, ParameterError, check_container, check_number

_LOGGER = logging.getLogger(__name__)

Size = tuple[float, float, float]
"""``(X, Y, H)`` metres."""
_TEXT = re.compile(r"([\d.]+)x([\d.]+)x([\d.]+)\s*([a-z]*)", re.IGNORECASE)
_LENGTH = re.compile(r"([\d.]+)\s*([a-z]*)", re.IGNORECASE)
_CELLS = range(48, 65)
"""Cells along the longer side of the floor."""
_LARGEST = 100.0
"""Metres above which a container is taken for a mistake in units."""


def read_container(container: Any) -> tuple[Size, str]:
    """Read ``240x180x150mm``, or three lengths in metres; return metres and the unit.

    Raises:
        ParameterError: It is neither, or longer than 100 m.
    """
    unit = "m"
    if isinstance(container, str):
        found = _TEXT.fullmatch(container.strip())
        if found is None:
            raise ParameterError(
                f"container={container!r} must be three lengths and a unit, as in 240x180x150mm"
            )
        *sides, unit = found.groups()
        unit = _unit(container, unit)
        container = [_number("container", side) * UNITS[unit] for side in sides]
    size = check_container(container)
    if max(size) > _LARGEST:
        raise ParameterError(
            f"container={container!r} is {max(size):g} m long; lengths without a unit are metres: "
            "write 240x180x150mm for millimetres"
        )
    return size, unit


def read_box(box: Any) -> Any:
    """Read ``50x40x20mm@0,0,10``, sides and the lower corner in the same unit; pass others on.

    Raises:
        ParameterError: The text is not of that form.
    """
    if not isinstance(box, str):
        return box
    size, _, corner = box.partition("@")
    places = corner.split(",")
    if len(places) != 3:
        raise ParameterError(
            f"preplaced={box!r} must be sides, a unit and a lower corner, as in 50x40x20mm@0,0,10"
        )
    sides, unit = read_container(size)
    return (*(_number("preplaced", place) * UNITS[unit] for place in places), *sides)


def read_length(name: str, length: Any) -> float:
    """Read ``5mm``, or a number of metres.

    Raises:
        ParameterError: It is neither, or not positive.
    """
    if isinstance(length, str):
        found = _LENGTH.fullmatch(length.strip())
        if found is None:
            raise ParameterError(f"{name}={length!r} must be a length and a unit, as in 5mm")
        length = _number(name, found[1]) * UNITS[_unit(length, found[2])]
    return check_number(name, length, above=0.0)


def _unit(text: str, unit: str) -> str:
    if unit.lower() not in UNITS:
        raise ParameterError(
            f"{text!r} needs a unit, one of {', '.join(UNITS)}; for example {text}mm"
        )
    return unit.lower()


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ParameterError(f"{name}: {text!r} is not a number") from None


def choose_cell(sizes: Sequence[Size]) -> float:
    """Return the side of a cell: 48 to 64 along the first floor, with the least left over."""
    longest = max(sizes[0][:2])

    def left_over(count: int) -> float:
        cells = [side * count / longest for size in sizes for side in size[:2]]
        return round(sum(1 - math.floor(each + 1e-6) / each for each in cells), 6)

    return longest / min(_CELLS, key=left_over)


def lay_grid(size: Size, cell: float, **options: Any) -> PackingParams:
    """Return the task of a container, its floor rounded down to whole cells.

    Raises:
        ParameterError: The cell is larger than the floor.
    """
    x, y = (math.floor(side / cell + 1e-6) * cell for side in size[:2])
    if not x or not y:
        raise ParameterError(f"cell={cell:g} m is larger than the container, {_metres(size)}")
    if min(x - size[0], y - size[1]) < -1e-6 * cell:
        covered = tuple(1e3 * length for length in (cell, x, y, *size[:2]))
        text = "cells of %.4g mm cover %.4g x %.4g mm of the floor, %.4g x %.4g mm"
        _LOGGER.warning(f"{text}; another cell may cover more", *covered)
    return PackingParams(container=(x, y, size[2]), cell=cell, **options)


def _metres(size: Sequence[float]) -> str:
    return " x ".join(f"{side:g}" for side in size) + " m"
