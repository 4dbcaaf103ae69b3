"""Poses in which a solid stands on a flat floor: known solids, catalogues, and the simulation."""

import importlib.util
import math
from typing import Any

import pytest
import torch
from tests.mesh_files import corners_of

import packing_env as pe
from packing_env.item_source import build_catalogue
from packing_env.items import Catalogue, shapes
from packing_env.items.poses import lowest_pose, resting_poses
from packing_env.items.rotations import rotation_set
from packing_env.items.shapes import SHAPES
from packing_env.types import PackingParams, ParameterError

FACES = rotation_set("pi/2")[::4]
"""One rotation per upward axis: +z -z +y -y +x -x."""
GRID = {"cell": 0.01, "container": (0.32, 0.32, 0.30)}


def rests(mesh: pe.items.Mesh) -> list[bool]:
    return resting_poses(mesh.vertices, mesh.com, FACES).tolist()


def box(*sides: float) -> torch.Tensor:
    return torch.tensor(corners_of(sides), dtype=torch.float64)


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        ((1.0, 1.0, 1.0), [True] * 6),
        ((1.0, 1.0, 0.2), [True] * 6),
        # a sheet falls from its edge at a tilt of half a degree
        ((1.0, 1.0, 0.008), [True, True, False, False, False, False]),
        ((0.005, 0.005, 1.0), [False, False, True, True, True, True]),  # a needle
    ],
)
def test_boxes(sides: tuple[float, ...], expected: list[bool]) -> None:
    corners = box(*sides)
    assert resting_poses(corners, corners.mean(0), FACES).tolist() == expected


def test_a_centre_of_mass_beyond_the_base_topples() -> None:
    """So does one above the edge, where the equilibrium is neutral and a push decides."""
    corners = box(1.0, 1.0, 1.0)
    for x, expected in ((0.9, True), (1.0, False), (1.1, False)):
        com = torch.tensor([x, 0.5, 0.5], dtype=torch.float64)
        assert resting_poses(corners, com, FACES[:1]).tolist() == [expected]


def test_round_and_pointed_solids() -> None:
    assert rests(SHAPES["sphere"].mesh()) == [True] * 6
    cone = rests(SHAPES["cone"].mesh())
    assert cone[:2] == [True, False]  # on its base, and on its tip
    assert not any(cone[2:])  # on its side, with a horizontal axis, it turns onto its surface


def test_tilted_poses_of_a_cube() -> None:
    """The cube returns to its face from a tilt of 14 degrees, not from 16."""
    corners = box(1.0, 1.0, 1.0)
    for degrees, expected in ((13.0, True), (16.5, False)):
        a = math.radians(degrees)
        turn = torch.tensor(
            [[math.cos(a), 0, math.sin(a)], [0, 1, 0], [-math.sin(a), 0, math.cos(a)]],
            dtype=torch.float64,
        )
        assert resting_poses(corners, corners.mean(0), turn[None]).tolist() == [expected]


# ------------------------------------------------------------------ catalogues


def test_a_catalogue_of_resting_poses() -> None:
    every = Catalogue.from_shapes(["brackets"], **GRID, use_cache=False)
    resting = Catalogue.from_shapes(["brackets"], **GRID, use_cache=False, resting=True)
    assert every.names == resting.names
    assert resting.orientation_mask.sum() < 0.95 * every.orientation_mask.sum()
    for i, name in enumerate(resting.names):
        mesh = SHAPES[name].mesh()
        offered = resting.rotation[i][resting.orientation_mask[i]]
        assert resting_poses(mesh.vertices, mesh.com, offered).all()
        all_poses = every.rotation[i][every.orientation_mask[i]]
        assert len(offered) == sum(resting_poses(mesh.vertices, mesh.com, all_poses).tolist())


def test_an_item_without_a_resting_pose_keeps_its_lowest() -> None:
    cone = SHAPES["cone"].mesh()
    on_side_and_tip = FACES[[1, 2]]
    catalogue = Catalogue.from_meshes(
        [cone], **GRID, orientations=on_side_and_tip, use_cache=False, resting=True
    )
    assert catalogue.orientation_mask.sum() == 1
    assert torch.equal(catalogue.rotation[0, 0], on_side_and_tip[1])
    corners = box(1.0, 1.1, 1.2)
    x_is_up = FACES[:, 2, 0].abs() > 0.5
    assert torch.equal(lowest_pose(corners, corners.mean(0), FACES), x_is_up)
    assert any("topples on a flat floor" in text for text in catalogue.sources[0]["warnings"])


@pytest.mark.skipif(
    importlib.util.find_spec("mujoco") is None,
    reason="mujoco is missing: pip install 'packing-env[physics]'",
)
def test_the_simulation_agrees() -> None:
    from tests.physics.test_physics import mesh, play

    names = ["octahedron", "bicone", "hexagon_prism", "ramp", "cone", "barrel"]
    assert set(names) <= set(shapes.SHAPES)
    verdicts = []
    for name in names:
        expected = rests(SHAPES[name].mesh())
        for rotation, stays in zip(FACES, expected, strict=True):
            settings = {"walls": False, "order": "released", "jolt": 0.005}
            report = play(mesh(name, rotation.numpy(), (0.1, 0.1, 0.0)), **settings)
            assert (report.items[0].tilt <= 15.0) == stays, (name, rotation)
            verdicts.append(stays)
    assert 5 < sum(verdicts) < len(verdicts) - 5


def test_items_that_a_rule_lets_stand_on_the_floor() -> None:
    params = PackingParams(**GRID, stability="none", contact_tol=0.002)
    poses: dict[str, Any] = {"orientations": "pi/2", "scales": (1.0,)}
    items = {"source": "shapes", "families": ["superquadrics"], "use_cache": False}
    every = build_catalogue(items, params, poses)
    steady = build_catalogue({**items, "steady": "com_hull_20"}, params, poses)
    left_out = set(every.names) - set(steady.names)
    assert {"sphere", "ellipsoid"} <= left_out < set(every.names)
    with pytest.raises(ParameterError, match="com_hull_30"):
        build_catalogue({**items, "steady": "com_hull_30"}, params, poses)


def test_where_no_resting_pose_fits_the_lowest_that_fits_is_kept() -> None:
    """The cone is too tall to stand on its base, and it rolls on its side."""
    cone = SHAPES["cone"].mesh()
    height = float(cone.vertices[:, 2].max() - cone.vertices[:, 2].min())
    low = {"cell": 0.01, "container": (0.32, 0.32, 0.9 * height)}
    found = Catalogue.from_meshes([cone], **low, resting=True, use_cache=False)
    assert not bool(found.never_feasible.any())
    assert "in every pose that fits" in str(found.sources[0]["warnings"])
    assert float(found.peak[found.orientation_mask].max()) <= 0.9 * height
