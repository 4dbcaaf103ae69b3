"""Plans that stand: the stability rule of each part, and a simulation of the plan."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import trimesh

import packing_env as pe
from packing_env import planner
from packing_env.items import shapes
from packing_env.physics import read_settings, simulate
from packing_env.plan import check_plan
from packing_env.planner import Part, Plan
from packing_env.planner.grid.containers import lay_grid
from packing_env.planner.grid.filling import Filling
from packing_env.planner.grid.poses import Poses, build_poses
from packing_env.planner.reading.containers import ContainerType

BLOCK = Part(sides=(40, 40, 40), unit="mm", name="block")
PLANK = Part(sides=(80, 40, 40), unit="mm", name="plank", faces=("+z",))
BALL = Part(mesh=shapes.SHAPES["sphere"].mesh(), name="ball")
SIZES = (0.18, 0.14, 0.16)


def poses_of(*parts: Part, stands: bool = True) -> Poses:
    rule = "com_hull_20" if stands else "com_hull"
    task = lay_grid(ContainerType(SIZES), 0.01, stability=rule, contact_tol=0.004)
    return build_poses(parts, [part.load() for part in parts], task, stands=stands)


@pytest.fixture
def rod(tmp_path: Path) -> Path:
    """A rod that leans in every quarter turn."""
    mesh = trimesh.creation.box((0.02, 0.02, 0.1))
    mesh.apply_transform(trimesh.transformations.euler_matrix(0.7, 0.7, 0.7))
    mesh.export(tmp_path / "rod.stl")
    return tmp_path / "rod.stl"


def stand(parts: Any, container: Any = "180x140x160mm", **options: Any) -> Plan:
    """Pack parts on cells of 10 mm, so that they stand unless another rule is given."""
    given = {"cell": "10mm", "unit": "m", "stability": "stands", **options}
    return pe.pack(parts, container, 0.1, **given)


def test_each_part_is_held_to_the_strictest_rule_that_it_can_meet(
    caplog: pytest.LogCaptureFixture,
) -> None:
    poses = poses_of(BLOCK, BALL)
    assert poses.rules == ("com_hull_20", "com_hull_10")
    assert poses.params.stability == "com_hull_10"  # what every placement of a plan satisfies
    assert (
        "packed under rule com_hull_10 instead of com_hull_20, so less sure to stand: ball"
        in caplog.text
    )
    assert poses_of(BLOCK).params.stability == "com_hull_20"


@pytest.mark.parametrize(
    ("parts", "stands", "carried"),
    [
        ((BLOCK, PLANK), False, True),
        ((BLOCK, PLANK), True, False),
        ((BLOCK, PLANK, BALL), True, False),
    ],
)
def test_a_plank_half_on_a_block(parts: tuple[Part, ...], stands: bool, carried: bool) -> None:
    """Its centre of mass is above the edge of the block. A ball's rule holds for the ball alone."""
    poses = poses_of(*parts, stands=stands)
    task = poses.params.evolve(container=(0.08, 0.04, 0.16), num_items=4)
    filling = Filling(poses.catalogue.tensors(), task, poses.rules_of_rows)
    state, put = filling.empty(1), []
    for part in (0, 1):
        rows = poses.of(torch.tensor([part]), torch.tensor([-1]))
        state, there = filling.put(state, *rows)
        put += there.tolist()
    assert put == [True, carried]


def test_a_part_that_stands_in_no_pose_is_left_out_with_the_remedy(
    rod: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = stand([BLOCK, rod])
    assert [(part.name, part.reason) for part in plan.left] == [("rod", "stands in no pose")]
    assert "(stability com_hull or none may pack it): rod" in caplog.text
    assert not stand([BLOCK, rod], stability="none").left
    alone = stand(rod)
    assert (alone.containers, alone.num_left) == ((), 1)


def test_a_plan_says_by_which_rule_it_stands(tmp_path: Path) -> None:
    for parts, rule in (([BLOCK, "x5"], "com_hull_20"), ([BLOCK, BALL], "com_hull_10")):
        plan = stand(parts)
        file = planner.save(plan, tmp_path / rule, size=64)[0]
        assert json.loads(file.read_text())["stability"] == rule
        assert check_plan(file).holds


def test_what_falls_is_not_waited_for(rod: Path) -> None:
    """The smallest container for all other parts is used; each part states its own rule."""
    plan = stand([BLOCK, "x4", rod], ["80x80x80mm", "180x140x160mm"], containers=3)
    assert [packing.container for packing in plan.containers] == [(0.08, 0.08, 0.08)]
    plan = stand([BLOCK, BALL], ["40x40x40mm", "120x120x120mm"], containers=2)
    rules = {packing.items[0].name: packing.stability for packing in plan.containers}
    assert rules == {"block": "com_hull_20", "ball": "com_hull_10"}


def test_with_constraints() -> None:
    """Parts find places beside pre-placed boxes, and keep their distances."""
    slab = ["40x140x100mm@0,0,0"]
    for stack in ({"preplaced": slab}, {"clearance": "5mm", "wall_clearance": "5mm"}):
        plan = stand([BLOCK, BALL], **stack)
        assert not plan.left, plan.left


def test_it_stands_in_simulation_where_the_weakest_rule_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    pytest.importorskip("mujoco", reason="mujoco is missing: pip install 'packing-env[physics]'")
    names = [shape.name for shape in shapes.select(["revolutions"])]
    parts = [Part(mesh=shapes.SHAPES[name].mesh()) for name in names]
    kept = {}
    for rule in ("stands", "com_hull"):
        plan = pe.pack(parts, "320x320x300mm", 1e-6, cell="10mm", stability=rule)
        released = read_settings({"order": "released", "walls": True})
        kept[rule] = simulate(plan.containers[0], released).utilization_kept
    assert kept["stands"] > 1.2 * kept["com_hull"]
