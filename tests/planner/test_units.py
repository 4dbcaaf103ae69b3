"""A plan carries the units in which its parts were read, and passes its own check."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from tests.mesh_files import write_box_3mf, write_glb, write_stl, write_urdf

import packing_env as pe
from agents.cli import main as cli
from packing_env.planner import Part, read_parts

CONTAINERS = ("120x90x60mm", "4.72441x3.5433x2.3622in")
SIDES = {"mm": (30, 20, 10), "cm": (3, 2, 1), "m": (0.03, 0.02, 0.01)}
INCHES = tuple(side / 25.4 for side in SIDES["mm"])
Y_UP = {unit: (dx, dz, dy) for unit, (dx, dy, dz) in SIDES.items()}
"""Sides of the same solid in glTF, whose second axis is up."""
WORDS = {"mm": "millimeter", "cm": "centimeter", "m": "meter"}


def write_order(folder: Path) -> dict[str, str]:
    """Write an order of one solid from every kind of source; return the unit of each."""
    box = " ".join(map(str, SIDES["m"]))
    rows = {}
    for unit, sides in SIDES.items():
        rows[f"stl_{unit}"] = (write_stl(folder / f"stl_{unit}.stl", sides).name, unit, unit)
        path = write_box_3mf(folder / f"own_{unit}.3mf", sides, WORDS[unit])
        rows[f"own_{unit}"] = (path.name, "", unit)
    rows |= {
        "inches": (write_box_3mf(folder / "inches.3mf", INCHES, "inch").name, "", "in"),
        "unstated": (write_box_3mf(folder / "unstated.3mf", SIDES["mm"], None).name, "", "mm"),
        "glb": (write_glb(folder / "glb.glb", Y_UP["m"]).name, "", "m"),
        "glb_mm": (write_glb(folder / "glb_mm.glb", Y_UP["mm"]).name, "mm", "mm"),
        "urdf": (write_urdf(folder / "urdf.urdf", f'<box size="{box}"/>').name, "", "m"),
    }
    lines = ["name,file,dx,dy,dz,unit", "box,,3,2,1,cm"]
    lines += [f"{name},{file},,,,{unit}" for name, (file, unit, _) in rows.items()]
    (folder / "order.csv").write_text("\n".join(lines))
    return {"box": "cm"} | {name: used for name, (_, _, used) in rows.items()}


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_source_in_every_unit_of_container(container: str, tmp_path: Path) -> None:
    units = write_order(tmp_path)
    words = ["pack", str(tmp_path / "order.csv"), "--container", container, "--cell", "10mm"]
    words += ["--seconds", "0.1", "--stability", "none", "--out", str(tmp_path / "out")]
    assert cli.main(words) == 0  # 1 if a plan does not pass its check
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert {item["name"]: item["unit"] for item in plan["items"]} == units
    assert cli.main(["check", str(tmp_path / "out" / "plan.json")]) == 0
    for row in csv.DictReader((tmp_path / "out" / "positions.csv").read_text().splitlines()):
        unit = container.lstrip("0123456789.x")
        sides = [float(row[f"{side}_{unit}"]) for side in ("dx", "dy", "dz")]
        millimetres = {"mm": 1, "in": 25.4}[unit]
        assert sorted(s * millimetres for s in sides) == pytest.approx([10, 20, 30], rel=1e-3)


@pytest.mark.parametrize("file", ["own_mm.3mf", "own_mm.3mf#1", "unstated.3mf", "urdf.urdf"])
def test_a_unit_that_contradicts_the_file_is_refused(file: str, tmp_path: Path) -> None:
    write_order(tmp_path)
    own = "m" if file == "urdf.urdf" else "mm"
    (tmp_path / "a.csv").write_text(f"file,unit\n{file},{own}\n")
    assert read_parts(str(tmp_path / "a.csv"), "cm")[0].unit == own
    (tmp_path / "a.csv").write_text(f"file,unit\n{file},cm\n")
    with pytest.raises(ValueError, match=f"line 2: unit=cm: {file} states {own}; leave the unit"):
        read_parts(str(tmp_path / "a.csv"))
    # Parts that are left out are not read, and packing reports damaged files.
    (tmp_path / "damaged.3mf").write_bytes(b"PK")
    (tmp_path / "a.csv").write_text(f"file,unit,qty\n{file},cm,0\ndamaged.3mf,mm,1\n")
    assert [part.label for part in read_parts(str(tmp_path / "a.csv"))] == ["damaged"]


@pytest.mark.parametrize(
    ("size", "name", "options", "warns"),
    [
        (2.0, "a.stl", {}, True),  # inches or centimetres
        (0.05, "a.stl", {}, True),  # metres
        (50.0, "a.stl", {}, False),
        (2.0, "a.stl", {"unit": "mm"}, False),
        (2.0, "a.3mf", {}, False),
    ],
)
def test_meshes_that_suit_the_container_only_in_another_unit(
    size: float, name: str, options: Any, warns: bool, tmp_path: Path, caplog: Any
) -> None:
    sides = (size, size / 2, size)
    if name.endswith("stl"):
        write_stl(tmp_path / name, sides)
    else:
        write_box_3mf(tmp_path / name, sides, "millimeter")
    read_parts(tmp_path / name, default="mm", container=(0.2, 0.15, 0.1), **options)
    assert ("no unit stated, read in mm" in caplog.text) == warns


def test_meshes_in_memory_keep_the_unit_of_their_file(tmp_path: Path) -> None:
    inches = write_box_3mf(tmp_path / "in.3mf", INCHES, "inch")
    stl = write_stl(tmp_path / "cm.stl", SIDES["cm"])
    parts: Any = [pe.items.load_mesh(inches), pe.items.load_mesh(stl, "cm").scaled(2.0)]
    plan = pe.pack(parts, "120x80x60mm", 0.05, cell="10mm", stability="none")
    items = {item.name: item for item in plan.containers[0].items}
    assert {name: (item.unit, item.scale) for name, item in items.items()} == {
        "in": ("in", 1.0),
        "cm": ("cm", 2.0),
    }
    for file in pe.planner.save(plan, tmp_path / "out")[:1]:
        assert pe.plan.check_plan(file).holds


def test_a_unit_for_all_holds_where_a_row_names_none(tmp_path: Path) -> None:
    write_stl(tmp_path / "a.stl", SIDES["cm"])
    write_glb(tmp_path / "b.glb", Y_UP["cm"])
    (tmp_path / "order.csv").write_text("file,unit\na.stl,\nb.glb,\nb.glb,mm\n")
    (tmp_path / "order.yaml").write_text("unit: cm\nparts: [{file: b.glb}]\n")
    files = [str(tmp_path / name) for name in ("a.stl", "b.glb", "order.csv")]

    def units(*asked: str, **options: str) -> list[str]:
        return [part.unit for part in read_parts(list(asked), **options)]

    assert units(*files, default="in") == ["in", "m", "in", "m", "mm"]
    assert units(*files, unit="cm", default="in") == ["cm", "cm", "cm", "cm", "mm"]
    assert units(str(tmp_path / "order.yaml"), default="in") == ["cm"]
    solid = Part(file=files[1], unit="cm").load()
    assert solid.extents.tolist() == pytest.approx(SIDES["m"])


@pytest.mark.parametrize("command", ["pack", "nest"])
@pytest.mark.parametrize("entry", ["box,,1,1,1,in", "part,part.stl,,,,cm"])
def test_everything_shows_the_unit_of_the_container(
    entry: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, the page and the lines of ``packing check`` had the unit of the parts."""
    write_stl(tmp_path / "part.stl", SIDES["cm"])
    (tmp_path / "order.csv").write_text(f"name,file,dx,dy,dz,unit\n{entry}\n")
    out = tmp_path / "out"
    words = [command, str(tmp_path / "order.csv"), "--container", "120x90x60mm", "--cell", "10mm"]
    assert cli.main([*words, "--seconds", "0.1", "--out", str(out)]) == 0
    assert '"unit":"mm"' in (out / "packed.html").read_text()
    assert pe.plan.load_plan(out / "plan.json").shown_unit == "mm"
    printed = capsys.readouterr().out
    assert "packed 1 of 1 part in 1 container" in printed
    assert ", 1 part, " in printed
    assert cli.main(["check", str(out / "plan.json")]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(" mm")
