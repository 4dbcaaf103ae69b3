"""The speed ratios that continuous integration compares with the committed ones."""

import json
from pathlib import Path

import pytest
from benchmarks import ratios


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
