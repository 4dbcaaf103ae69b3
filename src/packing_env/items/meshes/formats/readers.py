"""Readers of mesh formats: from file contents to surfaces, checked before memory is allocated.

trimesh (extra `mesh`, imported on first use) reads the COLLADA files to which URDF trees refer.
`gltf`, `threemf` and `ply` read GLB, 3MF and PLY. STL, OBJ and OFF are parsed here because trimesh
5.2 misreads some of them without an error. It splits concave polygons into overlapping fans. It
counts the relative indices of OBJ from the end of the file and takes index 0 for the last vertex.
It regroups the vertices of STL facets that lack one, and it returns an empty mesh for a truncated
STL.
"""

from __future__ import annotations

import codecs
import io
import re
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from packing_env import files
from packing_env.items.meshes import limits
from packing_env.items.meshes.formats import gltf, ply, threemf
from packing_env.items.meshes.surface import MeshError, Surface, damaged, named, surface
from packing_env.items.meshes.triangulate import triangulate_faces

REMEDIES = {
    (".step", ".stp", ".iges", ".igs"): "convert STEP and IGES, which hold no triangles, to STL or "
    "3MF, with FreeCAD, CadQuery, or gmsh part.step -2 -o part.stl",
    (".gltf",): "export glTF as a single GLB",
    (".xacro",): "expand xacro: xacro part.xacro > part.urdf",
    (".xls", ".ods"): "save spreadsheets as XLSX or CSV",
    (".zip", ".7z", ".gz", ".rar"): "unpack archives",
}
"""Advice on files of other formats, by suffix."""
STL_HEADER = 84
"""Bytes of a binary STL before its first facet."""
STL_FACET = 50
"""Bytes of each facet of a binary STL."""
STL_FACET_ENDS = {"facet": (0, 3), "endfacet": (3,)}
"""Words at which a facet ends, and the numbers of vertices that it may have."""
NOT_STL = (b"PK\3\4", b"glTF", b"ply", b"\x1f\x8b")
"""First bytes of 3MF (and other archives), GLB, PLY, and gzip."""
PADDING = b"\0\x1a \t\r\n"
"""Bytes at the end of an ASCII STL that mean nothing."""
FACES = ("f", "fo")
"""Words of OBJ for faces; the second one is obsolete."""
NOT_READ = ("surf", "bsp", "bzp", "cdp", "call", "csh")
"""Words of OBJ for free-form surfaces and for other files."""
OFF_HEADER = re.compile("(?i:(?:ST)?C?)(?:N?(4n?|n)OFF|(?i:N?OFF))")
"""Normals are `N` or, if all is lower-case, `n`; `n` before `OFF` means n coordinates."""
OFF_BINARY = re.compile(rb"(?:\s|#.*\n)*[^\s#]*OFF[ \t]+BINARY")


def _without_mark(data: bytes) -> bytes:
    """Return text without its byte-order mark; text whose mark means UTF-16 becomes UTF-8."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace").encode()
    return data.removeprefix(codecs.BOM_UTF8)


def _text(data: bytes, kind: str) -> str:
    """Decode a text file; raise on binary content, or more than `files.MAX_TEXT` bytes."""
    data = _without_mark(data)
    if b"\0" in data:
        raise MeshError(f"binary content, not {kind} text; check the file's suffix")
    limits.check_bytes(f"has {kind} text of", len(data), files.MAX_TEXT)
    return data.decode("utf-8", errors="replace")


def _numbered_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        if words := line.split("#", 1)[0].split():
            yield number, words


def _joined_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of OBJ; after a backslash, a vertex or a face continues in the next line.

    Other lines may end with a backslash that belongs to a folder's name.
    """
    lines = _numbered_lines(text)
    for number, words in lines:
        while words[0] in ("v", *FACES) and words[-1].endswith("\\"):
            words[-1:] = [words[-1][:-1]] * (len(words[-1]) > 1)
            words += next(lines, (number, [""]))[1]
        yield number, words


def _floats(number: int, words: Sequence[str]) -> list[float]:
    try:
        x, y, z = (float(word) for word in words[:3])
    except ValueError as error:
        what = f"line {number}: expected three coordinates, found {' '.join(words)[:60]!r}"
        raise damaged(what) from error
    return [x, y, z]


