"""The rows and columns of an order file, and the reader of CSV in any usual encoding.

A row has its line number and its cells; comments and empty rows are left out.
:mod:`packing_env.planner.reading.orders` interprets the columns.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from packing_env import files
from packing_env.planner.reading.lengths import like_number
from packing_env.planner.reading.synonyms import (
    HUNGARIAN,
    MEANING,
    meaning,
    plain,
    without_order,
    without_package,
)

_LOGGER = logging.getLogger("packing_env.planner")

OTHER_SHEETS = (".xls", ".ods", ".numbers")
WORKBOOKS = (".xlsx", ".xlsm", *OTHER_SHEETS)
_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
"""The first line with which spreadsheets name the separator."""
_WINDOWS = frozenset(b"\x80\x92\x96\x97\x99") | frozenset(range(0xA0, 0x100))
"""Bytes that are read as Windows-1252. Other bytes are letters of older encodings."""
_OLD = ("cp1252", "cp1250", "iso8859_2", "cp1254", "cp1251", "gb18030", "cp932", "big5", "cp949")
"""Older encodings: of Western, Central European, Turkish and Russian Windows, of Linux in Central
Europe, and of China, Japan, Taiwan and Korea."""
_CELL = re.compile(r"[;,\t|(\[\n]|\uff08")
"""Characters that separate the names of columns from each other and from their units."""
_BEGINNING = 4096
"""Characters of a file that are searched for names of columns."""
_SEPARATORS = ";\t|,"
_OF_RULES = "-=+:" + _SEPARATORS + " \n"
"""Characters of lines between the rows of a list."""
_TIMES = re.compile(r"(?:(.*\S)\s+)?[x\u00d7](\d+)", re.IGNORECASE | re.DOTALL)
_SAVE = "save it as CSV UTF-8"
_DECIMAL = re.compile(r"[+-]?(?:\d+([.,])(?:\d{1,2}|\d{4,})|0([.,])\d+|\d{4,}([.,])\d+)")
_GROUP = re.compile(r"[+-]?[1-9]\d{0,2}([.,])\d{3}")
_TEXT = re.compile(r'="[^"]*"')
"""A text as exports protect it from spreadsheets: ="007"."""
_MARKS = re.compile(r"[^\d+-]")
_LONGEST, _LONGEST_OF_SMALL = 20, 100
"""Metres. A mark such as the comma in 24,000 is decimal if the length would otherwise be longer
than this. The second number holds for units up to a centimetre: a bar may have 24,000 mm."""


class OrderError(ValueError):
    """An error in an order file; the message names the place and the remedy."""


@dataclass(frozen=True)
class Columns:
    """The keys that entries of a file may state.

    Attributes:
        titles: Keys of the list of entries in YAML and JSON files.
        keys: Keys of an entry.
        count: Key of the quantity.
        needed: Description of the required keys, for messages.
        stated: What the user says that columns mean: the key for a title (in the form of
            :func:`packing_env.planner.reading.synonyms.plain`), or "" for a column that is left
            out. None if the user cannot say it.
        matched: The titles of `stated` that some file has.
        of_containers: Whether an entry is a container, whose titles may say ``inside``.
    """

    titles: tuple[str, ...]
    keys: tuple[str, ...]
    count: str
    needed: str
    stated: Mapping[str, str] | None = None
    matched: set[str] = field(default_factory=set)
    of_containers: bool = False


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        line: Its line number, from 1.
        cells: Its cells, without empty cells at the end.
        floats: Columns of the cells that a workbook stores as numbers that are not whole.
        unclear: Why a cell cannot be read, by its column. It matters only if the column is used.
        bare: The cells whose units come from the number formats of a workbook, without the units.
    """

    line: int
    cells: tuple[str, ...]
    floats: frozenset[int] = frozenset()
    unclear: Mapping[int, str] = field(default_factory=dict)
    bare: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """The rows of a file.

    Attributes:
        rows: Rows with at least one cell that is not empty.
        comments: Lines that begin with ``#``.
        delimiter: Character between the cells; "" for a workbook.
        sheet: Name of the sheet if the user named none of several, and how to read another.
    """

    rows: tuple[Row, ...]
    comments: tuple[Row, ...] = ()
    delimiter: str = ""
    sheet: str = ""


