"""Loggers: one row of numbers per log interval."""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packing_env import folders
from packing_env.files import spreadsheet_cell, whole_file

_LOGGER = logging.getLogger("agents.loggers.logging")


class Logger:
    """A receiver of one row of numbers per log interval; all its methods do nothing by default."""

    @staticmethod
    def check(**options: Any) -> None:
        """Raise ValueError if a package is missing that the logger needs with these options."""

    def log(self, frames: int, values: Mapping[str, float]) -> None:
        """Write the values of the interval that ends at ``frames``."""

    def resume(self, frames: int) -> None:
        """Continue from a checkpoint: discard the rows that were logged after ``frames``."""

    def close(self) -> None:
        """Flush and close."""


class NullLogger(Logger):
    """A logger that discards everything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder


class CSVLogger(Logger):
    """``metrics.csv``: one line per log interval, written immediately.

    The file is rewritten when a new column appears. A line that cannot be written, for example on a
    full disk, is written together with the next one. A warning names the first such line, and
    another one at the end says how many lines are missing.

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: Path) -> None:
        self.path = Path(folder) / "metrics.csv"
        self._columns: list[str] = []
        self._rows: list[dict[str, Any]] = []
        self._written = 0
        self._error: OSError | None = None

    def log(self, frames: int, values: Mapping[str, float]) -> None:
        """Append a line; rewrite the file if there is a new column or if lines are missing."""
        row = {"frames": frames, **{spreadsheet_cell(name): v for name, v in values.items()}}
        new = [name for name in row if name not in self._columns]
        self._columns += new
        self._rows.append(row)
        self._write(whole=bool(new))

    def resume(self, frames: int) -> None:
        """Keep the file's lines up to ``frames``; later lines are appended to them."""
        if not self.path.is_file():
            return
        with self.path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            reader.fieldnames = [spreadsheet_cell(name) for name in reader.fieldnames or ()]
            self._columns = list(reader.fieldnames)
            whole = [dict(row) for row in reader if _whole(row)]
        self._rows = [row for row in whole if int(row["frames"]) <= frames]
        self._write(whole=True)

    def close(self) -> None:
        """Try once more to write the missing lines; warn if some are lost."""
        if self._written < len(self._rows):
            self._write(whole=True)
        if lost := len(self._rows) - self._written:
            text = "%d of %d lines of %s were not written (%s)"
            _LOGGER.warning(text, lost, len(self._rows), self.path, self._error)

    def _write(self, *, whole: bool) -> None:
        before = len(self._rows) - 1
        try:
            if whole or self._written < before or not self.path.is_file():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with whole_file(self.path) as draft:
                    self._put(draft, os.O_CREAT | os.O_EXCL, self._rows)
            else:
                self._put(self.path, os.O_APPEND, self._rows[before:])
        except OSError as error:
            if self._error is None:
                text = "a line of %s cannot be written (%s); training continues"
                _LOGGER.warning(text, self.path, error)
            self._error = error
            return
        self._written = len(self._rows)

    def _put(self, path: Path, flags: int, rows: list[dict[str, Any]]) -> None:
        """Write rows to a new file, or append them; never follow a link."""
        handle = folders.open_below(path.parent, path.name, os.O_WRONLY | flags)
        with os.fdopen(handle, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns, restval="")
            if flags & os.O_CREAT:
                writer.writeheader()
            writer.writerows({k: spreadsheet_cell(v) for k, v in row.items()} for row in rows)


def _whole(row: Mapping[str, str | None]) -> bool:
    """Return True if a line has all its values; the last line of a killed run may be incomplete."""
    return None not in row.values() and (row["frames"] or "").isdigit()
