"""Containers as users name them: a size, and what it costs, carries, and how many there are.

They are read from texts such as ``1200x800x1450mm,number=2,cost=30``, from tables, and from Python.
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
from packing_env.planner.lengths import exact_container, metres
from packing_env.planner.orders import ORDER_SUFFIXES, read_entries, typed
from packing_env.planner.tables import Columns, OrderError, split_sheet
from packing_env.values import ParameterError, check_integer, check_number

OPTIONS = ("name", "number", "cost", "weight_limit")
"""What a container may state beside its size."""
_NEXT_OPTION = re.compile(r",(?=[^,=]*=)")
_TABLE = Columns(
    "containers",
    ("dx", "dy", "dz", "sides", "unit", *OPTIONS),
    "number",
    f"needed: for each container its length, width and height, and perhaps {', '.join(OPTIONS)}",
)


@dataclass(frozen=True)
class ContainerType:
    """Equal containers.

    Attributes:
        size: ``(X, Y, H)`` metres, exactly; given as ``"1200x800x1450mm"`` or as three lengths in
            metres.
        name: Of the size, for plans; "" for none.
        number: How many there are; None: any number.
        cost: Of one of them, in any currency.
        weight_limit: Kilograms that one may carry; None: that of the whole order, if any.
        unit: The unit that the size was given in.

    Raises:
        ParameterError: A value is wrong; names it and a right one.
    """

    size: Any
    name: str = ""
    number: int | None = None
    cost: float | None = None
    weight_limit: float | None = None
    unit: str = "m"

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
            check_number("weight_limit", self.weight_limit, above=0.0)

    def constraints(self, order: Constraints) -> Constraints:
        """Return the constraints that hold in it: those of the order, or its own."""
        if self.weight_limit is None:
            return order
        return replace(order, weight_limit=float(self.weight_limit))

    @property
    def label(self) -> str:
        """The name, or the size."""
        sides = " x ".join(f"{float(side / metres(self.unit)):.6g}" for side in self.size)
        return self.name or f"{sides} {self.unit}"

    @property
    def volume(self) -> Fraction:
        """Cubic metres."""
        return math.prod(self.size, start=Fraction(1))


Containers = (
    str | ContainerType | Sequence[float | Fraction] | Iterable[str | ContainerType | Sequence[Any]]
)
"""Containers as :func:`read_containers` takes them."""


def read_containers(containers: Containers) -> list[ContainerType]:
    """Read the containers to choose from; equal ones without a number are read once.

    Args:
        containers: ``"1200x800x1450mm"``, perhaps with ``,number=2,cost=30,weight_limit=500kg,
            name=EUR``; a table (CSV, XLSX, YAML, JSON) with these columns; ``(X, Y, H)`` metres; a
            :class:`ContainerType`; or a list of these.

    Raises:
        ParameterError: A container is wrong; names it and the remedy.
        OrderError: A table is wrong; names the place.
    """
    several: Iterable[Any] = [containers]
    if not isinstance(containers, (str, ContainerType)):
        entries = list(containers)
        nested = entries and all(isinstance(e, (str, Sequence, ContainerType)) for e in entries)
        several = entries if nested else [entries]
    types = [kind for each in several for kind in _read(each)]
    distinct: dict[Any, ContainerType] = {}
    for place, kind in enumerate(types):
        distinct.setdefault(kind if kind.number is None else place, kind)
    return list(distinct.values())


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
        except OrderError as error:
            raise ParameterError(f"container={container!r}: {error}") from error
    return [ContainerType(size, **values)]


def _of_entry(place: str, values: dict[str, Any]) -> ContainerType:
    """Return the container of an entry of a table.

    Raises:
        OrderError: It states no unit, or a value is wrong.
    """
    unit = values.pop("unit")
    if unit is None:
        raise OrderError(f"{place}: no unit of the sides; name the columns as in 'length (mm)'")
    x, y, height = (side * metres(unit) for side in values.pop("sides"))
    try:
        return ContainerType((x, y, height), unit=unit, **values)
    except ParameterError as error:
        raise OrderError(f"{place}: {error}") from error
