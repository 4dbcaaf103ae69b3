"""Containers as users name them, and the containers that an order gets."""

import json
import random
import struct
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.mesh_files import tetrahedron
from tests.plan_files import refused
from tests.planner.orders import box, checked, patiently

import packing_env as pe
from agents.cli import main as cli
from packing_env import planner
from packing_env.planner import ContainerType, OrderError, Part, Plan, read_containers, save
from packing_env.planner.boxes.order import read_boxes
from packing_env.planner.boxes.packer import BoxPacker
from packing_env.planner.copies import complete_kits
from packing_env.planner.reading.constraints import constraints_of
from packing_env.values import ParameterError

EUR = ContainerType("1200x800x1450mm", name="EUR", number=2, cost=30, weight_limit=500)


# ---------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    "text",
    [
        "1200x800x1450mm,number=2,cost=30,weight_limit=500kg,name=EUR",
        "1200 x 800 x 1450 mm, name=EUR, weight_limit=500 kg, cost=30.0, number=2",
    ],
)
def test_a_container_is_read_from_a_text(text: str) -> None:
    assert read_containers(text) == [EUR]
    assert EUR.size == (Fraction(6, 5), Fraction(4, 5), Fraction(29, 20))
    assert EUR.unit == "mm"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "c.csv",
            "name;length (mm);width (mm);height (mm);number;cost;weight limit (kg)\n"
            "EUR;1200;800;1450;2;30,0;500\nbox;600;400;300,5;;;\n",
        ),
        (
            "inside.csv",
            "Type;Inside length (mm);Width, inner (mm);innerHeight (mm);Available;cost;Max payload "
            "(kg)\nEUR;1200;800;1450;2;30,0;500\nbox;600;400;300,5;;;\n",
        ),
        (
            "c.yaml",
            "unit: mm\ncontainers:\n"
            "  - {name: EUR, sides: 1200x800x1450, number: 2, cost: 30, weight_limit: 500 kg}\n"
            "  - {name: box, dx: 600, dy: 400, dz: 300.5}\n",
        ),
    ],
)
def test_containers_are_read_from_a_table(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    box = ContainerType("600x400x300.5mm", name="box")
    assert read_containers(str(tmp_path / name)) == [EUR, box]


def test_a_container_may_be_called_container(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("container: [6, 2.4, 2.4]\nunit: m\n")
    one = ContainerType("6x2.4x2.4m", name="container")
    assert read_containers(str(tmp_path / "c.yaml")) == [one]


def test_containers_are_read_from_python() -> None:
    crate = ContainerType((1.2, 0.8, 0.5), number=1)
    small = np.array((1.2, 0.8, 0.5), np.float32)
    zero_dimensional = [np.array(1.2), np.array(0.8), np.array(0.5)]
    for one in ((1.2, 0.8, 0.5), small, torch.tensor(small), [small, small], zero_dimensional):
        assert read_containers(one) == [ContainerType((1.2, 0.8, 0.5))]
    assert read_containers(["2x2x2m", crate, (1.0, 1.0, 1.0), "2x2x2m"]) == [
        ContainerType("2x2x2m"), crate, ContainerType((1.0, 1.0, 1.0))
    ]  # fmt: skip
    assert read_containers([crate, crate]) == [crate, crate]  # there are two of them
    assert EUR.label == "EUR"
    assert ContainerType("600x400x300.5mm").label == "600 x 400 x 300.5 mm"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("1x1x1m,colour=2", "'colour' is unknown; known: name, number, cost, weight_limit"),
        ("1x1x1m,numbr=2", "did you mean number"),
        ("1x1x1m,number=2,number=3", "number is given twice"),
        ("1x1x1m,number=0", "number=0"),
        ("1x1x1m,number=1.5", "number='1.5' must be a whole number"),
        ("1x1x1m,cost=-3", "cost=-3"),
        ("1x1x1m,cost=cheap", "cost='cheap'"),
        ("1x1x1m,weight_limit=5ton", "weight_limit='5ton'"),
        ("1x1m,number=2", "3 lengths"),
    ],
)
def test_a_wrong_container_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(ParameterError) as caught:
        read_containers(text)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("name,length,width,height\nEUR,1200,800,1450\n", "line 2: the sides have no unit"),
        ("name,length (mm),width (mm),height (mm),max_load\nE,1,1,1,5\n", "'max_load'"),
        ("name,length (mm),width (mm),height (mm),number\nE,1000,1000,1000,0\n", "number=0"),
        ("name,number\nE,1\n", "its length, width and height"),
        ("length (mm),width,height,rotatable\n1,1,1,no\n", "'rotatable' is not supported"),
        ("length (mm),width,height,inside\n1,1,1,2\n", "'inside' is not supported"),
    ],
)
def test_a_wrong_table_is_refused_by_place(text: str, named: str, tmp_path: Path) -> None:
    table = tmp_path / "containers.csv"
    table.write_text(text)
    with pytest.raises(OrderError) as caught:
        read_containers(str(table))
    assert named in str(caught.value)
    assert str(table) in str(caught.value)


