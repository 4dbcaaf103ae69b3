"""Rows that are no entries: titles, names in two rows, units, and totals; cells of units.

Columns that number rows or boxes have no other effect; they are checked here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise, zip_longest
from pathlib import Path
from typing import Any

from packing_env.planner.reading.columns import (
    LEFT_OUT,
    NET_WEIGHT,
    OF_PALLETS,
    WEIGHTS,
    axes_of,
    is_net,
    is_side,
    key_of,
    num_names,
    unit_of,
)
from packing_env.planner.reading.lengths import (
    exact,
    in_feet,
    is_number,
    like_number,
    split_unit,
)
from packing_env.planner.reading.synonyms import (
    PIECES,
    TOTALS,
    meaning,
    numbers_goods,
    plain,
    same_title,
)
from packing_env.planner.reading.tables import Columns, Header, OrderError, Row, Table, new_row
from packing_env.planner.reading.weights import is_weight_unit, weight_unit
from packing_env.values import is_unit

_LOGGER = logging.getLogger("packing_env.planner")

_SUMS = {"quantity", "weight", NET_WEIGHT, "value", "cost", "unit", "weight_unit"}
"""Columns that a row of totals fills."""
_WORD = re.compile(r"[\s_()\[\]]+")
_LETTERS = re.compile(r"[(\[]?([^\W\d_]+)[)\]]?")
_MARK = re.compile(r"[ .:=]*[.,]\d")
_RANGE = re.compile(r"\s*(\d+)\s*(?:[-‒–—~&,/]|to|\.\.+)\s*(\d+).*", re.DOTALL)


def without_titles(path: Path, table: Table, columns: Columns) -> Table:
    """Return a table without the titles above its columns, and log them.

    Titles, as in ``Order;4711``, stand above the first row of at least three names of columns, and
    have fewer than three numbers, so they are not boxes. If only a comment above the boxes has such
    names, as ``#,Item,L,W,H``, it is this row. Names may stand in two rows.
    """
    rows, line = list(table.rows), table.rows[0].line
    comments = [row for row in table.comments if row.line < line]
    each = (row for row in (*rows, *comments) if num_names(row.cells, columns) >= 3)
    named = list(islice(each, 1))
    rows = [row for row in comments if row in named] + rows
    names = rows.index(named[0]) if named else 0
    for n in range(max(names - 1, 0), min(names + 1, len(rows) - 1)):
        if row := _in_one_row(rows[n], rows[n + 1], columns):
            rows[n : n + 2], names = [row], n
            break
    if names and all(sum(map(like_number, row.cells)) < 3 for row in rows[:names]):
        titles = ", ".join(" ".join(filter(None, row.cells)) for row in rows[:names])
        _LOGGER.warning("%s: lines above the columns are ignored: %s", path, titles)
        rows = rows[names:]
    return replace(table, rows=tuple(rows))


def _in_one_row(above: Row, below: Row, columns: Columns) -> Row | None:
    """Return the names of two rows as one row; None if the second row does not continue the first.

    ``Item, Size (mm), , , Qty`` above ``, L, W, H,`` is ``Item, L (mm), W (mm), H (mm), Qty``.
    """
    keys = [key_of(cell, columns) for cell in above.cells]
    group = keys.index("sides") if "sides" in keys else len(below.cells)
    sides = [side for side in below.cells[group : group + 3] if is_side(key_of(side, columns))]
    if len(sides) < 3 or any(above.cells[group + 1 : group + 3]):
        return None
    cells = [low or high for high, low in zip_longest(above.cells, below.cells, fillvalue="")]
    if unit := unit_of(above.cells[group], columns):
        cells[group : group + 3] = [_title_with_unit(side, unit) for side in sides]
    return replace(below, cells=tuple(cells))


def has_entry(path: Path, row: Row, keys: Sequence[str]) -> bool:
    """Return False for a row that has values only in columns that the user leaves out.

    Raises:
        OrderError: The row is not an entry, or a used cell cannot be read.
    """
    place = f"{path}, line {row.line}"
    filled = {k: c for k, c in zip(keys, row.cells, strict=False) if c and k != LEFT_OUT}
    if not filled and len(row.cells) <= len(keys):
        return False
    if any(plain(c).replace("_", "") in TOTALS for c in filled.values()) or filled.keys() <= _SUMS:
        raise OrderError(f"{place}: looks like a row of totals; remove it")
    if len(row.cells) > len(keys):
        raise OrderError(
            f"{place}: {len(row.cells)} columns under {len(keys)} names; "
            "name the others above them, or remove them"
        )
    for number, (key, cell) in enumerate(zip(keys, row.cells, strict=False)):
        if cell and not key:
            raise OrderError(
                f"{place}: {cell!r} in column {number + 1}, without a name; name the "
                "column, or remove it"
            )
    for number, reason in row.unclear.items():
        key = keys[number] if number < len(keys) else ""
        if key not in ("", LEFT_OUT) and (key != "row" or key in filled):
            raise OrderError(f"{place}: {reason}")
    if "name" in filled and filled.keys() <= {"name", *_SUMS}:
        raise OrderError(f"{place}: {filled['name']!r} has no sides; give them, or remove the row")
    return True


def join_units(path: Path, table: Table, columns: Columns) -> tuple[Table, Columns]:
    """Return a table without a row of units and without columns of units beside numbers.

    A row of units may follow the names: ``length,width,height`` above ``mm,mm,mm``. A column beside
    numbers has no name, or is one of several columns of units: ``weight,unit`` above ``12,kg``. A
    single column with units of length applies to the whole row, so it stays. Names that the user
    states may get a unit, so the columns are returned, too.

    Raises:
        OrderError: A weight has no unit beside it, and others have one.
    """
    lines = _without_other_units(table.rows, columns)
    width = max(len(row.cells) for row in lines)
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
    # 2. Units beside numbers move into the cells of the numbers; a unit of pieces is dropped.
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
    read = tuple(
        replace(line, cells=new_row(line.line, cells).cells, floats=line.floats - joined)
        for line, cells in zip(lines, [names, *rows], strict=True)
    )
    return replace(table, rows=read), columns


def _without_other_units(rows: Sequence[Row], columns: Columns) -> list[Row]:
    """Return rows without the units that number formats show, except of lengths and weights."""
    keys = [key_of(name, columns) for name in rows[0].cells]
    others = {n for n, key in enumerate(keys) if not (_takes_unit(key) or key in OF_PALLETS)}
    without = []
    for row in rows:
        if bare := {n: number for n, number in row.bare.items() if n in others}:
            cells = tuple(bare.get(n, cell) for n, cell in enumerate(row.cells))
            row = replace(row, cells=cells, floats=row.floats | bare.keys())
        without.append(row)
    return without


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


def check_row_numbers(path: Path, rows: Sequence[Row], column: int, title: str) -> None:
    """Raise if row numbers may be quantities: a single number is not 1, or they do not increase."""
    cells = [row.cells[column] for row in rows if column < len(row.cells)]
    numbers = [exact(cell) for cell in cells if is_number(cell)]
    rising = all(one < other for one, other in pairwise(numbers))
    if not rising or (len(numbers) == 1 and numbers != [1]):
        raise OrderError(f"{path}: {title!r} may count rows or boxes; name it row or quantity")


def check_net(header: Header, values: dict[str, Any]) -> None:
    """Remove the net weight from an entry that also has a gross weight, which counts.

    Raises:
        OrderError: Only the gross weight is empty.
    """
    if values.pop(NET_WEIGHT, "") != "" and values.get("weight") == "":
        gross, net = header.title("weight"), header.title(NET_WEIGHT)
        raise OrderError(f"{gross} is empty, but not {net}; give {gross} in all rows")


def check_weights(path: Path, headers: Sequence[Header], columns: Columns) -> None:
    """Raise if some entries of a document have only a net weight, and others a gross weight.

    Raises:
        OrderError: The message names both keys.
    """
    titles = {header.titles["weight"] for header in headers if "weight" in header.titles}
    net = {title for title in titles if is_net(title, columns)}
    if net and titles - net:
        raise OrderError(
            f"{path}: {min(net)} in some entries, {min(titles - net)} in others; use one in all"
        )


def check_single(number: str, title: str) -> None:
    """Raise if the number of a carton may stand for several, as in ``1-10`` under ``Carton No.``.

    Raises:
        OrderError: The number is a range.
    """
    span = _RANGE.fullmatch(number)
    if span and int(span[1]) < int(span[2]) and numbers_goods(plain(title)):
        raise OrderError(
            f"{title}={number!r} may be several boxes; write a row for each, or their quantity"
        )


def flat(entry: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the keys and values of an entry, with nested sides beside the other keys.

    ``{value: 12, unit: cm}`` becomes ``12 cm``; the value may be a list of three sides.
    """
    pairs: list[tuple[str, Any]] = []
    for key, value in entry.items():
        if isinstance(value, Mapping) and set(value) == {"value", "unit"}:
            number = value["value"]
            text = " x ".join(map(str, number)) if isinstance(number, list) else number
            pairs.append((key, f"{text} {value['unit'] or ''}"))
        elif isinstance(value, Mapping) and meaning(plain(str(key))) == "sides":
            pairs += flat(value)
        else:
            pairs.append((key, value))
    return pairs


