"""Mesh files to arrays, with the checks that must come before any allocation.

STL, OBJ and OFF are read here, because what has to be refused (a lying triangle count, index 0, a
truncated facet) is known only while parsing. trimesh reads PLY, GLB, 3MF and the COLLADA files that
URDF trees refer to; it is imported on first use (extra `mesh`).
"""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from packing_env.items.meshes.mesh import MeshError, widened

STL_HEADER = 84
STL_FACET = 50
UNITS_3MF = {
    "micron": "um",
    "millimeter": "mm",
    "millimeters": "mm",
    "centimeter": "cm",
    "inch": "in",
    "foot": "ft",
    "meter": "m",
}


@dataclass(frozen=True, eq=False)
class Surface:
    """Triangles as they stand in a file.

    Attributes:
        vertices: [V, 3] float64 in file units.
        faces: [F, 3] int64.
        part: [V] int64; equal for vertices of one body (see `mesh_from_arrays`).
        unit: the unit that the file states, or None.
    """

    vertices: Float[np.ndarray, "V 3"]
    faces: Int[np.ndarray, "F 3"]
    part: Int[np.ndarray, " V"]
    unit: str | None = None


def surface(vertices: Any, faces: Any, unit: str | None = None) -> Surface:
    """A surface of one part from anything array-like; empty lists become empty arrays."""
    points = widened(np.asarray(vertices)).reshape(-1, 3)
    triangles = np.array(faces, dtype=np.int64).reshape(-1, 3)
    return Surface(points, triangles, np.zeros(len(points), dtype=np.int64), unit)


