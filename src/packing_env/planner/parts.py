"""The parts of an order: mesh files and boxes with quantities, from folders, lists and files.

An order file is CSV (commas, semicolons or tabs) with a header, or YAML or JSON: a list of entries,
or ``parts:`` beside ``unit:``. The keys of an entry are those of :data:`KEYS`; any other is refused
by name, so that a constraint that is not supported is never ignored. Weights are kilograms. CSV
without a header lists boxes: ``dx, dy, dz`` and perhaps the quantity.
"""

from __future__ import annotations

import csv
import io
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from packing_env import files
from packing_env.items import Mesh, load_mesh
from packing_env.items.handling import read_faces, read_handling
from packing_env.items.inputs import expand, item_names, numbered
from packing_env.items.meshes.load import FORMAT_UNITS
from packing_env.items.meshes.mesh import UNITS, MeshSource, mesh_from_arrays
from packing_env.items.shapes.solids import box
from packing_env.names import close_names
from packing_env.types import check_integer, check_number

_LOGGER = logging.getLogger("packing_env.planner")

HANDLING = ("weight", "max_load", "stackable", "no_stacking", "fragile", "group")
KEYS = (
    "name", "file", "dx", "dy", "dz", "sides", "quantity", "unit", *HANDLING, "faces", "upright",
)  # fmt: skip
"""Keys of an entry of an order: a ``file``, or the sides of a box; and how it is handled."""
_FLAGS = ("stackable", "no_stacking", "fragile", "upright")
_YES_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
ORDER_SUFFIXES = (".csv", ".yaml", ".yml", ".json")
MAX_QUANTITY = 100_000
_TIMES = re.compile(r"x(\d+)", re.IGNORECASE)


class OrderError(ValueError):
    """An order cannot be read; the message names the place and the remedy."""


@dataclass(frozen=True)
class Part:
    """A kind of part.

    Attributes:
        file: Mesh file, or "" for a box or a mesh in memory.
        sides: ``(dx, dy, dz)`` of a box, in ``unit``.
        mesh: A mesh in memory.
        quantity: How many; 0: none.
        name: A label; by default the stem of the file, or the sides.
        unit: Unit of the sides, or of the file unless it states its own (3MF, URDF).
        handling: ``weight`` and ``max_load`` in kilograms, ``stackable``, ``fragile``, ``group``:
            see :class:`packing_env.items.Handling`.
        faces: Faces that may be up, as in ``("+z", "-z")``; empty: all. ``("+z",)`` is upright.
    """

    file: str = ""
    sides: tuple[float, float, float] | None = None
    mesh: Mesh | None = None
    quantity: int = 1
    name: str = ""
    unit: str = "m"
    handling: Mapping[str, Any] = field(default_factory=dict)
    faces: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "handling", read_handling(self.handling))
        object.__setattr__(self, "faces", read_faces(self.faces))
        check_integer(f"quantity of {self.label}", self.quantity, 0, MAX_QUANTITY)
        if self.unit not in UNITS:
            raise OrderError(
                f"{self.label}: unit {self.unit!r} is unknown; use one of {', '.join(UNITS)}"
            )

    @property
    def label(self) -> str:
        """The name, or what stands for it."""
        if self.name or self.file:
            return self.name or Path(self.file).stem
        if self.mesh is not None:
            return self.mesh.name
        return "x".join(f"{side:g}" for side in self.sides or ())

    @property
    def source(self) -> dict[str, Any]:
        """Its origin as plans name it, except for what its solid states: file, unit and scale."""
        sides = {} if self.sides is None else {"source": "cuboid", "extent": list(self.sides)}
        return sides | ({"faces": list(self.faces)} if self.faces else {})

    def times(self, count: int) -> Part:
        """Return the part with its quantity multiplied: three kits have three times each part."""
        check_integer(f"quantity of {self.label}", count, 0, MAX_QUANTITY)
        return replace(self, quantity=self.quantity * count)

    def load(self) -> Mesh:
        """Return its solid in metres; never scaled but by its unit.

        Raises:
            MeshError: The file cannot be used; names it and the remedy.
        """
        if self.mesh is not None:
            return self.mesh
        if self.sides is None:
            return load_mesh(self.file, self.unit)
        dx, dy, dz = (side * UNITS[self.unit] for side in self.sides)
        solid = box(dx, dy, dz)
        source = MeshSource(unit=self.unit)
        return mesh_from_arrays(solid.vertices, solid.faces, name=self.label, source=source)


