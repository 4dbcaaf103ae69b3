"""Rows of XLSX workbooks, with the units and zeros that the formats of their cells show."""

from __future__ import annotations

import io
import logging
import re
import warnings
import zipfile
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from packing_env import files
from packing_env.extras import require
from packing_env.names import close_names
from packing_env.planner.reading.tables import OTHER_SHEETS, OrderError, Row, Table, new_row
from packing_env.values import is_unit

_LOGGER = logging.getLogger("packing_env.planner")

_SIGNIFICANT = 15
"""Significant digits of a spreadsheet; further digits are rounding errors of its arithmetic."""
_PIECES = re.compile(r"""([0#?@]|General)|"([^"]*)"|\\(.)|[_*].|\[[^\]]*\]|(;)""", re.IGNORECASE)
"""Pieces of a number format: digits, words as in 0.0" cm" and 0.0 \\c\\m, and other marks."""


def read_workbook(path: Path, sheet: str = "") -> Table:
    """Read the rows of a sheet of an XLSX workbook, by default the first sheet.

    Warnings name hidden rows and, if no sheet was chosen, the sheets that are not read.

    Raises:
        OrderError: The workbook cannot be read, or has no such sheet.
        MissingPackageError: openpyxl is not installed.
    """
    if path.suffix.lower() in OTHER_SHEETS:
        raise OrderError(f"{path}: is not read; save it as XLSX or CSV")
    if not path.is_file():
        raise OrderError(f"{path}: cannot be read: no such file")
    values, formulas = (_open(path, data_only) for data_only in (True, False))
    names = [page.title for page in values.worksheets]
    if not names or (sheet and sheet not in names):
        hint = close_names(sheet, names)
        raise OrderError(f"{path}: no sheet {sheet!r}{hint}; sheets: {', '.join(names)}")
    chosen, remark = sheet or names[0], ""
    if not sheet and len(names) > 1:
        others = ", ".join(names[1:])
        remark = f"sheet {chosen} is read, not {others}; {path.name}:NAME reads another"
        _LOGGER.warning("%s: %s", path, remark)
    page, texts = values[chosen], formulas[chosen]
    hidden = [line for line, row in page.row_dimensions.items() if row.hidden]
    if hidden:
        _LOGGER.warning("%s: hidden rows are read too: %s", path, ", ".join(map(str, hidden[:8])))
    merged = _merged_below(page)
    rows: list[Row] = []
    comments: list[Row] = []
    for line, cells in enumerate(page.iter_rows(), 1):
        read = [_cell(cell, texts[cell.coordinate].value) for cell in cells]
        numbers = {n: _digits(c) for n, c in enumerate(cells) if _is_stored(c.value)}
        bare = {n: number for n, number in numbers.items() if number != read[n][0]}
        floats = {n for n in numbers if isinstance(cells[n].value, float) and n not in bare}
        unclear = {n: reason for n, (_, reason) in enumerate(read) if reason}
        unclear |= {
            n: merged[at] for n, cell in enumerate(cells) if (at := cell.coordinate) in merged
        }
        row = new_row(line, [text for text, _ in read])
        if row.cells:
            row = replace(row, floats=frozenset(floats), unclear=unclear, bare=bare)
            comment = row.cells[0].startswith("#") and 0 not in unclear  # not an error, as in #N/A
            (comments if comment else rows).append(row)
    return Table(tuple(rows), tuple(comments), sheet=remark)


def _open(path: Path, data_only: bool) -> Any:
    """Open a workbook with the values of its formulas, or with the formulas."""
    openpyxl = require("openpyxl", "XLSX orders")
    try:
        data = files.read_bytes(path)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(member.file_size for member in archive.infolist()) > files.MAX_BYTES:
                raise OrderError(f"{path}: is too large unpacked; save it as CSV")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they name features of Excel that we do not read
            return openpyxl.load_workbook(io.BytesIO(data), data_only=data_only)
    except OSError as error:
        raise OrderError(f"{path}: cannot be read: {files.reason(error)}") from error
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError) as error:
        if isinstance(error, OrderError):
            raise
        raise OrderError(f"{path}: is not an XLSX workbook; save it as XLSX or CSV") from error


def _merged_below(page: Any) -> dict[str, str]:
    """Return why cells that are merged with a cell of a row above cannot be read."""
    return {
        cell.coordinate: f"{cell.coordinate} is merged with {area.start_cell.coordinate}; write "
        "the value in each row"
        for area in page.merged_cells.ranges
        for row in page.iter_rows(area.min_row + 1, area.max_row, area.min_col, area.max_col)
        for cell in row
        if area.start_cell.value is not None
    }


def _cell(cell: Any, formula: Any) -> tuple[str, str]:
    """Return the text of a cell, and why it cannot be used if it is not text or a number."""
    value = cell.value
    if value is None:
        if isinstance(formula, str) and formula.startswith("="):
            return formula, (
                f"the formula of {cell.coordinate} has no value; open the file in a spreadsheet "
                "program and save it"
            )
        return "", ""
    if isinstance(value, str) and cell.data_type == "e":
        return value, f"{cell.coordinate} is {value}"
    if isinstance(value, (str, bool)):
        return str(value), ""
    if _is_stored(value):
        return _with_unit(_digits(cell), cell.number_format), ""
    reason = f"{cell.coordinate} is a date ({value}); format the column as text or numbers"
    return str(value), reason


def _is_stored(value: Any) -> bool:
    """Return whether a workbook stores a value as a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _digits(cell: Any) -> str:
    """Return a number with its leading zeros, rounded to the digits of the spreadsheet."""
    value, number_format = cell.value, cell.number_format
    text = f"{Decimal(f'{value:.{_SIGNIFICANT}g}'):f}" if isinstance(value, float) else str(value)
    return text.zfill(len(number_format)) if set(number_format) == {"0"} else text


def _with_unit(text: str, number_format: str) -> str:
    """Return a number with the word after the digits of its format, such as a unit.

    Decimals before a unit get a zero, so that 1.125 is not read as 1125.
    """
    word = ""
    for piece in _PIECES.finditer(number_format):
        if piece[4]:  # formats of other numbers follow
            break
        word = "" if piece[1] else word + (piece[2] or piece[3] or "")
    unit = word.strip()
    if not (unit[:1].isalpha() or is_unit(unit)):
        return text
    return f"{text}{'0' if '.' in text else ''} {unit}"
