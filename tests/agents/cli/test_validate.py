"""The verdicts of `packing validate`, on protocols small enough for every test run."""

import json
from dataclasses import replace
from pathlib import Path

from agents.cli import main as cli
from agents.cli import protocols, validate
from agents.cli.protocols import PROTOCOLS, Window


def test_it_reports_every_seed_and_writes_it_all(tmp_path: Path, monkeypatch, capsys) -> None:
    """V1 and V2 play a dozen instances here, with a window that every result meets."""
    wide = {"utilization": Window(0.5, 0.5)}
    small = [
        replace(protocol, instances=12, windows=wide if protocol.windows else {})
        for protocol in protocols.protocols()
        if protocol.name in ("V1", "V2")
    ]
    monkeypatch.setattr(validate, "protocols", lambda full=False: small)
    target = tmp_path / "found" / "validation.json"
    assert cli.main(["validate", "--seeds", "2", "--json", str(target)]) == 0
    said = capsys.readouterr().out
    assert "every window holds" in said
    found = json.loads(target.read_text())
    assert {r["seed"] for r in found["results"]} == {0, 1}
    assert found["windows_missed"] == 0
    assert found["machine"]["processor"]


def test_a_missed_window_is_exit_code_1(monkeypatch, capsys) -> None:
    impossible = replace(PROTOCOLS[0], instances=4, windows={"utilization": Window(0.9, 0.01)})
    monkeypatch.setattr(validate, "protocols", lambda full=False: (impossible,))
    assert cli.main(["validate"]) == 1
    said = capsys.readouterr().out
    assert "MISSED" in said
    assert "1 WINDOWS WERE MISSED" in said


def test_an_overflow_is_a_miss() -> None:
    estimate = validate.Estimate(0.563, 0.01)
    result = validate.Result(PROTOCOLS[0], 0, estimate, validate.Estimate(22.3, 1), 0.105, 0, 1.0)
    assert result.passed is True
    assert replace(result, overflow=1).passed is False
