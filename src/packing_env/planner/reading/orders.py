"""Readers of the entries of an order file: columns, keys and exact values.

CSV and XLSX files have a header. Without a header they list boxes: an optional name, ``dx, dy,
dz`` or all sides in one column, and an optional quantity. YAML and JSON files are a list of entries
or a mapping of names to entries, or have ``parts:`` beside ``unit:``. An unknown key is refused by
name, so that an unsupported constraint is never ignored. Weights without a unit are in kilograms.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest
from pathlib import Path
from typing import Any

from packing_env.planner.reading import tables
from packing_env.planner.reading.columns import (
    LEFT_OUT,
    OF_PALLETS,
    SIDES,
    WEIGHTS,
    is_side,
    named_columns,
    num_names,
    read_header,
)
from packing_env.planner.reading.headings import (
    as_box,
    by_letters,
    check_net,
    check_row_numbers,
    check_single,
    check_weights,
    flat,
    has_entry,
    join_units,
    with_weight_unit,
    without_titles,
)
from packing_env.planner.reading.lengths import (
    exact_side,
    in_one_unit,
    like_number,
    metres,
    split_sides,
    split_unit,
)
from packing_env.planner.reading.synonyms import YES_NO, is_blank, meaning, plain, without_pieces
from packing_env.planner.reading.tables import WORKBOOKS, Columns, Header, OrderError, Row, Table
from packing_env.planner.reading.weights import exact_number, read_weight
from packing_env.planner.reading.workbooks import read_workbook
from packing_env.values import check_names, is_unit, read_unit

_LOGGER = logging.getLogger("packing_env.planner")

HANDLING = (
    "weight", "max_load", "stackable", "no_stacking", "fragile", "group", "layers", "on_like",
    "priority", "value", "together",
)  # fmt: skip
KEYS = (
    "name", "file", "dx", "dy", "dz", "sides", "quantity", "unit", *HANDLING, "weight_unit",
    "faces", "upright", "tiltable", "turn", "row",
)  # fmt: skip
"""Keys of an entry of an order: a ``file`` or the sides of a box, the handling, and the number of
the row, which has no meaning here.
"""
NEEDED = (
    "needed: for each part a file, or the sides dx, dy, dz of a box, and perhaps "
    "name, quantity, unit, weight, max_load, no_stacking, fragile, group, faces, upright, turn"
)
ORDER = Columns(("parts", "items", "boxes"), KEYS, "quantity", NEEDED, {})
TABLE_SUFFIXES = (".csv", ".tsv", *WORKBOOKS)
ORDER_SUFFIXES = (*TABLE_SUFFIXES, ".yaml", ".yml", ".json")
_LENGTHS = (*SIDES, "sides")
_NO_HEADER = Header()
_NUMBERS = (*SIDES, "quantity", "group", "number", "cost", "priority", "value", *WEIGHTS)
_WHOLE = ("quantity", "number", "priority")
_HINTS = {"group": " (1 is unloaded first)", "priority": " (1 comes first)"}
_FLAGS = ("stackable", "no_stacking", "fragile", "upright", "tiltable", "on_like", "turn")
_VEHICLES = ("container", "containers", "truck", "trailer", "lorry")
"""Names that are no parts: with three sides they are what the parts are packed into."""
_DIGITS = re.compile(r"[+-]?\d[\d.,]*(?:['\u2019\u00a0\u202f]\d{3}[\d.,]*)*", re.ASCII)
_Raw = tuple[str, dict[str, Any], Header]
"""Place, values and columns of an entry."""


@dataclass(frozen=True)
class Entry:
    """An entry of an order: its place in the file, and its values by key (:data:`KEYS`)."""

    place: str
    values: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The name, or the place."""
        return str(self.values.get("name") or self.place)


