"""Instances of cuboids as files hold them, and file values with their place, for errors."""

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
"""Largest number of items of an instance, and largest count; items are listed one by one."""


@dataclass(frozen=True)
class Kind:
    """Identical cuboids.

    Attributes:
        sides: (dx, dy, dz) in the unit of the load.
        upright: Which of the sides may stand vertically.
        count: Number of the cuboids.
        name: Their name, if the file gives one.
    """

    sides: Sides
    upright: Flags = ANY_SIDE
    count: int = 1
    name: str | None = None


@dataclass(frozen=True)
class Load:
    """One instance of a file.

    Attributes:
        name: Its name, or its index.
        kinds: The cuboids.
        group: Name of the class of instances that it belongs to.
        container: (X, Y, H) in the unit of the load; ``None`` if the file gives no single one.
        unit: Name in ``items.meshes.mesh.UNITS``; ``None`` for abstract units.
        arrival: Index of the kind of each item, in arrival order; ``None`` if the file gives none.
        remark: Parts of the file's problem that cuboids and a container cannot express.
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
class Value:
    """A value in a file together with its place, for error messages."""

    file: Path
    place: str
    value: Any

    def error(self, needed: str) -> SequenceError:
        """Make the error that another value is needed here."""
        found = repr(self.value)
        found = found if len(found) < 80 else f"{found[:76]} ..."
        return SequenceError(
            f"{self.file}: {self.place or 'the file'} is {found}; needed: {needed}"
        )

    def __contains__(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    def __getitem__(self, key: str) -> Value:
        if not isinstance(self.value, dict):
            raise self.error("a JSON object")
        if key not in self.value:
            raise self.error(f"an object with the field {key!r}")
        return Value(self.file, f"{self.place}.{key}".lstrip("."), self.value[key])

    def entries(self) -> list[Value]:
        """Return the entries of a list; raise if it is empty."""
        if not isinstance(self.value, list) or not self.value:
            raise self.error("a list with at least one entry")
        return [Value(self.file, f"{self.place}[{i}]", v) for i, v in enumerate(self.value)]

    def number(self) -> float:
        """Return a positive finite number."""
        value = self.value
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not real or not 0 < value <= sys.float_info.max:
            raise self.error("a positive number")
        return float(value)

    def sides(self) -> Sides:
        """Return three lengths."""
        if not isinstance(self.value, list) or len(self.value) != 3:
            raise self.error("three positive numbers (dx, dy, dz)")
        dx, dy, dz = (entry.number() for entry in self.entries())
        return dx, dy, dz

    def flags(self) -> Flags:
        """Return three flags; raise if none is set."""
        given = self.value if isinstance(self.value, list) else []
        if len(given) != 3 or any(flag not in (0, 1) for flag in given) or not any(given):
            raise self.error("three flags 0 or 1, at least one of them 1")
        return bool(given[0]), bool(given[1]), bool(given[2])

    def count(self, at_least: int = 1) -> int:
        """Return a whole number of at most :data:`MAX_ITEMS`."""
        number = self.value
        if isinstance(number, bool) or not isinstance(number, int) or number < at_least:
            raise self.error(f"a whole number, {at_least} or more")
        if number > MAX_ITEMS:
            raise self.error(f"a count of at most {MAX_ITEMS}")
        return number

    def text(self) -> str:
        """Return a text, also of a whole number."""
        if isinstance(self.value, bool) or not isinstance(self.value, (str, int)):
            raise self.error("a text")
        return str(self.value)
