"""Instances from a file: lists of item names in JSON, CSV, or saved by torch."""

from __future__ import annotations

import csv
import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch.serialization import safe_globals

from packing_env import files
from packing_env.generators.base import Generator, GeneratorError, Request
from packing_env.generators.fixed_pool import FixedPool
from packing_env.items import Catalogue
from packing_env.types import Instances, ParameterError
from packing_env.values import Option, Positive, check

_SHAPES = ("id2shape.pt", "id2shape.json")
"""Files that give the mesh file of each number in the sequences beside them."""
_NUMBERS: list[Any] = [np.ndarray, np.dtype, np.dtypes.Int64DType, np.dtypes.Int32DType]
_NUMBERS += [value.__reduce__()[0] for value in (np.int64(0), np.zeros(0))]
"""Classes and functions from which torch may rebuild NumPy's integers and arrays. A file that names
any other is refused."""


class SequenceError(GeneratorError):
    """A sequence file cannot be read; the message names the file, the place and the remedy."""


def file_name(path: Any, name: str) -> str | Path:
    """Return ``path``; raise unless it can name a file."""
    if not isinstance(path, (str, Path)) or not str(path):
        raise ParameterError(f"{name}={path!r} must name a file")
    return path


@dataclass(frozen=True)
class SequenceFile(Generator):
    """One instance per CSV line or list: item names (or catalogue rows) in arrival order.

    A text that is the name of an item refers to that item, even if the text is a number. If
    ``id2shape.pt`` or ``id2shape.json`` is in the same folder (as in the data sets of Zhao et al.,
    TOG 2023), numbers refer to the mesh files that it lists. Files of torch are read without
    executing code.

    Attributes:
        path: ``*.json`` (``[["mug", "sugar_box"], ...]``), ``*.csv`` (``mug,sugar_box``), or
            ``*.pt`` (lists or a tensor, saved by torch).
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
        shapes = self._read_shapes()
        sequences = []
        for number, sequence in enumerate(self._read()):
            where = f"{self.path}: sequence {number}"
            if shapes is not None:
                sequence = [_name(entry, shapes, rows, where) for entry in sequence]
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
        if path.suffix not in (".json", ".csv", ".pt"):
            raise SequenceError(f"{path}: sequences are read from .json, .csv or .pt files")
        if path.suffix != ".csv":
            sequences = _load(path)
            if not isinstance(sequences, list) or not all(isinstance(s, list) for s in sequences):
                raise SequenceError(f"{path}: expected a list of lists of item names or numbers")
            return sequences
        try:
            text = files.read_text(path)
            rows = csv.reader(text.splitlines(), delimiter=files.delimiter(text))
            return [row for row in rows if row]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise SequenceError(f"{path}: cannot be read as sequences: {error}") from error

    def _read_shapes(self) -> dict[int, str] | None:
        """Return the mesh files of the numbers in the sequences; ``None`` if no file lists them."""
        path = next(filter(Path.is_file, map(Path(self.path).with_name, _SHAPES)), None)
        if path is None:
            return None
        shapes = _load(path)
        if not isinstance(shapes, dict) or not all(
            str(number).isdecimal() and isinstance(name, str) and Path(name).name
            for number, name in shapes.items()
        ):
            raise SequenceError(f"{path}: expected the names of mesh files by their numbers")
        return {int(number): name for number, name in shapes.items()}


def _load(path: Path) -> Any:
    """Read JSON, or lists and tensors saved by torch, as plain Python values."""
    try:
        if path.suffix == ".json":
            return files.parse_json(files.read_text(path))
        with safe_globals(_NUMBERS):
            data = io.BytesIO(files.read_bytes(path))
            return _plain(torch.load(data, map_location="cpu", weights_only=True))
    except pickle.UnpicklingError as error:
        raise SequenceError(
            f"{path}: holds more than lists, names, numbers and tensors, and such a file could "
            "execute code; save its lists as JSON"
        ) from error
    except (OSError, ValueError, RuntimeError, EOFError, LookupError) as error:
        raise SequenceError(f"{path}: cannot be read as sequences: {error}") from error


def _plain(value: Any) -> Any:
    """Return tensors, arrays and numbers of NumPy as lists and numbers of Python."""
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(entry) for key, entry in value.items()}
    return value


def _name(entry: Any, shapes: Mapping[int, str], rows: Mapping[str, Any], where: str) -> Any:
    """Return the name of the item that a number stands for."""
    if (isinstance(entry, str) and entry.strip() in rows) or not str(entry).strip().isdecimal():
        return entry
    if int(entry) not in shapes:
        raise SequenceError(f"{where} has the number {entry}, which id2shape does not list")
    long = Path(shapes[int(entry)]).with_suffix("")
    return long.as_posix() if long.as_posix() in rows else long.name
