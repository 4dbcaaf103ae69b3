"""Names that others chose: no row, formula or terminal code; all files are written, or none."""

import csv
import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import packing_env.planner.files as writers
from agents.cli import main as cli
from agents.loggers.logging import CSVLogger
from packing_env import make_env, planner
from packing_env.files import spreadsheet_cell
from packing_env.items import Catalogue
from packing_env.names import plain_name
from packing_env.plan import Packing, load_plan, packing_of, save_plan
from packing_env.planner import Part, Plan, read_parts

FRENCH = os.fsdecode("pièce".encode("latin-1"))
"""The name of a file in an archive of a system before UTF-8."""
PLAIN = {
    FRENCH: r"pi\xe8ce",
    "pièce 日本": "pièce 日本",
    "a\r=cmd()": r"a\r=cmd()",
    "a\nb\tc\x0bd": r"a\nb\tc\x0bd",
    "\x1b[2J\u202ea\u2028b\u0085": r"\x1b[2J\u202ea\u2028b\x85",
    "\ud800": r"\ud800",
    "a\x00": r"a\x00",
}
FORMULAS = [
    "=cmd()", "+1+1", "-a", "@SUM(1)", "a\r=cmd()", "a\n=cmd()", "\t=cmd()", "\r-1", " =cmd()",
    "a;=cmd()", "a,=cmd()", "a\t=cmd()", "a; +cmd()", "\uff1dcmd()", "a|@b", '";=cmd()',
    "a,\r=cmd()",
]  # fmt: skip
OFF = "OFF\n4 4 0\n0 0 0\n.1 0 0\n0 .1 0\n0 0 .1\n3 0 2 1\n3 0 1 3\n3 1 2 3\n3 0 3 2\n"


@pytest.fixture(scope="module")
def packing() -> Packing:
    """Two boxes in a container."""
    items = {"source": "cuboids", "extents": [[0.04, 0.04, 0.02], [0.06, 0.04, 0.04]]}
    options = {"container": (0.12, 0.12, 0.1), "cell": 0.02, "num_items": 2, "pool_size": 2}
    env = make_env("irregular_com_hull", items=items, num_envs=1, **options)
    root = env.reset()
    for _ in range(2):
        root = env.step_mdp(env.step(env.rand_action(root)))
    return packing_of(env)


def named(packing: Packing, name: str) -> Plan:
    items = tuple(replace(item, name=name) for item in packing.items)
    return Plan((replace(packing, items=items),), (), "mm", 1, 1.0)


@pytest.mark.parametrize("name", PLAIN)
def test_names_are_plain_where_they_enter(name: str, packing: Packing, tmp_path: Path) -> None:
    """The names are those of parts, cuboids, files, and items of a plan."""
    plain = PLAIN[name]
    assert plain_name(plain) == plain
    sides = {"sides": (0.1, 0.1, 0.1), "name": name}
    assert [part.name for part in read_parts([Part(**sides)] * 2)] == [plain, f"{plain}#2"]
    grid = {"cell": 0.05, "container": (0.4, 0.4, 0.4)}
    assert Catalogue.from_cuboids([(0.1, 0.1, 0.1)], names=[name], **grid).names == [plain]
    path = tmp_path / "plan.json"
    plan = save_plan(path, packing, settled=False)
    path.write_text(json.dumps({**plan, "items": [{**plan["items"][0], "name": name}]}))
    assert [item.name for item in load_plan(path).items] == [plain]
    if "\x00" in name or "\ud800" in name:
        return
    (tmp_path / f"{name}.off").write_text(OFF)
    files = {"cell": 0.05, "container": (0.4, 0.4, 0.4), "cache_dir": tmp_path / "cache"}
    assert Catalogue.from_meshes(tmp_path / f"{name}.off", **files).names == [plain]
    assert [part.name for part in read_parts(tmp_path / f"{name}.off")] == [plain]


def test_an_order_that_is_not_text_in_json_is_read(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text('[{"name": "\\ud800\\r=1", "sides": [1, 1, 1]}]')
    assert [part.name for part in read_parts(tmp_path / "order.json")] == [r"\ud800\r=1"]


# ---------------------------------------------------------------------- what is written


@pytest.mark.parametrize("name", FORMULAS)
def test_no_cell_begins_a_formula_with_any_separator(
    name: str, packing: Packing, tmp_path: Path
) -> None:
    """Spreadsheets divide lines by commas, semicolons or tabs, as the user's country does."""
    plan = named(packing, name)
    CSVLogger(tmp_path).log(5, {name: 1.0})
    for text in (writers.positions(plan), (tmp_path / "metrics.csv").read_text()):
        for separator in ",;\t|":
            rows = list(csv.reader(io.StringIO(text), delimiter=separator))
            cells = [cell.strip().strip('"').lstrip() for row in rows for cell in row]
            assert not [
                c
                for c in cells
                if c[:1] in "=+-@\uff1d\uff0b\uff0d\uff20" and c and not _is_number(c)
            ]
    rows = list(csv.reader(io.StringIO(writers.positions(plan))))
    assert [len(row) for row in rows] == [len(rows[0])] * 3


def _is_number(text: str) -> bool:
    return all(char in "+-.0123456789e,;" for char in text)


def test_names_that_are_no_formula_stay() -> None:
    for name in ("box", "so101-rotation", "a = b", "1-2", "-2.5", "+1e3", "a-b;c", "a, b"):
        assert spreadsheet_cell(name) == name
    assert spreadsheet_cell(-1.5) == -1.5


@pytest.mark.parametrize("name", PLAIN)
def test_every_file_of_a_plan_is_written(name: str, packing: Packing, tmp_path: Path) -> None:
    plan = named(packing, name)
    files = planner.save(plan, tmp_path / "out", size=32)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {file.name for file in files}
    assert load_plan(files[0]).items[0].name == PLAIN[name]
    for file in files:
        if file.suffix in (".json", ".csv", ".html"):
            file.read_bytes().decode("utf-8")


def test_all_files_are_written_or_none(
    packing: Packing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan-2.json").write_text("earlier")
    (tmp_path / "plan.json").write_text("earlier")

    def fail(*_: Any) -> None:
        raise UnicodeEncodeError("utf-8", "a", 0, 1, "cannot be encoded")

    monkeypatch.setattr(writers, "save_glb", fail)
    with pytest.raises(UnicodeEncodeError):
        planner.save(named(packing, "box"), tmp_path, size=32)
    assert {f.name: f.read_text() for f in tmp_path.iterdir()} == {
        "plan-2.json": "earlier", "plan.json": "earlier",
    }  # fmt: skip


def test_names_are_printed_where_the_terminal_lacks_their_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from agents.cli.main import print_any_letter

    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    print_any_letter()
    Console(file=stream).print("pièce 日本", highlight=False)
    stream.flush()
    assert stream.buffer.getvalue() == rb"pi\xe8ce \u65e5\u672c" + b"\n"


def test_a_source_that_is_no_path_is_named(packing: Packing, tmp_path: Path, capsys: Any) -> None:
    """A plan of a stranger: its solids cannot be read, which is a message and no traceback."""
    plan = save_plan(tmp_path / "plan.json", packing, settled=False)
    for source in ("\ud800.stl", "a\x00.stl"):
        items = [{**item, "source": source} for item in plan["items"]]
        (tmp_path / "plan.json").write_text(json.dumps({**plan, "items": items}))
        assert cli.main(["check", str(tmp_path / "plan.json")]) == 2
        assert "cannot be checked" in capsys.readouterr().err
