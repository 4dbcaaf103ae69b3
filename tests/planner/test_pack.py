"""`pack` and `packing pack`: quantities, leftovers, orders, files, and plans that hold."""

import csv
import json
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trimesh
from tests.mesh_files import tetrahedron, write_urdf
from tests.planner.orders import BOTH, GRID, checked, on, patiently

import packing_env as pe
from agents.cli import main as cli
from packing_env import planner
from packing_env.items import CatalogueError
from packing_env.items.shapes import SHAPES
from packing_env.plan import check_plan
from packing_env.plan.loading.loader import Loader
from packing_env.planner import OrderError, Part, Plan, read_parts
from packing_env.planner.grid.search import OrderSearch
from packing_env.render import save_glb

BOX = Part(sides=(50, 40, 30), unit="mm", name="box")
BAR = Part(sides=(90, 20, 20), unit="mm", name="bar", quantity=4)


@pytest.fixture(scope="module", params=[GRID, "com_hull"], ids=["grid", "exact"])
def plan(request: pytest.FixtureRequest) -> planner.Plan:
    big = Part(sides=(300, 20, 20), unit="mm", name="beam", quantity=2)
    return pe.pack([BOX, "x5", BAR, big], "100x100x60mm", 1.0, **on(request.param, "5mm"))


def test_files_of_a_plan(plan: planner.Plan, tmp_path: Path) -> None:
    (tmp_path / "plan-2.json").touch()
    files = planner.save(plan, tmp_path, size=64)
    assert {f.name for f in tmp_path.iterdir()} == {f.name for f in files}
    # An empty plan, or one of several containers, leaves no file of this plan behind.
    other = tmp_path / "other"
    for containers in ((), plan.containers * 2):
        planner.save(plan, other, size=64)
        files_of_other = planner.save(replace(plan, containers=containers), other, size=64)
        assert {f.name for f in other.iterdir()} == {f.name for f in files_of_other}
    report = check_plan(files[0])
    assert report.holds, report.violation
    assert not report.not_checked
    rows = list(csv.DictReader((tmp_path / "positions.csv").read_text().splitlines()))
    assert len(rows) == plan.num_packed
    assert all(float(row["x_mm"]) + float(row["dx_mm"]) <= 100.001 for row in rows)
    solid = trimesh.load(tmp_path / "packed.stl")
    volume = sum(item.volume for item in plan.containers[0].items)
    assert solid.volume / 1e9 == pytest.approx(volume, rel=1e-4)
    scene = trimesh.load(tmp_path / "packed.glb")
    assert scene.extents.tolist() == pytest.approx([0.1, 0.06, 0.1], abs=1e-6)


