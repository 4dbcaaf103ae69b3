"""Files of tensors and JSON: archives of NumPy, without pickle and without compression."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from packing_env import files

_META = "meta"
"""Name of the array that holds the JSON."""


class StorageError(ValueError):
    """A file is truncated, altered or of another format."""


def write(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write a file completely or not at all; after a failure the previous file is kept.

    Raises:
        OSError: The folder is missing or not writable, or the disk is full.
    """
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    arrays[_META] = np.frombuffer(json.dumps(dict(meta)).encode(), np.uint8)
    with files.whole_file(path) as draft, draft.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and the JSON of a file.

    Raises:
        OSError: The file cannot be read.
        StorageError: The file is truncated, altered or of another format.
    """
    data = io.BytesIO(files.read_bytes(path, None))
    try:
        with zipfile.ZipFile(data) as archive:  # compressed arrays may be far larger than the file
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise StorageError("its arrays are compressed")
        with np.load(data, allow_pickle=False) as arrays:  # compares the arrays with checksums
            tensors = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        meta = tensors.pop(_META).numpy().tobytes()
        return tensors, dict(files.parse_json(meta))
    except (
        EOFError, KeyError, MemoryError, RuntimeError, TypeError, ValueError, zipfile.BadZipFile,
    ) as error:  # fmt: skip
        raise StorageError(f"truncated, altered or of another format: {error}") from error