@dataclass(frozen=True)
class Header:
    """The columns of a table.

    Attributes:
        keys: The key that each column means; "" for a column without a name, or `LEFT_OUT`. Several
            columns may mean ``name``, such as the article number and the description.
        titles: The name of each key in the file.
        unit: Unit of the lengths, if the header states one.
        units: Unit of each side, if these differ.
        weights: Unit of each column of weights that states one.
        renamed: Undocumented names with their meanings, as in ``Breite as width``.
    """

    keys: Sequence[str] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    unit: str | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    renamed: Sequence[str] = ()

    def title(self, key: str) -> str:
        """Return the name of a key in the file."""
        return self.titles.get(key, key)


def split_sheet(entry: str | Path) -> tuple[Path, str]:
    """Split ``file.xlsx:Sheet``; the sheet is "" if none is named."""
    match = re.fullmatch(r"(.*\.xls[xm]):([^/\\]+)", str(entry), re.IGNORECASE | re.DOTALL)
    return (Path(match[1]), match[2]) if match else (Path(entry), "")


def split_count(word: str) -> tuple[str, int | None]:
    """Split ``"kit.csv x3"`` into the entry and its number; an entry without a number has None.

    A word that is only a number, such as ``x3``, gives an empty entry. If a file has the
    whole word as its name, the whole word is the entry.
    """
    match = _TIMES.fullmatch(word)
    if match is None or (match[1] and Path(word).exists()):
        return word, None
    return match[1] or "", int(match[2])


def read_text(path: Path) -> str:
    """Read a text in UTF-8, in UTF-16 with a byte-order mark, or in an older encoding.

    The names of columns show the encoding; without them it is Windows-1252, if unambiguous.

    Raises:
        OrderError: The file is missing, is not text, or has an ambiguous encoding.
    """
    try:
        data = files.read_bytes(path, files.MAX_TEXT)
    except OSError as error:
        raise OrderError(f"{path}: cannot be read: {files.reason(error)}") from error
    text = _decoded(path, data)
    return text.replace("\ufeff", "").replace("\r\n", "\n").replace("\r", "\n")


def _decoded(path: Path, data: bytes) -> str:
    if data.startswith(b"PK\x03\x04"):
        raise OrderError(f"{path}: is a workbook or an archive, not text; name a workbook .xlsx")
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise OrderError(f"{path}: is UTF-32; {_SAVE}")
    try:
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return data.decode("utf-16")
        if b"\0" in data:
            raise OrderError(f"{path}: is not text, or UTF-16 without its mark; {_SAVE}")
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF8)):
            raise OrderError(f"{path}: cannot be read: {error}; {_SAVE}") from error
    start = data[:_BEGINNING]
    # Hungarian names of columns are the same in Western encodings, but not all other words. One
    # such word alone may be a name of a part.
    lines = [_CELL.split(line) for line in start.decode("cp1250", "replace").split("\n")]
    hungarian = any(len(HUNGARIAN & {plain(cell.strip('"')) for cell in row}) > 1 for row in lines)
    old = ("cp1250", *_OLD) if hungarian else _OLD
    encoding = max(old, key=lambda each: _num_names(_CELL.split(start.decode(each, "replace"))))
    if encoding != _OLD[0]:
        with contextlib.suppress(UnicodeDecodeError):
            text = data.decode(encoding)
            _LOGGER.warning("%s: not UTF-8, read as %s, as its columns suggest", path, encoding)
            return text
    unclear = {byte for byte in data if byte >= 0x80} - _WINDOWS
    if unclear:
        line = data[: min(map(data.index, unclear))].count(b"\n") + 1
        raise OrderError(f"{path}, line {line}: letters of an unknown encoding; {_SAVE}")
    _LOGGER.warning("%s: not UTF-8, read as Windows-1252 (Latin-1)", path)
    return data.decode("cp1252")


def _num_names(cells: Sequence[str]) -> int:
    """Return how many cells are names of columns, perhaps with a unit in brackets."""
    bare = (without_package(_CELL.split(cell.strip('"'))[0]) for cell in cells)
    names = map(without_order, bare)
    return sum(meaning(plain(name)) in MEANING for name in names)


def read_document(path: Path) -> Any:
    """Read a JSON or YAML file; numbers stay texts, so that they can be read exactly.

    Raises:
        OrderError: The file is missing, is not text, or is damaged.
    """
    text = read_text(path)
    try:
        if path.suffix.lower() == ".json":
            return files.parse_json(text, parse_float=str, parse_int=str)
        return files.parse_yaml(text, as_texts=True)
    except ValueError as error:
        raise OrderError(f"{path}: cannot be read: {error}") from error


