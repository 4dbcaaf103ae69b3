"""Inputs of a catalogue: files, folders, meshes, embedded shapes; their names and fingerprints."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from packing_env import files
from packing_env.items.meshes.formats import urdf
from packing_env.items.meshes.formats.readers import REMEDIES
from packing_env.items.meshes.load import SUPPORTED, load_mesh
from packing_env.items.meshes.mesh import Mesh
from packing_env.items.shapes import FILE, Shape
from packing_env.names import plain_name

_LOGGER = logging.getLogger(__name__)
_PACKAGE = Path(__file__).parent
_COMPANIONS = (".mtl", ".bin", ".png", ".jpg", ".jpeg", ".bmp", ".tga", ".webp")
"""Suffixes of files that accompany meshes: materials, buffers, textures."""
_SYSTEM = ("thumbs.db", "desktop.ini")
"""Files that Windows creates in folders."""
POSITIONS = "positions.csv"
OUTPUT = re.compile(
    r"plan(-\d+)?\.json|packed(-\d+)?\.stl|packed-mesh-\d+\.ply|packed\.(png|html|glb)|load\.pdf"
)
"""Names of files that the planner writes; every plan also has :data:`POSITIONS`."""
_ORDERS = (".csv", ".tsv", ".xlsx", ".yaml", ".yml", ".json")
_REMEDIES = {
    **REMEDIES,
    _ORDERS: "name the file of an order, not its folder",
    SUPPORTED: "mend links to missing files",
}
"""Advice on files in a folder that are not meshes, by suffix."""
_LISTED = 8
"""Largest number of files that a log line names."""


class CatalogueError(ValueError):
    """A catalogue cannot be built or read; the message names the cause and the remedy."""


Source = Path | Mesh | Shape
"""The origin of one mesh."""
Item = str | Source
"""An entry of the inputs: a source, or a folder of mesh files."""


def expand(paths_or_meshes: Item | Iterable[Item]) -> list[Source]:
    """Replace folders by the mesh files in them and their subfolders."""
    if isinstance(paths_or_meshes, Item) or not isinstance(paths_or_meshes, Iterable):
        paths_or_meshes = [paths_or_meshes]
    inputs: list[Source] = []
    for item in paths_or_meshes:
        if isinstance(item, (Mesh, Shape)):
            inputs.append(item)
        elif not isinstance(item, (str, os.PathLike)):
            raise CatalogueError(
                f"{item!r} is neither a file nor a mesh; for a mesh in memory, "
                "use packing_env.items.mesh_from_arrays(vertices, faces), in metres"
            )
        elif Path(item).is_dir():
            inputs += _files_below(Path(item))
        else:
            inputs.append(Path(item))
    if not inputs:
        raise CatalogueError("no items given; name mesh files, a folder of them, or meshes")
    return inputs


def _files_below(folder: Path) -> list[Path]:
    """List the supported files below a folder, sorted, without the parts of URDF trees in it.

    A log line names the files that are left out, also folders that are links or cannot be read,
    and links to missing files. Hidden files, such as the ``._`` files of macOS, are skipped without
    mention.
    """
    below = [path for path in sorted(folder.rglob("*")) if path.is_file() or _is_closed(path)]
    below = [file for file in below if not _is_hidden(file.relative_to(folder))]
    outputs = [file for file in below if _is_output(file)]
    below = [file for file in below if file not in outputs]
    meshes = [file for file in below if file.suffix.lower() in SUPPORTED and file.is_file()]
    others = sorted(set(below) - set(meshes))
    trees = [file for file in meshes if file.suffix.lower() == ".urdf"]
    parts = {part for tree in trees for part in urdf.referenced_files(tree)}
    others = [file.relative_to(folder) for file in others if _real(file) not in parts]
    unread = _unread(others)
    if outputs:
        plans = ", ".join(dict.fromkeys(str(file.parent) for file in outputs))
        unread.append(f"not read: the files of an earlier plan in {plans}")
    if not meshes:
        reason = f"{folder}: no mesh files in it; supported are {', '.join(SUPPORTED)}"
        raise CatalogueError("; ".join((reason, *unread)))
    if unread:
        _LOGGER.warning("%s: %s", folder, "; ".join(unread))
    return [file for file in meshes if _real(file) not in parts]


def _is_closed(path: Path) -> bool:
    """Return whether a path is a link, or else a folder without permission to read it."""
    return path.is_symlink() or (path.is_dir() and not os.access(path, os.R_OK | os.X_OK))


def _real(path: Path) -> Path:
    """Return the target of a path; unlike ``path.resolve``, also of links that form a loop."""
    return Path(os.path.realpath(path))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _is_output(file: Path) -> bool:
    written = file.name == POSITIONS or OUTPUT.fullmatch(file.name)
    return bool(written) and file.with_name(POSITIONS).is_file()


def _unread(paths: Sequence[Path]) -> list[str]:
    """Return the files that are not read, with remedies; empty if all only accompany meshes."""
    names = [
        str(path)
        for path in paths
        if path.suffix.lower() not in _COMPANIONS and path.name.lower() not in _SYSTEM
    ]
    if not names:
        return []
    listed = ", ".join(names[:_LISTED])
    kinds = ", ".join(sorted({Path(name).suffix or name for name in names[_LISTED:]}))
    more = f" and {len(names) - _LISTED} more ({kinds})" if kinds else ""
    suffixes = {Path(name).suffix.lower() for name in names}
    remedies = [remedy for kinds, remedy in _REMEDIES.items() if suffixes.intersection(kinds)]
    return [f"not read: {listed}{more}", *remedies]


def item_names(inputs: Sequence[Source]) -> list[str]:
    """Give each input a unique name.

    A file is named by its stem. If stems are equal, folder names are put in front, as many as
    needed (``a/part``). Files that differ only in their suffix keep it (``part.stl``). Names that
    are still equal (meshes in memory, a file given twice) are numbered: ``part``, ``part#2``.
    """
    # 1. Split each name into parts: folders and stem of a file, or the name of a mesh.
    same = Counter(file.with_suffix("") for file in set(inputs) if isinstance(file, Path))
    parts = []
    for item in inputs:
        if isinstance(item, Path):
            path = item if same[item.with_suffix("")] > 1 else item.with_suffix("")
            parts.append([part for part in path.parts if part not in (item.anchor, "..")])
        else:
            parts.append([item.name])
    # 2. Lengthen the names that several inputs share, until none can be lengthened.
    depths = [1] * len(inputs)
    while True:
        names = ["/".join(part[-depth:]) for part, depth in zip(parts, depths, strict=True)]
        holders: dict[str, set[Path | int]] = {}
        for index, (name, item) in enumerate(zip(names, inputs, strict=True)):
            holders.setdefault(name, set()).add(item if isinstance(item, Path) else index)
        longer = [
            depth + (len(holders[name]) > 1 and depth < len(part))
            for name, depth, part in zip(names, depths, parts, strict=True)
        ]
        if longer == depths:
            return numbered(names)
        depths = longer


def numbered(names: Sequence[str]) -> list[str]:
    """Return plain names; repeated ones get ``#2``, ``#3``, ..., skipping names in use."""
    names = [plain_name(name) for name in names]
    used = set(names)
    next_number: dict[str, int] = {}
    distinct = []
    for name in names:
        free = name
        if name in next_number:
            while free in used:
                free = f"{name}#{next_number[name]}"
                next_number[name] += 1
            used.add(free)
        next_number.setdefault(free, 2)
        distinct.append(free)
    return distinct