class _Unit(NamedTuple):
    """The unit that the user named, if any, and that of files whose format has none."""

    named: str | None
    default: str

    def of(self, file: str = "") -> str:
        """Return the unit of a file, or of a box."""
        return self.named or FORMAT_UNITS.get(Path(file).suffix.lower(), self.default)


Parts = str | Path | Part | Mesh | Iterable[str | Path | Part | Mesh] | Mapping[Any, int]
"""Parts as :func:`read_parts` takes them."""


def read_parts(parts: Parts, unit: str | None = None, *, default: str = "m") -> list[Part]:
    """Read an order.

    Args:
        parts: Folders, mesh files, order files, :class:`Part`, meshes, one or a list; a word such
            as ``x12`` after one multiplies its quantity, that of each part of a folder or an
            order. Or a mapping of these to such numbers.
        unit: Unit of files and boxes that state none; replaces the metres of GLB files too.
        default: That of boxes, and of files whose format has no unit, where ``unit`` is None.

    Returns:
        The kinds of parts, with different names; a line of log names those of quantity 0, which
        are left out.

    Raises:
        OrderError: No part is named, every quantity is 0, or an order file is wrong.
        CatalogueError: A folder has no mesh files.
    """
    units = _Unit(unit, default)
    if isinstance(parts, Mapping):
        read = [each.times(n) for p, n in parts.items() for each in _read(p, units)]
    elif isinstance(parts, (str, Path, Part, Mesh)):
        read = list(_read(parts, units))
    else:
        read = _with_counts(parts, units)
    if not read:
        raise OrderError("no parts given; name mesh files, a folder of them, or an order")
    order = [part for part in read if part.quantity]
    if len(order) < len(read):
        none = ", ".join(part.label for part in read if not part.quantity)
        if not order:
            raise OrderError(f"the quantity of every part is 0: {none}")
        _LOGGER.warning("quantity 0, left out: %s", none)
    names = numbered(_names(order))
    return [replace(part, name=name) for part, name in zip(order, names, strict=True)]


def _with_counts(parts: Iterable[str | Path | Part | Mesh], unit: _Unit) -> list[Part]:
    """Read a list in which ``x12`` multiplies the quantities of the entry before it."""
    read: list[Part] = []
    last: list[Part] = []  # of the entry before, to which a quantity may still follow
    for entry in parts:
        times = _TIMES.fullmatch(entry) if isinstance(entry, str) else None
        if times is None:
            read += last
            last = list(_read(entry, unit))
        elif not last:
            raise OrderError(f"{entry!r} is the quantity of nothing; write it once, after a part")
        else:
            read += [part.times(int(times[1])) for part in last]
            last = []
    return read + last


def _read(entry: str | Path | Part | Mesh, unit: _Unit) -> Iterator[Part]:
    if isinstance(entry, Part):
        yield entry
    elif isinstance(entry, Mesh):
        yield Part(mesh=entry)
    elif Path(entry).suffix.lower() in ORDER_SUFFIXES:
        yield from read_order(Path(entry), unit)
    else:
        for file in expand(entry):
            yield Part(file=str(file), unit=unit.of(str(file)))


def _names(parts: Sequence[Part]) -> list[str]:
    """Name files with the same stem by their folders too."""
    plain = [Path(part.file) for part in parts if part.file and not part.name]
    of_files = iter(item_names(plain))
    return [next(of_files) if part.file and not part.name else part.label for part in parts]


# ---------------------------------------------------------------------- order files


