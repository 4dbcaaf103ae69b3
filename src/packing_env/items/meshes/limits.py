"""Limits on the content of a mesh file, checked before the content is expanded.

A file of a few kilobytes can be expanded to an enormous size. It may define a part made of two
parts, each made of two others, and so on, or hold zeros that are compressed a thousandfold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from xml.parsers import expat

from packing_env import files
from packing_env.items.meshes.surface import MeshError, damaged

MAX_PARTS = 1024
"""Largest number of separate parts of a solid; some checks compare all pairs of parts."""
MAX_SIZE = 2**24
"""Largest :func:`size_of` a solid; each instance of a part counts."""
CHUNK = 2**20
"""Number of bytes of XML that are parsed at once."""
END = "/"
"""Name that :func:`elements` yields where an element ends."""
WITH_TEXT = ("metadata", "up_axis")
"""Elements whose text is read."""
TEXT = " text"
"""Key of this text among their attributes."""


def check_bytes(what: str, size: int, at_most: int = files.MAX_BYTES) -> None:
    """Raise `MeshError` for more than `at_most` bytes."""
    if size > at_most:
        from packing_env.memory import human  # imports torch

        raise MeshError(
            f"{what} {human(size)}, but at most {human(at_most)} are read; use fewer triangles"
        )


def check_parts(parts: int) -> None:
    """Raise `MeshError` for more than `MAX_PARTS` parts."""
    if parts > MAX_PARTS:
        raise MeshError(
            f"has {parts:,} separate parts, but at most {MAX_PARTS:,} are read; join them, or "
            "export fewer"
        )


def size_of(vertices: int, triangles: int) -> int:
    """Return the number of a surface's vertices or half its triangles, whichever is larger.

    A closed surface has about two triangles per vertex, but a file may list many triangles over few
    vertices.
    """
    return max(vertices, triangles // 2)


def check_size(parts: int, size: int) -> None:
    """Raise `MeshError` beyond `MAX_PARTS` or `MAX_SIZE`."""
    check_parts(parts)
    if size > MAX_SIZE:
        raise MeshError(
            f"expands to {size:,} vertices or pairs of triangles, but at most {MAX_SIZE:,} are "
            "read; export it with fewer triangles"
        )


# ---------------------------------------------------------------------- trees of parts


class Parts:
    """A tree of named parts; a part has a surface, inner parts, or both.

    Attributes:
        made_of: For each part, its inner parts, with repetitions. The name of the whole is "".
        size: :func:`size_of` each part that has a surface.
    """

    def __init__(self) -> None:
        self.made_of: dict[str, list[str]] = defaultdict(list)
        self.size: dict[str, int] = {}

    def check(self) -> None:
        """Raise `MeshError` if the limits are exceeded or if parts contain each other."""
        # Depth first, without recursion: a part is counted after all its inner parts.
        total: dict[str, tuple[int, int]] = {}  # number and size of the surfaces in each part
        waiting, above = [""], set[str]()
        while waiting:
            part = waiting[-1]
            missing = [inner for inner in self.made_of.get(part, ()) if inner not in total]
            if missing and part in above:
                raise damaged("its parts contain each other")
            if missing:
                above.add(part)
                waiting += dict.fromkeys(missing)
                continue
            waiting.pop()
            above.discard(part)
            inside = [total[inner] for inner in self.made_of.get(part, ())]
            total[part] = (
                sum(count for count, _ in inside) + (part in self.size),
                sum(size for _, size in inside) + self.size.get(part, 0),
            )
        check_size(*total[""])


def check_dae(data: bytes) -> tuple[float, str]:
    """Return the unit of a COLLADA file in metres, and its axis that is up, or "".

    Raises:
        MeshError: The file exceeds the limits, or is damaged.
    """
    # ``above`` holds the part to which each open element belongs; "" is the scene.
    parts, above, num_nodes = Parts(), [""], 0
    stated: dict[str, str] = {}
    try:
        for tag, attributes in elements(data, ends=True):
            here = above[-1]
            if tag == END:
                above.pop()
                continue
            if tag == "geometry":
                here = f"#{attributes.get('id')}"
                parts.size[here] = 0
            elif tag == "float_array" and here in parts.size:
                parts.size[here] += int(attributes.get("count", "0")) // 3
            elif tag == "node":
                num_nodes += 1  # the id of a node without one; stated ids have no spaces
                parts.made_of[here].append(f"#{attributes.get('id', f' {num_nodes}')}")
                here = parts.made_of[here][-1]
            elif tag == "library_nodes":
                here = " library"  # its nodes count only where they are instanced
            elif tag in ("unit", "up_axis"):
                stated.setdefault(tag, attributes.get("meter", attributes.get(TEXT, "1")).strip())
            elif tag in ("instance_node", "instance_geometry"):
                parts.made_of[here].append(attributes.get("url", ""))
            above.append(here)
        metres = float(stated.get("unit", "1"))
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise MeshError(f"not a COLLADA file ({error}); repair the file") from error
    parts.check()
    return metres, stated.get("up_axis", "")


def elements(
    data: bytes,
    prefixes: dict[str, str] | None = None,
    ends: bool = False,
    spaces: Collection[str] | None = None,
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the attributes of each XML element, without their namespaces.

    Args:
        data: The XML.
        prefixes: Dictionary that receives the namespace of each prefix.
        ends: Whether to yield `END` where an element ends.
        spaces: Namespaces of the names to read; None means all. Names without a namespace are
            always read.
    """
    parsed: list[tuple[str, dict[str, str]]] = []

    def is_read(space: str) -> bool:
        return spaces is None or not space or space in spaces

    def start(name: str, attributes: dict[str, str]) -> None:
        space, _, tag = name.rpartition(" ")
        if not is_read(space):
            return
        if " " in "".join(attributes):  # only few elements among millions have a namespace
            split = [(*key.rpartition(" "), value) for key, value in attributes.items()]
            attributes = {key: value for space, _, key, value in split if is_read(space)}
        parsed.append((tag, attributes))
        parser.CharacterDataHandler = add_text if tag in WITH_TEXT else None

    def add_text(text: str) -> None:
        attributes = parsed[-1][1]
        attributes[TEXT] = (attributes.get(TEXT, "") + text)[:64]

    parser = expat.ParserCreate(namespace_separator=" ")
    if prefixes is not None:
        parser.StartNamespaceDeclHandler = lambda prefix, uri: prefixes.update({prefix or "": uri})
    parser.StartElementHandler = start
    if ends:
        parser.EndElementHandler = lambda name: parsed.append((END, {}))
    for begin in range(0, len(data), CHUNK):
        parser.Parse(data[begin : begin + CHUNK], begin + CHUNK >= len(data))
        yield from parsed[:-1]  # more text of the last one may follow
        del parsed[:-1]
    yield from parsed
