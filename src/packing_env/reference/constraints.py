"""The specification of the constraints, which apply in addition to geometry and stability.

Weights are whole milligrams, and lengths are whole cells where possible, so that sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Self

import numpy as np

from packing_env.reference.maps import FLOAT

SLACK = 1e-6
"""Metres; a neighbour may rise above an item's lower surface by this much without counting as
beside it.
"""
UNLIMITED = 2**62
"""A limit that no load reaches, milligrams."""


@dataclass(frozen=True)
class Handling:
    """The attributes of an item.

    Attributes:
        weight: Milligrams.
        max_load: Milligrams that may rest on it, directly or through other items.
        stackable: False if no item may rest on it.
        fragile: True if it is fragile.
        group: Order of unloading, smaller numbers first.
        layers: Boxes only: largest number of levels in a stack whose lowest level is this item.
        on_like: Boxes only: True if it rests only on the floor or on items of the same name.
        like: Boxes only: the name that counts for ``on_like``; "" means its own name.
    """

    weight: int = 0
    max_load: int = UNLIMITED
    stackable: bool = True
    fragile: bool = False
    group: int = 0
    layers: int | None = None
    on_like: bool = False
    like: str = ""

    @classmethod
    def of(cls, entries: Mapping[str, Any]) -> Handling:
        """Read the attributes from the JSON of a plan, which uses kilograms."""
        # Attributes that belong to no placement, or that are checked elsewhere.
        others = ("faces", "turn", "priority", "value", "together")
        values = {name: value for name, value in entries.items() if name not in others}
        kilograms = [name for name in ("weight", "max_load") if name in values]
        return cls(**values | {name: round(values[name] * 1_000_000) for name in kilograms})


@dataclass(frozen=True)
class Constraints:
    """The constraints of a task; a constraint that is False, None or empty does not apply.

    Attributes:
        no_stacking: Nothing rests on an item that is not stackable.
        max_load: Each item bears the whole weight of everything that rests on it, directly or
            through other items. This weight must not exceed its ``max_load``.
        fragile: "last": after a fragile item, only fragile items are packed. "top": only fragile
            items rest on a fragile item.
        lifo: No item is above an item of a smaller group.
        weight_limit: Largest total weight of all items, milligrams.
        balance: Largest distance of the common centre of mass from the middle, as a share of the
            container's length and width.
        clearance: Cells between neighbouring items.
        walls: Cells between items and walls.
        preplaced: Boxes ``(x, y, z, dx, dy, dz)`` that are in the container from the start, metres.
    """

    no_stacking: bool = False
    max_load: bool = False
    fragile: str | None = None
    lifo: bool = False
    weight_limit: int | None = None
    balance: float | Fraction | None = None
    clearance: int = 0
    walls: int = 0
    preplaced: Sequence[tuple[float, ...]] = ()

    @classmethod
    def of(cls, entries: Mapping[str, Any], cell: float) -> Self:
        """Read the constraints from the JSON of a plan, which uses kilograms and metres."""
        gap = entries.get("clearance", 0.0)
        limit = entries.get("weight_limit")
        return cls(
            no_stacking=entries.get("no_stacking", False),
            max_load=entries.get("max_load", False),
            fragile=entries.get("fragile"),
            lifo=entries.get("lifo", False),
            weight_limit=None if limit is None else round(limit * 1_000_000),
            balance=entries.get("balance"),
            clearance=cls.steps_of(gap, cell),
            walls=cls.steps_of(entries.get("wall_clearance", gap), cell),
            preplaced=[tuple(box) for box in entries.get("preplaced", [])],
        )

    @staticmethod
    def steps_of(gap: float, cell: float) -> int:
        """Return the whole cells that a gap needs, rounded up, without an excess of 1e-6 cell."""
        return math.ceil(gap / cell - 1e-6)


@dataclass
class Resting:
    """A packed item.

    Attributes:
        handling: Its attributes.
        on: Indices of the packed items on which it rests.
        moment: Twice its weight times the distance of its centre of mass from the middle of the
            container, along x and y, in 1/64 cell. These are whole numbers if the floor has whole
            cells.
    """

    handling: Handling
    on: set[int]
    moment: tuple[float, float]


@dataclass
class Load:
    """The packed items of a container, and which of them was placed last over each cell.

    Attributes:
        constraints: The constraints of the task.
        owner: ``[X, Y]`` index of the last item over each cell; -1 if there is none.
        floor: Length and width of the container, cells. A plan's container may be longer than its
            whole cells by a fraction of a cell.
        items: Packed items, in order.
    """

    constraints: Constraints
    owner: np.ndarray
    floor: tuple[float, float]
    items: list[Resting] = field(default_factory=list)

    def below(self, index: int) -> set[int]:
        """Return the items on which an item rests, directly or through others."""
        on = self.items[index].on
        return on.union(*(self.below(other) for other in on))

    def borne(self, index: int) -> int:
        """Return the weight that an item bears."""
        weights = [item.handling.weight for item in self.items]
        return sum(w for i, w in enumerate(weights) if index in self.below(i))


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
    """Return the fractions of a cell at which stacks of whole-cell cuboids may start.

    These are 0 for the floor and, for each pre-placed box, the height of its top minus whole cells.
    Heights that differ by less than 1e-6 of a cell count as equal.
    """
    starts = [0.0]
    for box in boxes:
        top = level_of(box[2] + box[5], cell)
        start = top - math.floor(top / cell + 1e-6) * cell
        if all(abs(start - other) > 1e-6 * cell for other in starts):
            starts.append(start)
    return starts


@dataclass
class Case:
    """An item at rest in a container, together with the container before the item was placed.

    Attributes:
        load: What is packed.
        heightmap: ``[X, Y]`` metres.
        handling: Attributes of the item.
        bottom: ``[U, V]`` its lower surface, metres; +inf outside the footprint.
        com: Its centre of mass, 1/64 cell from the window's corner.
        x: Lower corner of its window, cells.
        y: The same along Y.
        z: Rest height, metres.
        support: Cells of the window that support it.
    """

    load: Load
    heightmap: np.ndarray
    handling: Handling
    bottom: np.ndarray
    com: tuple[int, int]
    x: int
    y: int
    z: np.float32
    support: list[tuple[int, int]]

    def footprint(self) -> list[tuple[int, int]]:
        """Return the cells of the footprint, counted from the window's corner."""
        return [(int(u), int(v)) for u, v in np.argwhere(np.isfinite(self.bottom))]

    def owners(self, cells: list[tuple[int, int]]) -> list[int]:
        """Return the packed items that are topmost in some cell of the window."""
        return sorted({int(self.load.owner[self.x + u, self.y + v]) for u, v in cells} - {-1})

    def on(self) -> list[int]:
        """Return the packed items on which the item rests: the topmost in its supporting cells."""
        return self.owners(self.support)

    def total_weight(self) -> int:
        """Return the weight of all items, this one included."""
        packed = sum(item.handling.weight for item in self.load.items)
        return packed + self.handling.weight

    def moment(self) -> tuple[float, float]:
        """Return :attr:`Resting.moment` of the item."""
        length, width = self.load.floor
        weight = self.handling.weight
        return (
            weight * (2 * (64 * self.x + self.com[0]) - 64 * length),
            weight * (2 * (64 * self.y + self.com[1]) - 64 * width),
        )

    def beside(self) -> tuple[int, int] | None:
        """Return a cell that is too near to the side of the item, or None.

        Such a cell is within the clearance of a footprint cell, and the heightmap there is above
        the item's lower surface in this footprint cell.
        """
        gap, most = self.load.constraints.clearance, FLOAT(self.z + FLOAT(SLACK))
        length, width = self.heightmap.shape
        for u, v in self.footprint():
            for i in range(max(0, self.x + u - gap), min(length, self.x + u + gap + 1)):
                for j in range(max(0, self.y + v - gap), min(width, self.y + v + gap + 1)):
                    if not FLOAT(self.heightmap[i, j] - self.bottom[u, v]) <= most:
                        return i, j
        return None


