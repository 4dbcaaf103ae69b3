"""Copies of an order: ``xN``, complete kits, and ``fill``."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.mesh_files import box_3mf, model_3mf, write_3mf, write_stl
from tests.planner.orders import checked

import packing_env as pe
from packing_env.items.meshes.formats.threemf import build_items
from packing_env.planner import Fill, OrderError, Part, Plan, read_parts
from packing_env.planner.copies import complete_kits, most_copies, whole_kits
from packing_env.planner.reading import parts as reading

pytest.importorskip("numba")

KIT = "name,dx,dy,dz,quantity,unit\nlid,100,80,10,1,mm\nbase,100,80,60,1,mm\nfoot,20,20,20,4,mm\n"


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    (tmp_path / "my kit.csv").write_text(KIT, encoding="utf-8")
    return tmp_path / "my kit.csv"


def counts(plan: Plan) -> dict[str, int]:
    return Counter(item.name for packing in plan.containers for item in packing.items)


@pytest.mark.parametrize("words", [["{}", "x3"], ["{}", "\u00d73"], ["{} x3"], ["{}  X3"]])
def test_a_number_after_an_order_multiplies_it_in_one_word_or_two(
    words: list[str], kit: Path
) -> None:
    parts = read_parts([word.format(kit) for word in words])
    assert [(part.name, part.quantity) for part in parts] == [("lid", 3), ("base", 3), ("foot", 12)]
    assert read_parts(f"{kit} x3") == parts
    stacked = (kit.parent / "my kit.csv x3").write_text(KIT, encoding="utf-8")
    assert stacked
    assert [part.quantity for part in read_parts([f"{kit} x2"])] == [2, 2, 8]
    assert [part.quantity for part in read_parts({str(kit): 3})] == [3, 3, 12]
    four = Part(sides=(1, 1, 1), name="four", quantity=4)
    assert read_parts([four, "x2"])[0].quantity == 8
    with pytest.raises(OrderError, match="'x2'"):
        read_parts([str(kit), "x3", "x2"])


@pytest.fixture
def halves(tmp_path: Path) -> list[str]:
    """Return nine kits of 150 mm in height."""
    text = "name,dx,dy,dz,quantity\nlarge,100,100,100,1\nsmall,100,100,50,1\n"
    (tmp_path / "kit.csv").write_text(text, encoding="utf-8")
    return [str(tmp_path / "kit.csv"), "x9"]


def test_whole_kits_come_first(halves: list[str], tmp_path: Path) -> None:
    """Four large boxes fill the container, too; two kits of three quarters leave room for one."""
    parts = read_parts(halves, "mm")
    plan = checked(pe.pack(parts, "100x100x400mm", 1), tmp_path)
    assert complete_kits(parts, plan) == {"kit.csv": (2, 9)}
    assert plan.utilization == pytest.approx(1.0)
    # A box that has a place is added: the kits take 300 mm, one more large box 100 mm.
    assert sum(counts(plan).values()) + plan.num_left == 18


def test_an_interrupt_ends_the_search_for_whole_kits(halves: list[str]) -> None:
    parts = read_parts(halves, "mm")
    plan = pe.pack(parts, "100x100x400mm", 1)
    trials = 0

    def run(*_: object) -> Plan:
        nonlocal trials
        trials += 1
        return replace(plan, left=(), interrupted=True)

    with pytest.raises(KeyboardInterrupt):
        whole_kits(parts, replace(plan, containers=()), run, 1.0)
    assert trials == 1


class Crates(Plan):
    """A plan of two parts in a container for 1,000; the harder it is pressed, the more it takes."""

    @property
    def num_packed(self) -> int:
        return self.tried - self.num_left

    @property
    def capacity(self) -> float:
        return 2400.0

    @property
    def utilization(self) -> float:
        return self.num_packed / 2400


def test_few_searches_find_the_number_of_small_parts_without_time_to_spare() -> None:
    order, tried = [Part(sides=(1, 1, 1), unit="mm"), Part(sides=(1, 1, 2), unit="mm")], []

    def run(parts: Sequence[Part], seconds: float, quick: bool) -> Plan:
        tried.append(copies := sum(part.quantity for part in parts) // 2)
        left = max(0, copies - 1000 - (copies - 1000) // 20)
        leftovers = (replace(parts[0], quantity=2 * left),) if left else ()
        return Crates((), leftovers, "mm", 2 * copies, 0.0)

    plan = most_copies(order, run, 1e-9)
    assert plan.copies == 1000
    assert len(tried) < 8


def test_fill_packs_as_many_of_one_part_as_fit(tmp_path: Path) -> None:
    carton = Part(sides=(100, 80, 60), unit="mm", name="carton", quantity=3)
    plan = checked(pe.pack(Fill([carton]), "400x300x200mm", 1.0), tmp_path)
    assert counts(plan) == {"carton": 50}
    assert (plan.copies, plan.left) == (50, ())
    assert [packing.num_items for packing in plan.containers] == [50]


def test_fill_fills_all_containers_and_keeps_constraints(tmp_path: Path) -> None:
    carton = Part(sides=(100, 100, 100), unit="mm", name="carton", handling={"weight": 2.0})
    options: dict[str, Any] = {"containers": 2, "weight_limit": 11.0}
    plan = checked(pe.pack(Fill(carton), "300x300x300mm", 1.0, **options), tmp_path)
    assert [len(packing.items) for packing in plan.containers] == [5, 5]
    assert [packing.num_items for packing in plan.containers] == [10, 5]


def test_fill_keeps_parts_together_under_a_weight_limit() -> None:
    kit = [
        Part(sides=(50, side, 50), unit="mm", handling={"together": "a", "weight": 50.0})
        for side in (50, 30)
    ]
    tried: list[int] = []

    def run(parts: Sequence[Part], seconds: float, quick: bool) -> Plan:
        tried.append(len(parts))
        return pe.pack(parts, "1200x800x1000mm", seconds, weight_limit=1000.0)

    assert most_copies(kit, run, 2.0).copies == 10
    assert max(tried) <= 2 * 16  # the volume has room for 4,800 copies, each of two kinds


def test_fill_packs_whole_copies_of_an_order(kit: Path, tmp_path: Path) -> None:
    plan = checked(pe.pack(Fill(str(kit)), "200x160x140mm", 2.0), tmp_path)
    assert plan.left == ()
    assert plan.copies == 7  # 0.592 litres each in 4.48 litres
    assert counts(plan) == {"lid": 7, "base": 7, "foot": 28}


def test_fill_says_why_the_order_does_not_fit_once(kit: Path) -> None:
    plan = pe.pack(Fill(str(kit)), "100x80x70mm", 0.3)
    assert plan.copies is None
    assert {part.name: part.quantity for part in plan.left} == {"foot": 4}
    assert plan.left[0].reason == "no room found"


def test_fill_packs_meshes(tmp_path: Path) -> None:
    mesh = write_stl(tmp_path / "block.stl", (50, 50, 50))
    plan = pe.pack(Fill(mesh), "200x100x100mm", 2.0)
    assert (plan.copies, plan.num_packed, plan.left) == (16, 16, ())


def test_a_plate_offers_the_items_of_its_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two equal items that are moved, one that is turned, and one of another object."""
    named = box_3mf(2, (40, 30, 20)).replace('id="2"', 'id="2" name="bracket"')
    items = (
        '<item objectid="1"/><item objectid="1" transform="1 0 0 0 1 0 0 0 1 90 0 0"/>'
        '<item objectid="1" transform="0 1 0 -1 0 0 0 0 1 0 90 0"/><item objectid="2"/>'
    )
    model = model_3mf(box_3mf(1, (60, 20, 10)) + named, items)
    plate = write_3mf(tmp_path / "plate.3mf", {"3D/3dmodel.model": model})
    parts = read_parts(str(plate))
    found = [(part.name, part.quantity, Path(part.file).name) for part in parts]
    assert found == [
        ("plate#1", 2, "plate.3mf#1"),
        ("plate#3", 1, "plate.3mf#3"),
        ("bracket", 1, "plate.3mf#4"),
    ]
    extents = [(part.load().extents * 1e3).round().tolist() for part in parts]
    assert extents == [[60, 20, 10], [20, 60, 10], [40, 30, 20]]
    read: list[bytes] = []  # a plate is read once
    monkeypatch.setattr(reading, "build_items", lambda data: read.append(data) or build_items(data))
    alone = read_parts([f"{plate}#4", "x3", f"{plate}#2"])
    assert [(part.name, part.quantity) for part in alone] == [("bracket", 3), ("plate#2", 1)]
    assert len(read) == 1
    (tmp_path / "a.csv").write_text("file,unit\nplate.3mf#1,mm\nplate.3mf#2,mm\n")
    assert len(read_parts(str(tmp_path / "a.csv"))) == len(read) == 2
    plan = checked(pe.pack(str(plate), "120x120x60mm", 1e-6), tmp_path)
    assert counts(plan) == {"plate#1": 2, "plate#3": 1, "bracket": 1}
    with pytest.raises(pe.items.MeshError, match=r"4 solid items, not 5"):
        pe.pack(f"{plate}#5", "120x120x60mm", 1e-6)


