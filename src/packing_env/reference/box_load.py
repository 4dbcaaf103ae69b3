"""The packed boxes of an order with their handling, and the case of the next box.

A box *rests on* another box if the top of the other is at its base and their bases overlap with
positive area. With a door at the rear or at the side, a box may be put in under a packed box, which
then also rests on it. Lengths are whole units and weights whole milligrams, so all comparisons are
exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np

from packing_env.reference.boxes import Box, Meeting
from packing_env.reference.constraints import UNLIMITED, Case, Constraints, Load
from packing_env.reference.pile import Pile

ROUNDING = Fraction(1, 1_000_000)
"""Rounding error of a length, as a share of a unit, that is ignored."""


def units(length: float, unit: float) -> Fraction:
    """Return a length in units, exactly as its decimals state it."""
    return Fraction(str(length)) / Fraction(str(unit))


def rounded_up(length: Fraction) -> int:
    """Round a length up to whole units; ignore rounding errors."""
    return math.ceil(length - ROUNDING)


def snapped(length: Fraction) -> Fraction:
    """Return the nearest whole number if a length differs only by a rounding error."""
    whole = round(length)
    return Fraction(whole) if abs(length - whole) <= ROUNDING else length


def occupied(box: tuple[float, ...], unit: float) -> Box:
    """Return the box in whole units that contains a box ``(x, y, z, dx, dy, dz)`` in metres."""
    low = [units(length, unit) for length in box[:3]]
    high = [start + units(side, unit) for start, side in zip(low, box[3:], strict=True)]
    x0, y0, z0 = (math.floor(length + ROUNDING) for length in low)
    x1, y1, z1 = (rounded_up(length) for length in high)
    return x0, y0, z0, x1, y1, z1


@dataclass(frozen=True)
class Cut:
    """An edge of the container that a plane cuts off.

    Attributes:
        walls: The two walls that meet at the edge, each as its axis and True if it is the far wall.
        lengths: Lengths that the plane cuts off along these two axes, units.
    """

    walls: tuple[tuple[int, bool], tuple[int, bool]]
    lengths: tuple[Fraction, Fraction]

    @classmethod
    def of(cls, entry: Sequence[Any], unit: float) -> Cut:
        """Read a cut from the JSON of a plan, ``["+x-z", 0.3, 0.4]``, metres."""
        edge, one, other = entry
        first, second = (("xyz".index(w[1]), w[0] == "+") for w in (edge[:2], edge[2:]))
        return cls((first, second), (snapped(units(one, unit)), snapped(units(other, unit))))

    def takes(self, box: Box, container: tuple[int, int, int], clearance: int) -> bool:
        """Test if a box reaches beyond the plane.

        A box with distances u and v from the two walls stays inside iff ``u / a + v / b >= 1``,
        where a and b are the lengths. A clearance to walls counts along x and y.
        """
        distances = []
        for axis, far in self.walls:
            distance = container[axis] - box[3 + axis] if far else box[axis]
            distances.append(distance - (clearance if axis < 2 else 0))
        (u, v), (a, b) = distances, self.lengths
        return u * b + v * a < a * b


def way(box: Box, door: str, container: tuple[int, int, int]) -> Box:
    """Return the cuboid that a box sweeps between the door and its place, including the place."""
    x0, y0, z0, x1, y1, z1 = box
    length, width, height = container
    if door == "rear":
        return x0, y0, z0, max(x1, length), y1, z1
    if door == "side":
        return x0, y0, z0, x1, max(y1, width), z1
    return x0, y0, z0, x1, y1, max(z1, height)


@dataclass(frozen=True)
class Rules(Constraints):
    """The constraints of an order of boxes, with lengths in units.

    Least distances are rounded up to whole units. Distances between boxes are whole, so 2.5 units
    are kept iff 3 units are kept. The clearance applies between boxes whose height ranges overlap.
    With a door, ``lifo`` means that items of a smaller group can leave through the door past all
    larger groups.

    Attributes:
        occupied: The pre-placed boxes, rounded outwards to whole units.
        support: Least share of the base that is supported.
        door: ``"top"``, ``"rear"`` or ``"side"``.
        overhang: Widths of the strips without a floor, along the walls at both ends of x and of y,
            units.
        cuts: Edges that are cut off.
    """

    support: Fraction | None = None
    door: str = "top"
    overhang: tuple[int, int] = (0, 0)
    cuts: tuple[Cut, ...] = ()
    occupied: tuple[Box, ...] = ()

    @classmethod
    def of(cls, entries: Mapping[str, Any], unit: float) -> Self:
        """Read the rules from the JSON of a plan, in kilograms and metres."""
        along_x, along_y = entries.get("overhang", (0.0, 0.0))
        shares: dict[str, Any] = {
            k: Fraction(str(entries[k])) for k in ("balance", "support") if k in entries
        }
        return replace(
            super().of(entries, unit),
            **shares,
            door=entries.get("door", "top"),
            overhang=(cls.steps_of(along_x, unit), cls.steps_of(along_y, unit)),
            cuts=tuple(Cut.of(entry, unit) for entry in entries.get("cut", ())),
            occupied=tuple(occupied(box, unit) for box in entries.get("preplaced", ())),
        )

    @staticmethod
    def steps_of(gap: float, unit: float) -> int:
        """Return the whole units that a gap needs, rounded up."""
        return rounded_up(units(gap, unit))

    def pile(self, capacity: int, container: tuple[int, int, int]) -> Pile:
        """Return an empty pile in a container ``(X, Y, H)``.

        With an overhang there is no floor. The deck is a fixed box whose top is at 0.
        """
        x, y = self.overhang
        if not x and not y:
            return Pile(capacity, self.occupied)
        deck = (x, y, -1, container[0] - x, container[1] - y, 0)
        return Pile(capacity, (deck, *self.occupied), floor=False)


@dataclass
class BoxLoad(Load):
    """The packed items of a container.

    Attributes:
        rules: Rules of the plan.
        container: ``(X, Y, H)``, units.
        pile: Fixed and packed boxes.
        room: Per item the number of levels that may still be added on it, and the first item of the
            stack that sets this limit.
    """

    rules: Rules
    container: tuple[int, int, int]
    pile: Pile
    room: list[tuple[int, int]] = field(default_factory=list, init=False)

    def put(self, case: Case) -> None:
        """Add an item to the load; its box is added to the pile as well."""
        assert isinstance(case, BoxCase)
        self.room.append(case.rooms.pop(len(self.items)))
        for i, room in case.rooms.items():
            self.room[i] = room
        super().put(case)
        self.pile.put(case.meeting)


@dataclass
class BoxCase(Case):
    """A box in its place, added to the items packed before.

    Attributes:
        meeting: The box compared with the boxes of the pile.
    """

    load: BoxLoad
    meeting: Meeting

    @property
    def box(self) -> Box:
        """Its place."""
        return self.meeting.box

    @cached_property
    def on(self) -> set[int]:
        """Packed items on which the item rests."""
        return self._packed(self.meeting.supporting)

    @cached_property
    def carried(self) -> set[int]:
        """Packed items that rest directly on the item, which was put in under them."""
        return self._packed(self.meeting.carried)

    def _packed(self, boxes: np.ndarray) -> set[int]:
        """Return the packed items among boxes ``[F + N]`` of the pile."""
        return {*np.nonzero(boxes[self.load.pile.num_fixed :])[0].tolist()}

    @cached_property
    def rooms(self) -> dict[int, tuple[int, int]]:
        """:attr:`BoxLoad.room` of the item and of the items that rest on it."""
        items, new = self.load.items, len(self.load.items)
        rooms: dict[int, tuple[int, int]] = {}
        above = sorted(self.above, key=lambda i: self.load.pile.box(i)[2])
        for i in [new, *above]:  # supports come first
            on = self.on if i == new else items[i].on | ({new} if i in self.carried else set())
            layers = (self.handling if i == new else items[i].handling).layers
            stacks = [rooms[j] if j in rooms else self.load.room[j] for j in sorted(on)]
            own = UNLIMITED if layers is None else layers - 1
            rooms[i] = min([(own, i), *((room - 1, first) for room, first in stacks)])
        return rooms
