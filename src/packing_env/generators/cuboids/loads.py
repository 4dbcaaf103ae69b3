"""Instances of cuboids from files, and values with their position in a file."""

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
"""Largest number of items of an instance, and largest count; items are listed individually."""


@dataclass(frozen=True)
class Kind:
    """Identical cuboids.

    Attributes:
        sides: (dx, dy, dz) in the unit of the load.
        upright: Three flags: whether each side may stand vertically.
        count: Number of the cuboids.
        name: Name of the cuboids, if the file gives one.
    """

    sides: Sides
    upright: Flags = ANY_SIDE
    count: int = 1
    name: str | None = None


@dataclass(frozen=True)
class Load:
    """One instance of a file.

    Attributes:
        name: Name of the instance, or its index.
        kinds: The cuboids.
        group: Name of the class of instances to which it belongs.
        container: (X, Y, H) in the unit of the load; ``None`` unless the file gives exactly one
            container.
        unit: Name in ``items.meshes.mesh.UNITS``; ``None`` for abstract units.
        arrival: Index of the kind of each item, in arrival order; ``None`` if the file gives no
            order.
        remark: Names the parts of the file's problem that cuboids and a container cannot express.
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
        """Number of items of the load."""
        return sum(kind.count for kind in self.kinds)


@dataclass(frozen=True)
class Value:
    """A value in a file, together with its position for error messages."""

    file: Path
    place: str
    value: Any

    def error(self, needed: str) -> SequenceError:
        """Return an error that says which value is needed here."""
        value = repr(self.value)
        value = value if len(value) < 80 else f"{value[:76]} ..."
        return SequenceError(
            f"{self.file}: {self.place or 'the file'} is {value}; needed: {needed}"
        )

    def of(self, value: Any) -> Value:
        """Return a part of the value, or its parsed form, with the same position."""
        return Value(self.file, self.place, value)

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
        is_number = isinstance(self.value, (int, float)) and not isinstance(self.value, bool)
        if not is_number or not 0 < self.value <= sys.float_info.max:
            raise self.error("a positive number")
        return float(self.value)

    def sides(self) -> Sides:
        """Return three lengths."""
        if not isinstance(self.value, list) or len(self.value) != 3:
            raise self.error("three positive numbers (dx, dy, dz)")
        dx, dy, dz = (entry.number() for entry in self.entries())
        return dx, dy, dz

    def flags(self) -> Flags:
        """Return three flags; raise if none is True."""
        flags = self.value if isinstance(self.value, list) else []
        if len(flags) != 3 or any(flag not in (0, 1) for flag in flags) or not any(flags):
            raise self.error("three flags 0 or 1, at least one of them 1")
        return bool(flags[0]), bool(flags[1]), bool(flags[2])

    def count(self, at_least: int = 1) -> int:
        """Return a whole number of at most :data:`MAX_ITEMS`."""
        is_whole = isinstance(self.value, int) and not isinstance(self.value, bool)
        if not is_whole or self.value < at_least:
            raise self.error(f"a whole number, {at_least} or more")
        if self.value > MAX_ITEMS:
            raise self.error(f"a count of at most {MAX_ITEMS}")
        return int(self.value)

    def text(self) -> str:
        """Return a text; a whole number is converted."""
        if isinstance(self.value, bool) or not isinstance(self.value, (str, int)):
            raise self.error("a text")
        return str(self.value)
