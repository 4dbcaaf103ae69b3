"""What a catalogue is built from: files, folders, meshes, embedded shapes; and their identity."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from packing_env.items.meshes import readers, urdf
from packing_env.items.meshes.mesh import Mesh, MeshSource, load_mesh


class CatalogueError(ValueError):
    """A catalogue cannot be built or read; the message names the cause and the remedy."""


@dataclass(frozen=True)
class EmbeddedShape:
    """An embedded item, by its name in `shapes`."""

    name: str

    def mesh(self) -> Mesh:
        """The mesh of the item."""
        from packing_env.items import shapes

        mesh = next(shape for shape in shapes.SHAPES if shape.name == self.name).make()
        return replace(mesh.mesh(self.name), source=MeshSource(path=f"shapes:{self.name}"))


Item = str | Path | Mesh | EmbeddedShape


def expand(
    paths_or_meshes: Item | Iterable[Item],
) -> list[Path | Mesh | EmbeddedShape]:
    """Files and meshes, with folders replaced by the mesh files below them."""
    if isinstance(paths_or_meshes, (str, Path, Mesh, EmbeddedShape)):
        paths_or_meshes = [paths_or_meshes]
    inputs: list[Path | Mesh | EmbeddedShape] = []
    for item in paths_or_meshes:
        if isinstance(item, (Mesh, EmbeddedShape)):
            inputs.append(item)
        elif Path(item).is_dir():
            inputs += _files_below(Path(item))
        else:
            inputs.append(Path(item))
    if not inputs:
        raise CatalogueError("no items given; name mesh files, a folder of them, or meshes")
    return inputs


def _files_below(folder: Path) -> list[Path]:
    """Supported files below a folder, sorted, without the parts of URDF trees among them."""
    files = sorted(
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in readers.SUPPORTED and file.is_file()
    )
    if not files:
        raise CatalogueError(
            f"{folder}: no mesh files in it; supported are {', '.join(readers.SUPPORTED)}"
        )
    trees = [file for file in files if file.suffix.lower() == ".urdf"]
    parts = {part for tree in trees for part in urdf.referenced_files(tree)}
    return [file for file in files if file.resolve() not in parts]


def item_names(inputs: Sequence[Path | Mesh | EmbeddedShape]) -> list[str]:
    """A name per input, no two alike.

    A file is called by its stem. Where that is taken too, as many of its folders as needed stand in
    front (``a/part``), and files that only their suffix tells apart keep it (``part.stl``). What is
    still alike (meshes in memory, a file given twice) is numbered: ``part``, ``part#2``.
    """
    parts = _name_parts(inputs)
    taken = [1] * len(inputs)
    while True:
        names = ["/".join(part[-depth:]) for part, depth in zip(parts, taken, strict=True)]
        holders: dict[str, set[Path | int]] = {}
        for index, (name, item) in enumerate(zip(names, inputs, strict=True)):
            holders.setdefault(name, set()).add(item if isinstance(item, Path) else index)
        longer = [
            depth + (len(holders[name]) > 1 and depth < len(part))
            for name, depth, part in zip(names, taken, parts, strict=True)
        ]
        if longer == taken:
            return numbered(names)
        taken = longer


def _name_parts(inputs: Sequence[Path | Mesh | EmbeddedShape]) -> list[list[str]]:
    """What each name may be made of: folders and stem, or the one name of a mesh."""
    files = {item for item in inputs if isinstance(item, Path)}
    same = Counter(file.with_suffix("") for file in files)
    parts = []
    for item in inputs:
        if isinstance(item, Path):
            whole = item if same[item.with_suffix("")] > 1 else item.with_suffix("")
            parts.append([part for part in whole.parts if part not in (item.anchor, "..")])
        else:
            parts.append([item.name])
    return parts


def numbered(names: Sequence[str]) -> list[str]:
    """The names; one that occurred before gets ``#2``, ``#3``, ... (the first that is free)."""
    used = set(names)
    number: dict[str, int] = {}  # of each name seen so far, the next to try
    out = []
    for name in names:
        free = name
        if name in number:
            while free in used:
                free = f"{name}#{number[name]}"
                number[name] += 1
            used.add(free)
        number.setdefault(free, 2)
        out.append(free)
    return out


def mesh_of(item: Path | Mesh | EmbeddedShape, unit: str, strict: bool) -> Mesh:
    """The mesh of an input."""
    if isinstance(item, Path):
        return load_mesh(item, unit, strict)
    return item.mesh() if isinstance(item, EmbeddedShape) else item


@cache
def code_digest() -> str:
    """Hash of the source of this package, on which every result depends."""
    folder = Path(__file__).parent
    return _digest([file.read_bytes() for file in sorted(folder.rglob("*.py"))])


def fingerprint(item: Path | Mesh | EmbeddedShape) -> list[Any]:
    """Name and content of an input."""
    if isinstance(item, EmbeddedShape):
        return [item.name]  # its content is code, which the key holds
    if isinstance(item, Mesh):
        content = [item.vertices.numpy().tobytes(), item.faces.numpy().tobytes()]
        measures = [item.volume, item.volume_reliable, item.com.tolist(), list(item.warnings)]
        return [item.name, repr(item.source), measures, _digest(content)]
    files = [item]
    if item.suffix.lower() == ".urdf" and item.is_file():
        files += sorted(urdf.referenced_files(item))
    return [str(item), _digest([file.read_bytes() for file in files if file.is_file()])]


def _digest(parts: Iterable[bytes]) -> str:
    """SHA-256 of parts, each with its length."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