def _read_stl(data: bytes) -> Surface:
    """Read STL: binary if its size is 84 + 50 n for the count n in the header, else ASCII.

    Bytes after the last facet are ignored with a warning, unless they are further facets.
    """
    if len(data) >= STL_HEADER:
        count = struct.unpack_from("<I", data, 80)[0]
        spare = len(data) - STL_HEADER - STL_FACET * count
        if spare == 0 or (count and spare > 0 and spare % STL_FACET):
            facet = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("extra", "<u2")])
            facets = np.frombuffer(data, dtype=facet, count=count, offset=STL_HEADER)
            warning = f"{spare} bytes after the last of its {count} triangles are ignored"
            return surface(facets["corners"], np.arange(3 * count), [warning] * (spare > 0))
    text = _without_mark(data).rstrip(PADDING)
    if text.lstrip()[:5].lower() == b"solid" and b"\0" not in text:
        return _stl_ascii(_text(text, "ASCII STL"))
    if len(data) < STL_HEADER or b"\0" not in data or data.startswith(NOT_STL):
        raise MeshError("neither binary nor ASCII STL; check the file's suffix")
    raise damaged(
        f"size mismatch: the binary STL header declares {count} triangles, which need "
        f"{STL_HEADER + STL_FACET * count} bytes, but the file has {len(data)}",
    )


def _stl_ascii(text: str) -> Surface:
    """Read the triangles of an ASCII STL; raise on incomplete facets and on a missing end.

    Each `solid` is a part, and the words of a facet may share a line.
    """
    vertices: list[list[float]] = []
    part: list[int] = []
    known = {"solid", "facet", "outer", "vertex", "endloop", "endfacet", "endsolid"}
    inside, number, first, num_solids = False, 0, 0, 0
    for number, words in _numbered_lines(text):
        if words[0].lower() not in known:
            what = f"line {number}: {words[0][:40]!r} is not an STL keyword"
            raise damaged(f"{what}; the file is truncated, or not STL")
        inside = inside or words[0].lower() == "solid"
        for at in range(_after_name(words), len(words)):
            word = words[at].lower()
            if word == "vertex":
                vertices.append(_floats(number, words[at + 1 : at + 4]))
                part.append(num_solids)
            elif word in STL_FACET_ENDS:
                if len(vertices) - first not in STL_FACET_ENDS[word]:
                    raise damaged(f"line {number}: the facet does not have three vertices")
                first = len(vertices)
            elif word == "endsolid":
                following = ["solid", *words[at + 1 :]]
                if _after_name(following) < len(following):
                    raise damaged(f"line {number}: a solid begins in the line of 'endsolid'")
                inside, num_solids = False, num_solids + 1
                break  # its name follows
    if inside or len(vertices) - first not in (0, 3):
        raise damaged(f"truncated: no 'endsolid' by the last line ({number})")
    return _distinct_solids(np.array(vertices).reshape(-1, 3), np.array(part, dtype=np.int64))


def _after_name(words: Sequence[str]) -> int:
    """Return the position of the first word to read in a line; a name follows `solid`."""
    if words[0].lower() != "solid":
        return 0
    pairs = [[word.lower() for word in words[at : at + 2]] for at in range(len(words))]
    return pairs.index(["facet", "normal"]) if ["facet", "normal"] in pairs else len(words)


def _distinct_solids(points: Float[np.ndarray, "V 3"], part: Int[np.ndarray, " V"]) -> Surface:
    """Return the triangles of solids without those that repeat another solid."""
    solids = np.split(np.arange(len(part)), np.flatnonzero(np.diff(part)) + 1)
    distinct = {points[ids].tobytes(): ids for ids in solids}
    corners = np.concatenate([*distinct.values()])
    num_repeated = len(solids) - len(distinct)
    warning = f"{num_repeated} of {len(solids)} solids repeat another one: left out"
    whole = surface(points[corners], np.arange(len(corners)), [warning] * (num_repeated > 0))
    return replace(whole, part=part[corners])


def _read_obj(data: bytes) -> Surface:
    """Read OBJ: vertices and faces; materials, normals, textures and groups are ignored."""
    vertices: list[list[float]] = []
    polygons: list[tuple[int, list[int]]] = []
    ignored: dict[str, str] = {}
    for number, words in _joined_lines(_text(data, "OBJ")):
        if words[0] == "v":
            vertices.append(_floats(number, words[1:]))
        elif words[0] in FACES:
            ids = [_obj_index(number, word, len(vertices)) for word in words[1:]]
            polygons.append((number, ids))
        elif words[0] in NOT_READ:
            warning = f"{words[0]!r} in line {number} is not read; export triangles, in one file"
            ignored.setdefault(words[0], warning)
    return surface(vertices, triangulate_faces(vertices, polygons, first=1), [*ignored.values()])


def _obj_index(number: int, word: str, num_vertices: int) -> int:
    """Parse `7`, `7/1`, `7//2` or a negative (relative) index as a zero-based vertex id."""
    try:
        index = int(word.split("/")[0])
    except ValueError as error:
        raise damaged(f"line {number}: {word[:40]!r} is not a face index") from error
    if index == 0 or index < -num_vertices:
        valid = f"OBJ indices run from 1 (or from -1 back to -{num_vertices} here)"
        raise MeshError(f"line {number}: face index {index}; {valid}")
    return index - 1 if index > 0 else num_vertices + index