def test_names_are_those_of_the_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The names are in the table, the CSV, the plan, the page and the leftovers; counts add up."""
    trimesh.creation.box((40, 40, 40)).export(tmp_path / "part.stl")
    rows = ["name,file,quantity", "left bracket,part.stl,3", "right/arm,part.stl,7"]
    (tmp_path / "order.csv").write_text("\n".join(rows), encoding="utf-8")
    out = tmp_path / "out"
    words = ["pack", str(tmp_path / "order.csv"), "--container", "80x80x80mm", "--cell", "10mm"]
    assert cli.main([*words, "--seconds", "0.1", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    rows = list(csv.DictReader((out / "positions.csv").read_text().splitlines()))
    plan = json.loads((out / "plan.json").read_text())
    page = (out / "packed.html").read_text()
    packed = {name: [r["name"] for r in rows].count(name) for name in ("left bracket", "right/arm")}
    assert sum(packed.values()) == len(rows) == 8
    assert [item["name"] for item in plan["items"]] == [row["name"] for row in rows]
    for name, quantity in (("left bracket", 3), ("right/arm", 7)):
        assert f'"{name}"' in page
        line = next(line for line in printed.splitlines() if name in line)
        counts = [int(word) for word in line.replace(name, "").split() if word.isdigit()]
        assert counts[0] == packed[name]
        assert sum(counts) == quantity


@pytest.mark.parametrize("constraints", [{}, {"clearance": "5mm"}], ids=["settled", "on the grid"])
def test_a_steep_tip_on_a_grid_line_is_not_below_the_floor(
    constraints: dict[str, Any], tmp_path: Path
) -> None:
    # Seen from above, the tip is in the middle of 2 x 2 cells, and so within none of them.
    trimesh.creation.cone(5, 300).export(tmp_path / "cone.stl")
    cone = Part(str(tmp_path / "cone.stl"), unit="mm", faces=("-z",), turn=False)
    plan = pe.pack([cone], "30x30x300mm", 0.1, cell="5mm", stability="none", **constraints)
    (item,) = plan.containers[0].items
    assert item.to_world(np.array([0.0, 0.0, 300.0]))[2] >= 0.0
    checked(plan, tmp_path)


def test_the_table_of_positions_is_as_exact_as_the_plan(tmp_path: Path) -> None:
    box = Part(sides=("31 3/16", "23 5/8", "19 11/16"), unit="in", quantity=30)
    planner.save(pe.pack([box], "12032x650x600mm", 1.0), tmp_path, size=64)
    table = list(csv.DictReader((tmp_path / "positions.csv").read_text().splitlines()))
    sides = [{Fraction(row[f"{d}_mm"]) for d in ("dx", "dy", "dz")} for row in table]
    # Boxes in a row: each begins where the one before it ends.
    x = sorted(Fraction(row["x_mm"]) for row in table)
    assert {b - a for a, b in pairwise(x)} <= {Fraction(0), *set.union(*sides)}


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.array, torch.tensor, str])
def test_sides_and_weights_may_be_any_numbers(kind: Any, tmp_path: Path) -> None:
    sides = (40, 30, 20) if kind is np.int64 else (40.1, 30.5, 20.5)
    part = Part(sides=tuple(map(kind, sides)), unit="mm", quantity=np.int64(2), name="box")
    assert part.exact_sides == tuple(Fraction(str(side)) / 1000 for side in sides)
    if kind is not str:
        flags = {"fragile": np.bool_(0), "on_like": np.bool_(0)}
        handling = {"weight": kind(2), "max_load": Fraction(100, 3), "group": np.int64(1), **flags}
        array = kind(sides) if kind in (np.array, torch.tensor) else np.array(sides, kind)
        part = Part(sides=array, unit="mm", quantity=torch.tensor(2), handling=handling)
        assert part.exact_sides == tuple(Fraction(str(side)) / 1000 for side in sides)
    checked(pe.pack({part: 3}, "100x100x100mm", 1.0), tmp_path)


ONE_SOLID = "give one of file, sides and mesh"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sides": "40x30x20"}, ""),
        ({"sides": (40, 30)}, ""),
        ({"sides": (40, 30, float("nan"))}, ""),
        ({"sides": (40, 30, 0)}, ""),
        ({"sides": (40, Fraction(-1, 2), 30)}, ""),
        ({"sides": (4, 3, 2), "handling": {"weight": float("nan")}}, ""),
        ({"sides": (4, 3, 2), "handling": {"weight": np.ma.masked}}, ""),
        ({"sides": (4, 3, 2), "faces": ("up",)}, ""),
        ({}, ONE_SOLID),
        ({"file": "a.stl", "sides": (4, 3, 2)}, ONE_SOLID),
        ({"mesh": 3}, ONE_SOLID),
    ],
)
def test_errors_of_parts_name_the_part(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(OrderError, match=f"crate: {message}"):
        Part(name="crate", **wrong)


@pytest.mark.parametrize(
    "entry", [(40, 30, 20), {"sides": (40, 30, 20)}, np.array([40, 30, 20]), 3]
)
def test_what_is_no_part_is_refused(entry: Any) -> None:
    with pytest.raises(OrderError, match="is not a part"):
        pe.pack([entry], "100x100x100mm", 1.0)


@pytest.mark.parametrize("given", ["alone", "in a list"])
def test_a_mesh_of_another_library_is_refused_with_the_function_that_reads_it(given: str) -> None:
    entry: Any = trimesh.creation.box()
    for use in (
        lambda parts: pe.pack(parts, "100x100x100mm", 1.0),
        lambda parts: pe.items.Catalogue.from_meshes(parts, cell=0.01, container=(0.1, 0.1, 0.1)),
    ):
        with pytest.raises(ValueError, match=r"mesh_from_arrays\(vertices, faces\)"):
            use(entry if given == "alone" else [entry])


def test_a_mesh_in_memory_is_in_metres() -> None:
    solid = tetrahedron()
    mesh = pe.items.mesh_from_arrays(1000 * solid.vertices, solid.faces)
    assert any("in mm, scale them" in warning for warning in mesh.warnings)


@pytest.mark.parametrize("run", [pe.pack, pe.nest])
def test_meshes_in_memory_are_written_with_the_plan(
    run: Callable[..., Plan], tmp_path: Path
) -> None:
    meshes = [tetrahedron(), tetrahedron().scaled(1.5), tetrahedron()]
    plan = run(meshes, (0.1, 0.1, 0.1), 0.3)
    (tmp_path / "a").mkdir()
    own = tmp_path / "a" / "packed-mesh-1.ply"
    own.write_text("not of a plan")
    for _ in range(2):  # equal meshes share a file, also with an earlier plan
        files = planner.save(plan, tmp_path / "a", size=64)
        written = sorted(file.name for file in files if file.suffix == ".ply")
        assert written == ["packed-mesh-2.ply", "packed-mesh-3.ply"]
        assert len(list((tmp_path / "a").glob("*.ply"))) == 3
    assert own.read_text() == "not of a plan"
    again = planner.save(run([str(files[-1])], (0.1, 0.1, 0.1), 0.1, unit="m"), tmp_path / "a")
    assert check_plan(again[0]).holds  # its source is still there
    own.unlink()
    files = planner.save(plan, tmp_path / "a", size=64)
    moved = (tmp_path / "a").rename(tmp_path / "b")
    report = check_plan(moved / files[0].name)
    assert (report.holds, report.items) == (True, len(meshes))
    with pytest.raises(CatalogueError, match="files of an earlier plan"):
        run(moved, (0.1, 0.1, 0.1), 0.1)


def test_a_quantity_of_zero_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    order = tmp_path / "order.csv"
    order.write_text("name,dx,dy,dz,quantity\na,9,9,9,0\nb,9,9,9,2\na,9,9,9,1\n", encoding="utf-8")
    found = read_parts([order, BOX, "x0"], "mm")
    assert [(part.name, part.quantity) for part in found] == [("b", 2), ("a", 1)]
    assert "a, box" in caplog.text


def test_one_part_that_is_far_too_small_does_not_stop_an_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pin = Part(sides=(1, 1, 1), unit="mm", name="pin")  # smaller than a cell, and packed
    speck = Part(sides=(1, 1, 1), unit="um", name="speck", quantity=3)
    plan = pe.pack([BOX, pin, speck], "100x100x60mm", 1e-6, **on(GRID, "5mm"))
    assert plan.num_packed == 2
    assert [(part.name, part.quantity) for part in plan.left] == [("speck", 3)]
    assert "too small" in plan.left[0].reason
    assert "speck" in caplog.text
    with pytest.raises(pe.items.MeshError, match=r"speck.*too small"):
        pe.pack([speck], "100x100x60mm", 1e-6, **on(GRID, "5mm"))


@pytest.mark.parametrize(
    ("sides", "quantity", "container", "constraints"),
    [
        # The lowest places nearest to the corner interlock, which leaves room for eight only.
        ((100, 60), 9, "300x300x60mm", {}),
        ((100, 60), 9, "330x330x60mm", {"clearance": 0.001, "wall_clearance": 0.0}),
        # With 48 cells along the floor, each side would lose a row.
        ((60, 50), 50, "300x300x100mm", {}),
        ((70, 81), 12, "212x140x162mm", {}),
        ((60, 50), 16, "258x258x50mm", {"clearance": 0.006, "wall_clearance": 0.0}),
        # Only cells of 2 mm divide the side and the clearance.
        ((50, 60), 25, "262x262x60mm", {"clearance": 0.002}),
        ((50, 60), 75, "262x262x60mm", {"clearance": 0.002, "containers": 3}),
        # Eight lie in two layers; of those that stand beside each other, only seven fit.
        ((100, 200), 8, "415x205x200mm", {"clearance": 0.005, "wall_clearance": 0.0}),
    ],
)
def test_round_parts_stand_in_rows(
    sides: tuple[int, int], quantity: int, container: str, constraints: Any, tmp_path: Path
) -> None:
    trimesh.creation.cylinder(radius=sides[0] / 2, height=sides[1]).export(tmp_path / "roll.stl")
    rolls = Part(file=str(tmp_path / "roll.stl"), unit="mm", quantity=quantity)
    plan = patiently(
        lambda plan: plan.num_packed == quantity,
        lambda seconds: pe.pack(rolls, container, seconds, **constraints),
    )
    assert plan.num_packed == quantity
    checked(plan, tmp_path)


def test_equal_parts_without_thickness_are_refused() -> None:
    foil = Part(sides=(1, 2, 1e-7), unit="m", quantity=5, name="foil")
    with pytest.raises(pe.items.MeshError, match="foil: flat"):
        pe.pack(foil, "10x10x10m", 1e-6, stability=GRID)


def test_a_cell_is_named_that_leaves_room_for_more_parts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimesh.creation.cylinder(radius=49, height=240).export(tmp_path / "roll.stl")
    roll = Part(file=str(tmp_path / "roll.stl"), unit="mm", quantity=9)
    # Very many parts would take too long on small cells.
    monkeypatch.setattr("packing_env.planner.grid.containers._MOST_WORK", 0.0)
    plan = pe.pack(roll, "300x300x250mm", 1e-6, clearance="1mm")
    assert plan.num_left
    # 202 cells along the floor: three times 66 cells of a roll, and four times one of a clearance
    assert "--cell 1.48514851mm" in caplog.text
    pe.pack(roll, "304x304x250mm", 1e-6)
    assert caplog.text.count("--cell") == 1


def test_boxes_of_any_size_are_packed_exactly(tmp_path: Path) -> None:
    """Besides a box of 50 mm, the order has some of 1 um, which are too small for a solid."""
    pin = Part(sides=(1, 1, 1), unit="mm", name="pin")
    speck = Part(sides=(1, 1, 1), unit="um", name="speck", quantity=3)
    plan = pe.pack([BOX, pin, speck], "100x100x60mm", 1e-6)
    assert (plan.num_packed, plan.left) == (5, ())
    checked(plan, tmp_path)


def test_the_cell_of_boxes_alone_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    plan = pe.pack([BOX], "50x40x30mm", 1e-6, cell="20mm")
    assert plan.num_packed == 1
    assert "cell has no effect" in caplog.text
    with pytest.raises(pe.ParameterError, match="cell"):
        pe.pack([BOX], "50x40x30mm", 1e-6, cell="20")


@BOTH
def test_a_plan_holds_the_container_that_was_named(
    stability: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its cells cover 200 x 150 mm of the floor; a box stands beyond them."""
    tray = Part(sides=(100, 75, 50), unit="mm", name="tray", quantity=4, handling={"weight": 1.0})
    options = on(stability, "50mm") | {"preplaced": ["20x170x100mm@215,0,0"], "balance": 0.5}
    plan = pe.pack(tray, "240x180x100mm", 0.1, **options)
    assert plan.num_packed == 4
    assert plan.utilization == pytest.approx(1.5e6 / (240 * 180 * 100))
    assert plan.containers[0].container == pytest.approx((0.24, 0.18, 0.1))
    covered = "cover 200 x 150 mm of the floor, 240 x 180 mm" in caplog.text
    assert covered == (stability == GRID)
    files = planner.save(plan, tmp_path, size=64)
    report = check_plan(files[0])
    assert report.holds, report.violation
    assert report.utilization == pytest.approx(plan.utilization)
    table = csv.DictReader((tmp_path / "positions.csv").read_text().splitlines())
    assert [float(row["weight_kg"]) for row in table] == [1.0] * 4
    shown = json.loads(files[0].read_text())
    assert shown["constraints"]["preplaced"] == [pytest.approx([0.215, 0, 0, 0.02, 0.17, 0.1])]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wall_clearance": "100mm"}, "0.24 x 0.18"),
        ({"preplaced": ["50x50x50mm@200,0,0"]}, r"0\.24, 0\.18, 0\.1"),
    ],
)
@BOTH
def test_constraints_are_of_the_container_that_was_named(
    stability: str, options: dict[str, Any], message: str
) -> None:
    part = Part(sides=(50, 50, 50), unit="mm", handling={"weight": 1.0})
    with pytest.raises(pe.ParameterError, match=message):
        pe.pack(part, "240x180x100mm", 0.1, **on(stability, "50mm"), **options)


