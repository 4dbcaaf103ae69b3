"""Headers of tables: the key that each column means, its unit, and its name in the file."""

from __future__ import annotations

import logging
import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from packing_env.names import close_names
from packing_env.planner.reading.lengths import like_number, num_lengths
from packing_env.planner.reading.synonyms import (
    AXES,
    IN,
    MEANING,
    NET,
    PACKAGES,
    PIECES,
    inside_of,
    is_yes_no,
    meaning,
    of_container,
    plain,
    same_title,
    without_order,
    without_package,
    without_pieces,
)
from packing_env.planner.reading.tables import Columns, Header, OrderError, Table
from packing_env.planner.reading.weights import is_weight_unit, weight_unit
from packing_env.values import is_unit, read_unit

_LOGGER = logging.getLogger("packing_env.planner")

SIDES = ("dx", "dy", "dz")
WEIGHTS = ("weight", "max_load", "weight_limit")
LEFT_OUT = "-"
"""Key of a column that the user leaves out."""
NET_WEIGHT = "net weight"
"""Key of a column of net weights beside one of gross weights, which count."""
OF_PALLETS = ("deck", "overhang")
"""Keys of a container's lengths that are read as texts; their titles may also state the unit."""
_MEASURES = frozenset(word for axes in AXES for word in axes)
_IN_FULL = {"weight": "weight of one piece", NET_WEIGHT: "net weight (unused)"}
_WITH_UNITS = (*_MEASURES, "sides", *WEIGHTS)
_WEIGHT_NAMES = ("lbs", "kgs", "grams")
"""Units that alone name a column of weights; not pounds, which may be a price."""
_UNCLEAR = ("in", "to", "t", "g", "m")
"""Units that are also words, such as ``to`` (tonnes) at the end of the title ``stack up to``."""
_WITH_UNIT = re.compile(r"(.*)[(\[]([^()\[\]]+)[)\]]", re.DOTALL)
_EITHER = {
    "nombre": ("name", "quantity"),
    **dict.fromkeys(("rotatable", "drehbar"), ("turn", "tiltable")),
}
"""Names of two meanings: nombre is a name in Spanish and a number in French."""


