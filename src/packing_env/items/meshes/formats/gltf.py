"""Reader of GLB, the binary form of glTF 2.0: the triangles of its scene in their poses.

Lengths in glTF are metres. In the file +Y is up; solids are turned so that +Z is up: (x, y, z) of
the file becomes (x, -z, y).
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped

from packing_env import files
from packing_env.items.meshes import limits
from packing_env.items.meshes.surface import (
    Matrix,
    MeshError,
    Surface,
    damaged,
    merged,
    surface,
    unsupported,
    widened,
)
from packing_env.names import listed

Z_UP = np.array([[1, 0, 0, 0], [0, 0, -1, 0], [0, 1, 0, 0], [0, 0, 0, 1]], np.float64)
INSTANCING = "EXT_mesh_gpu_instancing"
VISIBILITY = "KHR_node_visibility"
READ_EXTENSIONS = (INSTANCING, VISIBILITY, "KHR_mesh_quantization")
SAME_SHAPE = ("KHR_materials_", "KHR_texture_", "KHR_lights_", "KHR_xmp", "EXT_texture_")
"""Prefixes of the names of extensions that do not change shapes."""
KINDS = {5120: "<i1", 5121: "<u1", 5122: "<i2", 5123: "<u2", 5125: "<u4", 5126: "<f4"}
"""NumPy type of each `componentType`."""
WIDTHS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT4": 16}
"""Numbers per element of the accessor types that describe shapes."""
TRIANGLES, STRIP, FAN = 4, 5, 6
"""Modes of primitives that form surfaces."""
BLOCK = 2**16
"""Number of vertices whose joints are blended at once."""
_UNMOVED = {"translation": (0, 0, 0), "rotation": (0, 0, 0, 1), "scale": (1, 1, 1)}
_DATA_URI = "data:"
_TOO_SHORT = "declares more values than the file holds"


def read_glb(data: bytes) -> Surface:
    """Read a GLB file: every mesh of its scene; each instance is a separate body.

    Raises:
        MeshError: The file is damaged, too large, refers to other files, or needs an extension that
            is not supported.
    """
    with _parsing():
        return _Document(data).surface()


def check_glb(data: bytes) -> None:
    """Raise `MeshError` if the chunks of a GLB file are damaged or need an unknown extension."""
    with _parsing():
        _Document(data)


@contextmanager
def _parsing() -> Iterator[None]:
    try:
        yield
    except MeshError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise damaged(f"cannot be parsed as GLB ({type(error).__name__}: {error})") from error


class _Document:
    def __init__(self, data: bytes) -> None:
        self.size, self.warnings = len(data), tuple[str, ...]()
        self.poses: dict[int, Matrix] = {}  # of each node of the scene, with +Z up
        self.shapes: dict[tuple[Any, ...], Surface] = {}  # by mesh, weights, skin and its pose
        self.joints: dict[int, Float[np.ndarray, "J 3 4"]] = {}  # by skin
        # 1. Split the file into its chunks.
        if len(data) < 20 or data[:4] != b"glTF":
            raise MeshError("no GLB header; check the file's suffix")
        version, size = struct.unpack_from("<II", data, 4)
        if version != 2:
            raise MeshError(f"glTF of version {version}; export it as glTF 2.0")
        offset, chunks = 12, dict[bytes, bytes]()
        while offset + 8 <= len(data):
            length, kind = struct.unpack_from("<I4s", data, offset)
            chunk = data[offset + 8 : offset + 8 + length]
            if len(chunk) != length and offset >= size:
                self.warnings = (f"{len(data) - size} bytes after its end are ignored",)
                break
            if len(chunk) != length:
                raise damaged("a chunk is truncated")
            chunks.setdefault(kind, chunk)
            offset += 8 + length
        self.json: Mapping[str, Any] = files.parse_json(chunks[b"JSON"].rstrip(b"\0"))
        self.binary = chunks.get(b"BIN\0", b"")
        # 2. Refuse extensions that may change shapes.
        for name in self.json.get("extensionsRequired", ()):
            if name not in READ_EXTENSIONS and not name.startswith(SAME_SHAPE):
                raise unsupported(name)

    def surface(self) -> Surface:
        """Return the meshes of the scene; raise `MeshError` if they exceed the limits."""
        placed = self._placed_nodes()
        counts = [self._num_instances(node) for node, _ in placed]
        sizes = [self._size(node["mesh"]) for node, _ in placed]
        total = sum(size * count for size, count in zip(sizes, counts, strict=True))
        limits.check_size(sum(counts), total)
        whole = merged(
            [
                self._mesh(node, matrix).moved(
                    matrix @ instance if node.get("skin") is None else instance
                )
                for node, matrix in placed
                for instance in self._instances(node)
            ]
        )
        return replace(whole, warnings=self.warnings)

    def _placed_nodes(self) -> list[tuple[Mapping[str, Any], Matrix]]:
        placed, hidden = [], list[str]()
        waiting = [(root, Z_UP, True) for root in reversed(self._roots())]
        while waiting:
            index, above, seen = waiting.pop()
            node = self._entry("nodes", index)
            if index in self.poses:
                raise damaged(f"node {index} has several parents")
            matrix = self.poses[index] = above @ _pose(node)
            seen = seen and not _is_hidden(node)
            if "mesh" in node and seen:
                placed.append((node, matrix))
            elif "mesh" in node:
                hidden.append(f"{node.get('name', index)!r:.60}")
            below = reversed(node.get("children", ()))
            waiting += [(child, matrix, seen) for child in below]
        if hidden and not placed:
            raise MeshError(
                f"hides all its meshes ({listed(hidden)}); export it with visible nodes"
            )
        if hidden:
            self.warnings += (f"hidden nodes are left out ({VISIBILITY}): {listed(hidden)}",)
        return placed

    def _roots(self) -> list[int]:
        """Return the root nodes of the scene; without scenes, the nodes without a parent."""
        if self.json.get("scenes"):
            return list(self._entry("scenes", self.json.get("scene", 0)).get("nodes", ()))
        nodes = self.json.get("nodes", ())
        below = {child for node in nodes for child in node.get("children", ())}
        return [index for index in range(len(nodes)) if index not in below]

    def _entry(self, key: str, index: Any) -> Mapping[str, Any]:
        entries = self.json.get(key, ())
        if not isinstance(index, int) or not 0 <= index < len(entries):
            raise damaged(f"refers to {key}[{index!r}], but has {len(entries)}")
        return entries[index]

    # ------------------------------------------------------------------ nodes and meshes

    def _num_instances(self, node: Mapping[str, Any]) -> int:
        counts = {self._count(index) for index in _instancing(node).values()} or {1}
        if len(counts) > 1:
            raise damaged(f"the lists of {INSTANCING} differ in length")
        return counts.pop()

    def _size(self, mesh: int) -> int:
        """Return the size of a mesh (`limits.size_of`) before it is read."""
        size = 0
        for primitive in self._entry("meshes", mesh)["primitives"]:
            vertices = self._count(primitive["attributes"]["POSITION"])
            corners = self._count(primitive["indices"]) if "indices" in primitive else vertices
            listed = primitive.get("mode", TRIANGLES) == TRIANGLES
            size += limits.size_of(vertices, corners // 3 if listed else corners)
        return size

    def _instances(self, node: Mapping[str, Any]) -> Float[np.ndarray, "N 4 4"]:
        """Return the poses of a node's instances, relative to the node."""
        attributes = _instancing(node)
        columns = {
            name: widened(self._values(attributes[name.upper()]))
            for name in _UNMOVED
            if name.upper() in attributes
        }
        return _matrices(columns, self._num_instances(node))

    def _mesh(self, node: Mapping[str, Any], pose: Matrix) -> Surface:
        """Return the triangles of a node's mesh; all its primitives form one body.

        With a skin, they are in the scene: moved by their joints alone, or if they have none, by
        the pose of the node.
        """
        index, skin = node["mesh"], node.get("skin")
        mesh = self._entry("meshes", index)
        weights = tuple(node.get("weights", mesh.get("weights", ())))
        key = (index, weights, skin, None if skin is None else pose.tobytes())
        if key in self.shapes:
            return self.shapes[key]
        pieces = []
        for primitive in mesh["primitives"]:
            mode = primitive.get("mode", TRIANGLES)
            if mode not in (TRIANGLES, STRIP, FAN):  # points and lines enclose nothing
                continue
            self._check_compression(primitive)
            attributes = primitive["attributes"]
            points = self._points(primitive, weights)
            rigid = skin is None or not {"JOINTS_0", "WEIGHTS_0"} <= set(attributes)
            if not rigid:
                points = self._posed(points, attributes, self._joints(skin))
            corners = np.arange(len(points))
            if "indices" in primitive:
                corners = self._values(primitive["indices"])[:, 0].astype(np.int64)
            if len(corners) and (last := int(corners.max())) >= len(points):
                raise damaged(f"mesh {index} refers to vertex {last} of {len(points)}")
            piece = surface(points, triangles(mode, corners))
            pieces.append(piece.moved(pose) if skin is not None and rigid else piece)
        whole = merged(pieces)
        self.shapes[key] = replace(whole, part=np.zeros_like(whole.part))
        return self.shapes[key]

    def _points(
        self, primitive: Mapping[str, Any], weights: Sequence[float]
    ) -> Float[np.ndarray, "N 3"]:
        """Return the vertices of a primitive, moved by its morph targets."""
        points = widened(self._values(primitive["attributes"]["POSITION"]))
        for weight, target in zip(weights, primitive.get("targets", ()), strict=False):
            if weight and "POSITION" in target:
                points = points + weight * widened(self._values(target["POSITION"]))
        return points

    def _posed(
        self,
        points: Float[np.ndarray, "N 3"],
        attributes: Mapping[str, Any],
        joints: Float[np.ndarray, "J 3 4"],
    ) -> Float[np.ndarray, "N 3"]:
        """Return vertices as their joints move them; without weights, the first joint does."""
        moved = np.empty_like(points)
        names = [(name, name.replace("JOINTS", "WEIGHTS")) for name in attributes]
        sets = [
            (self._values(attributes[ids]), self._values(attributes[shares]))
            for ids, shares in names
            if ids.startswith("JOINTS_") and shares in attributes
        ]
        first = self._values(attributes["JOINTS_0"])[:, 0]
        for begin in range(0, len(points), BLOCK):
            at = slice(begin, begin + BLOCK)
            blended = np.zeros((len(points[at]), 3, 4))
            total = np.zeros(len(blended))
            for ids, shares in sets:
                for joint, share in zip(ids[at].T, widened(shares[at]).T, strict=True):
                    blended += share[:, None, None] * joints[joint]
                    total += share
            blended[total == 0.0] = joints[first[at][total == 0.0]]
            total[total == 0.0] = 1.0
            moved[at] = np.einsum("nij,nj->ni", blended[:, :, :3], points[at]) + blended[:, :, 3]
            moved[at] /= total[:, None]
        return moved

    def _joints(self, skin: Any) -> Float[np.ndarray, "J 3 4"]:
        """Return the matrices of a skin's joints, which need not be in the scene."""
        if skin in self.joints:
            return self.joints[skin]
        entry, nodes = self._entry("skins", skin), self.json.get("nodes", ())
        above = {
            child: index for index, node in enumerate(nodes) for child in node.get("children", ())
        }
        for joint in entry["joints"]:
            chain = [joint]
            while chain[-1] in above and chain[-1] not in self.poses:
                chain.append(above[chain[-1]])
                if len(chain) > len(nodes):
                    raise damaged(f"node {joint} is below itself")
            for index in reversed(chain):
                if index not in self.poses:
                    parent = self.poses.get(above.get(index, -1), Z_UP)
                    self.poses[index] = parent @ _pose(self._entry("nodes", index))
        joints = np.stack([self.poses[joint] for joint in entry["joints"]])
        if "inverseBindMatrices" in entry:
            columns = widened(self._values(entry["inverseBindMatrices"]))
            joints = joints @ columns.reshape(-1, 4, 4).swapaxes(1, 2)
        self.joints[skin] = joints[:, :3]
        return self.joints[skin]

    def _check_compression(self, primitive: Mapping[str, Any]) -> None:
        """Raise if an extension holds the vertices and the file has no other copy of them."""
        accessor = self._entry("accessors", primitive["attributes"]["POSITION"])
        if "bufferView" not in accessor and "sparse" not in accessor:
            for name in primitive.get("extensions", ()):
                raise unsupported(name)

    # ------------------------------------------------------------------ arrays

    def _count(self, accessor: Any) -> int:
        """Return the number of an accessor's elements; raise if the file cannot hold that many."""
        count = self._entry("accessors", accessor)["count"]
        if not isinstance(count, int) or not 0 <= count <= self.size:
            raise damaged(_TOO_SHORT)
        return count

    def _values(self, accessor: Any) -> Shaped[np.ndarray, "N W"]:
        """Return the elements of an accessor; normalized integers become fractions."""
        entry, count = self._entry("accessors", accessor), self._count(accessor)
        kind, width = np.dtype(KINDS[entry["componentType"]]), WIDTHS[entry["type"]]
        values = np.zeros((count, width), kind)
        if "bufferView" in entry:
            values = self._block(entry, kind, width, count)
        if (sparse := entry.get("sparse")) is not None:
            places, number = sparse["indices"], sparse["count"]
            index = self._block(places, np.dtype(KINDS[places["componentType"]]), 1, number)
            values = values.copy()
            values[index[:, 0]] = self._block(sparse["values"], kind, width, number)
        if entry.get("normalized") and kind.kind in "iu":
            return np.maximum(values / np.iinfo(kind).max, -1.0)
        return values

    def _block(
        self, place: Mapping[str, Any], kind: np.dtype[Any], width: int, count: int
    ) -> Shaped[np.ndarray, "N W"]:
        """Return `count` rows of a buffer view, starting at `byteOffset` of `place`."""
        view = self._entry("bufferViews", place["bufferView"])
        start, length = view.get("byteOffset", 0), view["byteLength"]
        buffer = self._buffer(view["buffer"])
        offset, row = place.get("byteOffset", 0), width * kind.itemsize
        stride = view.get("byteStride", row)
        needed = offset + (count - 1) * stride + row if count else 0
        if min(start, length, offset, count) < 0 or stride < row:
            raise damaged("a buffer view has an invalid range")
        if needed > length or start + length > len(buffer):
            raise damaged(_TOO_SHORT)
        return np.ndarray((count, width), kind, buffer, start + offset, (stride, kind.itemsize))

    def _buffer(self, index: Any) -> bytes:
        """Return the bytes of a buffer: the binary chunk, or those in its URI."""
        buffer = self._entry("buffers", index)
        uri = buffer.get("uri")
        if uri is None and index == 0:
            return self.binary
        for name in buffer.get("extensions", ()):
            raise unsupported(name)
        if uri is None:
            raise damaged(f"buffer {index} has no data")
        if not uri.startswith(_DATA_URI):
            raise MeshError(f"refers to the file {uri!r}; export it as a single GLB")
        return base64.b64decode(uri.partition(",")[2], validate=True)


