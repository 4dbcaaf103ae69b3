"""Orders of boxes alone: exact, with every constraint, and judged by the reference."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trimesh
from benchmarks import fuzz_orders
from tests.planner.orders import GRID, box, checked, patiently

import packing_env as pe
from agents.cli.main import main
from packing_env import planner
from packing_env.items import MeshSource
from packing_env.plan import check_plan
from packing_env.planner import Part, Plan
from packing_env.values import UNITS

pytest.importorskip("numba")


def pack(parts: list[Part], container: Any, folder: Path, **options: Any) -> Plan:
    seconds = options.pop("seconds", 0.3)
    return checked(pe.pack(parts, container, seconds, **options), folder)


# ---------------------------------------------------------------------- exact fits


FITS: dict[str, tuple[list[Part], str, int]] = {
    "fifty cartons": ([box("carton", 60, 60, 50, quantity=50)], "300x300x100mm", 50),
    "three crates": ([box("crate", 750, 960, 640, quantity=3)], "2250x980x680mm", 3),
    "as large as the container": ([box("panel", 1125, 810, 95)], "810x1125x95mm", 1),
    "four and a lid": (
        [
            box("parcel", 40, 30.5, 20, quantity=4, faces=("+x",)),
            box("lid", 61, 40, 5, faces=("+z", "-z")),
        ],
        "61x40x45mm",
        5,
    ),
    "tenths": ([box("tin", 33.3, 33.3, 10.1, quantity=27)], "99.9x99.9x30.3mm", 27),
    "thirds of an inch": (
        [Part(sides=(Fraction(1, 3),) * 3, unit="in", quantity=27, name="die")],
        "1x1x1in",
        27,
    ),
    "inches beside millimetres, in a long container": (
        [
            Part(sides=(Fraction(113, 16), 10, 10), unit="in", quantity=3, name="inches"),
            box("millimetres", 400, 300, 333, quantity=4),
        ],
        "12032x2352x2393mm",
        7,
    ),
    "sixteenths": (
        [Part(sides=(Fraction(113, 16), 3, 2), unit="in", quantity=4, name="inches")],
        "14 1/8 x 6 x 2 in",
        4,
    ),
    "inches in millimetres": (
        [Part(sides=(1, 1, Fraction(1, 16)), unit="in", quantity=16, name="tile")],
        "25.4x25.4x25.4mm",
        16,
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_what_fits_exactly_is_packed(name: str, tmp_path: Path) -> None:
    parts, container, number = FITS[name]
    for stability in ("com_hull", "none", "stands"):
        plan = pack(parts, container, tmp_path, stability=stability)
        assert (plan.num_packed, plan.num_left) == (number, 0)


def write_box(path: Path, sides: Sequence[float], at: Sequence[float] = (0, 0, 0)) -> Path:
    solid = trimesh.creation.box(sides).subdivide()  # vertices between the corners
    solid.apply_translation(at).export(path)
    return path


@pytest.mark.parametrize("where", ["file.stl", "file.obj", "memory"])
@pytest.mark.parametrize(
    "name", ["three crates", "as large as the container", "tenths", "four and a lid", "sixteenths"]
)
def test_meshes_of_boxes_are_packed_exactly(name: str, where: str, tmp_path: Path) -> None:
    """The smaller container is chosen, and the plan refers to the file."""
    (first, *others), container, number = FITS[name]
    sides = [float(side) for side in first.sides or ()]
    file = str(write_box(tmp_path / where.replace("memory", "a.stl"), sides, (9.3, -700, 0)))
    part = replace(first, file=file, sides=None)
    if where == "memory":
        mesh = replace(part.load(), source=MeshSource())
        part, file = replace(part, file="", mesh=mesh), f"mesh:{first.name}"
    plan = pe.pack([part, *others], [container, "3000x2000x1500mm"], 0.3)
    assert check_plan(planner.save(plan, tmp_path / "out", size=64)[0]).holds
    assert (plan.num_packed, plan.num_left) == (number, 0)
    (packing,) = plan.containers
    size = [float(side) for side in planner.read_containers(container)[0].size]
    assert packing.container == pytest.approx(size)
    assert {item.source for item in packing.items if item.name == first.name} == {file}
    packed = trimesh.load(tmp_path / "out" / "packed.stl")
    room = np.array([[0.0, 0.0, 0.0], size]) / UNITS[plan.unit]
    assert (packed.bounds[0] >= room[0] - 1e-3).all()
    assert (packed.bounds[1] <= room[1] + 1e-3).all()
    volume = sum(item.volume for item in packing.items)
    assert packed.volume * UNITS[plan.unit] ** 3 == pytest.approx(volume)


@pytest.mark.parametrize(
    ("sides", "options"),
    [
        ((30, 20, 10), {"cell": "10mm"}),
        ((30, 20, 10.0001), {}),
        ((30, 20, 10), {"stability": GRID}),
    ],
    ids=["cell", "sides that no unit divides", "stability"],
)
def test_mesh_files_of_boxes_on_a_grid(
    sides: Sequence[float], options: dict[str, Any], tmp_path: Path
) -> None:
    file = write_box(tmp_path / "file.stl", sides)
    plan = pack([Part(str(file), unit="mm")], "60x60x60mm", tmp_path, **options)
    assert plan.containers[0].geometry == "maps"


def test_a_file_of_another_solid_is_refused_in_a_plan_of_boxes(tmp_path: Path) -> None:
    """Each has the bounding box of the file that was packed."""
    file = write_box(tmp_path / "file.stl", (30, 20, 10))
    plan = pe.pack([Part(str(file), unit="mm")], "60x60x60mm", 0.1)
    planner.save(plan, tmp_path, size=64)
    solid = trimesh.creation.box((30, 20, 10))
    assert check_plan(tmp_path / "plan.json").holds
    ends = [trimesh.creation.box((10, 20, 10)).apply_translation((x, 0, 0)) for x in (-10, 10)]
    others = {
        "two boxes": trimesh.util.concatenate(ends),
        "a wedge": trimesh.convex.convex_hull(np.delete(solid.vertices, [0, 1], 0)),
        "an open box": trimesh.Trimesh(solid.vertices, solid.faces[1:]),
    }
    for name, other in others.items():
        assert other.extents.tolist() == pytest.approx([30, 20, 10])
        other.export(file)
        violation = check_plan(tmp_path / "plan.json").violation
        assert violation is not None, name
        assert violation.claim == "geometry"


def test_lengths_without_a_common_unit_are_rounded_in_the_plan(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rounded up to 0.001 mm, 142.858 x 90.910 x 76.924 mm; the container is rounded down."""
    die = Part(sides=(Fraction(1, 7), Fraction(1, 11), Fraction(1, 13)), unit="m", quantity=8)
    plan = pack([die], "285.7169x181.8209x153.8489mm", tmp_path)
    assert (plan.num_packed, plan.num_left) == (8, 0)
    assert plan.containers[0].container == pytest.approx((0.285716, 0.18182, 0.153848), abs=1e-9)
    assert "give lengths with fewer digits" in caplog.text


