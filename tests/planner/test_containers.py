"""Containers as users name them, and which of them an order goes into."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import packing_env as pe
from packing_env.plan import check_plan
from packing_env.planner import ContainerType, OrderError, Part, Plan, read_containers, save
from packing_env.values import ParameterError

EUR = ContainerType("1200x800x1450mm", name="EUR", number=2, cost=30, weight_limit=500)


def checked(plan: Plan, folder: Path) -> Plan:
    """Return a plan of which the reference accepts every container."""
    for file in save(plan, folder, size=64)[: len(plan.containers)]:
        assert check_plan(file).holds
    return plan


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


def test_containers_are_read_from_python() -> None:
    crate = ContainerType((1.2, 0.8, 0.5), number=1)
    assert read_containers((1.2, 0.8, 0.5)) == [ContainerType((1.2, 0.8, 0.5))]
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
        ("1x1x1m,weight_limit=5lb", "weight_limit='5lb'"),
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
        ("name,length,width,height\nEUR,1200,800,1450\n", "line 2: no unit"),
        ("name,length (mm),width (mm),height (mm),max_load\nE,1,1,1,5\n", "'max_load'"),
        ("name,length (mm),width (mm),height (mm),number\nE,1000,1000,1000,0\n", "number=0"),
        ("name,number\nE,1\n", "its length, width and height"),
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


def cubes(count: int, side: float = 0.1, **handling: Any) -> Part:
    return Part(sides=(side, side, side), quantity=count, name="cube", handling=handling)


def test_no_more_containers_than_there_are(tmp_path: Path) -> None:
    one = ContainerType("10x10x10cm", number=2)
    plan = checked(pe.pack(cubes(5), one, seconds=1), tmp_path)
    assert (len(plan.containers), plan.num_left) == (2, 3)
    assert len(pe.pack(cubes(5), one, seconds=1, containers=1).containers) == 1
    with_more = pe.pack(cubes(5), [one, "20x10x10cm"], seconds=1, containers=4)
    assert with_more.num_left == 0


def test_meshes_use_no_more_containers_than_there_are() -> None:
    parts = [cubes(1), Part(mesh=cubes(1).load(), quantity=4)]
    plan = pe.pack(parts, ContainerType("10x10x10cm", number=2, name="tray"), seconds=1)
    assert [packing.name for packing in plan.containers] == ["tray", "tray"]
    assert plan.num_left == 3


def test_the_weight_limit_is_that_of_the_container(tmp_path: Path) -> None:
    sizes = ["30x10x10cm,weight_limit=2kg,number=1,name=A", "30x20x10cm,number=1,name=B"]
    plan = checked(pe.pack(cubes(9, weight=1.0), sizes, seconds=1, weight_limit=3.0), tmp_path)
    loads = {packing.name: len(packing.items) for packing in plan.containers}
    assert loads == {"A": 2, "B": 3}
    limits = {packing.name: packing.constraints["weight_limit"] for packing in plan.containers}
    assert limits == {"A": 2.0, "B": 3.0}
    with pytest.raises(ParameterError, match="weight_limit: no weight of cube"):
        pe.pack(cubes(1), sizes, seconds=1)


def test_files_carry_the_name_of_the_container(tmp_path: Path) -> None:
    plan = checked(pe.pack(cubes(3), "30x10x10cm,name=tray", seconds=1), tmp_path)
    assert json.loads((tmp_path / "plan.json").read_text())["name"] == "tray"
    assert "1,1,tray,cube" in (tmp_path / "positions.csv").read_text()
    assert plan.containers[0].name == "tray"
