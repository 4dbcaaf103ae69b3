"""Constraints of orders and of `pack`, and plans that break them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.plan_files import checked as checked_file
from tests.plan_files import refused, violation_of
from tests.planner.orders import BOTH, GRID, box, checked, on

import packing_env as pe
from packing_env import planner
from packing_env.items import rotation_set
from packing_env.items.handling import FACES
from packing_env.plan import PlanError, check_plan, save_plan
from packing_env.planner import Part, read_parts
from packing_env.planner.grid.search import OrderSearch
from packing_env.reference.constraints import up_face

CUBE = Part(sides=(100, 100, 100), unit="mm", name="cube", quantity=2)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the JSON of a plan on a grid: a cube on a cube."""
    plan = pe.pack(CUBE, "100x100x200mm", 0.1, **on(GRID))
    assert plan.num_packed == 2
    files = planner.save(plan, tmp_path_factory.mktemp("stack"), size=64)
    found: dict[str, Any] = json.loads(files[0].read_text())
    del found["utilization"]
    return found


def of_item(number: int, **handling: Any) -> Callable[[dict[str, Any]], None]:
    return lambda plan: plan["items"][number].setdefault("handling", {}).update(handling)


def wider(plan: dict[str, Any]) -> None:
    plan["container"] = [0.3, 0.1, 0.2]


def beside(plan: dict[str, Any]) -> None:
    wider(plan)
    top = plan["items"][1]
    top["x"], top["z"] = 10, 0.0
    top["translation"] = [top["translation"][0] + 0.1, top["translation"][1],
                          top["translation"][2] - 0.1]  # fmt: skip