def read_order(path: Path, unit: _Unit) -> list[Part]:
    """Read an order file; files that it names lie beside it.

    Raises:
        OrderError: It is missing, or an entry is wrong; names the place.
    """
    try:
        text = files.read_text(path, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise OrderError(f"{path}: cannot be read: {files.reason(error)}") from error
    if path.suffix.lower() == ".csv":
        entries = list(_csv_entries(path, text))
    else:
        entries, unit = _yaml_entries(path, text, unit)
    if not entries:
        raise OrderError(f"{path}: no parts in it; {_needed()}")
    return [_part(path, place, entry, unit) for place, entry in entries]


def _csv_entries(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    reader = csv.reader(io.StringIO(text), delimiter=files.delimiter(text), skipinitialspace=True)
    lines = list(reader)
    if not lines:
        return
    header = [cell.strip().lower() for cell in lines[0]]
    plain = not any(isinstance(_number(cell), str) for cell in header if cell)
    if plain:
        header = ["dx", "dy", "dz", "quantity"]
    for number, cells in enumerate(lines[0 if plain else 1 :], 1 if plain else 2):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) > len(header):
            raise OrderError(
                f"{path}, line {number}: {len(cells)} columns under {len(header)} names; "
                f"{_needed()}"
            )
        named = zip(header, (cell.strip() for cell in cells), strict=False)
        yield f"line {number}", {key: cell for key, cell in named if key or cell}


def _yaml_entries(
    path: Path, text: str, unit: _Unit
) -> tuple[list[tuple[str, dict[str, Any]]], _Unit]:
    """Return places and entries of a YAML or JSON order, and its unit."""
    import yaml

    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise OrderError(f"{path}: cannot be read as YAML: {error}") from error
    if isinstance(value, Mapping):
        for key in value:
            if key not in ("parts", "unit"):
                raise _unsupported(path, "the order", str(key), ("parts", "unit"))
        if "unit" in value:
            unit = unit._replace(named=str(value["unit"]))
        value = value.get("parts")
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise OrderError(f"{path}: {_needed()}")
    return [(f"part {number}", dict(entry)) for number, entry in enumerate(value, 1)], unit


def _part(path: Path, place: str, entry: dict[str, Any], unit: _Unit) -> Part:
    for key in entry:
        if key not in KEYS:
            raise _unsupported(path, place, str(key), KEYS)
    try:
        given = {k: _typed(k, value) for k, value in entry.items() if value not in ("", None)}
        sides = given.get("sides") or [given[key] for key in ("dx", "dy", "dz") if key in given]
        if ("file" in given) == bool(sides) or (sides and len(sides) != 3):
            raise OrderError(_needed())
        return Part(
            file=str(path.parent / given["file"]) if "file" in given else "",
            sides=_sides(sides) if sides else None,
            quantity=given.get("quantity", 1),
            name=given.get("name", ""),
            unit=given.get("unit", unit.of(given.get("file", ""))),
            handling=_handling(given),
            faces=_faces(given),
        )
    except (TypeError, ValueError) as error:
        raise OrderError(f"{path}, {place}: {error}") from error


def _typed(key: str, value: Any) -> Any:
    """Convert a value of an entry; numbers and yes or no may be text, as in a CSV."""
    if key in ("name", "file", "unit"):
        return str(value)
    if key in _FLAGS:
        flag = _YES_NO.get(str(value).strip().lower())
        if flag is None:
            raise OrderError(f"{key}={value!r} must be true or false")
        return flag
    if key == "sides":
        return [_number(side) for side in value]
    return value if key == "faces" else _number(value)


def _number(value: Any) -> Any:
    """Return a number, or a text that is one, as a number; anything else as it is."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return value
    if isinstance(value, bool):
        return value
    return int(number) if number.is_integer() else number


def _handling(given: Mapping[str, Any]) -> dict[str, Any]:
    handling = {key: given[key] for key in HANDLING if key in given}
    if "no_stacking" in handling:
        handling["stackable"] = not handling.pop("no_stacking")
    return handling


def _faces(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the faces of an entry that may be up; empty for all."""
    if given.get("upright") and "faces" in given:
        raise OrderError("give faces or upright, not both; upright is faces: +z")
    return ("+z",) if given.get("upright") else read_faces(given.get("faces", ()))


def _sides(sides: Sequence[Any]) -> tuple[float, float, float]:
    dx, dy, dz = (check_number("side", side, above=0.0) for side in sides)
    return dx, dy, dz


def _unsupported(path: Path, place: str, key: str, known: Sequence[str]) -> OrderError:
    """Return the error for a key that has no effect here."""
    hint = close_names(key, known)
    return OrderError(f"{path}, {place}: {key!r} is not supported{hint}; known: {', '.join(known)}")


def _needed() -> str:
    return (
        "needed: for each part a file, or the sides dx, dy, dz of a box, and perhaps "
        "name, quantity, unit, weight, max_load, no_stacking, fragile, group, faces, upright"
    )
