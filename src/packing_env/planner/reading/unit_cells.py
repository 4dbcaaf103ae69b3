"""Units in cells of their own: below the names of columns, beside numbers, or for all weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from packing_env.planner.reading.columns import WEIGHTS, Header, is_side, key_of
from packing_env.planner.reading.synonyms import PIECES, meaning, plain
from packing_env.planner.reading.tables import Columns, OrderError, Row, Table
from packing_env.planner.reading.weights import is_weight_unit, weight_unit
from packing_env.values import is_unit


def join_units(table: Table, columns: Columns) -> Table:
    """Return a table without a row of units and without columns of units beside numbers.

    A row of units may follow the names: ``length,width,height`` above ``mm,mm,mm``. A column beside
    numbers has no name, or is one of several columns of units: ``weight,unit`` above ``12,kg``. A
    single column with units of length applies to the whole row, so it stays.
    """
    rows = list(table.rows)
    names = list(rows[0].cells)
    names += [""] * (max(len(row.cells) for row in rows) - len(names))
    # 1. Units below the names move into the names.
    below = [cell.strip("()[]- ") for cell in rows[1].cells[: len(names)]] if rows[1:] else []
    words = [unit for unit in below if unit and meaning(plain(unit)) != "unit"]
    if len(words) > 1 and all(map(_is_any_unit, words)):
        del rows[1]
        for n, unit in enumerate(below):
            if unit in words and plain(unit) not in PIECES:
                names[n] = f"{names[n]} ({unit})"
    # 2. Units beside numbers move into the cells of the numbers; pieces say nothing about lengths.
    keys = [key_of(name, columns) for name in names]
    several = keys.count("unit") > 1
    for n, key in enumerate(keys[1:], 1):
        units = {row.cells[n] for row in rows[1:] if len(row.cells) > n and row.cells[n]}
        if key not in ("", "unit") or not units:
            continue
        before = keys[n - 1]
        own = is_weight_unit if before in WEIGHTS else is_unit
        beside = before in WEIGHTS or (is_side(before) and (several or not key))
        beside = beside and all(map(own, units))
        of_pieces = bool(key) or before == columns.count
        if beside or (of_pieces and all(plain(unit) in PIECES for unit in units)):
            names[n] = ""
            rows[1:] = [_joined(row, n, beside) for row in rows[1:]]
    while not names[-1]:
        names.pop()
    rows[0] = replace(rows[0], cells=tuple(names))
    return replace(table, rows=tuple(rows))


def _is_any_unit(word: str) -> bool:
    return is_unit(word) or is_weight_unit(word) or plain(word) in PIECES


def _joined(row: Row, n: int, beside: bool) -> Row:
    """Return a row whose cell ``n`` is empty; its unit, if it is one, stands beside the number."""
    if len(row.cells) <= n:
        return row
    cells = list(row.cells)
    if beside and cells[n - 1]:
        cells[n - 1] = f"{cells[n - 1]} {cells[n]}"
    cells[n] = ""
    while cells and not cells[-1]:
        cells.pop()
    return replace(row, cells=tuple(cells), floats=row.floats - {n - 1} if beside else row.floats)


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