BROKEN: dict[str, tuple[dict[str, Any], list[Callable[[dict[str, Any]], None]], int, str]] = {
    "no_stacking": ({"no_stacking": True}, [of_item(0, stackable=False)], 1, "rests on item 0"),
    "max_load": (
        {"max_load": True},
        [of_item(0, max_load=1.0, weight=1.0), of_item(1, weight=2.0)],
        1,
        "item 0 would bear 2 kg, its limit is 1 kg",
    ),
    "fragile last": ({"fragile": "last"}, [of_item(0, fragile=True)], 1, "comes after item 0"),
    "fragile top": ({"fragile": "top"}, [of_item(0, fragile=True)], 1, "rests on item 0"),
    "lifo": ({"lifo": True}, [of_item(0, group=1), of_item(1, group=2)], 1, "above item 0 of"),
    "weight_limit": (
        {"weight_limit": 3.0},
        [of_item(0, weight=2.0), of_item(1, weight=2.0)],
        1,
        "4 kg in a container for 3 kg",
    ),
    "balance": (
        {"balance": 0.1},
        [of_item(0, weight=2.0), of_item(1, weight=1.0), wider],
        0,
        "33.3% of the container",
    ),
    "clearance": ({"clearance": 0.01, "wall_clearance": 0.0}, [beside], 1, "rises beside it"),
    "wall_clearance": ({"wall_clearance": 0.01}, [], 0, "0 cells from a wall"),
    "faces": ({}, [of_item(0, faces=["+x"])], 0, "claimed +x up"),
    "path": (
        {"preplaced": [[0.0, 0.0, 0.0, 0.05, 0.05, 0.02]]},
        [],
        0,
        "the top of a pre-placed box",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_plan_that_breaks_a_rule_is_refused(
    name: str, stack: dict[str, Any], tmp_path: Path
) -> None:
    """The report names the item and the rule; with the rule taken out, the plan holds."""
    constraints, edits, item, reason = BROKEN[name]
    plan = json.loads(json.dumps(stack)) | {"constraints": constraints}
    for edit in edits:
        edit(plan)
    violation = violation_of(plan, tmp_path)
    assert (violation.item, violation.claim) == (item, name.split()[0])
    assert reason in str(violation)
    for entry in plan["items"]:
        entry.get("handling", {}).pop("faces", None)
    assert checked_file(plan | {"constraints": {}}, tmp_path).holds


@BOTH
def test_limits_in_pounds_are_reached(stability: str, tmp_path: Path) -> None:
    """Weights are whole milligrams, and 10 lb are not."""
    order = [box("a", 10, 10, 10, quantity=3, weight="10 lb", max_load="20 lb")]
    plan = pe.pack(order, "10x10x30mm", 0.2, **on(stability), weight_limit="30 lb")
    assert checked(plan, tmp_path).num_packed == 3
    order = [box("a", 10, 10, 10, quantity=3, weight="10.00001 lb")]
    plan = pe.pack(order, "10x10x30mm", 0.2, **on(stability), weight_limit="30 lb")
    assert checked(plan, tmp_path).num_packed == 2


@pytest.mark.parametrize("rule", [{"weight_limit": 3.0}, {"balance": 0.5}, {"max_load": True}])
def test_a_plan_without_the_weights_that_its_rules_need_is_refused(
    rule: dict[str, Any], stack: dict[str, Any], tmp_path: Path
) -> None:
    plan = json.loads(json.dumps(stack)) | {"constraints": rule}
    of_item(0, weight=1.0)(plan)
    with pytest.raises(PlanError, match="weight of each item"):
        checked_file(plan, tmp_path)


def test_balance_is_about_the_middle_of_the_container(tmp_path: Path) -> None:
    """Whole cells cover 200 of 240 mm: their middle is 20 mm, 8.3 % of the length, off."""
    bar = Part(sides=(100, 50, 50), unit="mm", handling={"weight": 1.0}, faces=("+z",))
    plan = pe.pack(bar, "240x180x100mm", 0.1, **on(GRID, "50mm"), balance=0.1)
    assert checked(plan, tmp_path).num_packed == 1
    entries = json.loads((tmp_path / "plan-0.json").read_text())
    assert checked_file(entries | {"constraints": {"balance": 0.084}}, tmp_path).holds
    assert refused(entries | {"constraints": {"balance": 0.083}}, tmp_path)[1] == "balance"


def test_nothing_is_beyond_the_whole_cells_of_a_plan(tmp_path: Path) -> None:
    part = Part(sides=(40, 40, 50), unit="mm")
    plan = pe.pack(part, "240x180x100mm", 0.1, **on(GRID, "50mm"))
    file = planner.save(plan, tmp_path, size=64)[0]
    entries = json.loads(file.read_text())
    item = entries["items"][0]
    item["x"], item["translation"][0] = 4, item["translation"][0] + 0.2  # 200 to 240 mm
    assert refused(entries, tmp_path)[1] == "outside"


ORDER = """name,dx,dy,dz,quantity,weight,group,upright,faces,fragile,max_load,no_stacking
box,50,40,30,4,2.0,1,,,,3,
bar,40,20,20,2,1.0,2,,x z,yes,,
cup,30,30,40,2,0.5,2,true,,,,yes
"""


@BOTH
def test_an_order_file_gives_constraints(stability: str, tmp_path: Path) -> None:
    order = tmp_path / "order.csv"
    order.write_text(ORDER)
    box, bar, cup = read_parts(order, "mm")
    assert box.handling == {"weight": 2.0, "group": 1, "max_load": 3.0}
    assert bar.handling == {"weight": 1.0, "group": 2, "fragile": True}
    assert cup.handling == {"weight": 0.5, "group": 2, "stackable": False}
    assert (box.faces, bar.faces, cup.faces) == ((), ("+x", "-x", "+z", "-z"), ("+z",))
    plan = pe.pack(
        order, "120x100x90mm", 0.5, **on(stability), clearance="10mm", weight_limit=9.0,
        balance=0.4, wall_clearance=0.0, preplaced=[[0.1, 0.08, 0.0, 0.02, 0.02, 0.03]],
    )  # fmt: skip
    packing = plan.containers[0]
    assert set(packing.constraints) == {
        "no_stacking", "max_load", "fragile", "lifo", "weight_limit", "balance", "clearance",
        "wall_clearance", "preplaced",
    }  # fmt: skip
    assert sum(item.handling["weight"] for item in packing.items) <= 9.0
    assert plan.num_packed >= 4
    names = [item.name for item in packing.items]
    assert "bar" not in names or names.index("bar") == len(names) - names.count("bar")
    checked(plan, tmp_path)


@BOTH
@pytest.mark.parametrize(
    ("faces", "number"),
    [
        ((), 10),  # tipped about x too: 2 x 5 boxes of 100 x 20 x 50 mm
        (("+z",), 8),  # 2 x 4 x 1 boxes of 100 x 50 x 20 mm
    ],
)
def test_a_box_that_may_not_be_turned_keeps_its_length_along_x(
    stability: str, faces: tuple[str, ...], number: int, tmp_path: Path
) -> None:
    sides = (100, 20, 50) if not faces else (100, 50, 20)
    part = Part(sides=sides, unit="mm", name="rail", quantity=20, faces=faces, turn=False)
    box = "200x100x50mm" if not faces else "200x200x30mm"
    plan = pe.pack(part, box, 0.3, **on(stability))
    assert checked(plan, tmp_path).num_packed == number
    assert [left.reason for left in plan.left] == ["no room found"]

    # The same box turned by a quarter about z is refused.
    entries = json.loads((tmp_path / "plan-0.json").read_text())
    item = entries["items"][0]
    item["rotation"] = [[0, -1, 0], [1, 0, 0], [0, 0, 1]]
    item["quaternion"] = [0.5**0.5, 0, 0, 0.5**0.5]
    assert refused(entries, tmp_path)[1] == "turn"


@BOTH
def test_a_box_that_fits_only_turned_is_left_over_for_that(stability: str) -> None:
    rail = Part(sides=(150, 20, 50), unit="mm", name="rail", turn=False)
    cube = Part(sides=(20, 20, 20), unit="mm", name="cube")
    plan = pe.pack([rail, cube], "100x200x60mm", 0.2, **on(stability))
    assert [(left.name, left.reason) for left in plan.left] == [
        ("rail", "fits only turned about z, which is not allowed")
    ]
    with pytest.raises(planner.OrderError, match="turn"):
        Part(sides=(150, 20, 50), faces=("+x",), turn=False)


def clear_of(packing: Any, box: list[float]) -> bool:
    """Return True if no item reaches more than 1 um into a box, in exact coordinates."""
    low, high = np.array(box[:3]), np.array(box[:3]) + box[3:]
    for item in packing.items:
        turned = item.rotation @ np.array(item.extent)
        corner = item.translation + np.minimum(turned, 0)
        shared = np.minimum(high, corner + np.abs(turned)) - np.maximum(low, corner)
        if (shared > 1e-6).all():
            return False
    return True


@BOTH
def test_pre_placed_boxes_may_be_of_any_size(stability: str, tmp_path: Path) -> None:
    """Boxes of an order stand around and on a pre-placed box whose corners are between theirs."""
    box = [0.013, 0.004, 0.0, 0.031, 0.028, 0.034]
    part = Part(sides=(20, 20, 20), unit="mm", name="cube", quantity=80)
    plan = pe.pack(part, "100x80x80mm", 0.2, **on(stability), preplaced=[box])
    (packing,) = plan.containers
    assert clear_of(packing, box)
    assert any(abs(item.z - 0.034) < 1e-6 for item in packing.items)
    checked(plan, tmp_path)


def test_the_check_knows_stacks_that_start_between_cells(tmp_path: Path) -> None:
    """In a task of cuboids, tops above the pre-placed box are rounded to whole cells."""
    env = pe.make_env(
        "cuboid_online",
        num_envs=2,
        seed=0,
        container=(4.0, 4.0, 7.0),
        num_items=20,
        generator={"name": "uniform_cuboids", "low": 1, "high": 2},
        constraints={"preplaced": [[0.0, 0.0, 0.0, 2.5, 4.0, 0.77]]},
        pool_size=4,
    )
    root = env.reset()
    for _ in range(16):
        root = env.step_mdp(env.step(env.rand_action(root)))
    plan = save_plan(tmp_path / "plan.json", env)
    assert any(item["z"] > 1 and abs(item["z"] % 1 - 0.77) < 1e-5 for item in plan["items"])
    report = check_plan(tmp_path / "plan.json")
    assert report.holds, report.violation


def test_faces_equal_the_reference() -> None:
    """1,000 random orientations of random faces: a pose is offered iff an allowed face is up."""
    random, rotations = np.random.default_rng(0), rotation_set("pi/4")
    cases = 0
    while cases < 1000:
        faces = tuple(random.choice(FACES, random.integers(1, 4), replace=False).tolist())
        offered = pe.items.handling.faces_up(rotations, faces)
        expected = [up_face(rotation.numpy()) in faces for rotation in rotations]
        assert offered.tolist() == expected
        cases += len(expected)


def test_parts_that_gain_a_place_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    # Group 1 comes first, and has no balanced place until the heavy part is in the middle.
    monkeypatch.setattr(OrderSearch, "improve", lambda self, deadline: None)
    heavy = Part(sides=(20, 20, 10), unit="mm", handling={"weight": 100.0})
    light = Part(sides=(30, 20, 10), unit="mm", handling={"weight": 1.0, "group": 1})
    plan = pe.pack([heavy, light], "80x20x10mm", 1.0, **on(GRID), balance=0.05)
    assert (plan.num_packed, plan.num_left) == (2, 0)