# ---------------------------------------------------------------------- numbers and names


def some(name: str, quantity: int, side: float = 0.1, **handling: Any) -> Part:
    return Part(sides=(side, side, side), quantity=quantity, name=name, handling=handling)


def test_no_more_containers_than_there_are(tmp_path: Path) -> None:
    one = ContainerType("10x10x10cm", number=2)
    plan = checked(pe.pack(some("cube", 5), one, seconds=1), tmp_path)
    assert (len(plan.containers), plan.num_left) == (2, 3)
    assert len(pe.pack(some("cube", 5), one, seconds=1, containers=1).containers) == 1
    with_more = pe.pack(some("cube", 5), [one, "20x10x10cm"], seconds=1, containers=4)
    assert with_more.num_left == 0


def test_meshes_use_no_more_containers_than_there_are() -> None:
    parts = [some("cube", 1), Part(mesh=some("cube", 1).load(), quantity=4)]
    plan = pe.pack(parts, ContainerType("10x10x10cm", number=2, name="tray"), seconds=1)
    assert [packing.name for packing in plan.containers] == ["tray", "tray"]
    assert plan.num_left == 3


def test_the_weight_limit_is_that_of_the_container(tmp_path: Path) -> None:
    sizes = ["30x10x10cm,weight_limit=2kg,number=1,name=A", "30x20x10cm,number=1,name=B"]
    plan = checked(
        pe.pack(some("cube", 9, weight=1.0), sizes, seconds=1, weight_limit=3.0), tmp_path
    )
    loads = {packing.name: len(packing.items) for packing in plan.containers}
    assert loads == {"A": 2, "B": 3}
    limits = {packing.name: packing.constraints["weight_limit"] for packing in plan.containers}
    assert limits == {"A": 2.0, "B": 3.0}
    with pytest.raises(ParameterError, match="weight_limit: the weight of cube"):
        pe.pack(some("cube", 1), sizes, seconds=1)


def test_files_carry_the_name_of_the_container(tmp_path: Path) -> None:
    plan = pe.pack(some("cube", 3), "30x10x10cm,name=tray", seconds=1)
    save(plan, tmp_path, size=64)
    assert json.loads((tmp_path / "plan.json").read_text())["name"] == "tray"
    assert "1,1,tray,cube" in (tmp_path / "positions.csv").read_text()
    assert plan.containers[0].name == "tray"


def test_excel_reads_the_letters_of_positions(tmp_path: Path) -> None:
    """Without the mark, Excel shows ä as two other letters; programs that read ASCII need none."""
    for name, mark in (("Gläser", b"\xef\xbb\xbf"), ("glasses", b"")):
        part = Part(sides=(0.1, 0.1, 0.1), name=name)
        save(pe.pack([part], "30x10x10cm", seconds=1), tmp_path)
        data = (tmp_path / "positions.csv").read_bytes()
        assert data.startswith(mark + b"container,order,")
        assert f",{name}," in data.decode()