def test_a_balance_that_whole_cells_cannot_keep_is_refused() -> None:
    part = Part(sides=(50, 50, 50), unit="mm", handling={"weight": 1.0})
    with pytest.raises(pe.ParameterError, match=r"240 x 180 mm.*smaller cell"):
        pe.pack(part, "240x180x100mm", 0.1, **on(GRID, "50mm"), balance=0.05)
    assert pe.pack(part, "240x180x100mm", 0.1, balance=0.05).num_packed == 1


@pytest.mark.parametrize(("side", "unit"), [(0.08, "m"), (3.0, "in"), (0.5, "in")])
def test_the_unit_of_parts_that_are_too_small_is_suggested(
    side: float, unit: str, tmp_path: Path
) -> None:
    part = tmp_path / "part.obj"
    trimesh.creation.box((side, side / 2, side / 2)).export(part)
    with pytest.raises(
        pe.ParameterError, match=rf"read in mm; if the files are in {unit}, it .*--unit"
    ):
        pe.pack(part, "240x180x150mm", 0.1, cell="5mm")


@BOTH
def test_command(stability: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "order.csv").write_text("dx,dy,dz,quantity\n40,40,40,3\n", encoding="utf-8")
    words = ["pack", str(tmp_path / "order.csv"), "--container", "80x40x40mm"]
    words += [word for key, value in on(stability, "10mm").items() for word in (f"--{key}", value)]
    assert cli.main([*words, "--seconds", "0.2", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "packed 2 of 3 parts in 1 container, utilization 100.0 %" in printed
    assert "no room found" in printed
    assert ("no plan packs more than 100.0 %: this one reaches that bound" in printed) == (
        stability != GRID
    )
    assert "checked" in printed
    plan = str(tmp_path / "out" / "plan.json")
    assert cli.main(["render", f"plan={plan}", f"out={tmp_path / 'again.glb'}"]) == 0


def test_the_first_order_of_a_folder_of_meshes(data_dir: Path) -> None:
    plan = pe.pack(data_dir / "meshes", "240x180x150mm", 1e-6, unit="m", cell="10mm")
    assert plan.utilization >= 0.54
    assert plan.num_packed + plan.num_left == 21


def test_a_search_is_no_worse_than_the_first_order() -> None:
    names = ("dome", "sphere", "tetracube_l", "pillow")
    parts = [Part(mesh=SHAPES[name].mesh(), quantity=4) for name in names]
    first = pe.pack(parts, "180x140x120mm", 1e-6, cell="10mm")
    plan = patiently(
        lambda plan: plan.tried > first.tried,
        lambda times: pe.pack(parts, "180x140x120mm", 0.5 * times, cell="10mm"),
    )
    assert plan.tried > first.tried
    assert first.num_left
    # One more part outweighs a little volume, and a lower load a little more.
    assert plan.num_packed > first.num_packed or plan.utilization >= first.utilization - 1e-3


@pytest.mark.parametrize("phase", ["search", "completion", "reasons"])
def test_containers_that_are_packed_outlast_an_interrupt(
    phase: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trimesh.creation.icosphere(1, 15.0).export(tmp_path / "ball.stl")
    calls = 0

    def interrupted(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if phase != "search" or calls == 2:
            raise KeyboardInterrupt
        return OrderSearch(*given)

    where = {
        "search": "packer.OrderSearch",
        "completion": "packer.OrderSearch.complete",
        "reasons": "grid.reasons.Reasons.of",
    }[phase]
    monkeypatch.setattr(f"packing_env.planner.{where}", interrupted)
    plan = pe.pack([str(tmp_path / "ball.stl"), "x20"], "90x60x45mm", 0.5, containers=2)
    assert len(plan.containers) == (1 if phase == "search" else 2)
    assert plan.num_packed + plan.num_left == 20
    assert plan.interrupted or phase == "reasons"
    assert phase != "reasons" or "interruption" in plan.left[0].reason


@pytest.mark.parametrize("fill", [False, True])
def test_boxes_that_are_packed_outlast_an_interrupt(
    fill: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, calls = Loader.run, 0

    def interrupted(self: Loader, *given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise KeyboardInterrupt
        return run(self, *given)

    monkeypatch.setattr(Loader, "run", interrupted)
    parts = [Part(sides=(1, 1, 1), quantity=8 if fill else 20), Part(sides=(1, 1, 2))]
    plan = pe.pack(planner.Fill(parts) if fill else parts, (2, 2, 3), 0.2, containers=3)
    assert plan.interrupted
    assert plan.num_packed >= 9
    assert plan.copies == (1 if fill else None)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_trimesh_is_imported_is_not_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cube.dae").write_text("<COLLADA/>")
    tree = write_urdf(tmp_path / "cube.urdf", '<mesh filename="cube.dae"/>')

    def imported(name: str) -> Any:
        with suppress(BaseException):  # as trimesh itself imports its optional packages
            signal.raise_signal(signal.SIGINT)
        return trimesh

    monkeypatch.setattr("packing_env.items.meshes.formats.readers.import_module", imported)
    with pytest.raises(KeyboardInterrupt):
        Part(str(tree)).load()


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_files_are_written_leaves_the_whole_plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(path: Path, packings: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        save_glb(path, packings)

    monkeypatch.setattr("packing_env.planner.files.save_glb", interrupted)
    (tmp_path / "order.csv").write_text("dx,dy,dz\n1,1,1\n")
    words = ["pack", str(tmp_path / "order.csv"), "--container", "2x2x2mm", "--seconds", "0.1"]
    assert cli.main([*words, "--out", str(tmp_path / "out")]) == 130
    assert "wrote" in capsys.readouterr().out
    assert check_plan(tmp_path / "out" / "plan.json").holds
    assert len(list((tmp_path / "out").iterdir())) == 6


@pytest.mark.parametrize("fill", [False, True])
def test_an_interrupted_search_returns_the_best_plan_so_far(
    fill: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mesh = trimesh.creation.icosphere(1, 15.0)
    mesh.export(tmp_path / "ball.stl")
    searches = 0

    def interrupted(*_: object) -> None:
        nonlocal searches
        searches += 1
        raise KeyboardInterrupt

    monkeypatch.setattr(OrderSearch, "_improve", interrupted)
    parts = [str(tmp_path / "ball.stl"), "x9"]
    start = time.monotonic()
    plan = pe.pack(planner.Fill(parts) if fill else parts, "90x60x45mm", 1000.0, containers=2)
    assert time.monotonic() - start < 500.0
    assert plan.interrupted or fill
    assert searches == 1
    assert plan.num_packed >= 6
    planner.save(plan, tmp_path / "out")
