"""Plans of nests: written, read, checked, and each fault found and named."""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.plan_files import checked, placed_box, refused, violation_of

from packing_env.items import load_mesh
from packing_env.physics import read_settings, simulate
from packing_env.plan import (
    Packing,
    PlacedItem,
    PlanError,
    check_plan,
    load_plan,
    make_plan,
    save_plan,
    settle,
)
from packing_env.planner.files import save
from packing_env.planner.result import Plan
from packing_env.reference.solids import matrix

MM = 1e-3
TILT = matrix(np.array([0.8, 0.36, -0.48, 0.0]))
Edit = Callable[[dict[str, Any], list[dict[str, Any]]], object]


def write_cup(path: Path) -> None:
    """Write a cup of 40 mm whose pocket of 30 x 30 x 35 mm is open at the top."""
    square = [(0, 0), (1, 0), (1, 1), (0, 1)]
    rings = [(0, 40, 0), (0, 40, 40), (5, 30, 40), (5, 30, 5)]
    points = [(a + w * x, a + w * y, z) for a, w, z in rings for x, y in square]
    faces = [(3, 2, 1, 0), (12, 13, 14, 15)]
    for ring in (0, 4, 8):
        for i in range(4):
            j = (i + 1) % 4
            faces.append((ring + i, ring + j, ring + 4 + j, ring + 4 + i))
    lines = [f"v {x} {y} {z}" for x, y, z in points]
    lines += ["f " + " ".join(str(corner + 1) for corner in face) for face in faces]
    path.write_text("\n".join(lines), encoding="utf-8")


def item(order: int, name: str, corner: Any, *sides: float, **values: Any) -> PlacedItem:
    """Return an item in its place; the lower corner and the sides are in millimetres."""
    x, y, z = (round(place / 2) for place in corner)
    values = {"unit": "mm", "cell": (x, y), "z": 0.002 * z, "support_ratio": 0.0, **values}
    if sides:
        values |= {"extent": sides, "volume": MM**3 * float(np.prod(sides))}
    return placed_box(order, name, MM * np.array(corner, float), sides, **values)


@pytest.fixture(scope="module")
def nest(tmp_path_factory: pytest.TempPathFactory) -> Packing:
    """A cup with a tilted peg inside and a lid above, and a block beside."""
    file = tmp_path_factory.mktemp("parts") / "cup.obj"
    write_cup(file)
    cup = load_mesh(file, "mm")
    assert cup.volume == pytest.approx((64000 - 31500) * MM**3)
    peg = (8.0, 10.0, 12.0)
    corners = np.array([[x, y, z] for x in (0, 8) for y in (0, 10) for z in (0, 12)]) @ TILT.T
    at = np.array([15.0, 15.0, 12.0]) - corners.min(0)
    items = (
        item(0, "cup", (5, 5, 5), source=str(file), extent=None, volume=float(cup.volume)),
        item(1, "peg", at, *peg, rotation=TILT, cell=(8, 8), z=0.012, leaves="+z"),
        item(2, "lid", (8, 8, 46), 34.0, 34.0, 4.0, leaves="+x"),
        item(3, "block", (50, 5, 5), 30.0, 30.0, 30.0, leaves="-y"),
    )
    constraints = {"clearance": 0.001, "wall_clearance": 0.002}
    return Packing(
        container=(0.1, 0.1, 0.06),
        cell=0.002,
        stability="none",
        contact_tol=0.0,
        items=items,
        num_items=5,
        geometry="solids",
        constraints=constraints,
    )


def test_a_nest_is_written_and_read(nest: Packing, tmp_path: Path) -> None:
    path = tmp_path / "nest.json"
    plan = save_plan(path, nest)
    assert "leaves" not in plan["items"][0]
    assert settle(nest) is nest
    read = load_plan(path)
    assert make_plan(read) == make_plan(nest) == plan
    assert [each.leaves for each in read.items] == [None, "+z", "+x", "-y"]
    report = check_plan(path)
    assert report.holds, report.violation
    assert (report.items, report.interlocked, report.settled) == (4, 1, 0)
    assert not report.not_checked
    assert report.height == pytest.approx(0.05)
    assert report.utilization == pytest.approx(nest.utilization)


def moved(number: int, *millimetres: float) -> Edit:
    def edit(plan: dict[str, Any], items: list[dict[str, Any]]) -> None:
        items[number]["translation"] = [
            t + MM * d for t, d in zip(items[number]["translation"], millimetres, strict=True)
        ]
        items[number]["x"] += round(millimetres[0] / 2)
        items[number]["y"] += round(millimetres[1] / 2)
        items[number]["z"] += MM * millimetres[2]

    return edit


def swap(plan: dict[str, Any], items: list[dict[str, Any]]) -> None:
    items[1], items[2] = items[2] | {"order": 1}, items[1] | {"order": 2}


def rotate(plan: dict[str, Any], items: list[dict[str, Any]]) -> None:
    """Tilt the lid by two degrees, so that its far edge is in the rim of the cup."""
    half = np.radians(-1.0)
    items[2]["rotation"] = matrix(np.array([np.cos(half), np.sin(half), 0.0, 0.0])).tolist()
    del items[2]["quaternion"]