@pytest.mark.parametrize("seed", range(8))
def test_orders_of_one_carton_are_complete(seed: int, tmp_path: Path) -> None:
    """k x l x m cartons, with up to 4 mm to spare; metric and inches."""
    draw = random.Random(seed)
    unit, parts = draw.choice([("mm", 10), ("cm", 10), ("in", 16)])
    metre = {"mm": Fraction(1, 1000), "cm": Fraction(1, 100), "in": Fraction(254, 10_000)}[unit]
    sides = [Fraction(draw.randint(3 * parts, 20 * parts), parts) for _ in range(3)]
    repeats = [draw.randint(1, 5) for _ in range(3)]
    spare = [Fraction(draw.choice([0, draw.randint(0, 40)]), 10_000) for _ in range(3)]
    container = tuple(
        side * n * metre + more for side, n, more in zip(sides, repeats, spare, strict=True)
    )
    number = repeats[0] * repeats[1] * repeats[2]
    a, b, c = draw.sample(sides, 3)
    plan = pack([Part(sides=(a, b, c), unit=unit, quantity=number)], container, tmp_path, seconds=2)
    assert plan.num_packed == number


def test_pieces_of_a_cut_container_are_put_together(tmp_path: Path) -> None:
    pieces = [(400, 300, 200), (400, 300, 100), (200, 300, 300), (600, 100, 300)]
    parts = [box(f"piece {n}", *piece) for n, piece in enumerate(pieces)]
    plan = pack(parts, "600x400x300mm", tmp_path, seconds=10)  # ends when all are packed
    assert (plan.num_left, plan.utilization) == (0, pytest.approx(1.0))
    assert plan.bound == pytest.approx(0.6 * 0.4 * 0.3)


