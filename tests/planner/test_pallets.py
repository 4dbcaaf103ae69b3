"""Pallets with a deck and overhang, and containers with an edge cut off, in orders of boxes."""

import csv
import io
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.planner.orders import box, checked

import packing_env as pe
from packing_env import planner
from packing_env.plan import (
    BoxType,
    LoadRules,
    Packing,
    check_plan,
    load_boxes,
    load_plan,
    save_plan,
)
from packing_env.plan.solids import cut_wedges
from packing_env.planner import ContainerType, Part, Plan, read_containers
from packing_env.planner.files import positions
from packing_env.render.solids import floor_of

pytest.importorskip("numba")
PALLET = "1200x800x1144mm,deck=144mm,overhang=20mm"
AS_IT_IS: dict[str, Any] = {"faces": ("+z",), "turn": False}
ULD = "2000x1500x1600mm,cut=-x-z 400x400mm"


def packed(part: Part | list[Part], container: Any, folder: Path, **options: Any) -> Plan:
    """Return a plan that the reference accepts."""
    return checked(pe.pack(part, container, 0.5, **options), folder)


def reach(packing: Packing) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and the upper corner of a load, millimetres."""
    corners = []
    for item in packing.items:
        far = item.to_world(np.array(item.extent))
        corners += [item.translation, far]
    return 1e3 * np.min(corners, 0), 1e3 * np.max(corners, 0)


CARTON = (101, 100, 100)
LOADS: dict[str, tuple[list[Part], str, dict[str, Any]]] = {
    # Centred, 4 x 2 cartons reach 20 and 10 mm over: 290/310 of 400/410 is more than 0.9.
    "at a corner, the overhang of both edges is shared": (
        [box("carton", 410, 310, 250, quantity=32, faces=("+z",))], PALLET, {"support": 0.9},
    ),
    "3 x 3 x 4 cartons of 1230 x 840 mm, in balance": (
        [box("carton", 410, 280, 250, quantity=36, weight=3.0)], PALLET, {"balance": 0.02},
    ),
    # On the deck of 100 mm, the centre of mass would be 35 mm off the middle.
    "over the edge, because it is balanced only there": (
        [
            box("heavy", 20, 100, 1000, **AS_IT_IS, weight=9.0),
            box("light", 80, 100, 100, **AS_IT_IS, weight=1.0),
        ],
        "100x100x1000mm,overhang=50x0mm", {"balance": 0.1},
    ),
    "longer than the deck, on its middle": (
        [box("carton", *CARTON)], "40x100x100mm,overhang=80x0mm", {},
    ),
    "in the middle beside a pre-placed box, where it is balanced": (
        [box("carton", *CARTON, weight=1.0)], "1000x1000x200mm",
        {"balance": 0.02, "preplaced": ["50x1000x50mm@0,0,0"]},
    ),
    "in the middle beside a cut, where it is balanced": (
        [box("carton", *CARTON, weight=1.0)], "1000x1000x200mm,cut=-x-z 50x50mm",
        {"balance": 0.02},
    ),
    # The second column stands at the wall at y = Y, which is no multiple of its side.
    "beside a cut, at the far wall": (
        [box("carton", 4, 4, 4, quantity=4)], "12x5x10mm,cut=+x-y 6x2mm", {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOADS)
def test_all_boxes_find_a_place(name: str, tmp_path: Path) -> None:
    parts, container, options = LOADS[name]
    assert packed(parts, container, tmp_path, **options).num_left == 0


# ---------------------------------------------------------------------- pallets


def test_a_load_that_fits_on_the_deck_is_on_it(tmp_path: Path) -> None:
    plan = packed(box("carton", 400, 300, 250, quantity=32), PALLET, tmp_path)
    assert plan.num_packed == 32
    (packing,) = plan.containers
    assert packing.container == pytest.approx((1.24, 0.84, 1.0))
    low, high = reach(packing)
    assert low == pytest.approx([20, 20, 0])
    assert high == pytest.approx([1220, 820, 1000])


@pytest.mark.parametrize(
    ("overhang", "support", "number"),
    [
        ("20mm", None, 16),  # 2 x 2 cartons of 610 x 400 mm per layer are 1220 x 800 mm
        ("10mm", None, 16),
        ("9mm", None, 12),  # 1218 mm is too short for two
        ("20mm", 0.967, 16),  # 590 of 610 mm are over the deck
        ("20mm", 0.983, 16),  # 600 of 610 mm, if the load lies on the middle
        ("20mm", 0.984, 12),
    ],
)
def test_boxes_reach_over_the_edge_of_the_deck_as_far_as_they_may(
    overhang: str, support: float | None, number: int, tmp_path: Path
) -> None:
    options = {} if support is None else {"support": support}
    part = box("part", 610, 400, 250, quantity=40, **AS_IT_IS)
    plan = packed(part, f"1200x800x1144mm,deck=144mm,overhang={overhang}", tmp_path, **options)
    assert plan.num_packed == number if number == 16 else plan.num_packed < 16


def test_a_load_reaches_over_the_edge_only_if_it_must(tmp_path: Path) -> None:
    """Small boxes at the far end would make a load longer than the deck."""
    parts = [box("crate", 610, 400, 250, quantity=7), box("carton", 300, 200, 100, quantity=10)]
    plan = pe.pack(parts, "1200x800x1144mm,deck=144mm,overhang=50mm", 0.3)
    assert plan.num_left == 0
    assert all(item.support_ratio == 1 for item in plan.containers[0].items if item.z == 0)


def test_rows_of_boxes_too_narrow_for_the_edge_lie_on_the_middle() -> None:
    """The deck is 16 x 4. A row of five boxes, each 8 long, reaches 2 over both of its edges."""
    sides = list(itertools.permutations((3, 7, 8)))
    rules = LoadRules("com_hull", overhang=(0, 8), no_stacking=True)
    alike = BoxType(sides, 12, stackable=False)
    assert len(load_boxes((16, 20, 32), [alike], seconds=60, width=8, rules=rules)) == 5


def test_overhang_may_differ_along_x_and_y(tmp_path: Path) -> None:
    part = Part(sides=(1240, 800, 100), unit="mm", quantity=2, faces=("+z",))
    for overhang, number in (("20x0mm", 2), ("0x20mm", 0)):
        container = f"1200x800x344mm,deck=144mm,overhang={overhang}"
        small = box("carton", 100, 100, 100)
        plan = pe.pack([part, small], container, 0.2)
        assert sum(item.volume > 0.01 for p in plan.containers for item in p.items) == number


def test_a_load_in_balance_lies_on_the_deck(tmp_path: Path) -> None:
    part = box("carton", 300, 300, 250, quantity=4, weight=3.0)
    plan = packed(part, PALLET, tmp_path, balance=0.01)
    low, high = reach(plan.containers[0])
    assert (low + high)[:2] == pytest.approx([1240, 840], abs=4)


def test_a_plan_counts_from_the_corner_of_the_deck_like_its_table(tmp_path: Path) -> None:
    part = Part(sides=(1240, 840, 500), unit="mm", name="crate", faces=("+z",))
    plan = pe.pack(part, PALLET, 0.2, preplaced=["1200x800x100mm@0,0,0"])
    (row,) = csv.DictReader(io.StringIO(positions(plan)))
    assert (float(row["x_mm"]), float(row["y_mm"]), float(row["z_mm"])) == (-20, -20, 100)
    assert floor_of(plan.containers[0]) == pytest.approx((0.02, 0.02, 1.22, 0.82))
    saved = save_plan(tmp_path / "plan.json", plan.containers[0])
    assert saved["origin"] == "corner of the deck"
    (item,) = saved["items"]
    assert item["translation"] == pytest.approx([-0.02, -0.02, 0.1])
    assert (item["x"] * saved["unit"], item["y"] * saved["unit"]) == pytest.approx((-0.02, -0.02))
    assert saved["constraints"]["preplaced"] == [[0, 0, 0, 1.2, 0.8, 0.1]]
    # Read again, positions are from the corner of the container; so are those of older plans.
    again = load_plan(tmp_path / "plan.json")
    assert again.items[0].translation == pytest.approx([0, 0, 0.1])
    assert again.constraints == plan.containers[0].constraints
    assert check_plan(tmp_path / "plan.json").holds


def test_the_balance_is_a_share_of_the_deck(tmp_path: Path) -> None:
    # Boxes of 400 mm on a deck of 1000 mm: off the middle by at most 100 mm, of which 10 % are
    # 100 mm of the deck and 140 mm of the container with its overhang of 200 mm on each side.
    container = ContainerType((1.0, 0.4, 0.5), deck=0.1, overhang=(0.2, 0.0))
    part = box("carton", 400, 400, 400, weight=3.0)
    packing = packed(part, container, tmp_path, balance=0.1).containers[0]
    for off, holds in ((0.1, True), (0.12, False)):
        item = replace(
            packing.items[0],
            translation=np.array([0.5 + off, 0, 0]),
            cell=(round((0.5 + off) / packing.unit), 0),
        )
        moved = replace(packing, items=(item,))
        save_plan(tmp_path / "moved.json", moved)
        report = check_plan(tmp_path / "moved.json")
        assert report.holds == holds, report.violation
    assert "balance" in str(report.violation)


def test_a_pallet_has_no_walls() -> None:
    """A clearance between boxes does not apply towards the edge of the deck."""
    part = box("part", 395, 580, 500, quantity=2, **AS_IT_IS)
    for container, number in (("800x600x644mm,deck=144mm", 2), ("800x600x500mm", 1)):
        assert pe.pack(part, container, 0.2, clearance="10mm").num_packed == number


# ---------------------------------------------------------------------- edges that are cut off


def test_utilization_and_bound_are_of_what_is_left_of_a_container(tmp_path: Path) -> None:
    """Ten layers of 7 x 10 cubes of 100 mm: one further left would rest on nothing."""
    container = "1000x1000x1000mm,cut=-x-z 300x300mm"
    plan = packed(box("carton", 100, 100, 100, quantity=1300), container, tmp_path)
    assert plan.num_packed == 700
    assert plan.utilization == pytest.approx(700 / 955)
    assert plan.bound == pytest.approx(0.955)


def test_boxes_reach_over_a_cut_layer_by_layer(tmp_path: Path) -> None:
    """Boards of 800, 900 and 1000 mm, each 100 mm further left than the one below."""
    boards = [box(f"{length}", length, 100, 100, **AS_IT_IS) for length in (1000, 900, 800)]
    plan = pe.pack(boards, "1000x100x300mm,cut=-x-z 200x200mm", 0.5)
    (packing,) = plan.containers
    assert [(item.name, item.cell[0]) for item in packing.items] == [
        ("800", 2), ("900", 1), ("1000", 0),
    ]  # fmt: skip
    checked(plan, tmp_path)


@pytest.mark.parametrize(
    ("cut", "door", "number"),
    [
        ("+x-z 300x300mm", "top", 7),
        ("-x-z 300x300mm", "rear", 7),
        ("+y+z 300x300mm", "rear", 7),
        ("-x-z 300x300mm/+x-z 200x600mm", "top", 5),
    ],
)
def test_slabs_beside_a_cut(cut: str, door: str, number: int, tmp_path: Path) -> None:
    """Slabs of 100 mm, as long as the edge and as high as the container."""
    sides = (1000, 100, 1000) if "y" in cut else (100, 1000, 1000)
    part = box("slab", *sides, quantity=20, **AS_IT_IS)
    plan = packed(part, f"1000x1000x1000mm,cut={cut}", tmp_path, door=door)
    assert plan.num_packed == number


def test_columns_beside_an_upright_edge_that_is_cut_off(tmp_path: Path) -> None:
    """4 + 3 + 2 + 1 of the 100 columns would reach beyond the plane."""
    part = Part(sides=(100, 100, 1000), unit="mm", quantity=100, faces=("+z",))
    plan = packed(part, "1000x1000x1000mm,cut=+x-y 400x400mm", tmp_path)
    assert 85 <= plan.num_packed <= 90


def test_a_left_over_box_names_the_cut() -> None:
    parts = [box("long", 1000, 100, 100, **AS_IT_IS), box("carton", 100, 100, 100)]
    plan = pe.pack(parts, "1000x300x300mm,cut=-x-z 200x200mm", 0.2)
    assert [(left.name, left.reason.split(":")[0]) for left in plan.left] == [("long", "cut")]


def test_planes_are_drawn_where_edges_are_cut_off(tmp_path: Path) -> None:
    plan = pe.pack(box("carton", 400, 300, 250, quantity=4), ULD, 0.2)
    (packing,) = plan.containers
    (plane,) = cut_wedges(packing)[:, :4]
    assert sorted(map(tuple, plane.tolist())) == [
        (0.0, 0.0, 0.4), (0.0, 1.5, 0.4), (0.4, 0.0, 0.0), (0.4, 1.5, 0.0),
    ]  # fmt: skip
    assert floor_of(packing) == pytest.approx((0.4, 0.0, 2.0, 1.5))
    files = planner.save(plan, tmp_path, size=64)
    assert {file.name for file in files} >= {"packed.png", "packed.html"}


# ---------------------------------------------------------------------- as users write them


def test_a_container_states_its_deck_overhang_and_cuts(tmp_path: Path) -> None:
    table = tmp_path / "containers.csv"
    table.write_text(
        "name;length (mm);width (mm);height (mm);deck (mm);overhang;cut\n"
        "EUR;1200;800;1594;144;20 x 10;\n"
        "LD;2000;1500;1600;;;-x-z 400x450 / +x-z 10cm x 45cm\n"
    )
    pallet, uld = read_containers(str(table))
    assert [float(side) for side in pallet.room] == [1.24, 0.82, 1.45]
    text = "1200x800x1594mm,deck=144,overhang=20x10mm,name=EUR"
    assert read_containers(text) == [pallet]
    assert ContainerType((1.2, 0.8, 1.594), "EUR", deck=0.144, overhang=(0.02, 0.01)).room == (
        pallet.room
    )
    assert [[cut[0], *map(float, cut[1:])] for cut in uld.cut] == [
        ["-x-z", 0.4, 0.45], ["+x-z", 0.1, 0.45],
    ]  # fmt: skip
    assert float(uld.volume) == pytest.approx(2 * 1.5 * 1.6 - 1.5 * 0.45 * (0.4 + 0.1) / 2)


@pytest.mark.parametrize(
    ("container", "options", "named"),
    [
        ("1200x800x100mm,deck=144mm", {}, "deck"),
        ("1200x800x900mm,deck=-1mm", {}, "deck"),
        ("1200x800x900mm,overhang=1x2x3mm", {}, "overhang"),
        ("1200x800x900mm,overhang=20mm", {"door": "rear"}, "door"),
        ("1200x800x900mm,overhang=20mm", {"wall_clearance": "1mm"}, "wall_clearance"),
        ("1200x800x900mm,cut=left 10x10mm", {}, "cut"),
        ("1200x800x900mm,cut=+x+x 10x10mm", {}, "cut"),
        ("1200x800x900mm,cut=+x-z 10mm", {}, "cut"),
        ("1200x800x900mm,cut=+x-z 1200x10mm", {}, "cut"),
        ("1200x800x900mm,cut=+x+z 10x10mm", {}, "door"),
        ("1200x800x900mm,cut=+x-z 10x10mm", {"door": "rear"}, "door"),
        ("1200x800x900mm,cut=+x-z 10x10mm/+y-z 10x10mm", {}, "parallel"),
        ("1200x800x900mm,cut=+x-z 700x10mm/-x-z 700x10mm", {}, "overlap"),
        ("1200x800x900mm,overhang=20mm", {"stability": "center_hull"}, "overhang"),
        # pre-placed boxes
        ("1200x800x900mm", {"preplaced": ["5x5x5cm@0,0,0", "5x5x5cm@4,4,4"]}, "overlap"),
        (
            "1200x800x900mm,cut=+x-z 300x300mm",
            {"preplaced": ["50x50x50cm@50,0,0"]},
            "beyond the cut edge",
        ),
        ("1200x800x900mm,cut=+x-z 10x10mm", {"stability": "center_hull"}, "cut"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    container: str, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        pe.pack(box("carton", 100, 100, 100), container, 0.1, **options)
