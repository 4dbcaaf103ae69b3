"""The speed ratios that continuous integration compares with the committed ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from benchmarks import ratios

ROOT = Path(__file__).resolve().parents[2]


def test_a_ratio_that_has_fallen_is_a_warning_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    committed = tmp_path / "ratios.json"
    committed.write_text(json.dumps({"ratios": {"a": 10.0, "b": 10.0, "gone": 1.0}}))
    monkeypatch.setattr(ratios, "FILE", committed)
    monkeypatch.setattr(ratios, "measure", lambda: {"a": 5.0, "b": 9.0, "new": 1.0})
    monkeypatch.setattr("sys.argv", ["ratios.py"])
    ratios.main()
    warnings = [line for line in capsys.readouterr().out.splitlines() if "warning:" in line]
    assert warnings == [
        "warning: a: 5 x NumPy is 0.50 of 10",
        "warning: gone: only measured or only committed; run with --write",
        "warning: new: only measured or only committed; run with --write",
    ]


def test_the_committed_file_has_every_ratio() -> None:
    found = json.loads(ratios.FILE.read_text(encoding="utf-8"))["ratios"]
    assert set(found) == {*ratios.KERNELS, *ratios.STEPS}
    assert all(ratio > 1 for ratio in found.values())


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("beside", [True, False])
def test_make_finds_the_test_data_beside_the_checkout(tmp_path: Path, beside: bool) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    made = (ROOT / "Makefile").read_text(encoding="utf-8")
    (checkout / "Makefile").write_text(made + '\nsay:\n\t@echo "<$$PACKING_DATA>"\n')
    data = tmp_path / "shared" / "data"
    if beside:
        data.mkdir(parents=True)
        (data / "manifest.json").write_text("{}")
    kept = {key: value for key, value in os.environ.items() if key != "PACKING_DATA"}
    for given, expected in ((None, f"<{data}>" if beside else "<>"), ("/else", "</else>")):
        env = kept if given is None else kept | {"PACKING_DATA": given}
        command = ["make", "--no-print-directory", "say"]
        said = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True)
        assert said.stdout.strip() == expected
