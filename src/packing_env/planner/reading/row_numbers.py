"""Checks of columns that number rows or boxes, which have no other effect."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from packing_env.planner.reading.lengths import exact, is_number
from packing_env.planner.reading.synonyms import numbers_goods, plain
from packing_env.planner.reading.tables import OrderError, Row

_RANGE = re.compile(r"\s*(\d+)\s*(?:[-‒–—~&,/]|to|\.\.+)\s*(\d+).*", re.DOTALL)


def check_row_numbers(path: Path, rows: Sequence[Row], column: int, title: str) -> None:
    """Raise if row numbers may be quantities: a single number is not 1, or they do not increase."""
    cells = [row.cells[column] for row in rows if column < len(row.cells)]
    numbers = [exact(cell) for cell in cells if is_number(cell)]
    rising = all(one < other for one, other in pairwise(numbers))
    if not rising or (len(numbers) == 1 and numbers != [1]):
        raise OrderError(f"{path}: {title!r} may count rows or boxes; name it row or quantity")


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
