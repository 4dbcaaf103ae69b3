"""Reader of PLY: vertices, and faces or strips of triangles.

trimesh 5.2 takes for granted that all faces of a binary PLY have equally many corners.
"""

from __future__ import annotations

import re
import struct
import warnings
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from packing_env import files
from packing_env.items.meshes import limits
from packing_env.items.meshes.formats import gltf
from packing_env.items.meshes.surface import MeshError, Surface, damaged, surface
from packing_env.items.meshes.triangulate import triangulate_faces

KINDS = {
    "char": "b", "uchar": "B", "short": "h", "ushort": "H", "int": "i", "uint": "I", "float": "f",
    "double": "d", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i",
    "uint32": "I", "int64": "q", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip
"""Code of each type of PLY, for `struct` and NumPy."""
DOUBLE = "<d"
END_OF_HEADER = re.compile(rb"[\r\n]end_header")


_Property = tuple[str, str, str]
"""Name, and `struct` format of the values and, if it is a list, of its length."""


class _Element(NamedTuple):
    name: str
    num_rows: int
    properties: list[_Property]


def read_ply(data: bytes) -> Surface:
    """Read vertices, and faces or strips of triangles; other elements are ignored.

    Raises:
        MeshError: The file is damaged, too large, or not PLY.
    """
    header, *bodies = END_OF_HEADER.split(data, maxsplit=1)
    if not data.startswith(b"ply") or not bodies:
        raise MeshError("no PLY header; check the file's suffix")
    body = bodies[0].partition(b"\n" if b"\n" in header else b"\r")[2]
    vertices, polygons, at = np.zeros((0, 3)), list[Sequence[int]](), 0
    name = "header"
    try:
        is_text, elements = _header(header)
        if is_text:  # numbers in double precision
            limits.check_bytes("has PLY text of", len(body), files.MAX_TEXT)
            name = "text"
            body = _numbers(body, elements)
        for name, num_rows, properties in elements:
            columns, at = _rows(num_rows, properties, body, at)
            if name == "vertex":
                vertices = np.stack([np.asarray(columns[axis]).reshape(-1) for axis in "xyz"], 1)
            elif name in ("face", "tristrips"):
                key = "vertex_index" if "vertex_index" in columns else "vertex_indices"
                for row in columns[key]:
                    ids = [int(corner) for corner in row]
                    polygons += _strips(ids) if name == "tristrips" else [ids]
    except (DeprecationWarning, LookupError, ValueError, OverflowError, struct.error) as error:
        raise damaged(f"PLY {name!r} is invalid, or ends too early ({error})") from error
    faces = triangulate_faces(vertices, list(enumerate(polygons)), "face")
    warning = "more data follow the last element that its header declares; they are ignored"
    return surface(vertices, faces, [warning] * bool(body[at:].strip()))


def _header(header: bytes) -> tuple[bool, list[_Element]]:
    """Return whether the data are text, and the elements."""
    order, elements = "", list[_Element]()

    def form(kind: str) -> str:
        return order + KINDS[kind] if order else DOUBLE

    for line in header.decode("ascii", "replace").splitlines():
        match line.split():
            case ["format", kind, *_]:
                order = {"ascii": "", "binary_big_endian": ">", "binary_little_endian": "<"}[kind]
            case ["element", name, count]:
                if not count.isdigit() or int(count) > files.MAX_BYTES:
                    raise ValueError(f"count {count} of {name} is more than the file can hold")
                elements.append(_Element(name, int(count), []))
            case ["property", "list", length, kind, name]:
                elements[-1].properties.append((name, form(kind), form(length)))
            case ["property", kind, name]:
                elements[-1].properties.append((name, form(kind), ""))
    return not order, elements


def _numbers(text: bytes, elements: Sequence[_Element]) -> bytes:
    """Return text as doubles: of each row the values that are declared, then the text after them.

    Rows are lines that may hold more values, or fewer: then rows and lines need not agree.
    """
    lines = (line for line in text.splitlines() if line.strip())
    numbers = array("d")
    try:
        for _, num_rows, properties in elements:
            for _ in range(num_rows if properties else 0):
                words, end = next(lines).split(), 0
                for _, _, length in properties:
                    end += 1 + (int(float(words[end])) if length else 0)
                if not 0 < end <= len(words):
                    raise IndexError
                numbers.extend(map(float, words[:end]))
    except (IndexError, StopIteration):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy < 2.3 warns of words that are not numbers
            return np.fromstring(text.decode("ascii").strip(), sep=" ").tobytes()
    return numbers.tobytes() + b"\n".join(lines)


def _rows(
    num_rows: int, properties: Sequence[_Property], body: bytes, at: int
) -> tuple[dict[str, Any], int]:
    """Return the values of each property in `num_rows` rows, and the position after them."""
    if not num_rows or not properties:
        return {name: [] for name, _, _ in properties}, at
    # 1. All rows at once, if their lists are as long as those of the first row.
    fields: list[Any] = []
    end = at
    for name, form, length in properties:
        number, start = _length(body, length, end)
        fields += [(f"length of {name}", length)] if length else []
        fields.append((name, form, (number,)))
        end = start + number * struct.calcsize(form)
    row = np.dtype(fields)
    if at + num_rows * row.itemsize <= len(body):
        rows = np.frombuffer(body, row, num_rows, at)
        lengths = [rows[name] for name in row.names or () if name.startswith("length of ")]
        if all((each == each[0]).all() for each in lengths):
            columns = {
                name: rows[name].tolist() if length else rows[name]
                for name, _, length in properties
            }
            return columns, at + num_rows * row.itemsize
    # 2. Otherwise one row after the other.
    lists: dict[str, list[Any]] = {name: [] for name, _, _ in properties}
    for _ in range(num_rows):
        for name, form, length in properties:
            number, at = _length(body, length, at)
            lists[name].append(struct.unpack_from(f"{form[0]}{number}{form[1]}", body, at))
            at += number * struct.calcsize(form)
    single = {name: np.array(lists[name], form) for name, form, length in properties if not length}
    return {**lists, **single}, at


def _length(body: bytes, form: str, at: int) -> tuple[int, int]:
    """Return the number of values at a position, and the position of the first of them."""
    if not form:
        return 1, at
    length = int(struct.unpack_from(form, body, at)[0])
    if length < 0:
        raise ValueError(f"a list has the length {length}")
    return length, at + struct.calcsize(form)


def _strips(ids: Sequence[int]) -> list[list[int]]:
    """Return the triangles of strips, which -1 separates."""
    corners = np.array(ids, np.int64)
    parts = np.split(corners, np.flatnonzero(corners < 0))
    return [ids for part in parts for ids in gltf.triangles(gltf.STRIP, part[part >= 0]).tolist()]
