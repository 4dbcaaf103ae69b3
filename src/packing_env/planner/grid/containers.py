"""Containers with the grid of cells that the planner lays on their floor."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from packing_env.constraints import CELL_MARGIN, Constraints
from packing_env.planner.reading.containers import ContainerType
from packing_env.planner.reading.lengths import (
    ExactSize,
    common_unit,
)
from packing_env.types import PackingParams, ParameterError

_LOGGER = logging.getLogger(__name__)

Size = tuple[float, float, float]
"""``(X, Y, H)`` metres."""
_CELLS = range(48, 65)
"""Cells along the longer side of the floor."""
_WHOLE_CELLS = range(24, 101)
"""Cells along the longer side of the floor, if the cells divide all sides of boxes."""


def choose_cell(sizes: Sequence[ExactSize], boxes: Sequence[ExactSize] = ()) -> float:
    """Return the side of a cell, metres.

    The cell divides the sides of all boxes and floors, if such a cell exists and is not too small.
    Otherwise, 48 to 64 cells lie along the longer side of the first floor. Of these numbers, the
    one that leaves the smallest shares of the floors' sides uncovered is chosen.
    """
    longest = max(sizes[0][:2])
    if boxes:
        floors = [side for size in sizes for side in size[:2]]
        whole = longest / common_unit([*floors, *(side for box in boxes for side in box)])
        counts = [int(whole) * k for k in range(1, _WHOLE_CELLS.stop)]
        if affordable := [count for count in counts if count in _WHOLE_CELLS]:
            fine = [count for count in affordable if count < _CELLS.stop]
            return float(longest / (max(fine) if fine else affordable[0]))

    def left_over(count: int) -> float:
        cells = [float(side * count / longest) for size in sizes for side in size[:2]]
        return round(sum(1 - math.floor(each + CELL_MARGIN) / each for each in cells), 6)

    cell = float(longest / min(_CELLS, key=left_over))
    if boxes:
        _LOGGER.warning(
            "sides of boxes are rounded up to whole cells of %.4g mm; less room is lost if --cell "
            "divides the sides or is smaller",
            1e3 * cell,
        )
    return cell


@dataclass(frozen=True)
class Container:
    """A container as the user named it, and the task on the whole cells of its floor.

    Attributes:
        type: The container as the user named it.
        size: ``(X, Y, H)`` metres.
        constraints: Constraints that apply in ``size``.
        params: The task. Its floor is the floor of ``size`` rounded down to whole cells. Every
            placement that the task allows is also allowed in ``size``.
    """

    type: ContainerType
    size: Size
    constraints: Constraints
    params: PackingParams


def lay_grid(
    container: ContainerType, cell: float, constraints: Any = None, **options: Any
) -> Container:
    """Return a container with its task; log if whole cells do not cover its floor.

    Raises:
        ParameterError: The cell is larger than the floor, or a constraint cannot be satisfied.
    """
    # 1. The largest whole number of cells that fits along each side.
    x, y, height = container.room
    size = float(x), float(y), float(height)
    rules = Constraints.read(constraints or {})
    rules.check_task(size, "maps")  # its messages state the size that the user named
    length, width = (math.floor(side / cell + CELL_MARGIN) * cell for side in size[:2])
    if not length or not width:
        raise ParameterError(
            f"cell={1e3 * cell:g} mm is larger than the container, "
            f"{' x '.join(f'{1e3 * side:.6g}' for side in size)} mm; give a smaller cell"
        )
    floor = (length, width, size[2])
    # 2. Whole cells cover the floor: the constraints apply as they are.
    if _is_covered(size, floor, cell):
        task = PackingParams(floor, cell, constraints=rules, **options)
        return Container(container, size, rules, task)
    # 3. Otherwise a rim stays empty, and the constraints are converted to the smaller floor.
    unconstrained = PackingParams(floor, cell, **options)
    cover = _cover(size, unconstrained)
    _LOGGER.warning("%s; another cell may cover more", cover)
    try:
        task = unconstrained.evolve(constraints=_on_cells(rules, size, floor))
        return Container(container, size, rules, task)
    except ParameterError as error:
        raise ParameterError(f"{error}; {cover}: give a smaller cell") from error


def _is_covered(size: Size, floor: Size, cell: float) -> bool:
    return all(side - cells <= CELL_MARGIN * cell for side, cells in zip(size, floor, strict=True))


def _on_cells(rules: Constraints, size: Size, floor: Size) -> Constraints:
    """Return constraints on whole cells that are as strict as the constraints in the container.

    Pre-placed boxes end where the cells end. The middle of the cells is off the middle of the
    container, so the allowed distance of the centre of mass is smaller on the cells.

    Raises:
        ParameterError: No load on the cells can be balanced.
    """
    boxes = []
    for x, y, z, dx, dy, dz in rules.preplaced:
        if x < floor[0] and y < floor[1]:
            boxes.append((x, y, z, min(dx, floor[0] - x), min(dy, floor[1] - y), dz))
    share = rules.balance
    if share is not None:
        pairs = zip(size[:2], floor[:2], strict=True)
        share = min((share * side - (side - cells) / 2) / cells for side, cells in pairs) - 1e-9
        if share < 0:
            raise ParameterError(
                f"constraints.balance={rules.balance:g} is too small: the middle of the cells is "
                "further from the middle of the container; use a larger balance or another cell"
            )
    return replace(rules, preplaced=tuple(boxes), balance=share)


def _cover(size: Size, params: PackingParams) -> str:
    lengths = (params.cell, *params.container[:2], *size[:2])
    text = "cells of {:.4g} mm cover {:.4g} x {:.4g} mm of the floor, {:.4g} x {:.4g} mm"
    return text.format(*(1e3 * length for length in lengths))
