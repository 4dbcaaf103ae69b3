"""Readers of the entries of an order file: columns, keys and exact values.

CSV and XLSX files have a header. Without a header they list boxes: an optional name, ``dx, dy,
dz``, and an optional quantity. YAML and JSON files are a list of entries, or have ``parts:`` beside
``unit:``. An unknown key is refused by name, so that an unsupported constraint is never ignored.
Weights are in kilograms.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from packing_env.names import close_names
from packing_env.planner.reading import tables
from packing_env.planner.reading.documents import parse_json, parse_yaml
from packing_env.planner.reading.lengths import exact, is_number, split_unit
from packing_env.planner.reading.tables import WORKBOOKS, Columns, OrderError, Row, Table
from packing_env.values import is_unit, read_unit

_LOGGER = logging.getLogger("packing_env.planner")

HANDLING = (
    "weight", "max_load", "stackable", "no_stacking", "fragile", "group", "layers", "on_like",
    "priority", "value", "together",
)  # fmt: skip
KEYS = (
    "name", "file", "dx", "dy", "dz", "sides", "quantity", "unit", *HANDLING, "faces", "upright",
    "turn",
)  # fmt: skip
"""Keys of an entry of an order: a ``file`` or the sides of a box, and the handling."""
NEEDED = (
    "needed: for each part a file, or the sides dx, dy, dz of a box, and perhaps "
    "name, quantity, unit, weight, max_load, no_stacking, fragile, group, faces, upright, turn"
)
ORDER = Columns("parts", KEYS, "quantity", NEEDED)
TABLE_SUFFIXES = (".csv", ".tsv", *WORKBOOKS)
ORDER_SUFFIXES = (*TABLE_SUFFIXES, ".yaml", ".yml", ".json")
_SYNONYMS = {
    "length": ("l", "len"),
    "width": ("w", "breadth", "b"),
    "depth": ("d", "thickness", "t"),
    "height": ("h",),
    "x": ("dx", "size_x"),
    "y": ("dy", "size_y"),
    "z": ("dz", "size_z"),
    "sides": ("size", "dimensions", "dims"),
    "quantity": ("qty", "count", "pcs", "pieces"),
    "name": ("description", "sku", "item", "article", "part", "label"),
    "file": ("filename", "path", "mesh"),
    "unit": ("units", "uom"),
    "weight": ("mass",),
}
_MEANING = {word: key for key, words in _SYNONYMS.items() for word in (key, *words)}
_AXES = (
    ("x", "y", "z"), ("length", "width", "height"), ("width", "depth", "height"),
    ("length", "depth", "height"), ("length", "width", "depth"),
)  # fmt: skip
"""Sets of column names that mean ``dx, dy, dz``."""
_MEASURES = frozenset(word for axes in _AXES for word in axes)
_LENGTHS = ("dx", "dy", "dz", "sides")
_OF_PALLETS = ("deck", "overhang")
"""Lengths of containers, as texts; the header of their columns may state the unit of the sides."""
_WEIGHTS = ("weight", "max_load", "weight_limit")
_NUMBERS = ("dx", "dy", "dz", "quantity", "group", "number", "cost", "priority", "value", *_WEIGHTS)
_WHOLE = ("quantity", "number", "priority")
_FLAGS = ("stackable", "no_stacking", "fragile", "upright", "on_like", "turn")
_YES_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_KILOGRAMS = ("kg", "kgs", "kilogram", "kilograms")
_WEIGHT = re.compile(rf"(.*?)\s*(?:{'|'.join(_KILOGRAMS)})", re.IGNORECASE)
_PIECES = ("pcs", "pc", "pieces", "each", "ea")
_TOTALS = ("total", "totals", "sum", "subtotal", "grand total", "summe", "gesamt")
_WITH_UNIT = re.compile(r"(.*?)\s*[(\[]\s*([^)\]]+?)\s*[)\]]")


@dataclass(frozen=True)
class Entry:
    """An entry of an order: its place in the file, and its values by key (:data:`KEYS`)."""

    place: str
    values: Mapping[str, Any]


def read_entries(
    path: Path, sheet: str = "", columns: Columns = ORDER
) -> tuple[list[Entry], str | None]:
    """Read an order file, or a table of containers.

    Args:
        path: CSV, TSV, XLSX, YAML or JSON.
        sheet: Name of the sheet of a workbook; by default the first sheet.
        columns: Keys that the entries may state.

    Returns:
        The entries with exact values, and the unit that the file states for all of them.

    Raises:
        OrderError: The file is missing, or an entry is wrong; the message names the place.
    """
    suffix = path.suffix.lower()
    if suffix in TABLE_SUFFIXES:
        table = tables.read_workbook(path, sheet) if suffix in WORKBOOKS else tables.read_csv(path)
        raw, unit, comma = _table_entries(path, table, columns)
    else:
        raw, unit = _document_entries(path, columns)
        comma = False
    header = unit if suffix in TABLE_SUFFIXES else None
    if not raw:
        raise OrderError(f"{path}: no {columns.title} in it; {columns.needed}")
    entries = []
    for place, values in raw:
        try:
            known = {
                key: typed(key, value, comma)
                for key, value in values.items()
                if value not in ("", None)
            }
            entries.append(Entry(place, _with_sides(known, header, comma, columns.needed)))
        except (TypeError, ValueError) as error:
            raise OrderError(f"{path}, {place}: {error}") from error
    return entries, unit


# ---------------------------------------------------------------------- tables


def _table_entries(
    path: Path, table: Table, columns: Columns
) -> tuple[list[tuple[str, dict[str, Any]]], str | None, bool]:
    """Return the entries of a table, the unit of its header, and whether commas are decimal."""
    if not table.rows:
        return [], None, False
    first = table.rows[0]
    filled = [cell for cell in first.cells if cell]
    plain = sum(_like_number(cell) for cell in filled) >= min(3, len(filled))
    if plain:
        _check_comments(path, table, first)
        keys, unit = _plain_keys(path, first, columns.count), None
    else:
        keys, unit = _header(path, first)
    rows = table.rows if plain else table.rows[1:]
    numbers = [
        (row.line, cell)
        for row in rows
        for key, cell in zip(keys, row.cells, strict=False)
        if key in _NUMBERS
    ]
    comma = tables.decimal_comma(path, table.delimiter, numbers)
    entries = []
    for row in rows:
        place = f"line {row.line}"
        for key, name in zip(keys, first.cells, strict=False):
            if key and key not in columns.keys:
                raise unsupported(path, place, name.lower(), columns.keys)
        if any(cell.lower().rstrip(":") in _TOTALS for cell in row.cells):
            raise OrderError(f"{path}, {place}: looks like a row of totals; remove it")
        if len(row.cells) > len(keys):
            raise OrderError(
                f"{path}, {place}: {len(row.cells)} columns under {len(keys)} names; "
                f"{columns.needed}"
            )
        for number, (key, cell) in enumerate(zip(keys, row.cells, strict=False), 1):
            if cell and not key:
                raise OrderError(f"{path}, {place}: {cell!r} in column {number}, without a name")
        entries.append((place, {k: c for k, c in zip(keys, row.cells, strict=False) if k}))
    return entries, unit, comma


def _like_number(cell: str) -> bool:
    return is_number(cell) or is_number(cell, decimal_comma=True)


def _plain_keys(path: Path, first: Row, count: str) -> list[str]:
    """Return the columns of a table of boxes without a header, and log them."""
    named = not _like_number(first.cells[0])
    keys = [*(["name"] if named else []), "dx", "dy", "dz", count]
    if named or len(first.cells) > 3:
        columns = ", ".join(keys[: len(first.cells)])
        _LOGGER.warning("%s: no header; the columns are read as %s", path, columns)
    return keys


def _check_comments(path: Path, table: Table, first: Row) -> None:
    """Raise if a comment names the columns, because their order may differ from the default."""
    for row in table.comments:
        words = [_normal(cell) for cell in row.cells]
        if row.line < first.line and sum(word in _MEANING for word in words) >= 3:
            raise OrderError(
                f"{path}, line {row.line}: names of columns in a comment; remove the # before them"
            )


def _normal(cell: str) -> str:
    """Return a column's name in lower case, with one underscore between words."""
    return re.sub(r"[\s_-]+", "_", cell.strip().strip("#").strip().lower()).strip("_.")