def read(path: Path) -> Surface:
    """Read a mesh file of any supported format.

    Raises:
        MeshError: missing, a directory, empty, of an unknown format, or damaged.
    """
    suffix = path.suffix.lower()
    if not path.exists():
        raise MeshError(f"{path}: no such file; check the path")
    if path.is_dir():
        raise MeshError(f"{path}: is a directory, not a mesh file; name a file in it")
    if suffix not in READERS:
        raise MeshError(
            f"{path}: unsupported format {suffix!r}; supported are {', '.join(SUPPORTED)}"
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise MeshError(f"{path}: cannot be read ({error.strerror}); check permissions") from error
    if not data:
        raise MeshError(f"{path}: empty file (0 bytes); export it again")
    return READERS[suffix](path, data)


def _text(path: Path, data: bytes, kind: str) -> str:
    """The text of a file, refusing binary content."""
    if b"\0" in data:
        raise MeshError(f"{path}: binary content, not {kind} text; is the suffix right?")
    return data.decode("utf-8", errors="replace")


def _numbered_lines(text: str, comment: str = "#") -> Iterator[tuple[int, list[str]]]:
    """Line number and words of each line that has any, without comments."""
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split(comment, 1)[0].split()
        if words:
            yield number, words


def _floats(path: Path, number: int, words: Sequence[str]) -> list[float]:
    """Exactly three coordinates from the first three words."""
    try:
        x, y, z = (float(word) for word in words[:3])
    except ValueError as error:
        found = " ".join(words)[:60]
        raise MeshError(
            f"{path}: line {number}: expected three coordinates, found {found!r}; "
            "the file is damaged or cut off"
        ) from error
    return [x, y, z]


def _read_stl(path: Path, data: bytes) -> Surface:
    """STL: binary iff the size is 84 + 50 n for the count n in the header, else ASCII."""
    if len(data) >= STL_HEADER:
        count = struct.unpack_from("<I", data, 80)[0]
        if len(data) == STL_HEADER + STL_FACET * count:
            return _stl_binary(data, count)
    if data.lstrip()[:5].lower() == b"solid" and b"\0" not in data:
        return _stl_ascii(path, data.decode("utf-8", errors="replace"))
    if len(data) < STL_HEADER or b"\0" not in data:
        raise MeshError(f"{path}: neither binary nor ASCII STL; is the suffix right?")
    raise MeshError(
        f"{path}: size mismatch: the binary STL header says {count} triangles, which need "
        f"{STL_HEADER + STL_FACET * count} bytes, but the file has {len(data)}; "
        "it is cut off or damaged, export it again"
    )


def _stl_binary(data: bytes, count: int) -> Surface:
    """Triangles of a binary STL whose size has been checked."""
    facet = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
    corners = np.frombuffer(data, dtype=facet, count=count, offset=STL_HEADER)["corners"]
    return surface(corners, np.arange(3 * count))


def _stl_ascii(path: Path, text: str) -> Surface:
    """Triangles of an ASCII STL; each facet must be whole and the solid ended."""
    vertices: list[list[float]] = []
    known = {"solid", "facet", "outer", "endloop"}
    inside, number = False, 0
    for number, words in _numbered_lines(text):
        word = words[0].lower()
        inside = inside or word == "solid"
        if word == "vertex":
            vertices.append(_floats(path, number, words[1:]))
        elif word == "endfacet" and len(vertices) % 3:
            raise MeshError(f"{path}: line {number}: a facet without three vertices; export again")
        elif word == "endsolid":
            inside = False
        elif word not in known and word != "endfacet":
            raise MeshError(
                f"{path}: line {number}: {words[0][:40]!r} is no STL keyword; "
                "the file is cut off or no STL"
            )
    if inside or len(vertices) % 3:
        raise MeshError(
            f"{path}: truncated: no 'endsolid' by the last line ({number}); export it again"
        )
    return surface(vertices, np.arange(len(vertices)))


def _read_obj(path: Path, data: bytes) -> Surface:
    """OBJ: `v` and `f` lines; materials, normals, textures and groups are ignored."""
    vertices: list[list[float]] = []
    polygons: list[tuple[int, list[int]]] = []
    for number, words in _numbered_lines(_text(path, data, "OBJ")):
        if words[0] == "v":
            vertices.append(_floats(path, number, words[1:]))
        elif words[0] == "f":
            ids = [_obj_index(path, number, word, len(vertices)) for word in words[1:]]
            polygons.append((number, ids))
    for number, ids in polygons:
        if len(ids) < 3 or max(ids) >= len(vertices):
            raise MeshError(
                f"{path}: line {number}: a face refers to vertex {max(ids, default=-1) + 1} of "
                f"{len(vertices)}, or has fewer than three; the file is damaged"
            )
    return surface(vertices, triangulate(path, vertices, polygons))


def _obj_index(path: Path, number: int, word: str, num_vertices: int) -> int:
    """Zero-based vertex id from `7`, `7/1`, `7//2` or a negative (relative) index."""
    try:
        index = int(word.split("/")[0])
    except ValueError as error:
        raise MeshError(f"{path}: line {number}: {word[:40]!r} is no face index") from error
    if index == 0 or index < -num_vertices:
        raise MeshError(
            f"{path}: line {number}: face index {index}; OBJ indices run from 1 "
            f"(or from -1 back to -{num_vertices} here)"
        )
    return index - 1 if index > 0 else num_vertices + index


def _read_off(path: Path, data: bytes) -> Surface:
    """OFF and COFF text; colours are ignored."""
    lines = list(_numbered_lines(_text(path, data, "OFF")))
    if not lines or lines[0][1][0].upper() not in {"OFF", "COFF"}:
        raise MeshError(f"{path}: does not begin with OFF; is the suffix right?")
    number, words = lines[0][0], lines[0][1][1:]
    body = lines[1:]
    if not words and body:
        (number, words), body = body[0], body[1:]
    try:
        num_vertices, num_faces = int(words[0]), int(words[1])
    except (IndexError, ValueError) as error:
        raise MeshError(f"{path}: line {number}: no counts of vertices and faces") from error
    if num_vertices < 0 or num_faces < 0 or num_vertices + num_faces > len(body):
        raise MeshError(
            f"{path}: line {number} promises {num_vertices} vertices and {num_faces} faces, but "
            f"{len(body)} lines follow; the file is cut off"
        )
    vertices = [_floats(path, at, line) for at, line in body[:num_vertices]]
    polygons = [
        (at, _off_polygon(path, at, line, num_vertices))
        for at, line in body[num_vertices : num_vertices + num_faces]
    ]
    return surface(vertices, triangulate(path, vertices, polygons))


def _off_polygon(path: Path, number: int, words: list[str], num_vertices: int) -> list[int]:
    """Vertex ids of one OFF face line: a count, then as many ids."""
    try:
        count = int(words[0])
        ids = [int(word) for word in words[1 : 1 + count]]
    except ValueError as error:
        raise MeshError(f"{path}: line {number}: expected a face, found {words[:4]}") from error
    if len(ids) != count or count < 3 or min(ids) < 0 or max(ids) >= num_vertices:
        raise MeshError(
            f"{path}: line {number}: bad face {ids[:8]}: ids must be 0..{num_vertices - 1}, "
            "three or more"
        )
    return ids


def triangulate(
    path: Path, vertices: Any, polygons: Sequence[tuple[int, Sequence[int]]]
) -> list[Sequence[int]]:
    """Split polygons, given with their line numbers, into triangles; concave ones by their ears."""
    points = np.array(vertices, dtype=np.float64).reshape(-1, 3)
    triangles: list[Sequence[int]] = []
    for number, ids in polygons:
        if len(ids) == 3:
            triangles.append(ids)
        else:
            triangles += _split_polygon(f"{path}: line {number}", points[ids], ids)
    return triangles


def _split_polygon(
    where: str, corners: Float[np.ndarray, "P 3"], ids: Sequence[int]
) -> list[Sequence[int]]:
    """Triangles of one polygon: a fan where it is convex, ears where it is not.

    The normal is Newell's (Sutherland, Sproull, Schumacker, ACM Comput. Surv. 1974).
    """
    fan: list[Sequence[int]] = [(ids[0], ids[i], ids[i + 1]) for i in range(1, len(ids) - 1)]
    if not np.isfinite(corners).all():
        return fan  # the finite check that follows names the vertex
    ahead = np.roll(corners, -1, axis=0)
    normal = np.cross(corners, ahead).sum(0)
    turns = np.cross(ahead - corners, np.roll(ahead, -1, axis=0) - ahead) @ normal
    if (turns >= -1e-9 * float(normal @ normal)).all():
        return fan
    from packing_env.items.shapes import polygons

    drop = int(np.abs(normal).argmax())
    axes = [(drop + 1) % 3, (drop + 2) % 3]
    flat = corners[:, axes if normal[drop] > 0 else axes[::-1]]
    flat = (flat - flat.min(0)) / max(float(np.ptp(flat, axis=0).max()), 1e-300)
    try:
        ears = polygons.triangulate(flat, range(len(ids)))
    except ValueError as error:
        raise MeshError(
            f"{where}: a polygon that crosses itself ({error}); triangulate it before exporting"
        ) from error
    return [(ids[a], ids[b], ids[c]) for a, b, c in ears]


def _trimesh(path: Path) -> Any:
    """The trimesh package, or an error that says how to install it."""
    try:
        return import_module("trimesh")
    except ImportError as error:
        raise MeshError(
            f"{path}: reading {path.suffix} files needs trimesh: pip install packing-env[mesh]"
        ) from error


def _with_trimesh(path: Path, load: Callable[[Any], Any]) -> Any:
    """Call a trimesh loader; any failure in it becomes a MeshError that names the file."""
    trimesh = _trimesh(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return load(trimesh)
    except Exception as error:  # third-party parsers fail in their own ways
        raise MeshError(
            f"{path}: cannot be parsed as {path.suffix[1:].upper()} "
            f"({type(error).__name__}: {error}); export it again"
        ) from error


def _as_stored(vertices: Any) -> Float[np.ndarray, "V 3"]:
    """Coordinates in single precision again, where nothing is lost by that."""
    double = np.asarray(vertices, dtype=np.float64).reshape(-1, 3)
    single = double.astype(np.float32)
    return single if (single.astype(np.float64) == double).all() else double


def _read_ply(path: Path, data: bytes) -> Surface:
    """PLY by trimesh; counts are compared with the header, polygons are split here."""
    promised = _ply_counts(path, data)

    def load(trimesh: Any) -> tuple[Any, list[list[int]]]:
        loaded = import_module("trimesh.exchange.ply").load_ply(
            io.BytesIO(data), fix_texture=False, skip_materials=True
        )
        return _as_stored(loaded.get("vertices", ())), _ply_polygons(loaded)

    vertices, polygons = _with_trimesh(path, load)
    if len(vertices) != promised["vertex"] or len(polygons) != promised["face"]:
        raise MeshError(
            f"{path}: the header promises {promised['vertex']} vertices and {promised['face']} "
            f"faces, the file has {len(vertices)} and {len(polygons)}; it is cut off"
        )
    for ids in polygons:
        if len(ids) < 3 or min(ids) < 0 or max(ids) >= len(vertices):
            raise MeshError(f"{path}: face {list(ids)} refers outside 0..{len(vertices) - 1}")
    return surface(vertices, triangulate(path, vertices, list(enumerate(polygons))))


def _ply_counts(path: Path, data: bytes) -> dict[str, int]:
    """Number of vertices and faces that a PLY header promises."""
    header, found, _ = data.partition(b"end_header")
    if not data.startswith(b"ply") or not found:
        raise MeshError(f"{path}: no PLY header; is the suffix right?")
    counts = {"vertex": 0, "face": 0}
    for words in (line.split() for line in header.decode("ascii", "replace").splitlines()):
        if len(words) == 3 and words[0] == "element" and words[1] in counts:
            if not words[2].isdigit() or int(words[2]) > len(data):
                raise MeshError(f"{path}: {words[1]} count {words[2]} is more than the file holds")
            counts[words[1]] = int(words[2])
    return counts


def _ply_polygons(loaded: dict[str, Any]) -> list[list[int]]:
    """Faces of a PLY as lists of vertex ids, before trimesh fans them."""
    raw = loaded.get("metadata", {}).get("_ply_raw", {}).get("face", {}).get("data")
    if isinstance(raw, dict):
        for key in ("vertex_indices", "vertex_index"):
            if key in raw:
                return [[int(i) for i in ids] for ids in raw[key]]
    faces = loaded.get("faces")
    return [] if faces is None else np.asarray(faces, dtype=np.int64).tolist()


def _read_scene(path: Path, data: bytes) -> Surface:
    """GLB, 3MF and DAE: all meshes of the scene, at their places in it."""

    def load(trimesh: Any) -> tuple[Any, Any]:
        scene = trimesh.load_scene(
            io.BytesIO(data), file_type=path.suffix[1:].lower(), process=False
        )
        units = [mesh.metadata.get("units") for mesh in scene.geometry.values()]
        mesh = scene.to_mesh()
        return surface(_as_stored(mesh.vertices), mesh.faces), units

    merged, units = _with_trimesh(path, load)
    if path.suffix.lower() != ".3mf":
        return merged
    stated = str(next((unit for unit in units if unit), "millimeter"))
    if stated not in UNITS_3MF:
        raise MeshError(f"{path}: unknown 3MF unit {stated!r}")
    return replace(merged, unit=UNITS_3MF[stated])


def _read_urdf(path: Path, data: bytes) -> Surface:
    """URDF trees; see `packing_env.items.meshes.urdf`."""
    from packing_env.items.meshes import urdf

    return urdf.read_tree(path, data)


READERS: dict[str, Callable[[Path, bytes], Surface]] = {
    ".stl": _read_stl,
    ".obj": _read_obj,
    ".ply": _read_ply,
    ".off": _read_off,
    ".glb": _read_scene,
    ".3mf": _read_scene,
    ".urdf": _read_urdf,
}
"""Reader by suffix."""

SUPPORTED = tuple(READERS)
"""Supported suffixes."""

PART_READERS = {**READERS, ".dae": _read_scene}
"""Reader by suffix, for the mesh files that a URDF tree refers to."""
