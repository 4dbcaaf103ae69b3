"""Instances of cuboids as files have them, and values of a file that know their place in it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packing_env.generators.sequence_file import SequenceError

Sides = tuple[float, float, float]
Flags = tuple[bool, bool, bool]
ANY_SIDE: Flags = (True, True, True)
Z_ONLY: Flags = (False, False, True)
MAX_ITEMS = 1_000_000
"""Most items of one instance, and the largest count; each item is listed one by one."""


@dataclass(frozen=True)
class Kind:
    """Cuboids that are alike.

    Attributes:
        sides: (dx, dy, dz) in the unit of the load.
        upright: Which of them may stand vertically.
        count: How many there are.
        name: Their name, if the file gives one.
    """

    sides: Sides
    upright: Flags = ANY_SIDE
    count: int = 1
    name: str | None = None


@dataclass(frozen=True)
class Load:
    """One instance of a file: cuboids that arrive in an order.

    Attributes:
        name: Its name, or its number.
        kinds: The cuboids.
        group: Name of the class of instances that it belongs to.
        container: (X, Y, H) in the unit of the load; ``None`` if the file gives no single one.
        unit: Name in ``items.mesh.UNITS``; ``None`` for abstract units.
        arrival: Kinds in the order in which they arrive; ``None`` if the file gives no order.
        remark: What its problem asks for that cuboids and a container cannot express.
    """

    name: str
    kinds: tuple[Kind, ...]
    group: str = ""
    container: Sides | None = None
    unit: str | None = None
    arrival: tuple[int, ...] | None = None
    remark: str = ""

    @property
    def num_items(self) -> int:
        """Items of the load."""
        return sum(kind.count for kind in self.kinds)


@dataclass(frozen=True)
class At:
    """A value of a file and where it stands, for errors that say so."""

    file: Path
    place: str
    value: Any

    def wrong(self, needed: str) -> SequenceError:
        """The error that something else is needed here."""
        found = repr(self.value)
        found = found if len(found) < 80 else f"{found[:76]} ..."
        return SequenceError(
            f"{self.file}: {self.place or 'the file'} is {found}; needed: {needed}"
        )

    def __contains__(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    def __getitem__(self, key: str) -> At:
        if not isinstance(self.value, dict):
            raise self.wrong("a JSON object")
        if key not in self.value:
            raise self.wrong(f"an object with the field {key!r}")
        return At(self.file, f"{self.place}.{key}".lstrip("."), self.value[key])

    def entries(self) -> list[At]:
        """The entries of a list that is not empty."""
        if not isinstance(self.value, list) or not self.value:
            raise self.wrong("a list with at least one entry")
        return [At(self.file, f"{self.place}[{i}]", v) for i, v in enumerate(self.value)]

    def number(self) -> float:
        """A positive finite number."""
        value = self.value
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not real or not 0 < value <= sys.float_info.max:
            raise self.wrong("a positive number")
        return float(value)

    def sides(self) -> Sides:
        """Three lengths."""
        if not isinstance(self.value, list) or len(self.value) != 3:
            raise self.wrong("three positive numbers (dx, dy, dz)")
        dx, dy, dz = (entry.number() for entry in self.entries())
        return dx, dy, dz

    def flags(self) -> Flags:
        """Three flags, one of them set."""
        given = self.value if isinstance(self.value, list) else []
        if len(given) != 3 or any(flag not in (0, 1) for flag in given) or not any(given):
            raise self.wrong("three flags 0 or 1, at least one of them 1")
        return bool(given[0]), bool(given[1]), bool(given[2])

    def count(self, at_least: int = 1) -> int:
        """A whole number up to :data:`MAX_ITEMS`."""
        number = self.value
        if isinstance(number, bool) or not isinstance(number, int) or number < at_least:
            raise self.wrong(f"a whole number, {at_least} or more")
        if number > MAX_ITEMS:
            raise self.wrong(f"a count of at most {MAX_ITEMS}")
        return number

    def text(self) -> str:
        """A text; numbers count as such."""
        if isinstance(self.value, bool) or not isinstance(self.value, (str, int)):
            raise self.wrong("a text")
        return str(self.value)