def _column(name: str) -> tuple[str, str | None]:
    """Return the key that a column's name means, and its unit of length, if it has one.

    Raises:
        OrderError: The text in brackets is not a unit.
    """
    word = _normal(name)
    if word in _MEANING or word in KEYS or not word:
        return _MEANING.get(word, word), None
    bracket = _WITH_UNIT.fullmatch(name.strip())
    stem, unit = (bracket[1], bracket[2]) if bracket else (word, "")
    if not bracket and "_" in word:
        stem, _, unit = word.rpartition("_")
        stem = stem.removesuffix("_in") if is_unit(unit) else stem
    key = _MEANING.get(_normal(stem), _normal(stem))
    if key in _MEASURES or key in ("sides", *_OF_PALLETS):
        if is_unit(unit):
            return key, read_unit("unit", unit)
        if bracket:
            hint = close_names(unit.lower(), ("mm", "cm", "m", "inch", "ft"))
            raise OrderError(f"{name!r}: unit {unit!r} is unknown{hint}")
    kilograms = key in _WEIGHTS and unit.lower() in _KILOGRAMS
    if kilograms or (key == "quantity" and unit.lower() in _PIECES):
        return key, None
    if bracket and key in KEYS:
        remedy = "; weights are kilograms" if key in _WEIGHTS else ""
        raise OrderError(f"{name!r}: {unit!r} is not supported{remedy}")
    return word, None