# ---------------------------------------------------------------------- constraints

CUBE = (100, 100, 100)


def tyres(second: str, *sides: float) -> list[Part]:
    options: dict[str, Any] = {"quantity": 2, "faces": "z", "on_like": True}
    return [box("tyre", 100, 100, 60, **options), box(second, *sides, **options)]


RULES: dict[str, tuple[list[Part], str, dict[str, Any], int]] = {
    "load is passed down": (
        [box("cube", *CUBE, quantity=5, weight=1.0, max_load=2.0)], "100x100x500mm", {}, 3,
    ),
    "layers": ([box("cube", *CUBE, quantity=5, layers=2)], "100x100x500mm", {}, 2),
    "on its like": (
        [box("base", *CUBE), box("shy", *CUBE, quantity=2, on_like=True)], "100x100x300mm", {}, 3,
    ),
    "on its like alone": (
        [box("base", *CUBE), box("shy", *CUBE, quantity=2, on_like=True)],
        "200x100x200mm", {}, 3,
    ),
    "on its like of another row": (tyres("tyre", 90, 90, 50), "100x100x300mm", {}, 4),
    "on its like, of another name": (tyres("wheel", 100, 100, 60), "100x100x300mm", {}, 2),
    "fragile on top": (
        [box("glass", *CUBE, fragile=True), box("brick", *CUBE)], "100x100x200mm",
        {"fragile": "top"}, 2,
    ),
    "fragile last": (
        [box("glass", *CUBE, quantity=2, fragile=True), box("brick", *CUBE, quantity=2)],
        "200x100x200mm", {}, 4,
    ),
    "groups, from above": (
        [box("early", *CUBE, quantity=2, group=1), box("late", *CUBE, quantity=2, group=2)],
        "200x100x200mm", {}, 4,
    ),
    "balance": (
        [box("cube", *CUBE, quantity=2, weight=1.0)], "400x300x100mm", {"balance": 0.01}, 2,
    ),
    "clearance": (
        [box("cube", *CUBE, quantity=4)], "201.5x201.5x100mm",
        {"clearance": "1.5mm", "wall_clearance": 0.0}, 4,
    ),
    "clearance to walls": (
        [box("cube", *CUBE, quantity=2)], "203x102x100mm",
        {"clearance": "1mm"}, 2,
    ),
    # With its gap, a rod takes less room in some orientations than in others.
    "clearance of rods": (
        [box("rod", 2, 6, 3, quantity=8)], "8x11x5mm",
        {"clearance": "3.5mm", "wall_clearance": "2mm"}, 2,
    ),
    "pre-placed": (
        [box("cube", *CUBE, quantity=4)], "200x200x100mm",
        {"preplaced": ["100x100x100mm@0,0,0"]}, 3,
    ),
    "support": (
        [box("peg", 60, 60, 100), box("plate", 100, 100, 50)], "100x100x150mm",
        {"support": 1.0, "stability": "none"}, 2,
    ),
    "side door": (
        [box("long", 300, 50, 100), box("cube", *CUBE, quantity=3)], "300x150x100mm",
        {"door": "side"}, 4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_constraints_hold(name: str, tmp_path: Path) -> None:
    """The plan packs as many boxes as possible, and the reference accepts it."""
    parts, container, options, number = RULES[name]
    plan = pack(parts, container, tmp_path, **options)
    assert plan.num_packed == number
    assert all(part.reason for part in plan.left)


def test_a_box_on_many_others_is_judged(tmp_path: Path) -> None:
    """A plate on 100 pegs has more contacts than the program keeps of one box."""
    parts = [box("peg", 10, 10, 50, quantity=100, faces=("+z",), weight=0.1)]
    parts.append(box("plate", 100, 100, 5, faces=("+z",), weight=0.1, max_load=0.0))
    for options in ({}, {"weight_limit": 20.0}):
        plan = pack(parts, "100x100x60mm", tmp_path, **options)
        assert plan.num_packed >= 100


def test_later_boxes_are_nearer_to_the_door(tmp_path: Path) -> None:
    plan = pack([box("cube", *CUBE, quantity=8)], "400x200x100mm", tmp_path, door="rear")
    depth = [item.translation[0] for item in plan.containers[0].items]
    assert plan.num_packed == 8
    assert max(depth[:2]) <= min(depth[-2:])


@pytest.mark.parametrize("door", ["top", "rear", "side"])
def test_boxes_of_three_stops_that_fill_half_a_trailer_fit(door: str, tmp_path: Path) -> None:
    """A small box of an early stop, deep in the trailer, would block the way of the others."""
    draws, parts, volume = np.random.default_rng(0), [], 0.0
    while volume < 0.5:
        sides = draws.integers(250, 800, 3).tolist()
        parts.append(box(f"{len(parts)}", *sides, quantity=3, group=len(parts) % 3))
        volume += 3 * math.prod(sides) / (12_000 * 2_400 * 2_400)
    plan = pack(parts, "12x2.4x2.4m", tmp_path, door=door)
    assert not plan.left


def test_random_orders_keep_all_constraints(tmp_path: Path) -> None:
    """Eight orders as benchmarks/fuzz_orders.py draws them."""
    played = 0
    for seed in range(8):
        order = fuzz_orders.draw_order(np.random.default_rng([7, seed]), tmp_path)
        try:
            plan = fuzz_orders.packed(order, 0.02)
        except ValueError:
            continue
        played += 1
        assert fuzz_orders.check(plan, order, tmp_path) == "", order
    assert played >= 6


# ---------------------------------------------------------------------- Python and the command


@pytest.mark.parametrize(
    ("handling", "options", "name"),
    [
        ({"layers": 2}, {}, "layers"),
        ({"priority": 1}, {}, "priority"),
        ({"value": 2.0}, {}, "value"),
        ({"together": "A"}, {}, "together"),
        ({}, {"support": 1.0}, "support"),
        ({}, {"door": "rear"}, "door"),
    ],
)
def test_what_holds_for_boxes_alone_is_refused_for_meshes(
    handling: dict[str, Any], options: dict[str, Any], name: str, tmp_path: Path
) -> None:
    trimesh.creation.icosphere(radius=20).export(tmp_path / "ball.stl")
    parts = [box("cube", *CUBE, **handling), tmp_path / "ball.stl"]
    with pytest.raises(pe.ParameterError, match=name):
        pe.pack(parts, "200x200x200mm", 0.1, **options)


def test_a_cell_that_boxes_are_whole_in_is_chosen(tmp_path: Path) -> None:
    """Fifty cartons less one, and a ball in its place: the grid of 10 mm divides them."""
    trimesh.creation.icosphere(radius=20).export(tmp_path / "ball.stl")
    parts = [box("carton", 60, 60, 50, quantity=49), tmp_path / "ball.stl"]
    plan = patiently(
        lambda plan: plan.num_packed == 50,
        lambda times: pe.pack(parts, "300x300x100mm", 0.5 * times),
    )
    assert (0.06 / plan.containers[0].cell) % 1 == pytest.approx(0, abs=1e-9)
    assert plan.num_packed == 50


def test_a_mesh_of_a_box_does_not_change_the_cell_of_boxes_with_stated_sides(
    tmp_path: Path,
) -> None:
    file = write_box(tmp_path / "file.stl", (100 / 3, 200 / 3, 10))
    plan = pe.pack([box("cube", 60, 60, 60, quantity=24), file], "300x300x80mm", 0.1)
    assert (0.06 / plan.containers[0].cell) % 1 == pytest.approx(0, abs=1e-9)


def test_of_a_long_order_the_table_shows_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"small {k},20,20,{10 + k % 5}" for k in range(101)] + ["beam,900,20,20"]
    (tmp_path / "order.csv").write_text("\n".join(["name,dx,dy,dz", *lines]), "utf-8")
    arguments = ["pack", str(tmp_path / "order.csv"), "--container", "300x300x100mm"]
    assert main([*arguments, "--seconds", "0.1", "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "101 of 102 kinds of parts are packed completely" in shown
    assert "beam" in shown
    assert "small 7" not in shown