def read_entries(
    path: Path, sheet: str = "", columns: Columns = ORDER, unit: str | None = None
) -> tuple[list[Entry], str | None]:
    """Read an order file, or a table of containers.

    Args:
        path: CSV, TSV, XLSX, YAML or JSON.
        sheet: Name of the sheet of a workbook; by default the first sheet.
        columns: Keys that the entries may state.
        unit: Unit of tables that state none; it may show that points or commas are decimal.

    Returns:
        The entries with exact values, and the unit that the file states for all of them.

    Raises:
        OrderError: The file is missing, or an entry is wrong; the message names the place.
    """
    suffix = path.suffix.lower()
    if suffix in TABLE_SUFFIXES:
        table = read_workbook(path, sheet) if suffix in WORKBOOKS else tables.read_csv(path)
        try:
            raw, stated, comma = _table_entries(path, table, columns, unit)
            return _entries(path, raw, stated, comma, columns)
        except OrderError as error:
            raise OrderError(f"{error}; {table.sheet}" if table.sheet else str(error)) from error
    raw, stated = _document_entries(path, columns)
    return _entries(path, raw, stated, False, columns)


def _entries(
    path: Path, raw: Sequence[_Raw], stated: str | None, comma: bool, columns: Columns
) -> tuple[list[Entry], str | None]:
    """Convert the values of the entries of a file; return them and the unit of the file."""
    if not raw:
        raise OrderError(f"{path}: no {columns.titles[0]} in it; {columns.needed}")
    if renamed := dict.fromkeys(name for _, _, header in raw for name in header.renamed):
        _LOGGER.warning("%s: columns are read by meaning: %s", path, ", ".join(renamed))
    entries = []
    for place, values, header in raw:
        values = {key: "" if is_blank(key, value) else value for key, value in values.items()}
        try:
            if values.get("quantity", 1) == "":
                name = header.title("quantity")
                raise OrderError(f"{name} is empty; write a number, or 0 to leave the part out")
            check_single(str(values.get("row", "")), header.title("row"))
            check_net(header, values)
            own = with_weight_unit(header, values)
            known = {
                key: typed(key, value, comma, own) for key, value in values.items() if value != ""
            }
            entries.append(Entry(place, _with_sides(known, header, comma, columns.needed)))
        except (TypeError, ValueError) as error:
            raise OrderError(f"{path}, {place}: {error}") from error
    return entries, stated


# ---------------------------------------------------------------------- tables


def _table_entries(
    path: Path, table: Table, columns: Columns, unit: str | None
) -> tuple[list[_Raw], str | None, bool]:
    """Return the entries of a table, its unit, and whether commas are decimal."""
    if not table.rows:
        return [], None, False
    table = without_titles(path, table, columns)
    if num_names(table.rows[0].cells, columns) > 1:
        table, columns = join_units(path, table, columns)
    header, named = read_header(path, table, columns)
    keys = header.keys
    # A long list may repeat its names on every page.
    first = table.rows[0].cells
    rows = [row for row in table.rows if row.cells != first] if named else table.rows
    rows = [row for row in rows if has_entry(path, row, keys)]
    if out := [row for row in table.comments if sum(map(like_number, row.cells)) >= 3]:
        names = ", ".join(f"line {row.line} ({row.cells[0]})" for row in out[:8])
        _LOGGER.warning("%s: comments, not read as entries: %s", path, names)
    numbers = [
        (row.line, number, own)
        for row in rows
        for column, (key, cell) in enumerate(zip(keys, row.cells, strict=False))
        if key in (*_NUMBERS, "sides") and column not in row.floats
        for own in [_unit_of(key, cell, row, header, unit)]
        for number in _DIGITS.findall(cell)  # a cell may have a unit, or three sides
    ]
    comma = tables.decimal_comma(path, table.delimiter, numbers)
    title = header.title("row")
    if "row" in keys and columns.count not in keys and plain(title) != "row":
        check_row_numbers(path, rows, keys.index("row"), title)
    entries = []
    for row in rows:
        # A decimal comma of texts does not apply to the numbers of a workbook.
        cells = [
            float(cell) if key in _NUMBERS and column in row.floats else cell
            for column, (key, cell) in enumerate(zip(keys, row.cells, strict=False))
        ]
        entries.append((f"line {row.line}", _by_key(keys, cells), header))
    return entries, header.unit, comma