def _header(path: Path, first: Row) -> tuple[list[str], str | None]:
    """Return the keys of the columns, and the unit that the header states.

    Raises:
        OrderError: A name is unknown, two columns mean the same, or units differ.
    """
    place = f"line {first.line}"
    try:
        columns = [_column(cell) for cell in first.cells]
    except OrderError as error:
        raise OrderError(f"{path}, {place}: {error}") from None
    meanings = [key for key, _ in columns]
    # 1. Refuse two columns with the same meaning.
    for number, key in enumerate(meanings):
        if key and key in meanings[:number]:
            one, other = first.cells[meanings.index(key)], first.cells[number]
            raise OrderError(
                f"{path}, {place}: the columns {one!r} and {other!r} mean the same; keep one"
            )
    # 2. Read the sides by one set of names.
    measures = [key for key in meanings if key in _MEASURES]
    axes = next((axes for axes in _AXES if set(measures) <= set(axes)), None)
    if axes is None or (len(measures) == 3 and set(measures) != set(axes)):
        pairs = zip(first.cells, meanings, strict=True)
        names = ", ".join(repr(cell) for cell, key in pairs if key in _MEASURES)
        raise OrderError(f"{path}, {place}: {names} are not three sides; name them dx, dy, dz")
    sides = dict(zip(axes, ("dx", "dy", "dz"), strict=True))
    # 3. Refuse different units.
    units = {unit for _, unit in columns if unit}
    if len(units) > 1:
        raise OrderError(f"{path}, {place}: units differ: {', '.join(sorted(units))}; use one")
    keys = [sides.get(key, key) for key in meanings]
    return keys, next(iter(units), None)


# ---------------------------------------------------------------------- YAML and JSON


def _document_entries(
    path: Path, columns: Columns
) -> tuple[list[tuple[str, dict[str, Any]]], str | None]:
    """Return places and entries of a YAML or JSON file, and its unit."""
    text = tables.read_text(path)
    value = parse_json(path, text) if path.suffix.lower() == ".json" else parse_yaml(path, text)
    unit = None
    if isinstance(value, Mapping):
        for key in value:
            if key not in (columns.title, "unit"):
                raise unsupported(path, "the file", str(key), (columns.title, "unit"))
        if "unit" in value:
            try:
                unit = read_unit("unit", str(value["unit"]))
            except ValueError as error:
                raise OrderError(f"{path}: {error}") from error
        value = value.get(columns.title)
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise OrderError(f"{path}: {columns.needed}")
    entries = []
    for number, entry in enumerate(value, 1):
        place = f"{columns.title.removesuffix('s')} {number}"
        for key in entry:
            if key not in columns.keys:
                raise unsupported(path, place, str(key), columns.keys)
        entries.append((place, dict(entry)))
    return entries, unit


