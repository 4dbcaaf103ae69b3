"""Loggers: one row of numbers per log interval."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Logger:
    """A receiver of one row of numbers per log interval; a subclass inherits empty methods."""

    def log(self, frames: int, values: Mapping[str, float]) -> None:
        """Write the values of the interval that ends at ``frames``."""

    def resume(self, frames: int) -> None:
        """Continue from a checkpoint: discard what was logged after ``frames``."""

    def close(self) -> None:
        """Flush and close."""


class NullLogger(Logger):
    """A logger that discards everything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder


class CSVLogger(Logger):
    """``metrics.csv``: one line per log interval, written at once.

    The file is rewritten when a new column appears.

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: Path) -> None:
        self.path = Path(folder) / "metrics.csv"
        self._columns: list[str] = []
        self._rows: list[dict[str, Any]] = []

    def log(self, frames: int, values: Mapping[str, float]) -> None:
        """Append a line; rewrite the file if it has a new column."""
        row = {"frames": frames, **values}
        self._rows.append(row)
        new = [name for name in row if name not in self._columns]
        self._columns += new
        self._write(*(("w", self._rows) if new else ("a", [row])))

    def resume(self, frames: int) -> None:
        """Keep the file's lines up to ``frames``, and append to those."""
        if not self.path.is_file():
            return
        with self.path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            self._columns = list(reader.fieldnames or [])
            whole = [dict(row) for row in reader if _whole(row)]
        self._rows = [row for row in whole if int(row["frames"]) <= frames]
        self._write("w", self._rows)

    def _write(self, mode: str, rows: list[dict[str, Any]]) -> None:
        with self.path.open(mode, newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns, restval="")
            if mode == "w":
                writer.writeheader()
            writer.writerows(rows)


def _whole(row: Mapping[str, str | None]) -> bool:
    """Return True if a line has all its values; the last one of a killed run may not."""
    return None not in row.values() and (row["frames"] or "").isdigit()