# ------------------------------------------------------------------ the rules


def no_stacking(case: Case) -> str:
    """Return why no item may be stacked there, or ""."""
    for i in case.on():
        if not case.load.items[i].handling.stackable:
            return f"it rests on item {i}, on which no item may be stacked"
    return ""


def max_load(case: Case) -> str:
    """Return which item would bear too much load, or ""."""
    on = case.on()
    for i in sorted({*on}.union(*(case.load.below(i) for i in on))):
        total = case.load.borne(i) + case.handling.weight
        limit = case.load.items[i].handling.max_load
        if total > limit:
            return f"item {i} would bear {total / 1e6:g} kg, its limit is {limit / 1e6:g} kg"
    return ""


def fragile(case: Case) -> str:
    """Return which fragile item was packed before it, or is below it, or ""."""
    last = case.load.constraints.fragile == "last"
    if not case.handling.fragile:
        for i in range(len(case.load.items)) if last else case.on():
            if case.load.items[i].handling.fragile:
                return f"it {'comes after' if last else 'rests on'} item {i}, which is fragile"
    return ""


def lifo(case: Case) -> str:
    """Return which item below it is unloaded before it, or ""."""
    for i in case.owners(case.footprint()):
        group = case.load.items[i].handling.group
        if group < case.handling.group:
            return (
                f"its group {case.handling.group} is above item {i} of group {group}, which is "
                "unloaded before it"
            )
    return ""


