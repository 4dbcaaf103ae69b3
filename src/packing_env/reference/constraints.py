"""The specification of the constraints, which apply in addition to geometry and stability.

Weights are whole milligrams, and lengths are whole cells where possible, so that sums are exact.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np

T = TypeVar("T", bound="Case")
UNLIMITED = 2**62
"""A limit that no load reaches, milligrams."""


def weight_in_mg(kilograms: float) -> int:
    """Return a weight in whole milligrams, rounded down; 0.01 mg is an error of the float."""
    return math.floor(kilograms * 1e6 + 0.01)


def limit_in_mg(kilograms: float) -> int:
    """Return a limit in whole milligrams, rounded up, so that 3 x 10 lb are within 30 lb."""
    return math.ceil(kilograms * 1e6 - 0.01)


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
        whole = {"weight": weight_in_mg, "max_load": limit_in_mg}
        return cls(**values | {n: read(values[n]) for n, read in whole.items() if n in values})


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
            weight_limit=None if limit is None else limit_in_mg(limit),
            balance=entries.get("balance"),
            clearance=cls.steps_of(gap, cell),
            walls=cls.steps_of(entries.get("wall_clearance", gap), cell),
            preplaced=[tuple(box) for box in entries.get("preplaced", [])],
        )

    @staticmethod
    def steps_of(gap: float, cell: float) -> int:
        """Return the cells that a gap needs, rounded up; an excess of 1e-6 cell is ignored."""
        return math.ceil(gap / cell - 1e-6)


@dataclass
class Resting:
    """A packed item.

    Attributes:
        name: Its name.
        handling: Its attributes.
        on: Indices of the packed items on which it rests directly.
        carried: Indices of the packed items that rest directly on it.
        borne: Weight of all items that rest on it, directly or through others, milligrams. It is
            only kept up to date if ``max_load`` applies.
    """

    name: str
    handling: Handling
    on: set[int]
    carried: set[int]
    borne: int = 0


@dataclass
class Load:
    """The packed items of a container.

    Attributes:
        rules: The constraints of the task.
        items: Packed items, in order.
        weight: Weight of all items, milligrams.
        first_fragile: The first fragile item.
    """

    rules: Constraints
    items: list[Resting] = field(default_factory=list, init=False)
    weight: int = field(default=0, init=False)
    first_fragile: int | None = field(default=None, init=False)

    def below(self, items: Iterable[int]) -> set[int]:
        """Return items, and everything that they rest on, directly or through others."""
        return self._reached(items, lambda item: item.on)

    def above(self, items: Iterable[int]) -> set[int]:
        """Return items, and everything that rests on them, directly or through others."""
        return self._reached(items, lambda item: item.carried)

    def _reached(self, items: Iterable[int], following: Callable[[Resting], set[int]]) -> set[int]:
        reached, waiting = set[int](), {*items}
        while waiting:
            reached |= waiting
            waiting = set[int]().union(*(following(self.items[i]) for i in waiting)) - reached
        return reached

    def put(self, case: Case) -> None:
        """Add an item."""
        new, borne = len(self.items), case.borne if self.rules.max_load else {}
        self.items.append(Resting(case.name, case.handling, {*case.on}, {*case.carried}))
        for i in case.on:
            self.items[i].carried.add(new)
        for i in case.carried:
            self.items[i].on.add(new)
        self.weight += case.handling.weight
        if case.handling.fragile and self.first_fragile is None:
            self.first_fragile = new
        for i, weight in borne.items():
            self.items[i].borne = weight


@dataclass
class Case(ABC):
    """An item in its place, together with the load before the item was placed.

    Attributes:
        load: What is packed.
        name: Name of the item.
        handling: Its attributes.
    """

    load: Load
    name: str
    handling: Handling

    @property
    @abstractmethod
    def on(self) -> set[int]:
        """Packed items on which the item rests directly."""

    @property
    def carried(self) -> set[int]:
        """Packed items that rest directly on the item, which was put in under them."""
        return set()

    @cached_property
    def below(self) -> set[int]:
        """Packed items on which the item rests, directly or through others."""
        return self.load.below(self.on)

    @cached_property
    def above(self) -> set[int]:
        """Packed items that rest on the item, directly or through others."""
        return self.load.above(self.carried)

    @cached_property
    def borne(self) -> dict[int, int]:
        """Milligrams that the item, and each item below it, bears with the item in its place."""
        items, new = self.load.items, len(self.load.items)
        borne = {i: items[i].borne + self.handling.weight for i in sorted(self.below)}
        borne[new] = sum(items[i].handling.weight for i in self.above)
        for i in self.above:  # it now also rests on the items below the new one; each counts once
            for j in self.below - self.load.below({i}):
                borne[j] += items[i].handling.weight
        return borne


# ------------------------------------------------------------------ rules about what rests on what


def no_stacking(case: Case) -> str:
    """Name an item that would carry another one but must not, or return ""."""
    for i in sorted(case.on):
        if not case.load.items[i].handling.stackable:
            return f"it rests on item {i}, on which nothing may be stacked"
    if case.carried and not case.handling.stackable:
        return f"item {min(case.carried)} rests on it, but nothing may be stacked on it"
    return ""


def max_load(case: Case) -> str:
    """Name the first item that would bear too much load, or return ""."""
    items = case.load.items
    for i, total in case.borne.items():
        limit = (items[i] if i < len(items) else case).handling.max_load
        if total > limit:
            return f"item {i} would bear {total / 1e6:g} kg, its limit is {limit / 1e6:g} kg"
    return ""


def fragile(case: Case) -> str:
    """Name a fragile item that would come before or under one that is not, or return ""."""
    load = case.load
    if load.rules.fragile == "last":
        late = load.first_fragile is not None and not case.handling.fragile
        return f"it comes after item {load.first_fragile}, which is fragile" if late else ""
    for i in sorted(case.on):
        if load.items[i].handling.fragile and not case.handling.fragile:
            return f"it rests on item {i}, which is fragile"
    for i in sorted(case.carried):
        if case.handling.fragile and not load.items[i].handling.fragile:
            return f"it is fragile, and item {i} rests on it"
    return ""


def weight_limit(case: Case) -> str:
    """Return the total weight if it exceeds the limit, or ""."""
    limit, total = case.load.rules.weight_limit, case.load.weight + case.handling.weight
    if limit is not None and total > limit:
        return f"{total / 1e6:g} kg in a container for {limit / 1e6:g} kg"
    return ""


def reasons(case: T, rules: dict[Callable[[T], str], bool]) -> dict[str, str]:
    """Return the rules that apply and are violated, by name, each with the reason."""
    reasons = {rule.__name__: rule(case) for rule, applies in rules.items() if applies}
    return {name: reason for name, reason in reasons.items() if reason}


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
    """Return the face that a rotation ``[3, 3]`` turns up (within 1e-6); None if no face is up."""
    for name, direction in FACES.items():
        if float((rotation @ np.array(direction))[2]) >= 1.0 - 1e-6:
            return name
    return None