FAULTS: dict[str, tuple[Edit, int | None, str]] = {
    "too near": (moved(2, 0, 0, -0.01), 2, "clearance"),
    "into the wall of the cup": (moved(1, 20, 0, 0), 1, "interpenetration"),
    "inside": (moved(1, 40, 0, 0), 3, "interpenetration"),
    "near the wall": (moved(3, 0, -3.01, 0), 3, "wall_clearance"),
    "outside": (moved(3, 30, 0, 0), 3, "outside"),
    "under the floor": (moved(0, 0, 0, -6), 0, "outside"),
    "turned": (rotate, 2, "interpenetration"),
    "no rotation": (lambda plan, items: items[1]["rotation"][0].reverse(), 1, "rotation"),
    "quaternion": (lambda plan, items: items[1].update(quaternion=[1, 0, 0, 0]), 1, "quaternion"),
    "direction": (lambda plan, items: items[1].update(leaves="-x"), 1, "leaves"),
    "downwards": (lambda plan, items: items[2].update(leaves="-z"), 2, "leaves"),
    "order": (swap, 2, "leaves"),
    "volume": (lambda plan, items: items[0].update(volume=3.3e-5), 0, "volume"),
    "x": (lambda plan, items: items[3].update(x=22), 3, "x, y"),
    "z": (lambda plan, items: items[3].update(z=0.01), 3, "z"),
    "support": (lambda plan, items: items[3].update(support_ratio=1.0), 3, "support_ratio"),
    "gap": (lambda plan, items: items[3].update(gap=0.0), 3, "gap"),
    "layers": (lambda plan, items: items[3].update(handling={"layers": 2}), 3, "layers"),
    "stability": (lambda plan, items: plan.update(stability="com_hull"), None, "stability"),
    "tolerance": (lambda plan, items: plan.update(contact_tol=0.001), None, "contact_tol"),
    "unit": (lambda plan, items: plan.update(unit=0.001), None, "unit"),
    "lifo": (lambda plan, items: plan["constraints"].update(lifo=True), None, "lifo"),
    "utilization": (lambda plan, items: plan.update(utilization=0.5), None, "utilization"),
    "leaves a map": (lambda plan, items: plan.update(geometry="maps"), 1, "leaves"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named(fault: str, nest: Packing, tmp_path: Path) -> None:
    edit, number, claim = FAULTS[fault]
    plan = json.loads(json.dumps(make_plan(nest)))
    edit(plan, plan["items"])
    assert refused(plan, tmp_path) == (number, claim)


def test_boxes_that_stay_empty_are_in_no_way_out(nest: Packing, tmp_path: Path) -> None:
    """The lid leaves such a box empty; the block has to keep its distance from it."""
    plan = make_plan(nest)
    plan["constraints"]["preplaced"] = [[0.085, 0.0, 0.0, 0.01, 0.1, 0.06]]
    assert checked(plan, tmp_path).holds
    plan["constraints"]["preplaced"] = [[0.08099, 0.0, 0.0, 0.01, 0.1, 0.06]]
    violation = violation_of(plan, tmp_path)
    assert (violation.item, violation.claim) == (3, "clearance")
    assert "10 micrometres too near, from a pre-placed box" in violation.found
    plan["constraints"]["preplaced"] = [[0.055, 0.01, 0.01, 0.01, 0.01, 0.01]]
    assert violation_of(plan, tmp_path).found == "it is around a pre-placed box"


def test_a_direction_that_does_not_exist_is_refused(nest: Packing, tmp_path: Path) -> None:
    plan = make_plan(nest)
    plan["items"][1]["leaves"] = "up"
    with pytest.raises(PlanError, match="leaves"):
        checked(plan, tmp_path)


def test_a_nest_is_not_simulated(nest: Packing) -> None:
    with pytest.raises(PlanError, match="do not stand"):
        simulate(nest, read_settings(True))


def test_the_files_of_a_nest_show_every_part_in_its_place(nest: Packing, tmp_path: Path) -> None:
    files = save(
        Plan(containers=(nest,), left=(), unit="mm", tried=1, seconds=0.0),
        tmp_path,
        size=64,
        pdf=True,
    )
    assert {file.name for file in files} >= {"plan.json", "packed.html", "packed.glb", "packed.png"}
    triangles = np.frombuffer(
        (tmp_path / "packed.stl").read_bytes()[84:],
        [("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("rest", "<u2")],
    )["corners"]
    low, high = triangles.min((0, 1)), triangles.max((0, 1))
    assert low == pytest.approx([5, 5, 5], abs=1e-4)
    assert high == pytest.approx([80, 45, 50], abs=1e-4)
    assert len(triangles) == 28 + 3 * 12
    rows = list(csv.DictReader(io.StringIO((tmp_path / "positions.csv").read_text())))
    assert [row["name"] for row in rows] == ["cup", "peg", "lid", "block"]
    assert float(rows[1]["x_mm"]) == pytest.approx(15)
    assert check_plan(tmp_path / "plan.json").holds
    assert replace(nest, items=nest.items[:2]).utilization < nest.utilization