def _unit_of(key: str, cell: str, row: Row, header: Header, unit: str | None) -> Fraction:
    """Return the unit of a length, in metres; 0 for other values and for lengths without a unit."""
    if key not in _LENGTHS:
        return Fraction(0)
    _, own = split_unit(split_sides(cell)[-1])
    stated = _by_key(header.keys, row.cells).get("unit")
    word = own or stated or header.units.get(key) or header.unit or unit or ""
    return metres(word) if is_unit(word) else Fraction(0)


# ---------------------------------------------------------------------- YAML and JSON


def _document_entries(path: Path, columns: Columns) -> tuple[list[_Raw], str | None]:
    """Return the entries of a YAML or JSON file, and its unit.

    Keys have the same names as columns of tables, and may state units as these do.
    """
    value = tables.read_document(path)
    unit = None
    if isinstance(value, Mapping):
        rest = {key: each for key, each in value.items() if key != "unit"}
        lists = [rest.pop(title) for title in columns.titles if title in rest]
        try:
            if lists or not _is_entries(rest.values()):
                check_names("the file", rest, (*columns.titles, "unit"))
            unit = read_unit("unit", str(value["unit"])) if "unit" in value else None
        except ValueError as error:
            raise OrderError(f"{path}: {error}") from error
        value = lists[0] if len(lists) == 1 else None if lists else rest
    named = isinstance(value, Mapping)  # as {lid: {...}}
    for name, entry in value.items() if named else ():
        word, is_list = plain(str(name)), isinstance(entry, list)
        # {size: {length: 1, ...}} is one part, and {length: [3, 2, 1], ...} are columns.
        others = () if "containers" in columns.titles else _VEHICLES
        key, known = meaning(word), (*columns.keys, *others)
        is_column = is_list and (is_side(key) or key in known)
        if is_column or key == "sides" or name in columns.keys:
            raise OrderError(f"{path}: {name!r} is not the name of a part; write a list of parts")
    listed = value if named else dict(enumerate(value if isinstance(value, list) else [None], 1))
    listed = {name: as_box(entry) for name, entry in listed.items()}
    if not all(isinstance(entry, Mapping) for entry in listed.values()):
        titles = " or ".join(columns.titles)
        raise OrderError(f"{path}: write one list, alone or under {titles}; {columns.needed}")
    entries: list[_Raw] = []
    for number, entry in listed.items():
        place = f"{columns.titles[0].removesuffix('s')} {number}"
        pairs = [("name", number)] * named + flat(entry)
        header = named_columns(f"{path}, {place}", [str(key) for key, _ in pairs], columns)
        stated = {"unit": header.unit} if header.unit else {}
        entries.append((place, stated | _by_key(header.keys, [v for _, v in pairs]), header))
    check_weights(path, [header for _, _, header in entries], columns)
    return entries, unit


def _is_entries(values: Collection[Any]) -> bool:
    """Return whether the values under names are all entries, or all lists of three sides."""
    lists = [isinstance(each, list) for each in values]
    return all(lists) == any(lists) and all(isinstance(as_box(v), Mapping) for v in values)


# ---------------------------------------------------------------------- values


def _by_key(keys: Sequence[str], cells: Sequence[Any]) -> dict[str, Any]:
    """Return the value of each key; several names are joined, such as ``4711 small box``."""
    pairs = [
        (key, cell)
        for key, cell in zip_longest(keys, cells, fillvalue="")
        if key not in ("", LEFT_OUT)
    ]
    names = dict.fromkeys(
        str(cell) for key, cell in pairs if key == "name" and cell not in ("", None)
    )
    return dict(pairs) | ({"name": " ".join(names)} if names else {})