# ---------------------------------------------------------------------- which containers

SMALL, LARGE = "20x20x20cm,name=S,cost=10", "40x20x20cm,name=L,cost=25"


def names(plan: Plan) -> list[str]:
    return sorted(packing.name for packing in plan.containers)


@pytest.mark.parametrize(
    ("sizes", "choose", "chosen", "cost"),
    [
        ([SMALL, LARGE], "fewest", ["L"], 25),
        ([SMALL, LARGE], "cheapest", ["S", "S"], 20),
        ([SMALL, LARGE + ",number=1"], "fewest", ["L"], 25),
        ([SMALL, "40x20x20cm,name=L,cost=15"], "cheapest", ["L"], 15),
        ([SMALL, "40x20x20cm,name=L,cost=20"], "cheapest", ["L"], 20),  # the fewer of equal cost
        ([SMALL, LARGE, "99x99x99cm,name=XL,cost=90"], "fewest", ["L"], 25),
        ([SMALL, LARGE, "99x99x99cm,name=XL,cost=9"], "cheapest", ["XL"], 9),
        (["20x20x20cm,name=S,cost=10,number=1", LARGE], "cheapest", ["L"], 25),
    ],
)
def test_sixteen_cubes(
    sizes: list[str], choose: str, chosen: list[str], cost: float, tmp_path: Path
) -> None:
    plan = checked(pe.pack(some("cube", 16), sizes, 5, containers=3, choose=choose), tmp_path)
    assert (names(plan), plan.num_left, plan.cost) == (chosen, 0, cost)
    assert plan.least == 1
    assert plan.least_cost is not None
    assert plan.least_cost <= cost


def test_the_cost_of_a_load_that_no_set_of_containers_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "order.csv").write_text("dx,dy,dz,quantity\n9,9,9,2\n")
    words = ["pack", str(tmp_path / "order.csv"), "--container", "9x9x9mm,cost=5"]
    assert cli.main([*words, "--choose", "cheapest", "--out", str(tmp_path / "out")]) == 0
    assert "cost 5\n" in capsys.readouterr().out


def test_the_smallest_container_that_takes_all() -> None:
    sizes = ["30x20x20cm,name=12", "20x20x20cm,name=8", "30x30x20cm,name=18"]
    for count, name in ((8, "8"), (9, "12"), (18, "18")):
        assert names(pe.pack(some("cube", count), sizes, 2, containers=2)) == [name]


def test_heavy_boxes_are_spread(tmp_path: Path) -> None:
    """Containers are full only with one dense cube each: by volume alone the last is too heavy."""
    parts = [some("dense", 4, weight=9.0), some("light", 104, weight=0.01)]
    plan = checked(pe.pack(parts, "30x30x30cm,weight_limit=10kg", 8, containers=4), tmp_path)
    assert (len(plan.containers), plan.num_left, plan.least) == (4, 0, 4)
    for packing in plan.containers:
        assert [item.name for item in packing.items].count("dense") == 1


def fewest(weights: list[int], most: int, limit: int) -> int:
    """Return the least number of containers that each take some items up to a weight."""
    whole = (1 << len(weights)) - 1
    fits = [
        subset.bit_count() <= most
        and sum(w for i, w in enumerate(weights) if subset >> i & 1) <= limit
        for subset in range(whole + 1)
    ]
    least = [0] + [len(weights)] * whole
    for subset in range(1, whole + 1):
        part = subset
        while part:
            if fits[part]:
                least[subset] = min(least[subset], 1 + least[subset ^ part])
            part = (part - 1) & subset
    return least[whole]


