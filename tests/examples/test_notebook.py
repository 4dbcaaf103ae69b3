"""The notebook runs from top to bottom, in one namespace."""

import json
from pathlib import Path
from typing import Any

import pytest
from hydra.core.singleton import Singleton

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "packing.ipynb"
CELLS = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
QUICK = {
    "trainer.minutes=0.5": "trainer.frames=256",
    "evaluation.instances=32": "evaluation.instances=4",
    "evaluation.rows=32": "evaluation.rows=4",
    "seconds=3,": "seconds=0.3,",
}
"""Times and sizes of a demonstration, and those of a test."""


def test_the_notebook_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is missing: the notebook was NOT run")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Singleton, "_instances", Singleton.get_state()["instances"])
    space: dict[str, Any] = {}
    replaced = 0
    for number, cell in enumerate(CELLS):
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        for shown, quick in QUICK.items():
            replaced += source.count(shown)
            source = source.replace(shown, quick)
        exec(compile(source, f"cell {number}", "exec"), space)
    assert replaced == len(QUICK)
    said = capsys.readouterr().out
    assert "afterstate" in said
    assert "True ['plan.json'" in said
    assert space["plan"].num_packed == 11
    assert (tmp_path / "notebook_packed" / "packed.html").is_file()