def test_what_a_plate_leaves_out_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    items = '<item objectid="1"/><item objectid="2"/><item objectid="3" printable="0"/>'
    objects = "".join(box_3mf(number, (60, 20, 10)) for number in (1, 2, 3))
    model = model_3mf(objects, items)
    plate = write_3mf(tmp_path / "plate.3mf", {"3D/3dmodel.model": model})
    plan = pe.pack(str(plate), "120x120x60mm", 1e-6)
    assert counts(plan) == {"plate#1": 1, "plate#2": 1}
    assert caplog.text.count("not printable") == 1
    assert "plate#1, plate#2: object 3" in caplog.text


def test_a_warning_names_the_items_of_a_plate_that_it_is_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = '<components><component objectid="1"/><component objectid="2"/></components>'
    support = box_3mf(2, (60, 20, 10)).replace('"model"', '"support"')
    items = '<item objectid="1"/><item objectid="3"/><item objectid="3"/>'
    objects = f'{box_3mf(1, (60, 20, 10))}{support}<object id="3" type="model">{own}</object>'
    plate = write_3mf(tmp_path / "plate.3mf", {"3D/3dmodel.model": model_3mf(objects, items)})
    pe.pack(str(plate), "120x120x60mm", 1e-6)
    lines = [each.message for each in caplog.records if "object 2" in each.message]
    assert len(lines) == 1
    assert lines[0].startswith("plate#2: object 2")


def test_a_folder_with_a_plate_offers_its_items_too(tmp_path: Path) -> None:
    model = model_3mf(box_3mf(1, (60, 20, 10)), '<item objectid="1"/><item objectid="1"/>')
    write_3mf(tmp_path / "plate.3mf", {"3D/3dmodel.model": model})
    write_stl(tmp_path / "block.stl", (50, 50, 50))
    assert [(p.name, p.quantity) for p in read_parts(str(tmp_path))] == [
        ("block", 1),
        ("plate#1", 2),
    ]
