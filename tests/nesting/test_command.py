"""`packing nest` writes a plan that `packing check` accepts, and names mistakes."""

import json
from pathlib import Path

import pytest

pytest.importorskip("numba")

from agents.cli.main import main
from packing_env.planner import files


def test_the_plan_is_written_and_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(files.save.__kwdefaults__, "size", 64)
    order = tmp_path / "order.csv"
    order.write_text("name,dx,dy,dz,quantity\nrod,10,10,50,4\nplate,40,40,5,2\nlong,10,10,90,1\n")
    out = tmp_path / "nested"
    words = [str(order), "--container", "60x60x60mm", "--clearance", "1mm"]
    assert main(["nest", *words, "--cell", "2mm", "--seconds", "0.5", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "packed 6 of 7 parts" in printed
    assert "fits in no orientation" in printed
    assert "checked" in printed
    plan = json.loads((out / "plan.json").read_text())
    assert plan["geometry"] == "solids"
    assert {item["name"] for item in plan["items"]} == {"rod", "plate"}
    assert all(item["leaves"][1] in "xyz" for item in plan["items"])
    assert main(["check", str(out / "plan.json")]) == 0
    assert "interlocked" not in capsys.readouterr().out
    # A plan in which a rod is moved into a plate is refused.
    plan["items"][0]["translation"] = plan["items"][1]["translation"]
    (out / "plan.json").write_text(json.dumps(plan))
    assert main(["check", str(out / "plan.json")]) == 1