def _read_off(data: bytes) -> Surface:
    """Read OFF text; texture coordinates, colours and normals of vertices are ignored."""
    if OFF_BINARY.match(data):
        raise MeshError("binary OFF is not read; export it as text, or as binary PLY")
    lines = list(_numbered_lines(_text(data, "OFF")))
    header = OFF_HEADER.fullmatch(lines[0][1][0]) if lines else None
    if header is None:
        raise MeshError("does not begin with OFF; check the file's suffix")
    if header[1]:
        raise MeshError(f"{header[0]} has points of 4 or n coordinates; export it as OFF, with 3")
    (number, (_, *words)), *body = lines
    if not words and body:
        (number, words), body = body[0], body[1:]
    try:
        num_vertices, num_faces = int(words[0]), int(words[1])
    except (IndexError, ValueError) as error:
        raise damaged(f"line {number}: no counts of vertices and faces") from error
    if num_vertices < 0 or num_faces < 0 or num_vertices + num_faces > len(body):
        declared = f"declares {num_vertices} vertices and {num_faces} faces"
        raise damaged(f"line {number} {declared}, but {len(body)} lines follow")
    vertices = [_floats(at, line) for at, line in body[:num_vertices]]
    faces = body[num_vertices : num_vertices + num_faces]
    polygons = [(at, _off_polygon(at, line)) for at, line in faces]
    spare = len(body) - num_vertices - num_faces
    warning = f"{spare} lines after the last of its {num_faces} faces are ignored"
    return surface(vertices, triangulate_faces(vertices, polygons), [warning] * (spare > 0))


def _off_polygon(number: int, words: list[str]) -> list[int]:
    """Parse one OFF face line: a count, then that many vertex ids, and optionally a colour."""
    try:
        return [int(words[1 + i]) for i in range(int(words[0]))]
    except (IndexError, ValueError) as error:
        raise damaged(f"line {number}: expected a face, found {words[:4]}") from error


def _read_ply(data: bytes) -> Surface:
    return ply.read_ply(_without_mark(data))


def _read_dae(data: bytes) -> Surface:
    """Read COLLADA: all meshes of the scene, in their poses and axes, in metres.

    Its `up_axis` is not applied: RViz and Gazebo, for which URDF trees are made, ignore it.
    """
    try:
        with files.finished_first():  # an import inside trimesh would ignore the interrupt
            trimesh = import_module("trimesh")
    except ImportError as error:
        raise MeshError(
            "reading COLLADA files needs trimesh: pip install packing-env[mesh]"
        ) from error
    metres, up = limits.check_dae(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scene = trimesh.load_scene(io.BytesIO(data), file_type="dae", process=False)
            mesh = scene.to_mesh()
    except Exception as error:  # third-party parsers raise many types of errors
        what = f"cannot be parsed as COLLADA ({type(error).__name__}: {error})"
        raise damaged(what) from error
    # trimesh converts single precision to double, but `surface.widened` needs the stored values.
    double = np.asarray(mesh.vertices, dtype=np.float64).reshape(-1, 3)
    single = double.astype(np.float32)
    exact = (single.astype(np.float64) == double).all()
    warning = f"up_axis {up} is not applied, as in RViz: axes are those of the file"
    whole = surface(single if exact else double, mesh.faces, [warning] * (up in ("X_UP", "Y_UP")))
    return whole.moved(np.diag([metres] * 3 + [1.0]))


Reader = Callable[[bytes], Surface]
READERS: dict[str, Reader] = {
    ".stl": _read_stl,
    ".obj": _read_obj,
    ".ply": _read_ply,
    ".off": _read_off,
    ".glb": gltf.read_glb,
    ".3mf": threemf.read_3mf,
}
"""Reader of each suffix, for formats with one mesh per file."""
PART_READERS = {**READERS, ".dae": _read_dae}
"""Reader of each suffix, for the mesh files to which a URDF tree refers."""


def read(path: Path, formats: Mapping[str, Reader]) -> Surface:
    """Read a file whose format is one of ``formats``.

    Raises:
        MeshError: The file is missing, unreadable, empty, of another format, or damaged; the
            message names it.
    """
    suffix = path.suffix.lower()
    with named(path):
        if not path.exists():
            raise MeshError("no such file; check the path")
        if path.is_dir():
            raise MeshError("is a directory, not a mesh file; name a file in it")
        if suffix not in formats:
            remedy = next((f"; {text}" for kinds, text in REMEDIES.items() if suffix in kinds), "")
            known = ", ".join(formats)
            raise MeshError(f"unsupported format {suffix!r}; supported are {known}{remedy}")
        try:
            data = files.read_bytes(path)
        except OSError as error:
            raise MeshError(f"cannot be read ({files.reason(error)})") from error
        if not data:
            raise damaged("empty file (0 bytes)")
        return formats[suffix](data)