@pytest.mark.parametrize("seed", range(4))
def test_as_few_containers_as_there_can_be(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    weights = [draw.choice((1, 2, 3, 5, 7, 9)) for _ in range(9)]
    limit = draw.randint(10, 16)
    parts = [some(f"{weight} kg {n}", 1, weight=weight) for n, weight in enumerate(weights)]
    size = ContainerType("20x20x10cm", weight_limit=limit)
    number = fewest(weights, 4, limit)
    plan = patiently(
        lambda plan: len(plan.containers) == number,
        lambda times: pe.pack(parts, size, 1.5 * times, containers=9),
    )
    assert checked(plan, tmp_path).num_left == 0
    assert len(plan.containers) == number >= (plan.least or 0)


def weights_of(plan: Plan) -> list[float]:
    return [sum(item.handling["weight"] for item in each.items) for each in plan.containers]


def test_containers_alike_in_weight(tmp_path: Path) -> None:
    parts = [some(f"{weight}", 6, weight=weight) for weight in (5.0, 3.0, 1.0)]
    plan = checked(pe.pack(parts, "20x20x20cm", 5, containers=4, choose="balanced"), tmp_path)
    assert weights_of(plan) == [18.0, 18.0, 18.0]
    unequal = [some("cube", 6), Part(sides=(0.2, 0.1, 0.1), quantity=6, name="bar")]
    plan = checked(pe.pack(unequal, "30x20x20cm", 5, containers=4, choose="balanced"), tmp_path)
    volumes = [sum(item.volume for item in packing.items) for packing in plan.containers]
    assert len(volumes) == 2
    assert volumes[0] == pytest.approx(volumes[1])


def test_boxes_that_a_better_set_leaves_over_get_another_container(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two containers may take more than three did at first; the third is then used again."""

    def fewer(self: BoxPacker, deadline: float) -> None:
        self.filled = self.filled[:2]

    monkeypatch.setattr(BoxPacker, "_try_sets", fewer)
    plan = pe.pack([some("cube", 3, 0.2)], "20x20x20cm", 1, containers=3)
    assert (len(plan.containers), plan.num_left) == (3, 0)


def test_boxes_that_need_a_container_each() -> None:
    plan = pe.pack([some("cube", 3, 0.15), some("cube", 2)], "20x20x20cm", 1, containers=9)
    assert (len(plan.containers), plan.least) == (4, 3)


@pytest.mark.parametrize(
    ("parts", "options", "named"),
    [
        ([some("cube", 1)], {"choose": "cheapest"}, "no cost is given for S"),
        ([some("cube", 1)], {"choose": "best"}, "choose='best'"),
        (
            [Part(mesh=tetrahedron())],
            {"choose": "balanced"},
            "choose='balanced' applies only to orders of boxes",
        ),
        ([some("a", 1, value=1.0), some("b", 1)], {}, "no value is given for b"),
        ([some("c", 9, priority=n) for n in range(1, 301)], {}, "priority has 300 levels"),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(
    parts: list[Part], options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ParameterError, match=named):
        pe.pack(parts, ["20x20x20cm,name=S"], **options)


# ---------------------------------------------------------------------- what is packed first


def kinds(plan: Plan) -> list[dict[str, int]]:
    return [dict(Counter(item.name for item in packing.items)) for packing in plan.containers]


def left_over(plan: Plan) -> dict[str, str]:
    return {part.name: part.reason for part in plan.left}


@pytest.mark.parametrize(
    ("parts", "packed"),
    [
        (
            [some("none", 5), some("2", 5, priority=2), some("1", 5, priority=1)],
            {"1": 5, "2": 3},
        ),
        ([some("one", 2, priority=1), some("big", 1, 0.2, priority=2)], {"one": 2}),
        ([some("one", 2, priority=2), some("big", 1, 0.2, priority=1)], {"big": 1}),
        ([some("one", 2, value=5.0), some("big", 1, 0.2, value=9.0)], {"one": 2}),
        ([some("one", 2, value=4.0), some("big", 1, 0.2, value=9.0)], {"big": 1}),
        (
            [some("one", 8, value=1.0, priority=1), some("b", 8, value=99.0, priority=2)],
            {"one": 8},
        ),
        ([some("one", 6, value=0.0), some("b", 8, value=1.0)], {"b": 8}),
    ],
)
def test_priorities_and_values(parts: list[Part], packed: dict[str, int], tmp_path: Path) -> None:
    plan = checked(pe.pack(parts, "20x20x20cm", 1), tmp_path)
    assert kinds(plan) == [packed]
    assert plan.num_left == sum(part.quantity for part in parts) - sum(packed.values())


@pytest.mark.parametrize(
    ("limit", "bound"),
    [
        (None, 7 * 3.0 + 1 * 2.0),  # the volume of eight: seven of 3, and one of 2
        (4.0, 7 * 3.0 * 4 / 7),  # 4 kg: all of 3 weigh 7 kg
    ],
)
def test_the_bound_of_values(limit: float | None, bound: float, tmp_path: Path) -> None:
    parts = [some("three", 7, value=3.0, weight=1.0), some("two", 5, value=2.0, weight=2.0)]
    options = {} if limit is None else {"weight_limit": limit}
    plan = checked(pe.pack(parts, "20x20x20cm", 1, **options), tmp_path)
    assert plan.value_bound == pytest.approx(bound)
    assert sum(item.handling["value"] for item in plan.containers[0].items) == bound
    assert pe.pack([some("three", 9)], "20x20x20cm", 0.1).value_bound is None


def test_priorities_hold_over_several_containers(tmp_path: Path) -> None:
    parts = [some("late", 12, priority=2), some("early", 12, priority=1)]
    plan = checked(pe.pack(parts, "20x20x20cm", 1, containers=2), tmp_path)
    assert sum((Counter(each) for each in kinds(plan)), Counter()) == {"early": 12, "late": 4}


# ---------------------------------------------------------------------- what stays together


def mm(x: float, y: float, z: float, quantity: int, name: str = "box", **handling: Any) -> Part:
    return box(name, x, y, z, quantity=quantity, **handling)


A, B = ({"together": label} for label in "AB")
AS_IT_IS: dict[str, Any] = {"faces": ("+z",), "turn": False}
WHOLE = "together: no container was found with room for all of its set"


@pytest.mark.parametrize(
    ("parts", "limit", "packed", "left"),
    [
        ([some("a", 5, **A), some("b", 4, **B), some("f", 1)], 1, [{"a": 5, "f": 1}], "b"),
        ([some("b", 4, **B), some("a", 5, **A)], 1, [{"a": 5}], "b"),
        ([some("b", 4, **B), some("a", 5, **A)], 2, [{"b": 4}, {"a": 5}], ""),
        ([some("a", 9, **A), some("f", 3)], 3, [{"f": 3}], "a"),
        ([some("f", 6), some("a", 3, **A), some("b", 3, **A)], 2, [{"f": 6}, {"a": 3, "b": 3}], ""),
    ],
)
def test_sets_are_whole_or_left_over(
    parts: list[Part], limit: int, packed: list[dict[str, int]], left: str, tmp_path: Path
) -> None:
    packed = sorted(packed, key=repr)
    plan = patiently(
        lambda plan: sorted(kinds(plan), key=repr) == packed,
        lambda times: pe.pack(parts, "20x20x20cm", times, containers=limit),
    )
    assert sorted(kinds(checked(plan, tmp_path)), key=repr) == packed
    assert left_over(plan) == ({left: WHOLE} if left else {})


def test_a_set_is_packed_although_another_set_takes_its_room_first(tmp_path: Path) -> None:
    """The four boards of A leave out one, and the room beside three takes part of B."""
    boards = [mm(100, 100, 30, 4, "a", **A), mm(50, 100, 10, 3, "b", **B)]
    plan = checked(pe.pack(boards, "100x100x100mm", 1e-6), tmp_path)
    assert kinds(plan) == [{"b": 3}]
    assert left_over(plan) == {"a": WHOLE}


def test_sets_of_incomplete_kits_go_into_the_spare_containers(tmp_path: Path) -> None:
    kit = tmp_path / "kit.csv"
    kit.write_text(
        "name,length (mm),width (mm),height (mm),quantity,together\n"
        "case,100,100,60,2,\nlid,100,100,30,2,lids\n"
    )
    plan = checked(pe.pack([str(kit), "x2"], "100x100x100mm", 0.5, containers=4), tmp_path)
    assert sum(number for each in kinds(plan) for number in each.values()) == 6
    assert left_over(plan) == {"case": "no room found"}


def left_after_the_first(
    parts: list[Part], container: str, stability: str, **options: Any
) -> list[int]:
    """Return how many of each part are left over if the first part is packed before all others."""
    sizes = read_containers(container)
    rules = constraints_of(parts, sizes, options)
    packer = BoxPacker(read_boxes(parts, sizes, rules, stability), 1)
    packer.pack_first([1, 0, 0], 0.1)
    return packer.left


def test_a_box_that_a_set_carries_is_packed_after_the_set() -> None:
    """The lid needs the set, which lies between a fixed step and a fixed wall, as high as both."""
    boards = [
        box("crate", 140, 100, 100, **AS_IT_IS),
        box("lid", 150, 100, 20, **AS_IT_IS),
        box("board", 100, 100, 10, **AS_IT_IS, **A),
    ]
    fixed = ["50x100x10mm@0,0,0", "10x100x10mm@150,0,0"]
    options = {"preplaced": fixed, "support": 1.0}
    assert left_after_the_first(boards, "300x100x100mm", "none", **options) == [0, 0, 0]


def test_sets_stay_together_when_weights_are_made_equal(tmp_path: Path) -> None:
    parts = [some("a", 4, **A, weight=2.0), some("b", 8, weight=1.0)]
    plan = pe.pack(parts, "20x20x20cm", 3, containers=2, choose="balanced")
    assert sorted(kinds(checked(plan, tmp_path)), key=repr) == [{"a": 4}, {"b": 8}]


def test_a_plan_with_a_part_of_a_set_is_refused(tmp_path: Path) -> None:
    plan = checked(pe.pack([some("a", 3, **A), some("b", 2)], "20x20x20cm", 1), tmp_path)
    document = json.loads((tmp_path / "plan-0.json").read_text())
    assert document["constraints"]["together"] == [["A", 3]]
    assert plan.num_left == 0
    for number in (2, 4):
        document["constraints"]["together"] = [["A", number]]
        assert refused(document, tmp_path)[1] == "together"


# ---------------------------------------------------------------------- several wishes at once

FLOOR = "1200x800x1000mm"


def test_a_set_that_the_search_splits_is_put_in_box_by_box(tmp_path: Path) -> None:
    """Two boxes beside each other on a pallet; no other place holds them both."""
    boxes = mm(20, 24, 34, 2, weight=7.0, fragile=True, together="A")
    plan = pe.pack([boxes], "42x94x37mm", 0.05, overhang=(0.008, 0.038), stability="com_hull_10")
    assert kinds(checked(plan, tmp_path)) == [{"box": 2}]


def test_the_largest_boxes_of_a_set_come_first_whatever_their_values() -> None:
    """The board fits only on top of the block, although it is worth more."""
    parts = [
        box("crate", 10, 100, 100, **AS_IT_IS, value=5.0),
        box("board", 40, 100, 10, **AS_IT_IS, value=9.0, together="A"),
        box("block", 90, 100, 90, **AS_IT_IS, value=1.0, together="A"),
    ]
    assert left_after_the_first(parts, "100x100x100mm", "com_hull") == [0, 0, 0]


def test_copies_of_a_single_labelled_part_have_no_labels(tmp_path: Path) -> None:
    box = mm(400, 400, 500, 3, together="A")
    plan = checked(pe.pack(pe.planner.Fill([box]), FLOOR, 1), tmp_path)
    assert plan.copies == 12
    assert "together" not in plan.containers[0].constraints


def test_every_copy_has_its_own_label(tmp_path: Path) -> None:
    kit = [mm(400, 400, 500, 2, together="A"), mm(400, 400, 500, 1, "lid")]
    plan = checked(pe.pack(pe.planner.Fill(kit), FLOOR, 1), tmp_path)
    assert plan.copies == 4  # twelve boxes fill the container
    assert plan.containers[0].constraints["together"] == [[f"A #{n}", 2] for n in range(1, 5)]


def test_the_copies_of_a_kit_with_a_label_are_whole_or_left_out(tmp_path: Path) -> None:
    order = tmp_path / "kit.csv"
    order.write_text(
        "name,dx,dy,dz,quantity,together\na,400,400,500,3,L\nb,400,400,500,2,\n", encoding="utf-8"
    )
    parts = planner.read_parts([str(order), "x3"], "mm")
    assert [(part.name, part.quantity) for part in parts] == [
        ("a", 3), ("a#2", 3), ("a#3", 3), ("b", 6),
    ]  # fmt: skip
    plan = checked(pe.pack(parts, FLOOR, seconds=1), tmp_path)  # room for twelve boxes
    assert complete_kits(parts, plan) == {"kit.csv": (2, 3)}


def test_boxes_worth_nothing_are_packed_beside_others() -> None:
    parts = [mm(400, 300, 200, 4, "free", value=0), mm(600, 400, 1000, 4, "dear", value=5)]
    plan = pe.pack(parts, FLOOR, seconds=0.5, containers=2)
    assert plan.num_left == 0


def test_containers_are_balanced_where_boxes_are_left_over(tmp_path: Path) -> None:
    parts = [mm(400, 400, 500, 6, "heavy", weight=20), mm(400, 400, 500, 20, "light", weight=1)]
    plan = patiently(
        lambda plan: plan.num_left == 2 and float(np.ptp(weights_of(plan))) <= 20,
        lambda times: pe.pack(parts, FLOOR, 2 * times, containers=2, choose="balanced"),
    )
    assert plan.num_left == 2
    assert np.ptp(weights_of(checked(plan, tmp_path))) <= 20


def test_a_box_without_a_place_does_not_choose_the_containers() -> None:
    """Behind a pre-placed box the large part has no place in either container."""
    sizes = ["600x400x500mm,cost=1", "1200x800x1000mm,cost=30"]
    parts = [mm(300, 200, 250, 6, "box"), mm(1200, 800, 1000, 1, "whole")]
    plan = pe.pack(
        parts, sizes, seconds=1, containers=3, choose="cheapest", preplaced=["20x20x20mm@0,0,0"]
    )
    assert (plan.num_left, plan.cost) == (1, 1)


def test_the_search_ends_when_all_containers_are_full() -> None:
    plan = pe.pack([mm(400, 400, 400, 5)], "400x400x400mm,number=2", 60)
    assert (plan.num_packed, plan.num_left) == (2, 3)
    assert plan.seconds < 30


def test_more_containers_allowed_are_never_dearer() -> None:
    sizes = [f"{side}x400x400mm,cost={cost}" for side, cost in ((400, 1), (800, 3), (1200, 7))]
    order = [mm(400, 400, 400, 12)]
    for limit in (12, 400):
        plan = patiently(
            lambda plan: plan.cost == 12,
            lambda times, n=limit: pe.pack(order, sizes, times, containers=n, choose="cheapest"),
        )
        assert plan.cost == 12


def test_many_containers_are_drawn_smaller(tmp_path: Path) -> None:
    plan = pe.pack([some("cube", 9)], "10x10x10cm", 1.0, containers=9)
    save(plan, tmp_path, size=390)
    size = struct.unpack(">II", (tmp_path / "packed.png").read_bytes()[16:24])
    assert size == (4 * 260, 3 * 260)  # as many pixels as four of 390 x 390
