"""The reader of cuboids in lines of CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from packing_env import files
from packing_env.generators.cuboids.loads import ANY_SIDE, Kind, Load, Value
from packing_env.generators.sequence_file import SequenceError
from packing_env.names import close_names

_COLUMNS = ("dx", "dy", "dz", "count", "vertical_x", "vertical_y", "vertical_z")
_IGNORED = ("weight", "value")
"""Columns of order lists that boxes without weight do not have."""


def read_csv(path: Path, text: str) -> list[Load]:
    """Read CSV with a line per kind; a column or blank lines separate the sequences."""
    # 1. The header, if the first line has one.
    rows = _csv_rows(path, text)
    start = next((i for i, (_, row) in enumerate(rows) if any(row)), len(rows))
    columns: tuple[str, ...] = _COLUMNS
    if start < len(rows) and not _is_number(rows[start][1][0]):
        columns = _header(Value(path, "the header", rows[start][1]))
        start += 1
    # 2. One kind per line.
    sequences: dict[str, list[Kind]] = {}
    current = 0
    for line, row in rows[start:]:
        if not any(row):  # a blank line, or one of several blank lines
            current += str(current) in sequences
            continue
        at = Value(path, f"line {line}", row)
        cells = dict(zip(columns, row, strict=False))
        if len(row) > len(columns):
            raise at.error(f"at most {len(columns)} entries: {', '.join(columns)}")
        sequences.setdefault(cells.get("sequence", str(current)), []).append(_csv_kind(at, cells))
    if not sequences:
        raise SequenceError(f"{path}: no cuboid in it; needed: lines of dx,dy,dz")
    ignored = [name for name in _IGNORED if name in columns]
    remark = f"its columns {', '.join(ignored)} are ignored" if ignored else ""
    return [Load(name, tuple(kinds), remark=remark) for name, kinds in sequences.items()]


def _csv_rows(path: Path, text: str) -> list[tuple[int, list[str]]]:
    lines = io.StringIO(text, newline="")  # newlines in quotes belong to a cell
    reader = csv.reader(lines, delimiter=files.delimiter(text))
    try:
        return [(reader.line_num, [cell.strip(" \t") for cell in row]) for row in reader]
    except csv.Error as error:
        raise SequenceError(f"{path}: line {reader.line_num}: cannot be read: {error}") from error


def _header(names: Value) -> tuple[str, ...]:
    """Return the names of the columns; raise on unknown, missing or repeated ones."""
    columns = tuple(name.lower() for name in names.value)
    known = {*_COLUMNS, "sequence", "name"}
    unknown = sorted(set(columns) - known - set(_IGNORED))
    if unknown or not set(_COLUMNS[:3]) <= set(columns):
        near = close_names(unknown[0], sorted(known)) if unknown else ""
        raise names.error(f"dx, dy, dz, and others among {', '.join(sorted(known))}{near}")
    if len(set(columns)) < len(columns):
        raise names.error("each column once")
    return columns


def _csv_kind(at: Value, cells: dict[str, str]) -> Kind:
    numbers = {key: _number(at, cells[key]) for key in _COLUMNS if cells.get(key)}
    sides = at.of([numbers.get(key) for key in _COLUMNS[:3]]).sides()
    flags = [numbers[key] for key in _COLUMNS[4:] if key in numbers]
    upright = at.of(flags).flags() if flags else ANY_SIDE
    return Kind(sides, upright, at.of(numbers.get("count", 1)).count(), cells.get("name") or None)


def _is_number(text: str) -> bool:
    """Return whether a text is a number, without white space around it."""
    try:
        float(text.replace(",", ".", 1))  # a decimal comma, between semicolons
    except ValueError:
        return False
    return text == text.strip()  # it may hold newlines within quotes


def _number(at: Value, text: str) -> int | float:
    if not _is_number(text):
        raise at.error(f"numbers; {text!r} is not a number")
    value = float(text.replace(",", "."))
    return int(value) if value.is_integer() else value
