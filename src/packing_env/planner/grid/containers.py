"""Containers with the grid of cells that the planner lays on their floor."""

from __future__ import annotations

import itertools
import logging
import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packing_env.constraints import CELL_MARGIN, Constraints
from packing_env.items import MeshError
from packing_env.planner.fit import allowed_orientations
from packing_env.planner.reading.containers import ContainerType
from packing_env.planner.reading.lengths import (
    ExactSize,
    common_unit,
)
from packing_env.planner.reading.parts import Part
from packing_env.types import PackingParams, ParameterError

_LOGGER = logging.getLogger(__name__)

Size = tuple[float, float, float]
"""``(X, Y, H)`` metres."""
Array = NDArray[np.float64]
_CELLS = range(48, 65)
"""Cells along the longer side of the floor."""
_WHOLE_CELLS = range(24, 101)
"""Cells along the longer side of the floor, if the cells divide all sides of boxes, or if equal
parts need less room with them.
"""
_FINE_CELLS = 300
"""Most cells along the longer side of the floor, if equal parts need less room with them."""
_SPARED = 1.05
"""Finer cells are not worth their time if equal parts need at most so much more room without."""
_MOST_WORK = 5e7
"""Most parts in a container, times the cells of its floor, for which cells become finer."""
_SHARE = 0.1
"""Smallest share of an order's volume for which equal parts affect the cells."""

_Equal = Sequence[tuple[Sequence[ExactSize], int]]
"""Kinds of equal parts: the sides along x, y and z in all turns, and the quantity."""


def choose_cell(
    sizes: Sequence[ExactSize],
    boxes: Sequence[ExactSize] = (),
    parts: Sequence[Part] = (),
    gaps: tuple[float, float] = (0.0, 0.0),
) -> float:
    """Return the side of a cell, metres.

    The cell divides the sides of all boxes and floors, if such a cell exists and is not too small.
    Otherwise, 48 to 64 cells lie along the longer side of the first floor, or up to 100 if equal
    parts need less room with them. Of the possible cells, one is chosen with which equal parts side
    by side need the least room, and which then leaves the smallest shares of the floors' sides
    uncovered. Up to 300 smaller cells take their place if equal parts fill clearly fewer containers
    with them, unless there are boxes with dividing cells, or very many parts.

    Args:
        sizes: Containers.
        boxes: Boxes whose sides the cell should divide.
        parts: The order.
        gaps: Clearances to walls and between parts, metres.
    """
    longest, equal = max(sizes[0][:2]), _equal_parts(parts)
    fine = _fine_cells(longest, equal)
    cells, divided = fine[fine * (_WHOLE_CELLS.stop - 0.5) > float(longest)], list[int]()
    if boxes:
        floors = [side for size in sizes for side in size[:2]]
        whole = longest / common_unit([*floors, *(side for box in boxes for side in box)])
        counts = [int(whole) * k for k in range(1, _WHOLE_CELLS.stop)]
        divided = [count for count in counts if count in _WHOLE_CELLS]
        # The largest number below the limit comes first, and then the smallest one above it.
        divided.sort(key=lambda count: (count >= _CELLS.stop, abs(count - _CELLS.stop)))
        cells = np.array([float(longest / count) for count in divided]) if divided else cells

    def lost(place: int) -> tuple[float, bool, float]:
        sides = [float(side) / cells[place] for size in sizes for side in size[:2]]
        uncovered = sum(1 - math.floor(side + CELL_MARGIN) / side for side in sides)
        is_fine = float(longest) > (_CELLS.stop - 0.5) * cells[place]
        return needed[place], is_fine, round(uncovered, 6)

    needed = _room_needed(cells, sizes, equal, gaps)
    best = min(range(len(cells)), key=lost)
    cell = float(cells[best])
    # Finer cells, only if they save room that the order needs.
    finely = _room_needed(fine, sizes, equal, gaps)
    enough = max(1.0, _SPARED * float(finely.min()))
    if enough < needed[best]:
        finer = float(fine[finely <= enough].max())
        together = sum(part.quantity for part in parts) / enough
        if not divided and together * float(sizes[0][0] * sizes[0][1]) / finer**2 <= _MOST_WORK:
            cell = finer
        else:
            _LOGGER.warning(
                "cells of %.4g mm leave room for fewer equal parts, because sides and clearances "
                "are rounded up; --cell %.9gmm leaves room for more, but the search takes more "
                "time",
                1e3 * cell,
                1e3 * finer,
            )
    if boxes and not divided:
        _LOGGER.warning(
            "sides of boxes are rounded up to whole cells of %.4g mm; less room is lost if --cell "
            "divides the sides or is smaller",
            1e3 * cell,
        )
    return cell


def _equal_parts(parts: Sequence[Part]) -> _Equal:
    """Return the kinds of equal parts that take a large share of the order's volume."""
    kinds = Counter[tuple[ExactSize, ...]]()
    for part in parts:
        with suppress(MeshError):  # loading the solids reports it
            kinds[tuple(allowed_orientations(part, part.exact_sides))] += part.quantity
    volumes = {kind: math.prod(kind[0]) * quantity for kind, quantity in kinds.items()}
    least = _SHARE * float(sum(volumes.values()))
    return [(k, n) for k, n in kinds.items() if n > 1 and volumes[k] >= least]


def _fine_cells(longest: Fraction, equal: _Equal) -> Array:
    """Return cells that divide a side of the floor, then cells that divide sides of equal parts."""
    cells = [float(longest / count) for count in range(_CELLS.start, _FINE_CELLS + 1)]
    sides = {side: None for kind, _ in equal for turned in kind for side in turned}
    for side in (side for side in sides if side <= longest):
        first, last = (float(side / longest * count) for count in (_CELLS.start, _FINE_CELLS))
        cells += [float(side / count) for count in range(math.ceil(first), int(last) + 1)]
    return np.array(cells)


def _room_needed(
    cells: Array, sizes: Sequence[ExactSize], equal: _Equal, gaps: tuple[float, float]
) -> Array:
    """Return for each cell how many containers equal parts fill side by side, all turned alike."""
    needed = np.zeros(len(cells))
    wall, gap = (np.ceil(length / cells - CELL_MARGIN) for length in gaps)
    for size, (kind, quantity) in itertools.product(sizes, equal):
        most = np.full(len(cells), 0.5)  # parts without room count as more than a container each
        for turned in kind:
            layers = math.floor(float(size[2] / turned[2]) + CELL_MARGIN)
            number = np.full(len(cells), float(layers))
            for room, side in zip(size[:2], turned[:2], strict=True):
                free = np.floor(float(room) / cells + CELL_MARGIN) - 2 * wall + gap
                taken = np.ceil(float(side) / cells - CELL_MARGIN).clip(1) + gap
                number *= np.maximum(0, free // taken)
            most = np.maximum(most, number)
        needed += quantity / most / len(sizes)
    return needed.round(6)


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
