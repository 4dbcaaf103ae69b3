"""Packed containers for other programs: GLB with a node per item, and one merged STL."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from packing_env.items.meshes.mesh import UNITS
from packing_env.plan import Packing, whole_file
from packing_env.render.scene import PALETTE
from packing_env.render.solids import CORNERS, EDGES, Triangles, placed_solid
from packing_env.render.viewer import side_by_side

_FLOAT, _INTEGER = 5126, 5125
"""Component types of glTF."""
_LINES, _TRIANGLES = 1, 4
_Y_UP = [1, 0, 0, 0, 0, 0, -1, 0, 0, 1, 0, 0, 0, 0, 0, 1]
"""Rotation from z up to y up, the convention of glTF."""


def save_stl(path: str | Path, packing: Packing, *, unit: str = "mm") -> None:
    """Write the solids of a container as one binary STL.

    Args:
        path: File to write, atomically.
        packing: The container.
        unit: Unit of the coordinates; an STL file does not state it.
    """
    placed = [placed_solid(item, packing.cell).placed() for item in packing.items]
    corners = np.concatenate(placed or [np.zeros((0, 3, 3))]) / UNITS[unit]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-300)
    record = np.zeros(len(corners), [("vectors", "<f4", (4, 3)), ("attributes", "<u2")])
    record["vectors"][:, 0], record["vectors"][:, 1:] = normals, corners
    with whole_file(path) as draft:
        draft.write_bytes(bytes(80) + struct.pack("<I", len(corners)) + record.tobytes())


def save_glb(path: str | Path, packings: Packing | Sequence[Packing]) -> None:
    """Write packings side by side as binary glTF 2.0, in metres, y up.

    Each item is a node with its name, its colour, and (as ``extras``) its order, z and support.
    Equal solids share a mesh. Containers are drawn as lines.
    """
    several = [packings] if isinstance(packings, Packing) else list(packings)
    file = _Glb()
    for packing, corner in zip(several, side_by_side(several), strict=True):
        file.add_container(packing, np.array(corner))
    with whole_file(path) as draft:
        draft.write_bytes(file.to_bytes())


class _Glb:
    """A glTF file under construction."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.views: list[dict[str, Any]] = []
        self.accessors: list[dict[str, Any]] = []
        self.meshes: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = [{"name": "containers", "matrix": _Y_UP, "children": []}]
        self._accessors_of: dict[Any, tuple[int, int]] = {}

    def add_container(self, packing: Packing, corner: np.ndarray) -> None:
        """Add a container and its items."""
        arrays = self._arrays(CORNERS * packing.container, EDGES)
        self._node("container", self._mesh(arrays, _LINES, None), corner)
        for item in packing.items:
            key, solid, turn, move = placed_solid(item, packing.cell)
            if key not in self._accessors_of:
                vertices, faces = _indexed(solid)
                self._accessors_of[key] = self._arrays(vertices, faces)
            mesh = self._mesh(self._accessors_of[key], _TRIANGLES, item.order % len(PALETTE))
            extras = {"order": item.order + 1, "z": item.z, "support": item.support_ratio}
            self._node(item.name, mesh, move + corner, turn, **extras)

    def _node(
        self,
        name: str,
        mesh: int,
        move: np.ndarray,
        turn: np.ndarray | None = None,
        **extras: Any,
    ) -> None:
        matrix = np.eye(4)
        matrix[:3, 3] = move
        if turn is not None:
            matrix[:3, :3] = turn
        node: dict[str, Any] = {"name": name, "mesh": mesh, "matrix": matrix.T.ravel().tolist()}
        self.nodes[0]["children"].append(len(self.nodes))
        self.nodes.append(node | ({"extras": extras} if extras else {}))

    def _mesh(self, arrays: tuple[int, int], mode: int, material: int | None) -> int:
        points, corners = arrays
        primitive = {"attributes": {"POSITION": points}, "indices": corners, "mode": mode}
        if material is not None:
            primitive["material"] = material
        self.meshes.append({"primitives": [primitive]})
        return len(self.meshes) - 1

    def _arrays(self, points: np.ndarray, corners: np.ndarray) -> tuple[int, int]:
        """Add vertices and the indices of primitives; return their accessors."""
        points = points.astype("<f4")
        low, high = points.min(0).tolist(), points.max(0).tolist()
        first = self._accessor(points, _FLOAT, "VEC3", len(points), min=low, max=high)
        return first, self._accessor(corners.astype("<u4"), _INTEGER, "SCALAR", corners.size)

    def _accessor(self, values: np.ndarray, kind: int, shape: str, count: int, **more: Any) -> int:
        view = {"buffer": 0, "byteOffset": len(self.data), "byteLength": values.nbytes}
        self.data += np.ascontiguousarray(values).tobytes()
        self.views.append(view)
        whole = {"bufferView": len(self.views) - 1, "componentType": kind, "type": shape}
        self.accessors.append({**whole, "count": count, **more})
        return len(self.accessors) - 1

    def to_bytes(self) -> bytes:
        """Return the file."""
        colours = [
            {
                "doubleSided": True,
                "pbrMetallicRoughness": {
                    "baseColorFactor": [*(float(c) ** 2.2 for c in colour), 1.0],
                    "metallicFactor": 0.0,
                    "roughnessFactor": 0.8,
                },
            }
            for colour in PALETTE
        ]
        document = {
            "asset": {"version": "2.0", "generator": "packing-env"},
            "scene": 0,
            "scenes": [{"nodes": [0]}],
            "nodes": self.nodes,
            "meshes": self.meshes,
            "materials": colours,
            "accessors": self.accessors,
            "bufferViews": self.views,
            "buffers": [{"byteLength": len(self.data)}],
        }
        text = json.dumps(document, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 4)
        data = bytes(self.data)  # padding is not needed: all arrays have elements of four bytes
        chunks = struct.pack("<I4s", len(text), b"JSON") + text
        chunks += struct.pack("<I4s", len(data), b"BIN\0") + data
        return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks


def _indexed(solid: Triangles) -> tuple[np.ndarray, np.ndarray]:
    """Return vertices and faces; corners that are equal in single precision become one vertex."""
    points = solid.reshape(-1, 3).astype(np.float32)
    vertices, faces = np.unique(points, axis=0, return_inverse=True)
    return vertices, faces.reshape(-1, 3)
