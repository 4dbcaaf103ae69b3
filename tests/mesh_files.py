"""Small solids for tests: boxes and a tetrahedron in memory, and as STL, OBJ, 3MF, GLB and URDF."""

import json
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from packing_env.items import Mesh, mesh_from_arrays

CORNERS = [(x, y, z) for x in (0, 1) for y in (0, 1) for z in (0, 1)]
QUADS = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
FACES = [triangle for a, b, c, d in QUADS for triangle in ((a, b, c), (a, c, d))]
CORE = "http://schemas.microsoft.com/3dmanufacturing/core/2015/02"
PRODUCTION = "http://schemas.microsoft.com/3dmanufacturing/production/2015/06"
RELATIONS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Target="/{root}" Id="r0" '
    'Type="http://schemas.microsoft.com/3dmanufacturing/2013/01/3dmodel"/></Relationships>'
)

Sides = Sequence[float]


def corners_of(sides: Sides) -> list[tuple[float, ...]]:
    return [tuple(c * s for c, s in zip(corner, sides, strict=True)) for corner in CORNERS]


def box_mesh(*sides: float, at: Sides = (0, 0, 0), name: str = "box") -> Mesh:
    corners = torch.tensor(corners_of(sides), dtype=torch.float64)
    return mesh_from_arrays(corners + torch.tensor(at, dtype=torch.float64), FACES, name=name)


def tetrahedron() -> Mesh:
    """An irregular one, whose bounding box is 5 x 3 x 4 cells of 1 cm."""
    points = [(0.0, 0.0, 0.013), (0.05, 0.01, 0.0), (0.02, 0.03, 0.04), (0.03, 0.0, 0.03)]
    return mesh_from_arrays(points, [(0, 2, 1), (0, 1, 3), (1, 2, 3), (2, 0, 3)], name="tetra")


def write_obj(path: Path, mesh: Mesh, factor: float = 1.0) -> Path:
    lines = [f"v {x!r} {y!r} {z!r}" for x, y, z in (mesh.vertices * factor).tolist()]
    lines += [f"f {a + 1} {b + 1} {c + 1}" for a, b, c in mesh.faces.tolist()]
    path.write_text("\n".join(lines))
    return path


def write_stl(path: Path, sides: Sides) -> Path:
    corners = corners_of(sides)
    body = b"".join(
        struct.pack("<12fH", 0, 0, 0, *(x for i in face for x in corners[i]), 0) for face in FACES
    )
    path.write_bytes(bytes(80) + struct.pack("<I", len(FACES)) + body)
    return path


# ---------------------------------------------------------------------- 3MF


def box_3mf(number: int, sides: Sides) -> str:
    """An object with the mesh of a box."""
    points = "".join(f'<vertex x="{x}" y="{y}" z="{z}"/>' for x, y, z in corners_of(sides))
    faces = "".join(f'<triangle v1="{a}" v2="{b}" v3="{c}"/>' for a, b, c in FACES)
    mesh = f"<mesh><vertices>{points}</vertices><triangles>{faces}</triangles></mesh>"
    return f'<object id="{number}" type="model">{mesh}</object>'


def model_3mf(objects: str, items: str = "", attributes: str = 'unit="millimeter"') -> str:
    return (
        f'<?xml version="1.0"?><model {attributes} xmlns="{CORE}" xmlns:p="{PRODUCTION}">'
        f"<resources>{objects}</resources><build>{items}</build></model>"
    )


def write_3mf(path: Path, models: Mapping[str, str]) -> Path:
    """Write a package; the first model file is its root."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_rels/.rels", RELATIONS.format(root=next(iter(models))))
        for name, model in models.items():
            archive.writestr(name, model)
    return path


def write_box_3mf(path: Path, sides: Sides, unit: str | None) -> Path:
    stated = f'unit="{unit}"' if unit else ""
    model = model_3mf(box_3mf(1, sides), '<item objectid="1"/>', stated)
    return write_3mf(path, {"3D/3dmodel.model": model})


# ---------------------------------------------------------------------- GLB


def glb_of(document: Mapping[str, Any], data: bytes) -> bytes:
    text = json.dumps(document).encode()
    text += b" " * (-len(text) % 4)
    data += bytes(-len(data) % 4)
    chunks = struct.pack("<I4s", len(text), b"JSON") + text
    chunks += struct.pack("<I4s", len(data), b"BIN\0") + data
    return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks


def box_glb(sides: Sides, **changes: Any) -> tuple[dict[str, Any], bytes]:
    """A document with the mesh of a box, and its data; accessors of more data may follow."""
    points = struct.pack("<24f", *(x for corner in corners_of(sides) for x in corner))
    faces = struct.pack("<36H", *(i for face in FACES for i in face))
    document = {
        "asset": {"version": "2.0"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1}]}],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": 8, "type": "VEC3"},
            {"bufferView": 1, "componentType": 5123, "count": 36, "type": "SCALAR"},
        ],
        "bufferViews": [
            {"buffer": 0, "byteOffset": 0, "byteLength": 96},
            {"buffer": 0, "byteOffset": 96, "byteLength": 72},
        ],
        "buffers": [{"byteLength": 168}],
    }
    return {**document, **changes}, points + faces


def add_accessor(
    glb: tuple[dict[str, Any], bytes], values: bytes, kind: int, shape: str, count: int
) -> tuple[dict[str, Any], bytes]:
    """Append an accessor with a view of its own; its index is the number of those before it."""
    document, data = glb
    data += bytes(-len(data) % 4)
    view = {"buffer": 0, "byteOffset": len(data), "byteLength": len(values)}
    views = [*document["bufferViews"], view]
    accessor = {"bufferView": len(views) - 1, "componentType": kind, "type": shape, "count": count}
    data += values
    changed = {
        "bufferViews": views,
        "accessors": [*document["accessors"], accessor],
        "buffers": [{"byteLength": len(data)}],
    }
    return {**document, **changed}, data


def write_glb(path: Path, sides: Sides, **changes: Any) -> Path:
    path.write_bytes(glb_of(*box_glb(sides, **changes)))
    return path


# ---------------------------------------------------------------------- URDF


def write_urdf(path: Path, geometry: str) -> Path:
    path.write_text(
        f'<robot name="r"><link name="l"><visual><geometry>{geometry}</geometry></visual></link>'
        "</robot>"
    )
    return path
