"""The reference's rasteriser against solids in closed form and against the program's rasteriser."""

from itertools import product

import numpy as np
import pytest

from packing_env.items import rotation_set
from packing_env.items.rasterization import rasterize_many
from packing_env.items.shapes import SHAPES
from packing_env.reference.raster import Columns, cuboid, rasterize
from packing_env.reference.solids import Solid, matrix, measure

CELL = 0.01


def box(lower: tuple[float, ...], upper: tuple[float, ...]) -> np.ndarray:
    solid = Solid.box(tuple(np.subtract(upper, lower)))
    return (solid.vertices + np.asarray(lower))[solid.faces]


def revolved(profile: list[tuple[float, float]], sides: int, centre: tuple[float, float]) -> Solid:
    """Build a solid of revolution from (radius, height) points, axis to axis, bottom to top."""
    angle = 2 * np.pi * np.arange(sides) / sides
    ring = np.stack((np.cos(angle), np.sin(angle)), 1)
    vertices = [(*(radius * ring[k] + centre), z) for radius, z in profile for k in range(sides)]
    faces = []
    for i, k in product(range(len(profile) - 1), range(sides)):
        a, b = i * sides + k, i * sides + (k + 1) % sides
        faces += [(a, b, b + sides), (a, b + sides, a + sides)]
    return Solid(np.array(vertices), np.array(faces))


def distances(columns: Columns, centre: tuple[float, float]) -> np.ndarray:
    """Return the distance of each cell from an axis, metres."""
    found = np.zeros(columns.top.shape)
    for place in np.ndindex(found.shape):
        low = CELL * np.add(columns.corner, place)
        found[place] = np.hypot(*np.maximum(0.0, np.maximum(low - centre, centre - low - CELL)))
    return found


@pytest.mark.parametrize("centre", [(0.1, 0.1), (0.103, 0.1171)])
def test_sphere(centre: tuple[float, float]) -> None:
    radius, turns = 0.04, np.linspace(-np.pi / 2, np.pi / 2, 91)
    profile = [(radius * np.cos(t), 0.05 + radius * np.sin(t)) for t in turns]
    solid = revolved(profile, 180, centre)
    columns = rasterize(solid.vertices[solid.faces], CELL)
    near = distances(columns, centre)
    assert np.array_equal(columns.footprint, near < radius * (1 - 2e-4))
    height = np.sqrt(np.clip(radius**2 - near**2, 0, None))[columns.footprint]
    top, bottom = columns.top[columns.footprint] - 0.05, 0.05 - columns.bottom[columns.footprint]
    steep = near[columns.footprint] > 0.95 * radius  # there a facet is far below the sphere
    for found in (top, bottom):
        assert (found <= height + 1e-9).all()
        assert np.allclose(found[~steep], height[~steep], atol=5e-5)
    assert measure(solid)[0] == pytest.approx(4 / 3 * np.pi * radius**3, rel=1e-3)
    assert measure(solid)[1] == pytest.approx([*centre, 0.05])


def test_l_prism_is_exact() -> None:
    legs = [box((0.1, 0.1, 0.2), (0.15, 0.12, 0.26)), box((0.1, 0.1, 0.2), (0.12, 0.14, 0.22))]
    columns = rasterize(np.concatenate(legs), CELL)
    assert columns.corner == (10, 10)
    expected = np.full((5, 4), -np.inf)
    expected[:2] = 0.22
    expected[:, :2] = 0.26
    assert np.array_equal(columns.top, expected)
    assert np.array_equal(columns.bottom, np.where(np.isfinite(expected), 0.2, np.inf))


@pytest.mark.parametrize(
    ("shift", "cells"), [(0.0, 3), (9e-7, 3), (-9e-7, 3), (1.1e-6, 4), (-1.1e-6, 4), (0.5, 4)]
)
def test_cells_are_open(shift: float, cells: int) -> None:
    """A cube of three cells takes a fourth when it reaches a millionth of a cell into it."""
    lower = np.array([(5 + shift) * CELL, 5 * CELL, 0.0])
    upper = lower + 3 * CELL
    for columns in (rasterize(box(lower, upper), CELL), cuboid(lower, upper, CELL)):
        assert columns.footprint.shape == (cells, 3)
        assert columns.footprint.all()
        assert columns.corner == (4 if shift < -1e-6 else 5, 5)


@pytest.mark.parametrize("x", [0.05, 0.0501, 0.05 - 2e-9])
def test_a_needle_is_never_lost(x: float) -> None:
    upright = rasterize(box((x, 0.05, 0), (x + 4e-9, 0.05 + 4e-9, 0.1)), CELL)
    assert upright.footprint.sum() == 1
    assert (upright.top.max(), upright.bottom.min()) == (0.1, 0)
    wall = rasterize(box((x, 0.05, 0), (x + 4e-9, 0.08, 0.1)), CELL)
    assert wall.footprint.sum() == 3
    along = matrix(np.array([np.cos(np.pi / 8), 0, 0, np.sin(np.pi / 8)]))
    lying = rasterize(box((0, 0, 0), (0.1, 1e-5, 1e-5)) @ along.T + x, CELL)
    line = np.linspace(1e-6, 0.0707, 999) / CELL
    crossed = {(int(a), int(a)) for a in line + x / CELL}
    found = {(lying.corner[0] + u, lying.corner[1] + v) for u, v in np.argwhere(lying.footprint)}
    assert crossed <= {tuple(map(int, cell)) for cell in found}


@pytest.mark.parametrize("interval", ["pi/2", "pi/4"])
@pytest.mark.parametrize(
    "name", ["tetracube_l", "t_profile", "angle_bracket", "mug", "pinched_star", "square_bar"]
)
def test_equal_to_the_program(name: str, interval: str) -> None:
    """The maps are equal up to float32 rounding, wherever the item stands.

    At pi/4 walls run diagonally through corners of cells: there the program once took the height of
    a plane that rounding had made nearly vertical.
    """
    mesh = SHAPES[name].mesh()
    rotations = rotation_set(interval)[:: 5 if interval == "pi/4" else 2]
    for k, maps in enumerate(rasterize_many(mesh, rotations, CELL)):
        place = np.array([(k % 7) * CELL, (k % 3) * CELL, 0.01 * k])
        points = mesh.vertices.numpy() @ maps.rotation.numpy().T + maps.offset.numpy() + place
        columns = rasterize(points[mesh.faces.numpy()], CELL)
        assert columns.corner == (k % 7, k % 3)
        assert np.array_equal(columns.footprint, maps.footprint.numpy())
        assert points[:, 2].min() == pytest.approx(place[2], abs=1e-12)
        there = columns.footprint
        for found, expected, low in (
            (columns.top, maps.top, place[2]),
            (columns.bottom, maps.bottom, columns.floor),
        ):
            above = found[there] - low
            assert np.abs(above - expected.numpy()[there]).max() < 1e-8