def read_csv(path: Path) -> Table:
    """Read the rows of a CSV file.

    Raises:
        OrderError: The file is missing, or is not text.
    """
    lines = read_text(path).split("\n")
    named = _SEPARATOR.fullmatch(lines[0].strip(" "))
    if named:
        lines[0] = ""
    comments = {number: line for number, line in enumerate(lines, 1) if line.lstrip()[:1] == "#"}
    lines = ["" if line.lstrip()[:1] == "#" else line for line in lines]
    text = "\n".join(lines)
    mark = named[1] if named else _delimiter(text)
    reader = csv.reader(io.StringIO(text), delimiter=mark, skipinitialspace=mark != "\t")
    rows, line = [], 1
    try:
        for cells in reader:
            # A name of several lines may hold three numbers, unless they fill the rest of the row.
            held = [
                row
                for n, cell in enumerate(cells)
                for row in (part.split(mark) for part in cell.split("\n") if part != cell)
                if len(row) > 3 or n + len(row) >= len(cells)
            ]
            if any(sum(map(like_number, row)) >= 3 for row in held):
                raise OrderError(f"{path}, line {line}: a quotation mark holds rows; close it")
            rows.append(new_row(line, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        raise OrderError(f"{path}, line {line}: cannot be read: {error}") from error
    return Table(
        tuple(row for row in rows if row.cells and not _is_rule(mark.join(row.cells))),
        tuple(new_row(n, text.split(mark)) for n, text in comments.items()),
        mark,
    )


def _delimiter(text: str) -> str:
    """Return the separator of three or more names of columns, or else that of the first line.

    Titles above the names may have other marks, as in ``Miller Ltd., London``.
    """
    lines = [line for line in text[:_BEGINNING].split("\n") if line and not _is_rule(line)]
    first = files.delimiter("\n".join(lines))
    names = [
        (_num_names(line.split(mark)), mark) for mark in (first, *_SEPARATORS) for line in lines
    ]
    most, best = max(names, key=lambda pair: pair[0], default=(0, first))
    return best if most >= 3 else first


def _is_rule(line: str) -> bool:
    """Return whether a line only separates rows of a list, as SAP prints."""
    return ("---" in line or "===" in line) and not line.strip(_OF_RULES)


def decimal_comma(path: Path, delimiter: str, numbers: Sequence[tuple[int, str, Fraction]]) -> bool:
    """Return whether commas are decimal in the numbers of a table.

    Args:
        path: The file.
        delimiter: Character between its cells; "" for a workbook.
        numbers: Line, text and unit of each number; the unit is in metres, or 0 for numbers that
            are not lengths.

    Raises:
        OrderError: Points may separate thousands, because no other number shows that they are
            decimal.
    """
    marks = {_decimal_mark(text, unit) for _, text, unit in numbers}
    for line, text, _ in numbers if delimiter != "," and "." not in marks else ():
        if (group := _GROUP.fullmatch(text)) and group[1] == ".":
            decimal = f"write it as {text}0" if delimiter else "store it as a number, not as a text"
            raise OrderError(
                f"{path}, line {line}: {text!r} may be {float(text):g} or {text.replace('.', '')}: "
                "write thousands without a separator; if the point is decimal in this file, "
                f"{decimal}"
            )
    return "," in marks


def _decimal_mark(text: str, unit: Fraction) -> str | None:
    """Return the decimal mark of a number if it cannot separate thousands."""
    if len(set(marks := _MARKS.findall(text))) > 1:  # 1.250,5
        return marks[-1]
    if group := _GROUP.fullmatch(text):
        thousands = abs(int(text.replace(group[1], "")))
        longest = _LONGEST if unit > Fraction(1, 100) else _LONGEST_OF_SMALL
        return group[1] if thousands * unit > longest else None
    decimal = _DECIMAL.fullmatch(text)
    return decimal and (decimal[1] or decimal[2] or decimal[3])


def new_row(line: int, cells: Any) -> Row:
    """Return a row without the empty cells at its end."""
    texts = [str(cell).strip() for cell in cells]
    stripped = [text[2:-1] if _TEXT.fullmatch(text) else text for text in texts]
    while stripped and not stripped[-1]:
        stripped.pop()
    return Row(line, tuple(stripped))