def read_header(path: Path, table: Table, columns: Columns) -> tuple[Header, bool]:
    """Return the columns of a table that is not empty, and whether its first row is a header.

    Raises:
        OrderError: A name is unknown, units differ, one or two sides of the boxes have no column,
            or two columns have the same meaning (only the item's name may have several columns).
    """
    first = table.rows[0]
    cells = [cell for cell in first.cells if cell]
    numbers = [num_lengths([cell]) for cell in first.cells]
    in_one = 3 in numbers and numbers.count(1) < 3
    named = numbers[:2] == [0, 3] and not like_number(without_pieces(first.cells[0]))
    clear = not in_one or numbers[0] == 3 or named  # not 2,60x40x30 or 2 pcs,60x40x30
    if sum(numbers) >= min(3, len(cells)) and clear:
        sides = ("sides",) if in_one else SIDES
        # A length before three plain numbers is a name, as in 3M,12,10,9 and 3M,12,10,9 mm,6.
        rest = [like_number(cell) for cell in first.cells[1:4]]
        own = all(rest) or (len(first.cells) > 4 and not rest[2])
        own = own and numbers[1:4] == [1, 1, 1] and not like_number(first.cells[0])
        keys = [*["name"] * (own or numbers[0] != 3 // len(sides)), *sides]
        count = first.cells[len(keys) : len(keys) + 1]
        if like_number("".join(count)) or num_lengths(count) == 0:
            return Header(_plain_keys(path, table, keys, columns.count)), False
    if not num_names(first.cells, columns) and (any(numbers) or cells[0][0].isdigit()):
        raise OrderError(
            f"{path}, line {first.line}: no header; write the names of the columns above it, as in "
            f"name,dx,dy,dz,{columns.count}"
        )
    # Ignore an empty column if its name is unknown, if another column has the same meaning, or if
    # it names a side and other columns hold all three sides.
    used = {n for row in table.rows[1:] for n, cell in enumerate(row.cells) if cell}
    meanings = [key_of(cell, columns) for cell in first.cells]
    filled = {key for n, key in enumerate(meanings) if n in used}
    others = filled | _MEASURES if len(filled & _MEASURES) == 3 else filled
    names = [
        cell if n in used or (_is_name(cell, columns) and meanings[n] not in others) else ""
        for n, cell in enumerate(first.cells)
    ]
    return named_columns(f"{path}, line {first.line}", names, columns), True


def _plain_keys(path: Path, table: Table, keys: list[str], count: str) -> list[str]:
    """Return the meaning of each column of a boxes table without a header, and log it."""
    if any(len(row.cells) > len(keys) for row in table.rows):
        keys.append(count)
    _LOGGER.warning("%s: no header; the columns are read as %s", path, ", ".join(keys))
    return keys


def num_names(cells: Sequence[str], columns: Columns) -> int:
    """Return how many cells are names of columns, with or without a unit."""
    return sum(_is_name(cell, columns) for cell in cells)


def _is_name(cell: str, columns: Columns) -> bool:
    return key_of(cell, columns) in (*columns.keys, *_MEASURES, None)


def key_of(title: str, columns: Columns) -> str | None:
    """Return the key that a column's name means; None for a name beside an unknown unit."""
    try:
        return _column(title, columns).key
    except ValueError:
        return None


def unit_of(title: str, columns: Columns) -> str:
    """Return the unit in a column's name; "" if there is none."""
    try:
        return _column(title, columns).unit
    except ValueError:
        return ""


def is_net(title: str, columns: Columns) -> bool:
    """Return whether the name of a known column means a net weight."""
    return _column(title, columns).is_net


def is_side(key: str | None) -> bool:
    """Return whether a key is a side, or all three sides."""
    return key in (*_MEASURES, *SIDES, "sides")


class _Column(NamedTuple):
    """A column: its title, the title's plain form without unit, its key, and its unit.

    ``stated`` is True if the user states the meaning of the column.
    """

    title: str
    word: str
    key: str
    unit: str = ""
    stated: bool = False

    @property
    def is_net(self) -> bool:
        """True for a net weight, such as ``Carton N.W.`` and ``N.W./ctn``."""
        word = self.word.removesuffix("_each")
        words = word, word.partition("_")[2]
        return not self.stated and not NET.isdisjoint(words)


def named_columns(place: str, names: Sequence[str], columns: Columns) -> Header:
    """Return the columns with these names in a table, or the keys of an entry of a document.

    Raises:
        OrderError: As for :func:`read_header`.
    """
    try:
        return _header(names, columns)
    except ValueError as error:
        raise OrderError(f"{place}: {error}") from None


def _header(titled: Sequence[str], columns: Columns) -> Header:
    read = [_column(title, columns) for title in titled]
    of_user = [same_title(each.title) for each in read if each.stated]
    if len(set(of_user)) < len(of_user):
        raise OrderError(f"two columns are named {max(of_user, key=of_user.count)!r}; rename one")
    # 1. Names of two meanings; then refuse unknown names, and two columns with the same meaning.
    meanings = [each.key for each in read]
    read = [_of_either(each, meanings, columns) for each in read]
    if not all(each.is_net for each in read if each.key == "weight"):  # the gross weight counts
        read = [e._replace(key=NET_WEIGHT, unit="") if e.is_net else e for e in read]
    known = (*columns.keys, *_MEASURES, LEFT_OUT, NET_WEIGHT, "")
    # Beside the name of a pallet, a number of packages may count what is on it.
    on_pallet = any(each.word.startswith("pal") for each in read)
    unknown = [
        each.title
        for each in read
        if each.key not in known or (on_pallet and each.word in PACKAGES and not each.stated)
    ]
    if unknown:
        raise OrderError(_not_supported(unknown, columns))
    titles: dict[str, str] = {}
    names: dict[str, str] = {}
    for each in read:
        # An article number and a description are one name together.
        same = names.get(each.word) if each.key == "name" else titles.get(each.key)
        if same is not None and each.key != LEFT_OUT:
            can = columns.stated is not None and same_title(same) != same_title(each.title)
            other = f", as with {_leave_out([each.title])}" if can else ""
            raise OrderError(
                f"the columns {same!r} and {each.title!r} mean the same; keep one{other}"
            )
        if each.key:
            titles[each.key] = each.title
        if each.key == "name":
            names[each.word] = each.title
    # 2. Read the sides by one set of names.
    sides = axes_of(titles)
    # 3. Each side may have a unit of its own; otherwise one unit applies to all lengths.
    units = {sides.get(c.key, c.key): c.unit for c in read if c.unit and c.key not in WEIGHTS}
    differ = len(set(units.values())) > 1
    if differ and (set(units) != set(SIDES) or {"unit", *OF_PALLETS} & set(titles)):
        raise OrderError(f"units differ: {', '.join(sorted(set(units.values())))}; use one")
    return Header(
        [sides.get(each.key, each.key) for each in read],
        {sides.get(key, key): title for key, title in titles.items()},
        None if differ else next(iter(units.values()), None),
        units if differ else {},
        {each.key: each.unit for each in read if each.unit and each.key in WEIGHTS},
        [
            f"{each.title} as {_IN_FULL.get(each.key, each.key)}"
            for each in read
            if each.key != LEFT_OUT and each.word not in (each.key, *columns.keys)
        ],
    )


def _not_supported(titles: Sequence[str], columns: Columns) -> str:
    """Return the message about unknown columns."""
    single, known = len(titles) == 1, ", ".join(columns.keys)
    names = f"{', '.join(map(repr, titles))} {'is' if single else 'are'} not supported"
    hint = close_names(titles[0], columns.keys) if single else ""
    if columns.stated is None:
        return f"{names}{hint}; remove {'it' if single else 'them'}, or use one of: {known}"
    stated = shlex.quote(f"{titles[0]}=NAME")
    return (
        f"{names}{hint}; say what a column means with --column {stated}, or leave "
        f"{'it' if single else 'them'} out with {_leave_out(titles)}; the names are {known}"
    )


def _leave_out(titles: Sequence[str]) -> str:
    return " ".join(f"--column {shlex.quote(f'{title}=')}" for title in titles)


def stated_columns(stated: Mapping[str, str], columns: Columns) -> Columns:
    """Return columns of which the user states the meaning; see :class:`Columns`.

    Args:
        stated: For each title a name of a column, as in ``{"Weight/pc (kg)": "weight"}``, or "" to
            leave the column out. A unit in the title applies.
        columns: The columns of an order.

    Raises:
        OrderError: A name is unknown.
    """
    for title, name in stated.items():
        if name and not _is_name(name, columns):
            hint, known = close_names(name, columns.keys), ", ".join(columns.keys)
            raise OrderError(f"column {title!r}: {name!r} is not one of {known}{hint}")
    same = {same_title(title): name for title, name in stated.items()}
    if len(same) < len(stated):
        raise OrderError(f"a column is named twice: {', '.join(map(repr, stated))}; name it once")
    return replace(columns, stated=same, matched=set())


def check_matched(stated: Mapping[str, str], columns: Columns) -> None:
    """Raise if no file has one of the columns that the user named.

    Raises:
        OrderError: The message names it.
    """
    for title in stated:
        if same_title(title) not in columns.matched:
            raise OrderError(f"no order has a column {title!r}; check its name")


def _column(title: str, columns: Columns) -> _Column:
    """Return the meaning of a column's name, and the unit in it.

    Raises:
        ValueError: The text in brackets is not a unit.
    """
    stated = (columns.stated or {}).get(same_title(title))
    if stated is None:
        name = of_container(title) if columns.of_containers else title
        column = _read_column(title, name, columns)
        return column if name == title else column._replace(word=plain(title))
    columns.matched.add(same_title(title))
    if not stated:
        return _Column(title, plain(title), LEFT_OUT, stated=True)
    _, unit, bracket = _split_unit(without_order(title))
    clear = bracket or unit not in _UNCLEAR
    if (
        clear
        and (is_unit(unit) or is_weight_unit(unit))
        and _key(plain(stated), columns) in _WITH_UNITS
    ):
        stated = f"{stated} ({unit})"
    return _read_column(title, stated, columns)._replace(word=plain(title), stated=True)


def _read_column(title: str, name: str, columns: Columns) -> _Column:
    """Return the meaning of a name, for the column with this title; ``kg/ctn`` is a weight."""
    if (whole := without_package(name)) != name:
        column = _of_name(title, whole, columns)
        if column.key == "weight":
            return column._replace(word=f"{column.word}_each")
    return _of_name(title, name, columns)


def _of_name(title: str, name: str, columns: Columns) -> _Column:
    bare = without_order(name)
    word = _word(bare, columns)
    if meaning(word) != word or word in (*MEANING, *columns.keys, *_EITHER, ""):
        return _Column(title, word, _key(word, columns))
    if word in _WEIGHT_NAMES and "weight" in columns.keys:
        return _Column(title, word, "weight", weight_unit(repr(title), word))
    stem, unit, bracket = _split_unit(bare)
    key = _key(stem, columns)
    if key in _MEASURES or key in ("sides", *OF_PALLETS):
        if is_unit(unit):
            return _Column(title, stem, key, read_unit("unit", unit))
        if bracket:
            hint = close_names(unit.lower(), ("mm", "cm", "m", "inch", "ft"))
            raise OrderError(f"{title!r}: unit {unit!r} is unknown{hint}")
    if key in WEIGHTS and (bracket or is_weight_unit(unit)):
        return _Column(title, stem, key, weight_unit(repr(title), unit))
    if key in ("quantity", columns.count) and plain(unit) in PIECES - inside_of(name, stem):
        return _Column(title, stem, key)
    if bracket and key in columns.keys and is_yes_no(unit):
        return _Column(title, stem, key)
    if bracket and key in columns.keys:
        raise OrderError(f"{title!r}: {unit!r} is not supported; remove it from the title")
    return _Column(title, word, word)


def _split_unit(title: str) -> tuple[str, str, bool]:
    """Split ``length (mm)``, ``length_mm`` or ``Gewicht in kg``; say whether it has brackets."""
    bracket = _WITH_UNIT.fullmatch(unicodedata.normalize("NFKC", title).strip(" :?*"))
    if bracket:
        return plain(bracket[1]), bracket[2].strip(), True
    stem, _, unit = plain(title).rpartition("_")
    for ending in IN:
        stem = stem if meaning(stem) != stem else stem.removesuffix(ending)
    return (stem, unit, False) if stem else (unit, "", False)


def _word(name: str, columns: Columns) -> str:
    """Return the plain form of a name; ``Box #``, which means nothing else, is ``Box no``."""
    word = plain(name)
    unknown = meaning(word) == word and word not in (*MEANING, *columns.keys)
    return plain(f"{word} no") if unknown and name.rstrip().endswith("#") else word


def _key(word: str, columns: Columns) -> str:
    key = meaning(word)
    return columns.count if key == "quantity" else key


def _of_either(column: _Column, meanings: Sequence[str], columns: Columns) -> _Column:
    """Return a column; a name with two meanings gets the one that no other column has.

    If other columns have both, the column is a further name, as in ``código,nombre,cantidad``.

    Raises:
        OrderError: No other column has one of them.
    """
    if column.word not in _EITHER or column.stated:
        return column
    keys = [_key(key, columns) for key in _EITHER[column.word]]
    open_keys = [key for key in keys if key not in meanings]
    if not set(keys) & set(columns.keys):  # as `rotatable` of a container
        return column
    if len(open_keys) == len(keys):
        raise OrderError(f"{column.title!r} may mean {' or '.join(keys)}; rename the column")
    return column._replace(key=(open_keys or keys)[0])


def axes_of(titles: Mapping[str, str]) -> dict[str, str]:
    """Return which of ``dx, dy, dz`` each side means, given the title of each.

    Raises:
        OrderError: The names are not three sides.
    """
    measures = [key for key in titles if key in _MEASURES]
    axes = next((axes for axes in AXES if set(measures) <= set(axes)), None)
    names = ", ".join(repr(titles[key]) for key in measures)
    if axes is None or (len(measures) == 3 and set(measures) != set(axes)):
        raise OrderError(f"{names} are not three sides; name them dx, dy, dz")
    if measures and len(measures) < 3:
        others = " and ".join(key for key in axes if key not in titles)
        raise OrderError(f"{names}: a box has three sides; add {others}")
    return dict(zip(axes, SIDES, strict=True))
