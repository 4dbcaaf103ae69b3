"""The parts of an order: mesh files and boxes with quantities, from folders, lists and files."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from packing_env.files import read_bytes, split_item
from packing_env.items import Mesh, MeshError, load_mesh
from packing_env.items.handling import read_faces, read_handling
from packing_env.items.inputs import expand, item_names, numbered
from packing_env.items.meshes.formats.threemf import BuildItem, build_items
from packing_env.items.meshes.load import FORMAT_UNITS
from packing_env.items.meshes.mesh import UNITS, MeshSource, mesh_from_arrays
from packing_env.items.meshes.primitives import box
from packing_env.items.meshes.surface import named
from packing_env.names import close_names
from packing_env.planner.reading.columns import WEIGHTS, check_matched, stated_columns
from packing_env.planner.reading.lengths import exact, measured, metres
from packing_env.planner.reading.orders import (
    ORDER,
    ORDER_SUFFIXES,
    TABLE_SUFFIXES,
    Entry,
    handling,
    read_entries,
)
from packing_env.planner.reading.scale import Size, check_scale, check_stated
from packing_env.planner.reading.tables import Columns, OrderError, split_count, split_sheet
from packing_env.planner.reading.weights import read_weight
from packing_env.values import check_integer, read_unit

_LOGGER = logging.getLogger("packing_env.planner")

MAX_QUANTITY = 100_000
COPY = " #"
"""Text between a label of parts that stay together and the number of the copy."""


@dataclass(frozen=True)
class Part:
    """A kind of part.

    Attributes:
        file: Mesh file, or "" for a box or a mesh in memory.
        sides: ``(dx, dy, dz)`` of a box, in ``unit``, as any numbers; they are stored exactly.
        mesh: A mesh in memory.
        quantity: Number of pieces; 0 leaves the part out.
        name: A label; by default the stem of the file, or the sides.
        unit: Unit of the sides, or of a file that states no unit (3MF and URDF state one).
        handling: ``weight`` and ``max_load`` in kilograms or as ``"2 lb"``, ``stackable``,
            ``fragile``, ``group``: see :class:`packing_env.items.Handling`.
        faces: Faces that may be up, as in ``("+z", "-z")``; empty: all. ``("+z",)`` is upright.
        kit: Name of the order or folder and the number after it (``kit.csv x3``), or None.
        turn: False if the part may not be turned about z: its length stays along x. If ``faces``
            allow it, the part may still be turned about x to lie on another side.
        assumed: True if nothing states the unit, so the container's unit is assumed.
    """

    file: str = ""
    sides: tuple[float | Fraction, float | Fraction, float | Fraction] | None = None
    mesh: Mesh | None = None
    quantity: int = 1
    name: str = ""
    unit: str = "m"
    handling: Mapping[str, Any] = field(default_factory=dict, hash=False)
    faces: tuple[str, ...] = ()
    kit: tuple[str, int] | None = None
    turn: bool = True
    assumed: bool = False

    def __post_init__(self) -> None:
        if bool(self.file) + (self.sides is not None) + isinstance(self.mesh, Mesh) != 1:
            raise OrderError(f"{self.name or 'a part'}: give one of file, sides and mesh (a Mesh)")
        if self.sides is not None:
            object.__setattr__(self, "sides", self._read_sides(self.sides))
        try:
            weights = {
                key: read_weight(key, value)
                for key, value in self.handling.items()
                if key in WEIGHTS and isinstance(value, str)
            }
            object.__setattr__(self, "handling", read_handling({**self.handling, **weights}))
            object.__setattr__(self, "faces", read_faces(self.faces))
            object.__setattr__(self, "unit", read_unit("unit", self.unit))
        except ValueError as error:
            raise OrderError(f"{self.label}: {error}") from error
        number = check_integer(f"quantity of {self.label}", self.quantity, 0, MAX_QUANTITY)
        object.__setattr__(self, "quantity", number)
        if not self.turn and self.faces and {face[1] for face in self.faces} == {"x"}:
            raise OrderError(
                f"{self.label}: 'turn: no' keeps its length along x, so faces="
                f"{' '.join(self.faces)} cannot be up; allow z or y"
            )

    def _read_sides(self, sides: Iterable[Any]) -> tuple[Fraction, Fraction, Fraction]:
        name = self.name or "a part"
        try:
            dx, dy, dz = (exact(side) for side in sides)
        except (TypeError, ValueError) as error:
            raise OrderError(f"{name}: sides={sides!r} must be three numbers: {error}") from None
        if min(dx, dy, dz) <= 0:
            raise OrderError(f"{name}: sides={sides!r} must be more than 0")
        return dx, dy, dz

    @property
    def label(self) -> str:
        """The name, or the stem of the file, or the sides."""
        if self.name or self.file:
            return self.name or Path(self.file).stem
        if self.mesh is not None:
            return self.mesh.name
        return "x".join(f"{float(side):g}" for side in self.sides or ())

    @property
    def source(self) -> dict[str, Any]:
        """Its origin as plans store it, without the entries of its solid (file, unit and scale)."""
        if self.sides is None:
            return self.poses
        sides = [int(side) if side == int(side) else float(side) for side in self.sides]
        return {"source": "cuboid", "extent": sides} | self.poses

    @property
    def poses(self) -> dict[str, Any]:
        """Its allowed orientations, as plans state them in the handling."""
        faces = {"faces": list(self.faces)} if self.faces else {}
        return faces | ({} if self.turn else {"turn": False})

    @property
    def is_box(self) -> bool:
        """True for a box, and for a mesh whose solid is its axis-aligned bounding box."""
        if self.sides is None:
            with suppress(MeshError):  # packing reports it
                return self.load().is_box
        return self.sides is not None

    @property
    def exact_sides(self) -> tuple[Fraction, Fraction, Fraction]:
        """The sides of its bounding box in metres; those of a mesh are rounded to 1e-12 m."""
        if self.sides is None:
            dx, dy, dz = map(measured, self.load().extents.tolist())
        else:
            dx, dy, dz = (exact(side) * metres(self.unit) for side in self.sides)
        return dx, dy, dz

    def times(self, count: int) -> Part:
        """Return the part with its quantity multiplied: three kits have three times each part."""
        check_integer(f"quantity of {self.label}", count, 0, MAX_QUANTITY)
        return replace(self, quantity=self.quantity * count)

    def load(self) -> Mesh:
        """Return its solid in metres; only the unit scales it.

        Raises:
            MeshError: The file cannot be used; the message names it and the remedy.
        """
        return self._solid

    @cached_property
    def _solid(self) -> Mesh:
        if self.mesh is not None:
            return self.mesh
        if self.sides is None:
            return load_mesh(self.file, self.unit)
        solid = box([float(side) * UNITS[self.unit] for side in self.sides])
        source = MeshSource(unit=self.unit)
        return mesh_from_arrays(solid.vertices, solid.faces, name=self.label, source=source)


class _Unit(NamedTuple):
    """The unit that the user named, if any; the default; columns; and the 3MF files read so far."""

    named: str | None
    default: str
    columns: Columns
    plates: dict[Path, list[BuildItem]]

    def of(self, file: str = "") -> str:
        """Return the unit of a file, or of a box."""
        return self.named or FORMAT_UNITS.get(Path(file).suffix.lower(), self.default)

    def is_assumed(self, file: str = "") -> bool:
        """Return whether neither the user nor the format states the unit."""
        return self.named is None and Path(file).suffix.lower() not in (*FORMAT_UNITS, ".3mf")

    def items(self, path: Path) -> list[BuildItem]:
        """Return the items of a 3MF file, which is read once; [] for others."""
        if path.suffix.lower() == ".3mf" and path not in self.plates:
            with named(path), suppress(OSError):  # reading the mesh reports it
                self.plates[path] = build_items(read_bytes(path))
        return self.plates.get(path, [])


Parts = str | Path | Part | Mesh | Iterable[str | Path | Part | Mesh] | Mapping[Any, int]
"""Parts in any form that :func:`read_parts` accepts."""


def read_parts(
    parts: Parts,
    unit: str | None = None,
    *,
    default: str = "m",
    container: Sequence[float | Fraction] = (),
    columns: Mapping[str, str] | None = None,
) -> list[Part]:
    """Read an order.

    Args:
        parts: A folder, mesh file, order file, :class:`Part` or mesh, or a list of these. A word
            such as ``x12`` multiplies the quantities of the entry before it, also of all parts of a
            folder or an order. A mapping of entries to such numbers is accepted, too.
        unit: Unit of files and boxes that state none; also replaces the metres of GLB files.
        default: Unit of boxes, and of files whose format has no unit, if ``unit`` is None.
        container: ``(X, Y, H)`` metres of the largest container. If parts without a unit are much
            smaller or larger, a log line says so.
        columns: Meanings of columns of order files, as in ``{"Weight/pc (kg)": "weight"}``; ``""``
            leaves a column out.

    Returns:
        The kinds of parts, with different names. Parts of quantity 0 are left out; a log line names
        them.

    Raises:
        OrderError: There is no part, every quantity is 0, an order file is wrong, or no order file
            has a column of ``columns``.
        CatalogueError: A folder has no mesh files.
    """
    stated = stated_columns(columns or {}, ORDER)
    units = _Unit(unit and read_unit("unit", unit), default, stated, {})
    if isinstance(parts, Mapping):
        read = [each.times(n) for p, n in parts.items() for each in _read(p, units)]
    elif isinstance(parts, (str, Path, Part, Mesh)) or not isinstance(parts, Iterable):
        read = _with_counts([parts], units)
    else:
        read = _with_counts(parts, units)
    if not read:
        raise OrderError("no parts given; name mesh files, a folder of them, or an order")
    check_matched(columns or {}, stated)
    order = [part for part in read if part.quantity]
    if len(order) < len(read):
        none = ", ".join(part.label for part in read if not part.quantity)
        if not order:
            raise OrderError(f"the quantity of every part is 0: {none}; give one of them 1 or more")
        _LOGGER.warning("quantity 0, left out: %s", none)
    order = with_names(order)
    sizes = []
    for part in order:
        if part.assumed and container:
            with suppress(MeshError):  # packing reports it
                sizes.append(Size(part.label, part.quantity, part.exact_sides))
    if sizes:
        check_scale(sizes, default, container)
    return order


def with_names(order: Sequence[Part]) -> list[Part]:
    """Return parts with different names: folders before equal stems of files, or numbers."""
    of_files = iter(item_names([Path(part.file) for part in order if part.file and not part.name]))
    names = [next(of_files) if part.file and not part.name else part.label for part in order]
    alike = {part.label for part in order if part.handling.get("on_like")}
    parts: list[Part] = []
    for part, name in zip(order, numbered(names), strict=True):
        # Boxes that rest only on boxes of the same name share the name before the number.
        like = {"like": part.label} if part.label in alike and name != part.label else {}
        parts.append(replace(part, name=name, handling={**part.handling, **like}))
    return parts


def repeated(parts: Sequence[Part], times: int) -> list[Part]:
    """Return an order several times; each copy has its own labels of parts that stay together."""
    copies: list[Part] = []
    pieces = Counter[str | None]()
    for part in parts:
        pieces[part.handling.get("together")] += part.quantity
    for part in parts:
        label = part.handling.get("together")
        if label is None or times < 2:
            copies.append(part.times(times))
        elif pieces[label] == 1:  # a single part stays together with no other
            handling = {key: value for key, value in part.handling.items() if key != "together"}
            copies.append(replace(part.times(times), handling=handling))
        else:
            each = ({"together": f"{label}{COPY}{number}"} for number in range(1, times + 1))
            copies += [replace(part, handling={**part.handling, **own}) for own in each]
    return copies


def _with_counts(parts: Iterable[str | Path | Part | Mesh], unit: _Unit) -> list[Part]:
    """Read a list in which ``x12`` multiplies the quantities of the entry before it."""
    read: list[Part] = []
    last: list[Part] = []  # the parts of the last entry; a quantity may follow
    name = ""
    for item in parts:
        entry, times = split_count(item) if isinstance(item, str) else (item, None)
        if not isinstance(entry, str) or entry:
            read += last
            last, name = list(_read(entry, unit)), str(entry)
        elif not last:
            raise OrderError(f"{item!r} is a quantity without a part; write it once, after a part")
        if times is not None:
            kit = (Path(name).name, times) if len(last) > 1 and times > 1 else None
            read += [replace(part, kit=kit) for part in repeated(last, times)]
            last = []
    return read + last


def _read(entry: str | Path | Part | Mesh, unit: _Unit) -> Iterator[Part]:
    if isinstance(entry, (Part, Mesh)):
        yield entry if isinstance(entry, Part) else Part(mesh=entry)
    elif not isinstance(entry, (str, Path)):
        raise OrderError(
            f"{entry!r} is not a part; write Part(sides=(4, 3, 2), unit='cm'), or for a mesh in "
            "memory packing_env.items.mesh_from_arrays(vertices, faces), in metres"
        )
    elif split_sheet(entry)[0].suffix.lower() in ORDER_SUFFIXES:
        path, sheet = split_sheet(entry)
        yield from read_order(path, unit, sheet)
    else:
        for file in expand(entry):
            yield from _of_file(str(file), unit)


def _of_file(file: str, unit: _Unit) -> Iterator[Part]:
    """Yield the part of a mesh file, or each item of a 3MF plate; join equal items."""
    path, number = split_item(file)
    items = unit.items(path)
    if number is not None:
        items = [replace(item, numbers=(number,)) for item in items if number in item.numbers]
    elif sum(len(item.numbers) for item in items) < 2:
        items = []
    for item in items:
        first, count = item.numbers[0], len(item.numbers)
        name = item.name or f"{path.stem}#{first}"
        yield Part(f"{path}#{first}", quantity=count, name=name, unit=unit.of(file))
    if not items:
        yield Part(file=file, unit=unit.of(file), assumed=unit.is_assumed(file))


def read_order(path: Path, unit: _Unit, sheet: str = "") -> list[Part]:
    """Read an order file; its mesh files lie in the same folder.

    Raises:
        OrderError: The file is missing, or an entry is wrong; the message names the place.
    """
    entries, stated = read_entries(path, sheet, unit.columns, unit.of())
    if stated and unit.named not in (None, stated) and path.suffix.lower() in TABLE_SUFFIXES:
        raise OrderError(f"{path}: states {stated}, but unit={unit.named} is given; omit one")
    first = [entry.label for entry in entries if "group" not in entry.values]
    if 0 < len(first) < len(entries):
        _LOGGER.warning("%s: without a group, so unloaded first: %s", path, ", ".join(first[:8]))
    own = unit._replace(named=stated or unit.named)
    parts = [_part(path, entry, own) for entry in entries]
    check_stated(path, [(part.label, part.assumed) for part in parts if part.sides], own.of())
    return parts


def _part(path: Path, entry: Entry, unit: _Unit) -> Part:
    values, file = entry.values, entry.values.get("file", "")
    try:
        mesh = split_item(path.parent / file)[0]
        if file and not mesh.exists():
            hint = close_names(mesh.name, sorted(each.name for each in mesh.parent.glob("*")))
            raise OrderError(f"{file}: no such file in the order's folder{hint or '; check it'}")
        part = Part(
            file=str(path.parent / file) if file else "",
            sides=values.get("sides"),
            quantity=values.get("quantity", 1),
            name=values.get("name", ""),
            unit=values.get("unit", unit.of(file)),
            handling=handling(values),
            faces=_faces(values),
            turn=values.get("turn", True),
            assumed="unit" not in values and unit.is_assumed(file),
        )
        if file and part.quantity and "unit" in values:
            own = ["m"] if mesh.suffix.lower() == ".urdf" else []
            with suppress(MeshError):  # packing reports it
                own += [item.unit for item in unit.items(mesh)]
            if own and own[0] != part.unit:
                raise OrderError(f"unit={part.unit}: {file} states {own[0]}; leave the unit empty")
        return part
    except (OSError, TypeError, ValueError) as error:  # a path may be too long, or unreadable
        raise OrderError(f"{path}, {entry.place}: {error}") from error


def _faces(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the faces of an entry that may be up; an empty tuple allows all."""
    upright = values.get("upright", not values.get("tiltable", True))
    if upright == values.get("tiltable", not upright):
        raise OrderError("upright and tiltable contradict each other; keep one")
    if upright and "faces" in values:
        raise OrderError("give faces, or upright (or tiltable), not both; upright is faces: +z")
    return ("+z",) if upright else read_faces(values.get("faces", ()))
