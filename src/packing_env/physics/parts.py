"""Convex parts of solids: their hull where it is close enough, else by CoACD, kept on disk."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

from packing_env.items.storage import cache_folder
from packing_env.plan import whole_file
from packing_env.reference.solids import Solid

_THRESHOLDS = (0.05, 0.02, 0.01)
"""Concavities that CoACD is asked for until the volume is right."""
_LEAST = 1e-4
"""Parts of a smaller share of the solid's volume are left out."""


class ConvexParts(NamedTuple):
    """Convex parts that stand for a solid.

    Attributes:
        hulls: Per part the triangles of its surface ``[T, 3, 3]``, metres.
        error: Excess of the parts' volumes over the solid's, as a share of it.
    """

    hulls: tuple[np.ndarray, ...]
    error: float


def convex_parts(solid: Solid, volume: float, error: float) -> ConvexParts:
    """Return convex parts of a solid.

    Wei et al., Approximate Convex Decomposition for 3D Meshes with Collision-Aware Concavity and
    Tree Search, SIGGRAPH 2022 (CoACD). The parts are kept in the user's cache folder under a hash
    of the solid.

    Args:
        solid: The solid, metres.
        volume: Its volume, m^3.
        error: Share of the volume by which its hull, or the sum of the parts, may exceed it; the
            closest found is returned where none is as close.
    """
    vertices, faces = np.asarray(solid.vertices, np.float64), np.asarray(solid.faces, np.int32)
    # Scaled copies of a solid share their parts, and roundings of a scale do not matter.
    size = float(np.ptp(vertices, axis=0).max())
    unit = np.round(vertices / size, 9) + 0.0
    parts = _kept(unit.tobytes(), faces.tobytes(), round(volume / size**3, 9), error)
    return ConvexParts(tuple(hull * size for hull in parts.hulls), parts.error)


@lru_cache(maxsize=1024)
def _kept(vertices: bytes, faces: bytes, volume: float, error: float) -> ConvexParts:
    """Read the parts of a solid of size 1 from the cache folder, or compute and keep them."""
    content = hashlib.sha256(repr((version("coacd"), volume, error)).encode())
    content.update(vertices)
    content.update(faces)
    file = cache_folder() / "convex" / f"{content.hexdigest()}.npz"
    with suppress(OSError, ValueError, KeyError), np.load(file, allow_pickle=False) as kept:
        hulls = np.split(kept["triangles"], np.cumsum(kept["counts"])[:-1])
        return ConvexParts(tuple(hulls), float(kept["error"]))
    points = np.frombuffer(vertices).reshape(-1, 3)
    found = _decompose(points, np.frombuffer(faces, np.int32).reshape(-1, 3), volume, error)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        _write(file, found)
    return found


def _write(file: Path, parts: ConvexParts) -> None:
    counts = np.array([len(hull) for hull in parts.hulls])
    with whole_file(file) as draft, draft.open("wb") as stream:
        np.savez(stream, counts=counts, triangles=np.concatenate(parts.hulls), error=parts.error)


def _decompose(vertices: np.ndarray, faces: np.ndarray, volume: float, error: float) -> ConvexParts:
    """Compute the parts: the hull, then ever finer decompositions."""
    import coacd

    best = _parts([vertices], volume)
    coacd.set_log_level("error")
    mesh = coacd.Mesh(vertices.copy(), faces.copy())
    for threshold in _THRESHOLDS:
        if abs(best.error) <= error:
            break
        found = coacd.run_coacd(mesh, threshold=threshold, preprocess_mode="off", seed=0)
        parts = _parts([corners for corners, _ in found], volume)
        best = min(best, parts, key=lambda parts: abs(parts.error))
    return best


def _parts(found: list[np.ndarray], volume: float) -> ConvexParts:
    """Return the hulls of sets of points, and the error of their volumes."""
    from manifold3d import Manifold

    hulls = [Manifold.hull_points(np.asarray(points, np.float64)) for points in found]
    whole = [hull for hull in hulls if hull.volume() > _LEAST * volume]
    triangles = []
    for hull in whole:
        mesh = hull.to_mesh64()
        triangles.append(np.asarray(mesh.vert_properties[:, :3], np.float64)[mesh.tri_verts])
    return ConvexParts(tuple(triangles), sum(hull.volume() for hull in whole) / volume - 1.0)
