"""Units in cells of their own: below the names of columns, beside numbers, or for all weights."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from packing_env.planner.reading.columns import WEIGHTS, Header, is_side, key_of
from packing_env.planner.reading.synonyms import PIECES, meaning, plain
from packing_env.planner.reading.tables import Columns, OrderError, Table, new_row
from packing_env.planner.reading.weights import is_weight_unit, weight_unit
from packing_env.values import is_unit


def join_units(table: Table, columns: Columns) -> Table:
    """Return a table without a row of units and without columns of units beside numbers.

    A row of units may follow the names: ``length,width,height`` above ``mm,mm,mm``. A column beside
    numbers has no name, or is one of several columns of units: ``weight,unit`` above ``12,kg``. A
    single column with units of length applies to the whole row, so it stays.
    """
    lines, width = list(table.rows), max(len(row.cells) for row in table.rows)
    names, *rows = [[*row.cells, *[""] * (width - len(row.cells))] for row in lines]
    # 1. Units below the names move into the names.
    below = [cell.strip("()[]- ") for cell in rows[0]] if rows else []
    units = [unit for unit in below if unit and meaning(plain(unit)) != "unit"]
    if len(units) > 1 and all(is_unit(u) or is_weight_unit(u) or _of_pieces(u) for u in units):
        stated = [f" ({unit})" if unit in units and not _of_pieces(unit) else "" for unit in below]
        names = list(map(str.__add__, names, stated))
        del rows[0], lines[1]
    # 2. Units beside numbers move into their cells. Pieces say nothing about lengths.
    keys, joined = [key_of(name, columns) for name in names], set()
    for n, (before, key) in enumerate(pairwise(keys), 1):
        units = [row[n] for row in rows if row[n]]
        if key not in ("", "unit") or not units:
            continue
        of_weight, clear = before in WEIGHTS, key == "" or keys.count("unit") > 1
        own = is_weight_unit if of_weight else is_unit
        if (of_weight or (is_side(before) and clear)) and all(map(own, units)):
            joined.add(n - 1)
            for row in rows:
                row[n - 1] = f"{row[n - 1]} {row[n]}" if row[n - 1] else ""
        elif not (key or before == columns.count) or not all(map(_of_pieces, units)):
            continue
        for row in [names, *rows]:
            row[n] = ""
    read = [new_row(line.line, cells) for line, cells in zip(lines, [names, *rows], strict=True)]
    floats = [line.floats - joined for line in lines]
    pairs = zip(read, floats, strict=True)
    return replace(table, rows=tuple(replace(row, floats=each) for row, each in pairs))


def _of_pieces(unit: str) -> bool:
    return plain(unit) in PIECES


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
