"""Shading: a sun with soft shadows, a sky, outlines, and the container's edges."""

from __future__ import annotations

import itertools

import numpy as np

from packing_env.render.raster import Camera, rasterize
from packing_env.render.solids import CORNERS, EDGES

LIGHT = np.array([0.28, -0.42, 0.86]) / np.linalg.norm([0.28, -0.42, 0.86])
"""Direction to the sun."""
_SHADOW_SIZE = 400
_EDGE = np.array([0.36, 0.38, 0.42], np.float32)


def light(normals: np.ndarray, shadow: np.ndarray) -> np.ndarray:
    """Return brightness ``[P]`` for unit ``normals [P, 3]`` and ``shadow``, 0 in the sun to 1."""
    sun = np.maximum(normals @ LIGHT.astype(np.float32), 0.0)
    return 0.60 + 0.14 * normals[:, 2] + 0.42 * sun * (1 - 0.8 * shadow)


def shadow(solid: np.ndarray, points: np.ndarray, reach: float) -> np.ndarray:
    """Return the share of the sun that ``solid [T, 3, 3]`` hides from each point, with soft edges.

    It uses a shadow map: the solid is rasterised as seen from the sun, and points behind the
    nearest surface are dark. ``reach`` is the scene's size in metres.
    """
    shade = np.zeros(len(points), np.float32)
    if not len(solid):
        return shade
    size = _SHADOW_SIZE
    side = np.cross([0.0, 0.0, 1.0], LIGHT)
    side /= np.linalg.norm(side)
    rotation, sides = np.stack((side, np.cross(LIGHT, side), LIGHT)), np.full(2, _SHADOW_SIZE)
    sun = Camera(rotation, np.zeros(3), np.inf, 1.0, np.zeros(2))
    sun = sun.fit(solid.reshape(-1, 3), sides, sides - 8)
    _, near = rasterize(sun.project(solid), (size, size))
    near = np.pad(near, 2).astype(np.float32)
    column, row, level = sun.project(points).astype(np.float32).T
    level += 4e-3 * reach
    for dx, dy in itertools.product((-0.8, 0.8), repeat=2):
        c = np.clip(column + (dx + 2), 0, size + 3).astype(np.int32)
        r = np.clip(row + (dy + 2), 0, size + 3).astype(np.int32)
        shade += near[r, c] > level
    return shade / 4


def outlines(owner: np.ndarray, facing: np.ndarray) -> np.ndarray:
    """Return a factor that darkens the borders between items and, less, the bends of a surface."""
    dark = np.ones(owner.shape, np.float32)
    for axis in (0, 1):
        one, other = ((np.s_[:-1], np.s_[1:]), (np.s_[:, :-1], np.s_[:, 1:]))[axis]
        solid = (owner[one] >= 0) | (owner[other] >= 0)
        changes = (owner[one] != owner[other]) & solid
        bends = (np.einsum("rci,rci->rc", facing[one], facing[other]) < 0.75) & solid
        factor = np.where(changes, np.float32(0.4), np.where(bends, np.float32(0.75), 1))
        dark[one] = np.minimum(dark[one], factor)
        dark[other] = np.minimum(dark[other], factor)
    return dark


def draw_edges(
    picture: np.ndarray, near: np.ndarray, camera: Camera, extent: np.ndarray, width: int
) -> None:
    """Draw the container's edges: hidden behind items, faint in front of them, dark elsewhere."""
    steps = np.linspace(0, 1, 2 * len(picture))[:, None]
    marks = np.zeros(near.shape, np.float32)
    for start, end in CORNERS[EDGES]:
        column, row, level = camera.project((start + steps * (end - start)) * extent).T
        for dx, dy in itertools.product(range(width), repeat=2):
            c = np.clip((column + dx - width / 2).astype(int), 0, near.shape[1] - 1)
            r = np.clip((row + dy - width / 2).astype(int), 0, near.shape[0] - 1)
            gap = level - near[r, c]
            opacity = np.where(
                gap < -3e-3, 0.0, np.where((gap > 8e-3) & (near[r, c] > 0), 0.45, 0.85)
            )
            marks[r, c] = np.maximum(marks[r, c], opacity)
    picture += marks[..., None] * (_EDGE - picture)