# ---------------------------------------------------------------------- values


def typed(key: str, value: Any, comma: bool = False) -> Any:
    """Convert a value of an entry; numbers are exact, and sides keep their unit.

    Raises:
        ValueError: The value does not suit the key.
    """
    if key in ("name", "file", "together"):
        return str(value)
    if key == "unit":
        return read_unit("unit", str(value))
    if key in _FLAGS:
        flag = _YES_NO.get(str(value).strip().lower())
        if flag is None:
            raise OrderError(f"{key}={value!r} must be true or false")
        return flag
    if key in ("faces", *_OF_PALLETS, "cut"):
        return str(value).replace(",", ".") if comma else value
    if key == "sides":
        pieces = re.split(r"[x\u00d7*]", value.lower()) if isinstance(value, str) else list(value)
        return [split_unit(piece) for piece in pieces]
    if key in _LENGTHS:
        return split_unit(value)
    if key in _WEIGHTS and isinstance(value, str):
        weight = _WEIGHT.fullmatch(value)
        value = weight[1] if weight else value
    return _number(key, value, comma)


def _number(key: str, value: Any, comma: bool) -> int | float:
    """Return a number; a count must be whole.

    Raises:
        OrderError: The value is not a number, or is ambiguous.
    """
    try:
        number = exact(value, decimal_comma=comma)
    except ValueError as error:
        raise OrderError(f"{key}={value!r} must be a number: {error}") from None
    if number.denominator == 1:
        return int(number)
    if key in _WHOLE:
        raise OrderError(f"{key}={value!r} must be a whole number")
    return float(number)


def _with_sides(
    values: dict[str, Any], unit: str | None, comma: bool, needed: str
) -> dict[str, Any]:
    """Return the values with ``sides`` as three numbers, also if they came as ``dx, dy, dz``.

    Raises:
        OrderError: A side is missing or not positive, or the units of the sides differ.
    """
    single = [values.pop(key) for key in ("dx", "dy", "dz") if key in values]
    if single and "sides" in values:
        raise OrderError("give sides, or dx, dy and dz, not both")
    pairs = values.pop("sides", None) or single
    if ("file" in values) == bool(pairs) or len(pairs) not in (0, 3):
        raise OrderError(needed)
    if not pairs:
        return values
    sides: list[Fraction] = []
    for number, _ in pairs:
        try:
            sides.append(exact(number, decimal_comma=comma))
        except ValueError as error:
            raise OrderError(f"side: {error}") from None
        if sides[-1] <= 0:
            raise OrderError(f"side={number} must be a number, more than 0")
    own = {word for _, word in pairs if word}
    stated = {read_unit("unit", word) for word in own}
    if own and not all(word for _, word in pairs) and pairs[-1][1] is None:
        raise OrderError("give the unit of each side, or of the last")
    stated |= {each for each in (values.get("unit"),) if each}
    stated |= {unit} if stated and unit else set()
    if len(stated) > 1:
        raise OrderError(f"units differ: {', '.join(sorted(stated))}; use one")
    return values | {"sides": tuple(sides)} | ({"unit": stated.pop()} if stated else {})


def handling(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the handling of an entry."""
    chosen = {key: values[key] for key in HANDLING if key in values}
    if "no_stacking" in chosen:
        chosen["stackable"] = not chosen.pop("no_stacking")
    return chosen


def unsupported(path: Path, place: str, key: str, known: Sequence[str]) -> OrderError:
    """Return the error for a key that has no effect here."""
    hint = close_names(key, known)
    return OrderError(f"{path}, {place}: {key!r} is not supported{hint}; known: {', '.join(known)}")
