"""Instances from a file: JSON lists or CSV lines of item names."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from packing_env import files
from packing_env.generators.base import Generator, GeneratorError, Request
from packing_env.generators.fixed_pool import FixedPool
from packing_env.items import Catalogue
from packing_env.types import Instances, ParameterError
from packing_env.values import Option, Positive, check


class SequenceError(GeneratorError):
    """A sequence file cannot be read; the message names the file, the place and the remedy."""


def file_name(path: Any, name: str) -> str | Path:
    """Return the name of a file."""
    if not isinstance(path, (str, Path)) or not str(path):
        raise ParameterError(f"{name}={path!r} must name a file")
    return path


@dataclass(frozen=True)
class SequenceFile(Generator):
    """One instance per CSV line or JSON list: item names (or catalogue rows) in arrival order.

    A text that is the name of an item refers to that item, even if the text is a number.

    Attributes:
        path: ``*.json`` (``[["mug", "sugar_box"], ...]``) or ``*.csv`` (``mug,sugar_box``).
        scale: Size variant to use for items that have several.
    """

    path: Annotated[str | Path, Option(read=file_name)]
    scale: Positive = 1.0
    finite = True

    def __post_init__(self) -> None:
        check(self, "generator.")

    def sample(self, request: Request, catalogue: Catalogue) -> Instances:
        """Return all instances of the file, in its order."""
        rows: dict[str, list[int]] = {}
        for index, name in enumerate(catalogue.names):
            if catalogue.sources[index].get("scale", 1.0) == self.scale:
                rows.setdefault(name, []).append(index)
        sequences = []
        for number, sequence in enumerate(self._read()):
            where = f"{self.path}: sequence {number}"
            sequences.append(tuple(self._row(entry, where, rows) for entry in sequence))
        return FixedPool(tuple(sequences)).sample(request, catalogue)

    def _row(self, entry: Any, where: str, rows: dict[str, list[int]]) -> int:
        name = entry.strip() if isinstance(entry, str) else None
        if name in rows:
            if len(rows[name]) == 1:
                return rows[name][0]
            reason = f"ambiguous: rows {rows[name]} of the catalogue have that name; give the row"
        elif isinstance(entry, int) and not isinstance(entry, bool):
            return entry
        elif name is None:
            reason = "neither the name of an item nor a row of the catalogue"
        elif name.isdecimal():
            return int(name)
        elif longer := [known for known in sorted(rows) if known.endswith(f"/{name}")]:
            reason = f"ambiguous; write one of {', '.join(longer[:8])}"
        else:
            known = ", ".join(sorted(rows)[:8])
            reason = f"not in the catalogue at scale {self.scale}; known items: {known}, ..."
        raise SequenceError(f"{where} names {entry!r}, which is {reason}")

    def _read(self) -> list[list[Any]]:
        path = Path(self.path)
        if path.suffix not in (".json", ".csv"):
            raise SequenceError(f"{path}: sequences are read from .json or .csv files")
        try:
            text = files.read_text(path)
            if path.suffix == ".csv":
                rows = csv.reader(text.splitlines(), delimiter=files.delimiter(text))
                return [row for row in rows if row]
            sequences = files.parse_json(text)
        except (OSError, UnicodeDecodeError, ValueError, csv.Error) as error:
            raise SequenceError(f"{path}: cannot be read as sequences: {error}") from error
        if not isinstance(sequences, list) or not all(isinstance(s, list) for s in sequences):
            raise SequenceError(f"{path}: expected a JSON list of lists of item names")
        return sequences
