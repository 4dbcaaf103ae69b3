"""The specification of the constraints on heightmaps.

A :class:`MapCase` is an item at rest on the heightmap. Each rule returns the reason why the item
may not be there, or "".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from packing_env.reference.constraints import (
    Case,
    Load,
    fragile,
    max_load,
    no_stacking,
    reasons,
    weight_limit,
)
from packing_env.reference.maps import FLOAT

SLACK = 1e-6
"""Metres; a neighbour may rise above an item's lower surface by this much without counting as
beside it.
"""


@dataclass
class MapLoad(Load):
    """The packed items of a container, and which of them was placed last over each cell.

    Attributes:
        owner: ``[X, Y]`` index of the last item over each cell; -1 if there is none.
        floor: Length and width of the container, cells. A plan's container may be longer than its
            whole cells by a fraction of a cell.
        moment: Sum over the items of :attr:`MapCase.moment`.
    """

    owner: np.ndarray
    floor: tuple[float, float]
    moment: tuple[float, float] = field(default=(0, 0), init=False)

    def put(self, case: Case) -> None:
        """Add an item."""
        assert isinstance(case, MapCase)
        self.moment = case.total_moment
        super().put(case)
        for u, v in case.footprint():
            self.owner[case.x + u, case.y + v] = len(self.items) - 1


@dataclass
class MapCase(Case):
    """An item at rest in a container, together with the container before the item was placed.

    Attributes:
        heightmap: ``[X, Y]`` metres.
        bottom: ``[U, V]`` its lower surface, metres; +inf outside the footprint.
        com: Its centre of mass, 1/64 cell from the window's corner.
        x: Lower corner of its window, cells.
        y: The same along Y.
        z: Rest height, metres.
        support: Cells of the window that support it.
    """

    load: MapLoad
    heightmap: np.ndarray
    bottom: np.ndarray
    com: tuple[int, int]
    x: int
    y: int
    z: np.float32
    support: list[tuple[int, int]]

    def footprint(self) -> list[tuple[int, int]]:
        """Return the cells of the footprint, counted from the window's corner."""
        return [(int(u), int(v)) for u, v in np.argwhere(np.isfinite(self.bottom))]

    def owners(self, cells: list[tuple[int, int]]) -> set[int]:
        """Return the packed items that are topmost in any of these cells of the window."""
        return {int(self.load.owner[self.x + u, self.y + v]) for u, v in cells} - {-1}

    @cached_property
    def on(self) -> set[int]:
        """Packed items on which the item rests: the topmost in its supporting cells."""
        return self.owners(self.support)

    @property
    def total_moment(self) -> tuple[float, float]:
        """Moment of all items, this one included, along x and y.

        The moment of an item is twice its weight times the distance of its centre of mass from the
        middle of the container, in 1/64 cell. Moments are whole numbers if the floor has whole
        cells.
        """
        (length, width), (x, y), weight = self.load.floor, self.load.moment, self.handling.weight
        return (
            x + weight * (2 * (64 * self.x + self.com[0]) - 64 * length),
            y + weight * (2 * (64 * self.y + self.com[1]) - 64 * width),
        )

    def beside(self) -> tuple[int, int] | None:
        """Return a cell that is too near to the side of the item, or None.

        Such a cell is within the clearance of a footprint cell, and the heightmap there is above
        the item's lower surface in this footprint cell.
        """
        gap, most = self.load.rules.clearance, FLOAT(self.z + FLOAT(SLACK))
        length, width = self.heightmap.shape
        for u, v in self.footprint():
            for i in range(max(0, self.x + u - gap), min(length, self.x + u + gap + 1)):
                for j in range(max(0, self.y + v - gap), min(width, self.y + v + gap + 1)):
                    if not FLOAT(self.heightmap[i, j] - self.bottom[u, v]) <= most:
                        return i, j
        return None


# ------------------------------------------------------------------ pre-placed boxes


def start(grid: tuple[int, int], cell: float, boxes: Sequence[tuple[float, ...]]) -> np.ndarray:
    """Return the heightmap ``[X, Y]`` of an empty container with pre-placed boxes.

    A cell that a box overlaps has the height of the box's top. An overlap of less than 1e-6 of a
    cell is ignored.
    """
    heightmap = np.zeros(grid, FLOAT)
    for x, y, z, dx, dy, dz in boxes:
        first = math.floor(x / cell + 1e-6), math.floor(y / cell + 1e-6)
        last = math.ceil((x + dx) / cell - 1e-6), math.ceil((y + dy) / cell - 1e-6)
        window = heightmap[first[0] : last[0], first[1] : last[1]]
        np.maximum(window, FLOAT(level_of(z + dz, cell)), out=window)
    return heightmap


def level_of(height: float, cell: float) -> float:
    """Return a height, rounded to a whole number of cells if it is within 1e-6 of a cell of one."""
    cells = round(height / cell)
    return cells * cell if abs(height / cell - cells) <= 1e-6 else height


def starts_of_stacks(boxes: Sequence[tuple[float, ...]], cell: float) -> list[float]:
    """Return the heights, modulo the cell, at which stacks of whole-cell cuboids may start.

    They are 0 for the floor, and the height of each pre-placed box's top modulo the cell. Heights
    that differ by less than 1e-6 of a cell count as equal.
    """
    starts = [0.0]
    for box in boxes:
        top = level_of(box[2] + box[5], cell)
        start = top - math.floor(top / cell + 1e-6) * cell
        if all(abs(start - other) > 1e-6 * cell for other in starts):
            starts.append(start)
    return starts


# ------------------------------------------------------------------ the rules


def lifo(case: MapCase) -> str:
    """Name an item below this one that is unloaded before it, or return ""."""
    for i in sorted(case.owners(case.footprint())):
        group = case.load.items[i].handling.group
        if group < case.handling.group:
            return (
                f"it is of group {case.handling.group} and above item {i} of group {group}, which "
                "is unloaded first"
            )
    return ""


def balance(case: MapCase) -> str:
    """Return how far the centre of mass would be from the middle, or ""."""
    share, total = case.load.rules.balance, case.load.weight + case.handling.weight
    assert share is not None
    for axis, name in enumerate(("length", "width")):
        moment = case.total_moment[axis]
        half = 128.0 * case.load.floor[axis]
        if not float(abs(moment)) <= share * half * float(total):
            off = abs(moment) / (half * total)
            return f"the centre of mass is {off:.1%} of the container's {name} off the middle"
    return ""


def clearance(case: MapCase) -> str:
    """Return where something rises too close to the item, or ""."""
    cell = case.beside()
    return "" if cell is None else f"something rises beside it in cell {cell}"


def wall_clearance(case: MapCase) -> str:
    """Return the distance to a wall that is too close, or ""."""
    least = case.load.rules.walls
    length, width = case.heightmap.shape
    cells = [(case.x + u, case.y + v) for u, v in case.footprint()]
    gap = min(min(i, j, length - 1 - i, width - 1 - j) for i, j in cells)
    return "" if gap >= least else f"it is {gap} cells from a wall, not {least}"


def broken(case: MapCase) -> dict[str, str]:
    """Return the constraints that a placement violates, each with the reason."""
    rules = case.load.rules
    return reasons(
        case,
        {
            no_stacking: rules.no_stacking,
            max_load: rules.max_load,
            fragile: rules.fragile is not None,
            lifo: rules.lifo,
            weight_limit: rules.weight_limit is not None,
            balance: rules.balance is not None,
            clearance: rules.clearance > 0,
            wall_clearance: rules.walls > 0,
        },
    )
