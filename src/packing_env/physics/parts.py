"""Convex parts of solids: the hull if it is close enough, else CoACD's parts, cached on disk."""

from __future__ import annotations

import hashlib
import io
import logging
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from packing_env import extras, folders
from packing_env.plan import whole_file
from packing_env.reference.solids import Solid

_LOGGER = logging.getLogger(__name__)

_THRESHOLDS = (0.05, 0.02, 0.01)
"""Concavity thresholds of CoACD, tried one after another until the volume is right."""
_LEAST = 1e-4
"""Parts whose share of the solid's volume is smaller are left out."""
_COUNTS = "/counts"
_DAMAGED = (EOFError, zipfile.BadZipFile, zlib.error)
"""Further errors of NumPy on files of arrays that were cut off or altered."""

Corners = list[np.ndarray]
"""The corners of the hull of each part, ``[V, 3]``."""


class ConvexParts(NamedTuple):
    """Convex parts that replace a solid.

    Attributes:
        hulls: Triangles of the surface of each part ``[T, 3, 3]``, metres.
        error: Sum of the parts' volumes minus the solid's volume, as a share of the solid's volume.
    """

    hulls: tuple[np.ndarray, ...]
    error: float


def convex_parts(solid: Solid, volume: float, error: float) -> ConvexParts:
    """Return the convex parts of a solid.

    The result is the hull if it is close enough, otherwise the parts of CoACD (Wei et al.,
    Approximate Convex Decomposition for 3D Meshes with Collision-Aware Concavity and Tree Search,
    SIGGRAPH 2022). Parts are cached in the user's cache folder; the parts of the embedded shapes
    are in the package.

    Args:
        solid: The solid, metres.
        volume: Its volume, m^3.
        error: Share of the volume by which the hull, or the sum of the parts, may differ from the
            solid's volume. If no decomposition is this close, the closest one is returned.
    """
    vertices, faces = np.asarray(solid.vertices, np.float64), np.asarray(solid.faces, np.int32)
    # Scaled copies of a solid share their parts, even if a scale is rounded differently.
    size = float(np.ptp(vertices, axis=0).max())
    unit = np.round(vertices / size, 9) + 0.0
    parts = _unit_parts(unit.tobytes(), faces.tobytes(), round(volume / size**3, 9), error)
    return ConvexParts(tuple(hull * size for hull in parts.hulls), parts.error)


@lru_cache(maxsize=1024)
def _unit_parts(vertices: bytes, faces: bytes, volume: float, error: float) -> ConvexParts:
    # 1. Use the hull if it is close enough.
    points = np.frombuffer(vertices).reshape(-1, 3)
    hull = _parts([points], volume)
    if abs(hull.error) <= error:
        return hull
    # 2. Otherwise use parts from the package or the cache, or compute new ones and cache them.
    content = hashlib.sha256(repr((volume, error)).encode() + vertices + faces).hexdigest()
    corners = _shipped().get(content) or _read(content)
    if corners is None:
        corners = _decompose(points, np.frombuffer(faces, np.int32).reshape(-1, 3), volume, error)
        with suppress(OSError), whole_file(_place(content)) as draft, draft.open("wb") as stream:
            save_parts(stream, {content: corners})
    return min(hull, _parts(corners, volume), key=lambda parts: abs(parts.error))


@cache
def _shipped() -> dict[str, Corners]:
    """Return the parts of the embedded shapes; ``benchmarks/convex_parts.py`` writes their file."""
    return _read_all(Path(__file__).with_name("shapes.npz"))


def _place(content: str) -> Path:
    """Return the cache file of a solid's parts; raise an OSError if the cache cannot be used."""
    return folders.own("convex") / f"{content}.npz"


def _read(content: str) -> Corners | None:
    with suppress(OSError, ValueError, KeyError, *_DAMAGED):
        return _read_all(_place(content)).get(content)
    return None


def _read_all(file: Path) -> dict[str, Corners]:
    # NumPy would leave a damaged file open.
    with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as arrays:
        names = [name for name in arrays.files if not name.endswith(_COUNTS)]
        return {
            name: np.split(arrays[name].astype(np.float64), np.cumsum(arrays[name + _COUNTS])[:-1])
            for name in names
        }


def save_parts(file: Path | BinaryIO, parts: Mapping[str, Corners]) -> None:
    """Write the corners of parts, in float32, by the hash of their solids."""
    arrays = {}
    for name, corners in parts.items():
        arrays[name] = np.concatenate(corners).astype(np.float32)
        arrays[name + _COUNTS] = np.array([len(part) for part in corners])
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def _decompose(vertices: np.ndarray, faces: np.ndarray, volume: float, error: float) -> Corners:
    """Compute finer and finer decompositions; return the corners of the closest one, in float32."""
    coacd = extras.require("coacd", "convex parts of meshes")
    coacd.set_log_level("error")
    text = "computing the convex parts of a mesh of %d triangles can take minutes; they are cached"
    _LOGGER.warning(text, len(faces))
    mesh = coacd.Mesh(vertices.copy(), faces.copy())
    smallest = np.inf
    best: Corners = []
    for threshold in _THRESHOLDS:
        pieces = coacd.run_coacd(mesh, threshold=threshold, preprocess_mode="off", seed=0)
        corners = [points.astype(np.float32).astype(np.float64) for points, _ in pieces]
        off = abs(_parts(corners, volume).error)
        if off < smallest:
            smallest, best = off, corners
        if off <= error:
            break
    return best


def _parts(corners: Corners, volume: float) -> ConvexParts:
    """Return the convex hulls of sets of points, and the error of their total volume."""
    from manifold3d import Manifold

    hulls = [Manifold.hull_points(np.asarray(points, np.float64)) for points in corners]
    hulls = [hull for hull in hulls if hull.volume() > _LEAST * volume]
    triangles = []
    for hull in hulls:
        mesh = hull.to_mesh64()
        triangles.append(np.asarray(mesh.vert_properties[:, :3], np.float64)[mesh.tri_verts])
    return ConvexParts(tuple(triangles), sum(hull.volume() for hull in hulls) / volume - 1.0)
