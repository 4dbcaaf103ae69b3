"""Files of tensors and JSON without pickle.

Layout: 8 magic bytes; SHA-256 of everything after the checksum (32 bytes); length of the header (8
bytes, little endian); the header in JSON; the tensors, little endian, each at a multiple of 64
bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from packing_env import files

MAGIC = b"PACKENV\x01"
ALIGNMENT = 64
_PREFIX = len(MAGIC) + 32 + 8
_DTYPES = {str(t): t for t in (torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)}


class StorageError(ValueError):
    """A file is truncated, altered or of another format."""


def write(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write a file completely or not at all; after a failure the previous file is kept.

    Raises:
        OSError: The folder is missing or not writable, or the disk is full.
    """
    # 1. The header says where each tensor is; padding aligns the tensors.
    entries, blobs, at = {}, [], 0
    for name, tensor in tensors.items():
        values = tensor.detach().cpu().contiguous()
        blob = values.reshape(-1).view(torch.uint8).numpy().tobytes()
        entries[name] = {
            "dtype": str(values.dtype),
            "shape": list(values.shape),
            "offset": at,
            "size": len(blob),
        }
        padded = -len(blob) % ALIGNMENT
        blobs.append(blob + bytes(padded))
        at += len(blob) + padded
    header = json.dumps({"tensors": entries, "meta": dict(meta)}).encode()
    header += b" " * (-(_PREFIX + len(header)) % ALIGNMENT)
    # 2. The checksum is that of everything after it.
    body = [len(header).to_bytes(8, "little"), header, *blobs]
    digest = hashlib.sha256()
    for part in body:
        digest.update(part)
    with files.whole_file(path) as draft, draft.open("wb") as file:
        file.writelines([MAGIC, digest.digest(), *body])


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and the JSON of a file.

    Raises:
        OSError: The file cannot be read.
        StorageError: The file is truncated, altered or of another format.
    """
    data = bytearray(files.read_bytes(path, None))
    if len(data) < _PREFIX or not data.startswith(MAGIC):
        raise StorageError("not a file of this kind")
    body = memoryview(data)[len(MAGIC) + 32 :]
    if hashlib.sha256(body).digest() != data[len(MAGIC) : len(MAGIC) + 32]:
        raise StorageError("truncated or altered: its checksum does not match")
    begin = _PREFIX + int.from_bytes(body[:8], "little")
    try:
        header = files.parse_json(bytes(data[_PREFIX:begin]))
        tensors = {name: _tensor(data, begin, entry) for name, entry in header["tensors"].items()}
        return tensors, dict(header["meta"])
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise StorageError(f"invalid header ({type(error).__name__}: {error})") from error


def _tensor(data: bytearray, begin: int, entry: Mapping[str, Any]) -> Tensor:
    dtype, shape = _DTYPES[entry["dtype"]], entry["shape"]
    if entry["size"] == 0:
        return torch.empty(shape, dtype=dtype)
    count = entry["size"] // dtype.itemsize
    flat = torch.frombuffer(data, dtype=dtype, count=count, offset=begin + entry["offset"])
    return flat.view(shape)