def weight_limit(case: Case) -> str:
    """Return the total weight if it exceeds the limit, or ""."""
    limit = case.load.constraints.weight_limit
    total = case.total_weight()
    if limit is not None and total > limit:
        return f"{total / 1e6:g} kg in a container for {limit / 1e6:g} kg"
    return ""


def balance(case: Case) -> str:
    """Return how far the centre of mass would be from the middle, or ""."""
    share = case.load.constraints.balance
    assert share is not None
    total = case.total_weight()
    for axis, name in enumerate(("length", "width")):
        moment = sum(item.moment[axis] for item in case.load.items) + case.moment()[axis]
        half = 128.0 * case.load.floor[axis]
        if not float(abs(moment)) <= share * half * float(total):
            off = abs(moment) / (half * total)
            return f"the centre of mass is {off:.1%} of the container's {name} off the middle"
    return ""


def clearance(case: Case) -> str:
    """Return where something rises too close to the item, or ""."""
    cell = case.beside()
    return "" if cell is None else f"something rises beside it in cell {cell}"


def wall_clearance(case: Case) -> str:
    """Return the distance to a wall that is too close, or ""."""
    least = case.load.constraints.walls
    length, width = case.heightmap.shape
    cells = [(case.x + u, case.y + v) for u, v in case.footprint()]
    gap = min(min(i, j, length - 1 - i, width - 1 - j) for i, j in cells)
    return "" if gap >= least else f"it is {gap} cells from a wall, not {least}"


def broken(case: Case) -> dict[str, str]:
    """Return the constraints that a placement violates, each with the reason."""
    rules = case.load.constraints
    holds = {
        no_stacking: rules.no_stacking,
        max_load: rules.max_load,
        fragile: rules.fragile is not None,
        lifo: rules.lifo,
        weight_limit: rules.weight_limit is not None,
        balance: rules.balance is not None,
        clearance: rules.clearance > 0,
        wall_clearance: rules.walls > 0,
    }
    reasons = {rule.__name__: rule(case) for rule, active in holds.items() if active}
    return {name: reason for name, reason in reasons.items() if reason}


def put(case: Case) -> None:
    """Add the item to the container's load."""
    item = Resting(case.handling, set(case.on()), case.moment())
    for u, v in case.footprint():
        case.load.owner[case.x + u, case.y + v] = len(case.load.items)
    case.load.items.append(item)


# ------------------------------------------------------------------ faces

FACES = {
    "+x": (1.0, 0.0, 0.0),
    "-x": (-1.0, 0.0, 0.0),
    "+y": (0.0, 1.0, 0.0),
    "-y": (0.0, -1.0, 0.0),
    "+z": (0.0, 0.0, 1.0),
    "-z": (0.0, 0.0, -1.0),
}
"""Outward directions of an item's faces, in the frame of its file."""


def up_face(rotation: np.ndarray) -> str | None:
    """Return the face that a rotation ``[3, 3]`` turns up, to 1e-6; None if no face is up."""
    for name, direction in FACES.items():
        if float((rotation @ np.array(direction))[2]) >= 1.0 - 1e-6:
            return name
    return None
