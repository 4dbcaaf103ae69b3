"""Containers as users name them: a size with a number, a cost and a weight limit.

They are read from texts such as ``1200x800x1450mm,number=2,cost=30``, from tables, and from Python.
A pallet states its deck and its overhang, ``1200x800x1594mm,deck=144mm,overhang=20mm``. A container
for air freight states the edges that are cut off.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from packing_env.constraints import Constraints
from packing_env.names import close_names, plain_name
from packing_env.planner.reading.lengths import (
    ExactSize,
    exact,
    exact_container,
    exact_lengths,
    metres,
)
from packing_env.planner.reading.orders import ORDER_SUFFIXES, read_entries, typed
from packing_env.planner.reading.tables import Columns, OrderError, split_sheet
from packing_env.planner.reading.weights import read_weight
from packing_env.values import ParameterError, check_integer, check_number

OPTIONS = ("name", "number", "cost", "weight_limit", "deck", "overhang", "cut")
"""Keys that a container may state beside its size."""
_CUT = re.compile(r"([+-][xyz][+-][xyz])\s*[: ]\s*(.+)")
_NEXT_OPTION = re.compile(r",(?=[^,=]*=)")
_TABLE = Columns(
    ("containers",),
    ("dx", "dy", "dz", "sides", "unit", *OPTIONS),
    "number",
    f"needed: for each container its length, width and height, and perhaps {', '.join(OPTIONS)}",
    of_containers=True,
)


@dataclass(frozen=True)
class ContainerType:
    """Equal containers.

    Attributes:
        size: ``(X, Y, H)`` metres, exactly; given as ``"1200x800x1450mm"`` or as three lengths in
            metres.
        name: Name in plans; "" for none.
        number: How many containers there are; None means any number.
        cost: Cost of one container, in any currency.
        weight_limit: Kilograms that one container may carry, or a text such as ``"500 lb"``; None
            means the limit of the whole order, if any.
        unit: Unit of the size as the user stated it.
        deck: Height of a pallet's deck in metres, or as ``"144mm"``. The third length of ``size``
            includes it. Boxes stand on the deck; a pallet has no walls.
        overhang: How far boxes may reach over the edges of the deck along x and y, on each side:
            one length for both axes, or two (``"20x10mm"``).
        cut: Edges that are cut off, each a :data:`packing_env.constraints.Cut` or a text. ``"-x-z
            400x450mm"`` cuts 400 mm off the floor at the wall x = 0, and 450 mm off that wall.
            ``/`` separates several cuts.

    Raises:
        ParameterError: A value is wrong; the message names it and a correct example.
    """

    size: Any
    name: str = ""
    number: int | None = None
    cost: float | None = None
    weight_limit: Any = None
    unit: str = "m"
    deck: Any = 0.0
    overhang: Any = 0.0
    cut: Any = ()

    def __post_init__(self) -> None:
        size, unit = exact_container(self.size)
        unit = self.unit if unit == "m" else unit
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "unit", unit)
        object.__setattr__(self, "name", plain_name(self.name))
        if self.number is not None:
            check_integer("number", self.number, 1)
        if self.cost is not None and check_number("cost", self.cost) < 0:
            raise ParameterError(f"cost={self.cost!r} must not be negative")
        if self.weight_limit is not None:
            limit = read_weight("weight_limit", self.weight_limit)
            object.__setattr__(self, "weight_limit", check_number("weight_limit", limit, above=0.0))
        (deck,), over = self._lengths("deck", self.deck), self._lengths("overhang", self.overhang)
        object.__setattr__(self, "deck", deck)
        object.__setattr__(self, "overhang", (over[0], over[-1]))
        object.__setattr__(self, "cut", self._cuts())
        if deck >= size[2]:
            raise ParameterError(
                f"deck={float(deck):g} m leaves no room: the height of {float(size[2]):g} m "
                "includes the deck; give a larger height"
            )

    def _lengths(self, name: str, value: Any) -> list[Fraction]:
        """Return lengths in metres; a text without a unit is in the unit of the size."""
        if isinstance(value, str):
            text = f"{value}{self.unit}" if value.strip()[-1:].isdigit() else value
            count = 2 if name == "cut" or (name == "overhang" and "x" in text.lower()) else 1
            lengths, _ = exact_lengths(name, text, count, "400x450mm" if count == 2 else "20mm")
        else:
            lengths = [exact(each) for each in (value if isinstance(value, Sequence) else [value])]
        if len(lengths) > 2 or min(lengths) < 0:
            raise ParameterError(f"{name}={value!r} must be lengths of 0 or more")
        return lengths

    def _cuts(self) -> tuple[tuple[str, Fraction, Fraction], ...]:
        cuts = self.cut
        if isinstance(cuts, str):
            pieces = [(piece, _CUT.fullmatch(piece.strip())) for piece in cuts.split("/")]
            wrong = next((piece for piece, match in pieces if match is None), None)
            if wrong is not None:
                raise ParameterError(
                    f"cut={wrong!r} must be an edge and two lengths, as in '-x-z 400x450mm': the "
                    "two walls that meet there, and the length cut off along the axis of each"
                )
            cuts = [(match[1], *self._lengths("cut", match[2])) for _, match in pieces if match]
        plain = [(edge, *map(float, lengths)) for edge, *lengths in cuts]
        read = Constraints(cut=tuple(plain)).cut  # raises if an entry is wrong
        return tuple((edge, exact(one), exact(other)) for edge, one, other in read)

    def constraints(self, order: Constraints) -> Constraints:
        """Return the constraints that apply in this container: its own, and those of the order.

        A pallet has no walls unless the order states a clearance to walls. Positions of pre-placed
        boxes are measured from the corner of the deck.
        """
        own: dict[str, Any] = {}
        if self.weight_limit is not None:
            own["weight_limit"] = float(self.weight_limit)
        if self.cut:
            own["cut"] = tuple((edge, float(a), float(b)) for edge, a, b in self.cut)
        if (self.deck or any(self.overhang)) and order.wall_clearance is None:
            own["wall_clearance"] = 0.0
        if any(self.overhang):
            x, y = self.overhang
            own["overhang"] = float(x), float(y)
            own["preplaced"] = tuple(
                (float(exact(box[0]) + x), float(exact(box[1]) + y), *box[2:])
                for box in order.preplaced
            )
        return replace(order, **own) if own else order

    @property
    def room(self) -> ExactSize:
        """``(X, Y, H)`` of the room for a load, metres: above the deck, including the overhang."""
        x, y, height = self.size
        over_x, over_y = self.overhang
        return x + 2 * over_x, y + 2 * over_y, height - self.deck

    @property
    def label(self) -> str:
        """The name, or the size."""
        sides = " x ".join(f"{float(side / metres(self.unit)):.6g}" for side in self.size)
        return self.name or f"{sides} {self.unit}"

    @property
    def volume(self) -> Fraction:
        """Volume of the room without the cut edges, m^3."""
        room = dict(zip("xyz", self.room, strict=True))
        whole = math.prod(self.room, start=Fraction(1))
        wedges = [a * b / room[edge[1]] / room[edge[3]] / 2 for edge, a, b in self.cut]
        return whole * (1 - sum(wedges))


Containers = (
    str | ContainerType | Sequence[float | Fraction] | Iterable[str | ContainerType | Sequence[Any]]
)
"""Containers in any form that :func:`read_containers` accepts."""


def read_containers(containers: Containers) -> list[ContainerType]:
    """Read the containers to choose from; drop repetitions of a container without a number.

    Args:
        containers: ``"1200x800x1450mm"``, perhaps with ``,number=2,cost=30,weight_limit=500kg,
            name=EUR``; a table (CSV, XLSX, YAML, JSON) with these columns; ``(X, Y, H)`` metres; a
            :class:`ContainerType`; or a list of these.

    Raises:
        ParameterError: A container is wrong; the message names it and the remedy.
        OrderError: A table is wrong; the message names the place.
    """
    several: Iterable[Any] = [containers]
    if not isinstance(containers, (str, ContainerType)):
        entries = list(containers)
        kinds = (str, Sequence, ContainerType)
        nested = entries and all(isinstance(e, kinds) or getattr(e, "ndim", 0) for e in entries)
        several = entries if nested else [entries]
    types = [kind for each in several for kind in _read(each)]
    distinct: dict[Any, ContainerType] = {}
    for place, kind in enumerate(types):
        distinct.setdefault(kind if kind.number is None else place, kind)
    return list(distinct.values())


def container_limit(types: Sequence[ContainerType], limit: int | None) -> int:
    """Return how many containers may be used.

    By default all containers may be used, or 1 if some type states no number.

    Raises:
        ParameterError: The number is less than 1.
    """
    numbers = [kind.number for kind in types if kind.number is not None]
    if limit is None:
        return sum(numbers) if len(numbers) == len(types) else 1
    return check_integer("containers", limit, 1)


def check_costs(types: Sequence[ContainerType]) -> None:
    """Raise if a container has no cost, because costs cannot be compared then.

    Raises:
        ParameterError: The message names the containers without a cost.
    """
    lacking = [kind.label for kind in types if kind.cost is None]
    if lacking:
        raise ParameterError(
            f"choose='cheapest': no cost is given for {', '.join(lacking)}; state it, as in "
            "1200x800x1450mm,cost=30"
        )


def _read(container: Any) -> list[ContainerType]:
    if isinstance(container, ContainerType):
        return [container]
    if not isinstance(container, str):
        return [ContainerType(container)]
    path, sheet = split_sheet(container)
    if path.suffix.lower() in ORDER_SUFFIXES:
        entries, unit = read_entries(path, sheet, _TABLE)
        return [_of_entry(f"{path}, {e.place}", {"unit": unit} | dict(e.values)) for e in entries]
    size, *pieces = _NEXT_OPTION.split(container)
    values: dict[str, Any] = {}
    for piece in pieces:
        key, _, value = (word.strip() for word in piece.partition("="))
        if key not in OPTIONS:
            hint = close_names(key, OPTIONS)
            raise ParameterError(
                f"container={container!r}: {key!r} is unknown{hint}; known: {', '.join(OPTIONS)}"
            )
        if key in values:
            raise ParameterError(f"container={container!r}: {key} is given twice; keep one")
        try:
            values[key] = typed(key, value)
        except ValueError as error:
            raise ParameterError(f"container={container!r}: {error}") from error
    return [ContainerType(size, **values)]


def _of_entry(place: str, values: dict[str, Any]) -> ContainerType:
    """Return the container that an entry of a table describes.

    Raises:
        OrderError: The entry states no unit, or a value is wrong.
    """
    unit = values.pop("unit")
    if unit is None:
        raise OrderError(f"{place}: the sides have no unit; name the columns as in 'length (mm)'")
    x, y, height = (side * metres(unit) for side in values.pop("sides"))
    try:
        return ContainerType((x, y, height), unit=unit, **values)
    except ParameterError as error:
        raise OrderError(f"{place}: {error}") from error
