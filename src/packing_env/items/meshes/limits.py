"""Limits of what a mesh file may unfold to, checked before it is unfolded.

A few kilobytes can name a part that is made of two parts, each of two others, and so on, or hold
zeros that were compressed a thousandfold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from xml.parsers import expat

from packing_env.items.meshes.surface import MeshError

MAX_PARTS = 1024
"""Largest number of separate parts of a solid; some checks compare all pairs of them."""
MAX_SIZE = 2**24
"""Largest :func:`size_of` a solid, each instance of a part counted."""
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


def size_of(vertices: int, triangles: int) -> int:
    """Return the vertices of a surface, or half its triangles where these are more.

    A closed surface has two triangles per vertex; one of a few vertices may repeat its triangles.
    """
    return max(vertices, triangles // 2)


def check_size(path: Path, parts: int, size: int) -> None:
    """Raise `MeshError` for more parts, or a larger size, than is read."""
    check_parts(str(path), parts)
    if size > MAX_SIZE:
        raise MeshError(
            f"{path}: unfolds to {size:,} vertices or pairs of triangles, and at most "
            f"{MAX_SIZE:,} are read; export it with fewer triangles"
        )


# ---------------------------------------------------------------------- trees of parts


class Parts:
    """Named parts, each with a surface, or made of others, or both.

    Attributes:
        made_of: The parts that a part is made of, by name; one may be named several times. The
            name of the whole is "".
        size: :func:`size_of` the parts that have a surface.
    """

    def __init__(self) -> None:
        self.made_of: dict[str, list[str]] = defaultdict(list)
        self.size: dict[str, int] = {}

    def check(self, path: Path) -> None:
        """Raise `MeshError` beyond the limits, and for parts that contain each other."""
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
            count = sum(count for count, _ in inside) + (part in self.size)
            total[part] = count, sum(n for _, n in inside) + self.size.get(part, 0)
        parts, size = total[""]
        check_size(path, parts, size)


def check_dae(path: Path, data: bytes) -> float:
    """Return the metres of a COLLADA file's unit; raise `MeshError` if it unfolds to too much."""
    parts, above, number = Parts(), [""], 0
    metres: list[float] = []
    try:
        for tag, given in elements(data, ends=True):
            here = above[-1]
            if tag == END:
                above.pop()
                continue
            if tag == "geometry":
                here = f"#{given.get('id')}"
                parts.size[here] = 0
            elif tag == "float_array" and here in parts.size:
                parts.size[here] += int(given.get("count", "0")) // 3
            elif tag == "node":
                number += 1
                parts.made_of[here].append(f"#{given.get('id', f' {number}')}")
                here = parts.made_of[here][-1]
            elif tag == "library_nodes":
                here = " library"
            elif tag == "unit":
                metres.append(float(given.get("meter", "1")))
            elif tag in ("instance_node", "instance_geometry"):
                parts.made_of[here].append(given.get("url", ""))
            above.append(here)
    except (expat.ExpatError, ValueError) as error:
        raise MeshError(f"{path}: not a COLLADA file ({error}); repair the file") from error
    parts.check(path)
    return metres[0] if metres else 1.0


def elements(
    data: bytes,
    prefixes: dict[str, str] | None = None,
    ends: bool = False,
    spaces: Collection[str] | None = None,
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the attributes of each element of XML, without their namespaces.

    Args:
        data: The XML.
        prefixes: Receives the namespace of each prefix.
        ends: Yield `END` where an element ends.
        spaces: Namespaces of the elements and attributes that are yielded, besides those of none;
            None for all.
    """
    found: list[tuple[str, dict[str, str]]] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        space, _, tag = name.rpartition(" ")
        if spaces is not None and space and space not in spaces:
            return
        if " " in "".join(attributes):  # names of other namespaces: few, among millions
            parts = [(*key.rpartition(" "), value) for key, value in attributes.items()]
            attributes = {
                key: value
                for space, _, key, value in parts
                if spaces is None or not space or space in spaces
            }
        found.append((tag, attributes))

    parser = expat.ParserCreate(namespace_separator=" ")
    if prefixes is not None:
        parser.StartNamespaceDeclHandler = lambda prefix, uri: prefixes.update({prefix or "": uri})
    parser.StartElementHandler = start
    if ends:
        parser.EndElementHandler = lambda name: found.append((END, {}))
    for begin in range(0, len(data), CHUNK):
        parser.Parse(data[begin : begin + CHUNK], begin + CHUNK >= len(data))
        yield from found
        found.clear()