def typed(key: str, value: Any, comma: bool = False, header: Header = _NO_HEADER) -> Any:
    """Convert a value of an entry; numbers are exact, and sides keep their unit.

    Args:
        key: The key.
        value: Its value in the file.
        comma: True if commas are decimal.
        header: The columns of the table: their names for messages, and their units of weight.

    Raises:
        ValueError: The value does not suit the key.
    """
    if key in ("name", "file", "together", "row"):
        return str(value).replace("\\", "/") if key == "file" else str(value)  # Windows folders
    name = header.title(key)
    if key == "unit":
        return read_unit(name, str(value))
    if key in _FLAGS:
        flag = YES_NO.get(plain(str(value)))
        if flag is None:
            raise OrderError(f"{name}={value!r} must be true or false")
        return flag
    if key in ("faces", *OF_PALLETS, "cut"):
        return str(value).replace(",", ".") if comma else value
    if key == "sides":
        pieces = split_sides(value) if isinstance(value, str) else list(value)
        return by_letters(pieces)
    if key in _LENGTHS:
        return _side(name, value, header.units.get(key) or header.unit)
    if key in WEIGHTS:
        return read_weight(name, value, header.weights.get(key, ""), decimal_comma=comma)
    if key == "quantity" and isinstance(value, str):
        value = without_pieces(value)
    return _number(key, name, value, comma)


def _side(name: str, value: Any, stated: str | None) -> tuple[Any, str | None]:
    """Return a side and its unit, which the header may state for this side alone."""
    number, own = split_unit(value)
    if own and stated and read_unit(name, own) != stated:
        raise OrderError(f"{name}={value!r}: the header states {stated}; use one unit")
    return number, own or stated


def _number(key: str, name: str, value: Any, comma: bool) -> int | float:
    """Return a number; a count must be whole."""
    number = exact_number(name, value, value, comma, _HINTS.get(key, ""))
    if number.denominator == 1:
        return int(number)
    if key in _WHOLE:
        raise OrderError(f"{name}={value!r} must be a whole number")
    return float(number)


def _with_sides(values: dict[str, Any], header: Header, comma: bool, needed: str) -> dict[str, Any]:
    """Return the values with ``sides`` as three numbers, also if they came as ``dx, dy, dz``.

    Raises:
        OrderError: A side is missing or not positive, or has no unit where others have one.
    """
    # 1. An entry has all three sides, or a file and no sides.
    single = {key: values.pop(key) for key in SIDES if key in values}
    if single and "sides" in values:
        raise OrderError("give sides, or dx, dy and dz, not both")
    if missing := [header.title(key) for key in SIDES if single and key not in single]:
        raise OrderError(f"no {', '.join(missing)}; a box has three sides")
    pairs = list(single.values()) or values.pop("sides", [])
    if len(pairs) not in (0, 3):
        words = " x ".join(str(number) for number, _ in pairs)
        raise OrderError(f"{header.title('sides')}={words!r} must be three sides, as in 30x20x10")
    if "file" in values and pairs:
        titles = ", ".join(header.title(key) for key in single or ("sides",))
        raise OrderError(
            f"{header.title('file')}={values['file']!r} has its own sides; remove {titles}, or the "
            "file if the part is a box"
        )
    if not pairs:
        if "file" not in values:
            raise OrderError(needed)
        return values
    # 2. Positive numbers.
    names = [header.title(key) for key in single] or [header.title("sides")] * 3
    sides: list[Fraction] = []
    for name, (number, _) in zip(names, pairs, strict=True):
        try:
            sides.append(exact_side(number, decimal_comma=comma))
        except ValueError as error:
            raise OrderError(f"{name}={number!r} must be a length: {error}") from None
        if sides[-1] <= 0:
            raise OrderError(f"{name}={number} must be a number, more than 0")
    stated = [each for each in (values.get("unit"), header.unit) if each]
    sides, unit = in_one_unit(sides, pairs, stated)
    return values | {"sides": tuple(sides)} | ({"unit": unit} if unit else {})


def handling(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the handling of an entry."""
    chosen = {key: values[key] for key in HANDLING if key in values}
    if "no_stacking" in chosen:
        stackable = not chosen.pop("no_stacking")
        if chosen.setdefault("stackable", stackable) != stackable:
            raise OrderError("stackable and no_stacking contradict each other; keep one")
    return chosen
