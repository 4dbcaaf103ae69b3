"""Files that others made are read if regular, up to a number of bytes; ours are written whole."""

from __future__ import annotations

import contextlib
import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from packing_env.names import plain_name

MAX_BYTES = 2**28
"""Largest file of a mesh that is read."""
MAX_TEXT = 2**26
"""Largest text that is read: sequences, plans, meshes that are text."""


def read_bytes(path: str | Path, at_most: int | None = MAX_BYTES) -> bytes:
    """Read a regular file: reading a pipe waits for ever, and a device may have no end.

    Args:
        path: The file, or a link to one.
        at_most: Bytes of the largest file that is read; None: any.

    Raises:
        OSError: It cannot be read, is not a regular file, or is larger.
    """
    place = Path(path)
    try:
        status = place.stat()
    except ValueError as error:  # a zero byte, or half of a character
        raise OSError(f"not a path ({error})") from error
    if not stat.S_ISREG(status.st_mode):
        raise OSError("not a regular file")
    with place.open("rb") as file:
        if at_most is None:
            return file.read()
        data = file.read(at_most + 1) if status.st_size <= at_most else b""
    size = max(status.st_size, len(data))
    if size > at_most:
        from packing_env.memory import human  # imports torch

        raise OSError(f"it has {human(size)}, and at most {human(at_most)} are read")
    return data


def read_text(path: str | Path, at_most: int = MAX_TEXT, encoding: str = "utf-8") -> str:
    """Read a regular text file.

    Raises:
        OSError: As :func:`read_bytes`.
        UnicodeDecodeError: It is not text.
    """
    return read_bytes(path, at_most).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def reason(error: Exception) -> str:
    """Return why a file cannot be read or written, without the number of the error."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return getattr(error, "strerror", None) or str(error)


def delimiter(text: str) -> str:
    """Return what separates the cells of CSV: a semicolon or a tab of its first line, or a comma.

    Spreadsheets write semicolons where numbers have a decimal comma.
    """
    first = text.lstrip("\n").partition("\n")[0]
    return next((mark for mark in ";\t" if mark in first), ",")


_FORMULA = re.compile(r"(^|[;,|])(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")


def spreadsheet_cell(value: Any) -> Any:
    """Return a cell of CSV: text that begins no row and no formula; numbers stay.

    ``'`` stands before what a spreadsheet would take for one, also behind a separator, where it may
    divide the text: which separator it expects depends on the country.
    """
    if not isinstance(value, str):
        return value
    text = plain_name(value)
    try:
        float(text)
    except ValueError:
        return _FORMULA.sub(r"\1'", text)
    return text


def parse_json(text: str | bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: It is not JSON, or its lists and objects are nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("lists or objects are nested too deeply") from None


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Write a file atomically: yield a draft that takes the name on success, and is removed if not.

    Args:
        path: The file; an existing one stays as it is until the draft replaces it.
    """
    target = Path(path)
    draft = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        yield draft
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