def as_box(entry: Any) -> Any:
    """Return an entry; a list of three sides, as in ``cam: [40, 30, 20]``, is a box."""
    is_box = isinstance(entry, list) and len(entry) == 3 and all(map(like_number, map(str, entry)))
    return {"sides": entry} if is_box else entry


def by_letters(pieces: Sequence[Any]) -> list[tuple[Any, str | None]]:
    """Return the number and unit of each side; letters as in ``L40 x W30 x H20`` give the order.

    Raises:
        OrderError: The letters are not those of three sides, or a mark may be decimal, as in
            ``L.5``.
    """
    letters = [m for piece in map(str, pieces) for m in _LETTERS.finditer(piece)]
    letters = [letter for letter in letters if is_side(meaning(plain(letter[1])))]
    if len(letters) != 3 or [letter.string for letter in letters] != list(pieces):
        return [split_unit(piece) for piece in pieces]
    words = [letter[1] for letter in letters]
    words = ["largeur" if word == "l" and "L" in words else word for word in words]  # L x l x H
    keys = [meaning(plain(word)) for word in words]
    if twice := [word for word, key in zip(words, keys, strict=True) if keys.count(key) > 1]:
        raise OrderError(f"{' x '.join(pieces)!r} has {' and '.join(twice)}; name each side once")
    axes = axes_of(dict(zip(keys, words, strict=True)))
    order = sorted(range(3), key=lambda n: axes[keys[n]])
    bare = [letter.string[: letter.start()] + letter.string[letter.end() :] for letter in letters]
    for letter, piece in zip(letters, bare, strict=True):
        if letter.start() < 2 and _MARK.match(piece):
            number = piece.strip(" .,:=")
            raise OrderError(f"{letter.string!r} may be {number} or 0.{number}; write one of them")
    pairs = [split_unit(piece.strip(" .:=")) for piece in bare]
    own = all(unit for _, unit in pairs)  # otherwise a unit after the last side applies to all
    return [(pairs[n][0], pairs[n if own else k][1]) for k, n in enumerate(order)]