def mesh_of(item: Source, unit: str, strict: bool) -> Mesh:
    """Load or make the mesh of an input."""
    if isinstance(item, Path):
        return load_mesh(item, unit, strict)
    return item.mesh() if isinstance(item, Shape) else item


@cache
def code_digest() -> str:
    """Hash the files of `packing_env.items`; a change of them invalidates cached catalogues."""
    return _digest(file.read_bytes() for file in (*sorted(_PACKAGE.rglob("*.py")), FILE))


def fingerprint(item: Source) -> list[Any]:
    """Return the parts of an input's name and content that the cache key needs."""
    if isinstance(item, Shape):
        return [item.name]  # `code_digest` covers its content
    if isinstance(item, Mesh):
        content = [item.vertices.numpy().tobytes(), item.faces.numpy().tobytes()]
        measures = [item.volume, item.volume_reliable, item.com.tolist(), list(item.warnings)]
        return [item.name, repr(item.source), measures, _digest(content)]
    parts = [item]
    if item.suffix.lower() == ".urdf" and item.is_file():
        parts += sorted(urdf.referenced_files(item))
    try:
        return [str(item), _digest([files.read_bytes(part) for part in parts if part.is_file()])]
    except OSError as error:
        raise CatalogueError(f"{item}: cannot be read ({files.reason(error)})") from error


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
