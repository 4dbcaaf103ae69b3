"""Limits of what a mesh file may unfold to, checked before it is unfolded.

A few kilobytes can name a part that is made of two parts, each of two others, and so on, or hold
zeros that were compressed a thousandfold.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from packing_env import files
from packing_env.items.meshes.surface import MeshError
from packing_env.memory import human

MAX_PARTS = 1024
"""Largest number of separate parts of a solid; some checks compare all pairs of them."""
MAX_VERTICES = 2**24
"""Largest number of vertices of a solid, each instance of a part counted."""
CHUNK = 2**20
"""Bytes of XML that are parsed at once."""
END = "/"
"""The name of the end of an element."""


def check_parts(what: str, parts: int) -> None:
    """Raise `MeshError` for more than `MAX_PARTS` parts."""
    if parts > MAX_PARTS:
        raise MeshError(
            f"{what}: has {parts:,} separate parts, and at most {MAX_PARTS:,} are read; join them, "
            "or export fewer"
        )


def _check_size(path: Path, parts: int, vertices: int) -> None:
    check_parts(str(path), parts)
    if vertices > MAX_VERTICES:
        raise MeshError(
            f"{path}: unfolds to {vertices:,} vertices, and at most {MAX_VERTICES:,} are read; "
            "export it with fewer triangles"
        )


# ---------------------------------------------------------------------- trees of parts


class Parts:
    """Named parts, each with a surface, or made of others, or both.

    Attributes:
        made_of: The parts that a part is made of, by name; one may be named several times. The
            name of the whole is "".
        vertices: Vertices of the parts that have a surface.
    """

    def __init__(self) -> None:
        self.made_of: dict[str, list[str]] = defaultdict(list)
        self.vertices: dict[str, int] = {}

    def check(self, path: Path) -> int:
        """Return the number of surfaces in the whole; raise `MeshError` beyond the limits."""
        total: dict[str, tuple[int, int]] = {}
        waiting, above = [""], set[str]()
        while waiting:
            part = waiting[-1]
            missing = [inner for inner in self.made_of.get(part, ()) if inner not in total]
            if missing and part in above:
                raise MeshError(f"{path}: its parts contain each other; export it again")
            if missing:
                above.add(part)
                waiting += dict.fromkeys(missing)
                continue
            waiting.pop()
            above.discard(part)
            inside = [total[inner] for inner in self.made_of.get(part, ())]
            count = sum(count for count, _ in inside) + (part in self.vertices)
            total[part] = count, sum(n for _, n in inside) + self.vertices.get(part, 0)
        _check_size(path, *total[""])
        return total[""][0]


def check_3mf(path: Path, data: bytes) -> int:
    """Return the number of surfaces of a 3MF file; raise `MeshError` if it unfolds to too much."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            if size > files.MAX_BYTES:
                raise MeshError(
                    f"{path}: unpacks to {human(size)}, and at most {human(files.MAX_BYTES)} are "
                    "read; export it with fewer triangles"
                )
            parts = _parts_of_3mf(archive)
    except (zipfile.BadZipFile, expat.ExpatError, NotImplementedError, OSError) as error:
        raise MeshError(f"{path}: cannot be parsed as 3MF ({error}); export it again") from error
    return parts.check(path)


def _parts_of_3mf(archive: zipfile.ZipFile) -> Parts:
    """Return the objects of the model, with those of other files that it names."""
    parts, current = Parts(), ""
    inside = {name.strip("/"): name for name in archive.namelist()}
    model = next((name for name in archive.namelist() if "3d/3dmodel.model" in name.lower()), None)
    for tag, given in _elements(archive.read(model)) if model else ():
        if tag == "object":
            current = given.get("id", "")
        elif tag == "mesh":
            parts.vertices.setdefault(current, 0)
        elif tag == "vertex":
            parts.vertices[current] = parts.vertices.get(current, 0) + 1
        elif tag in ("item", "component"):
            part = given.get("objectid", "")
            parts.made_of["" if tag == "item" else current].append(part)
            if (other := given.get("path", "").strip("/")) in inside:
                found = sum(tag == "vertex" for tag, _ in _elements(archive.read(inside[other])))
                parts.vertices[part] = parts.vertices.get(part, 0) + found
    return parts


def check_dae(path: Path, data: bytes) -> int:
    """Return the surfaces of a COLLADA file; raise `MeshError` if its nodes unfold to too much."""
    parts, above, number = Parts(), [""], 0
    try:
        for tag, given in _elements(data):
            here = above[-1]
            if tag == END:
                above.pop()
                continue
            if tag == "geometry":
                here = f"#{given.get('id')}"
                parts.vertices[here] = 0
            elif tag == "float_array" and here in parts.vertices:
                parts.vertices[here] += int(given.get("count", "0")) // 3
            elif tag == "node":
                number += 1
                parts.made_of[here].append(f"#{given.get('id', f' {number}')}")
                here = parts.made_of[here][-1]
            elif tag == "library_nodes":
                here = " library"
            elif tag in ("instance_node", "instance_geometry"):
                parts.made_of[here].append(given.get("url", ""))
            above.append(here)
    except (expat.ExpatError, ValueError) as error:
        raise MeshError(f"{path}: not a COLLADA file ({error}); repair the file") from error
    return parts.check(path)


def _elements(data: bytes) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the attributes of each element of XML, and `END` where it ends."""
    found: list[tuple[str, dict[str, str]]] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        own = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
        found.append((name.rpartition(" ")[2], own))

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda name: found.append((END, {}))
    for begin in range(0, len(data), CHUNK):
        parser.Parse(data[begin : begin + CHUNK], begin + CHUNK >= len(data))
        yield from found
        found.clear()


def check_glb(path: Path, data: bytes) -> int:
    """Return the surfaces of a GLB file; raise `MeshError` if it unfolds to too much."""
    if len(data) < 20 or data[:4] != b"glTF":
        raise MeshError(f"{path}: no GLB header; check the file's suffix")
    try:
        document = files.parse_json(data[20 : 20 + struct.unpack_from("<I", data, 12)[0]])
        counts = [int(accessor["count"]) for accessor in document.get("accessors", ())]
        meshes = [mesh["primitives"] for mesh in document.get("meshes", ())]
        used = [meshes[node["mesh"]] for node in document.get("nodes", ()) if "mesh" in node]
        surfaces = [counts[each["attributes"]["POSITION"]] for mesh in used for each in mesh]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise MeshError(
            f"{path}: cannot be parsed as GLB ({type(error).__name__}: {error}); export it again"
        ) from error
    if max(counts, default=0) > len(data):
        raise MeshError(f"{path}: declares more values than the file holds; export it again")
    _check_size(path, len(surfaces), sum(surfaces))
    return len(surfaces)
