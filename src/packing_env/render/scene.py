"""The picture of a packed container: an open glass box, lit from above, one colour per item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from packing_env.plan import Packing, packing_of
from packing_env.plan.solids import cut_wedges
from packing_env.render import shading
from packing_env.render.raster import Camera, look_at, rasterize
from packing_env.render.solids import (
    CORNERS,
    corner_normals,
    floor_of,
    quads,
    seen,
    triangles,
)

if TYPE_CHECKING:
    from packing_env.envs import PackingEnv

SIZE = 400
"""Width and height of a frame in pixels."""
AZIMUTH, ELEVATION = -58.0, 34.0
"""Degrees from the x axis to the eye, seen from above, and above the horizon."""
SAMPLING = 2
"""Samples per pixel along each axis; an even number."""
PALETTE = (
    np.array(
        [
            (86, 132, 190), (244, 150, 60), (102, 176, 92), (232, 98, 98), (122, 196, 190),
            (243, 209, 85), (178, 132, 190), (250, 164, 180), (168, 130, 108), (120, 170, 220),
            (140, 120, 190), (196, 206, 100), (230, 126, 80), (96, 160, 150), (215, 182, 135),
        ],
        np.float32,
    )
    / 255
)  # fmt: skip
"""Colours of the items in the order of packing, repeated."""
_FLOOR, _WALL, _BACKGROUND = 0.86, 0.925, 1.0
_FLOOR_ID, _WALL_ID, _NOTHING = -1, -2, -3


@dataclass(frozen=True, eq=False)
class _Scene:
    """``[T]`` triangles: corners, normals at the corners, colour, and index of their item."""

    triangles: np.ndarray
    normals: np.ndarray
    colours: np.ndarray
    owner: np.ndarray


def frame(env: PackingEnv, row: int = 0) -> np.ndarray:
    """Draw one container of an environment as it is now; see :func:`image`."""
    return image(packing_of(env, row))


def image(packing: Packing, size: int = SIZE) -> np.ndarray:
    """Draw a packed container, ``[size, size, 3]`` uint8."""
    pixels = (size * SAMPLING, size * SAMPLING)
    extent = np.asarray(packing.container)
    camera = look_at(CORNERS * extent, pixels, AZIMUTH, ELEVATION)
    scene = _build(packing, camera)
    number, near = rasterize(camera.project(scene.triangles), pixels)
    picture = _shade(scene, camera, number, near, float(extent.max()))
    shading.draw_edges(picture, near, camera, extent, SAMPLING)
    picture = picture.reshape(size, SAMPLING, size, SAMPLING, 3).mean((1, 3))
    return (np.clip(picture, 0, 1) * 255 + 0.5).astype(np.uint8)


def _build(packing: Packing, camera: Camera) -> _Scene:
    """Collect all triangles: the items, the floor, and the walls behind them."""
    parts = [(triangles(item, packing.cell), item.order) for item in packing.items]
    visible = seen([part for part, _ in parts])
    parts = [(p[mine], n) for (p, n), mine in zip(parts, visible, strict=True) if mine.any()]
    x, y, h = packing.container
    eye = camera.rotation[2]
    wall_x, wall_y = (0.0 if eye[0] > 0 else x), (0.0 if eye[1] > 0 else y)
    x0, y0, x1, y1 = floor_of(packing)
    floor = [[(x0, y0, 0), (x1, y0, 0), (x1, y1, 0), (x0, y1, 0)]]
    walls = [
        [(wall_x, 0, 0), (wall_x, y, 0), (wall_x, y, h), (wall_x, 0, h)],
        [(0, wall_y, 0), (x, wall_y, 0), (x, wall_y, h), (0, wall_y, h)],
    ]
    # A plane that cuts an edge off is drawn like the floor, where it is behind the items.
    for plane in cut_wedges(packing)[:, :4]:
        inward = np.cross(plane[1] - plane[0], plane[3] - plane[0])
        inward *= np.sign(inward @ (np.asarray(packing.container) / 2 - plane[0]))
        if inward @ eye > 0:
            floor.append([tuple(corner) for corner in plane.tolist()])
    parts.append((quads(np.asarray(floor, np.float64)), _FLOOR_ID))
    parts.append((quads(np.asarray(walls, np.float64)), _WALL_ID))
    owner = np.repeat([number for _, number in parts], [len(part) for part, _ in parts])
    colours = PALETTE[owner % len(PALETTE)]
    colours[owner == _FLOOR_ID], colours[owner == _WALL_ID] = _FLOOR, _WALL
    normals = np.concatenate([corner_normals(part) for part, _ in parts])
    return _Scene(np.concatenate([part for part, _ in parts]), normals, colours, owner)


def _shade(
    scene: _Scene, camera: Camera, number: np.ndarray, near: np.ndarray, reach: float
) -> np.ndarray:
    """Compute the colours ``[height, width, 3]`` float32 from the triangle index per pixel."""
    hit = number >= 0
    visible = number[hit]
    rows, columns = np.nonzero(hit)
    world = camera.unproject(columns + 0.5, rows + 0.5, near[hit])
    normal, flat = _normals(scene, visible, world, camera)
    shadow = shading.shadow(scene.triangles[scene.owner >= 0], world + 6e-3 * reach * flat, reach)
    brightness = shading.light(normal, shadow)
    brightness = np.where(scene.owner[visible] == _WALL_ID, 1.0 - 0.10 * shadow, brightness)
    picture = np.full((*number.shape, 3), _BACKGROUND, np.float32)
    picture[hit] = scene.colours[visible] * brightness[:, None]
    facing = np.zeros((*number.shape, 3), np.float32)
    facing[hit] = normal
    owner = np.where(hit, scene.owner[number], _NOTHING)
    return picture * shading.outlines(owner, facing)[..., None]


def _normals(
    scene: _Scene, visible: np.ndarray, world: np.ndarray, camera: Camera
) -> tuple[np.ndarray, np.ndarray]:
    """Return two unit normals ``[P, 3]`` towards the eye: interpolated, and of the triangle."""
    first = scene.triangles[:, 0]
    one, two = scene.triangles[:, 1] - first, scene.triangles[:, 2] - first
    own = np.cross(one, two)
    area = np.maximum(np.einsum("ti,ti->t", own, own), 1e-300)[:, None]
    # Barycentric coordinates are linear in the point: b = axis_b . (p - first).
    axis_one, axis_two = np.cross(two, own) / area, np.cross(own, one) / area
    point = (world - first[visible]).astype(np.float32)
    b = np.einsum("pi,pi->p", point, axis_one.astype(np.float32)[visible])[:, None]
    c = np.einsum("pi,pi->p", point, axis_two.astype(np.float32)[visible])[:, None]
    corner = scene.normals[visible]
    normal = corner[:, 0] + b * (corner[:, 1] - corner[:, 0]) + c * (corner[:, 2] - corner[:, 0])
    flat = (own / np.sqrt(area)).astype(np.float32)[visible]
    eye = camera.centre + camera.rotation[2] * camera.distance
    away = np.einsum("pi,pi->p", (eye - world).astype(np.float32), flat) < 0
    sign = np.where(away, np.float32(-1), np.float32(1))[:, None]
    length = np.maximum(np.linalg.norm(normal, axis=-1, keepdims=True), 1e-20)
    return sign * normal / length, sign * flat
