"""Units in cells of their own: below the names of columns, beside numbers, or for all weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from packing_env.planner.reading.columns import WEIGHTS, Header, is_side, key_of, same_title
from packing_env.planner.reading.lengths import in_feet, is_number
from packing_env.planner.reading.synonyms import PIECES, plain
from packing_env.planner.reading.tables import Columns, OrderError, Table, new_row
from packing_env.planner.reading.weights import is_weight_unit, weight_unit
from packing_env.values import is_unit

_WORD = re.compile(r"[\s_()\[\]]+")


def join_units(path: Path, table: Table, columns: Columns) -> tuple[Table, Columns]:
    """Return a table without a row of units and without columns of units beside numbers.

    A row of units may follow the names: ``length,width,height`` above ``mm,mm,mm``. A column beside
    numbers has no name, or is one of several columns of units: ``weight,unit`` above ``12,kg``. A
    single column with units of length applies to the whole row, so it stays. Names that the user
    states may get a unit, so the columns are returned, too.

    Raises:
        OrderError: A weight has no unit beside it, and others have one.
    """
    lines, width = list(table.rows), max(len(row.cells) for row in table.rows)
    names, *rows = [[*row.cells, *[""] * (width - len(row.cells))] for row in lines]
    keys = [key_of(name, columns) for name in names]
    # 1. Units below the names of sides and weights move into the names.
    below = [cell.strip("()[]- ") for cell in rows[0]] if rows else []
    if rows and _is_row_of_units(keys, below):
        for n in (n for n, key in enumerate(keys) if _takes_unit(key) and below[n]):
            title = _title_with_unit(names[n], below[n])
            columns = _with_title(columns, names[n], title)
            names[n] = title
        del rows[0], lines[1]
    # 2. Units beside numbers move into their cells. Pieces say nothing about lengths.
    joined = set()
    for n, (before, key) in enumerate(pairwise(keys), 1):
        units = [row[n] for row in rows if row[n]]
        if key not in ("", "unit") or not units:
            continue
        of_weight, clear = before in WEIGHTS, key == "" or keys.count("unit") > 1
        own = is_weight_unit if of_weight else is_unit
        if (of_weight or (is_side(before) and clear)) and all(map(own, units)):
            joined.add(n - 1)
            for line, row in zip(lines[1:], rows, strict=True):
                number, unit = row[n - 1 : n + 1]
                if of_weight and number and not unit:
                    place = f"{path}, line {line.line}"
                    raise OrderError(f"{place}: no unit beside {names[n - 1]}={number}; give it")
                row[n - 1] = _with_unit(number, unit, n - 1 in line.floats)
        elif not (key or before == columns.count) or not all(map(_of_pieces, units)):
            continue
        for row in [names, *rows]:
            row[n] = ""
    read = [new_row(line.line, cells) for line, cells in zip(lines, [names, *rows], strict=True)]
    floats = [line.floats - joined for line in lines]
    pairs = zip(read, floats, strict=True)
    return replace(table, rows=tuple(replace(row, floats=each) for row, each in pairs)), columns


def _takes_unit(key: str | None) -> bool:
    return is_side(key) or key in WEIGHTS


def _is_row_of_units(keys: Sequence[str | None], cells: Sequence[str]) -> bool:
    """Return whether a row has only units below sides and weights, and no numbers at all."""
    units = [cell for key, cell in zip(keys, cells, strict=True) if _takes_unit(key) and cell]
    numbers = any(is_number(cell) for cell in cells)
    return bool(units) and not numbers and all(is_unit(u) or is_weight_unit(u) for u in units)


def _title_with_unit(title: str, unit: str) -> str:
    """Return a title with a unit, unless it ends with this unit: ``Length (mm)``, ``dx_mm``."""
    return title if _WORD.split(title.strip(" )]"))[-1] == unit else f"{title} ({unit})"


def _with_title(columns: Columns, title: str, other: str) -> Columns:
    """Return columns in which a title that the user states also has another form."""
    same, stated = same_title(title), columns.stated or {}
    if same not in stated:
        return columns
    columns.matched.add(same)
    return replace(columns, stated={**stated, same_title(other): stated[same]})


def _with_unit(number: str, unit: str, stored: bool) -> str:
    """Return a number with its unit; one that states it stays, as in ``5 kg`` beside ``kg``.

    The digits of a number that a workbook stores get a zero, so that 1.125 is not read as 1125.
    """
    if not number or not unit or in_feet(number):
        return number
    if number.endswith(unit) and number.removesuffix(unit).rstrip()[-1:].isnumeric():
        return number
    return f"{number}{'0' if stored and '.' in number else ''} {unit}"


def _of_pieces(unit: str) -> bool:
    return plain(unit) in PIECES and plain(unit) != "x"  # an x may mean anything


def with_weight_unit(header: Header, values: dict[str, Any]) -> Header:
    """Return the columns with the unit of weight of an entry; remove it from the values.

    Raises:
        OrderError: The columns state another unit.
    """
    word = values.pop("weight_unit", "")
    if word in ("", None):
        if "weight_unit" in header.titles and values.get("weight") not in ("", None):
            raise OrderError(f"no {header.title('weight_unit')}; give the unit of the weight")
        return header
    unit = weight_unit(header.title("weight_unit"), str(word))
    if others := set(header.weights.values()) - {unit}:
        raise OrderError(
            f"{header.title('weight_unit')}={word!r}: the header states {others.pop()}"
        )
    return replace(header, weights=dict.fromkeys(WEIGHTS, unit))