def _is_hidden(node: Mapping[str, Any]) -> bool:
    with suppress(LookupError, TypeError):
        return node["extensions"][VISIBILITY]["visible"] is False
    return False


def _instancing(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the accessors of the poses of a node's instances; empty for a single instance."""
    return node.get("extensions", {}).get(INSTANCING, {}).get("attributes", {})


def _pose(node: Mapping[str, Any]) -> Matrix:
    if "matrix" in node:
        return np.array(node["matrix"], np.float64).reshape(4, 4).T
    return _matrices({name: node[name] for name in _UNMOVED if name in node}, 1)[0]


def _matrices(columns: Mapping[str, Any], count: int) -> Float[np.ndarray, "N 4 4"]:
    """Return translation @ rotation @ scale; rotations are quaternions (x, y, z, w)."""
    translation, rotation, scale = (
        np.array(columns.get(name, [unmoved] * count), np.float64).reshape(count, len(unmoved))
        for name, unmoved in _UNMOVED.items()
    )
    x, y, z, w = (rotation / np.linalg.norm(rotation, axis=1, keepdims=True)).T
    turn = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
    matrices = np.tile(np.eye(4), (count, 1, 1))
    matrices[:, :3, :3] = np.moveaxis(turn, 2, 0) * scale[:, None, :]
    matrices[:, :3, 3] = translation
    return matrices


def triangles(mode: int, corners: Int[np.ndarray, " N"]) -> Int[np.ndarray, "F 3"]:
    """Return the triangles of a list, strip or fan of corners."""
    if mode == TRIANGLES:
        return corners.reshape(-1, 3)
    if mode == FAN:
        first = np.broadcast_to(corners[:1], corners[2:].shape)
        return np.stack([first, corners[1:-1], corners[2:]], 1)
    faces = np.stack([corners[:-2], corners[1:-1], corners[2:]], 1)
    faces[1::2] = faces[1::2, ::-1]
    return faces
