"""The verdicts of `packing validate`, on protocols small enough for every test run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agents.cli import main as cli
from agents.cli import protocols, validate
from agents.cli.protocols import PROTOCOLS, Window

TINY = {"V1": 12, "V2": 12}


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave V1 and V2, with a dozen instances and a window that every result meets."""
    wide = {"utilization": Window(0.5, 0.5)}
    everything = protocols.protocols()

    def small(full: bool = False) -> tuple[protocols.Protocol, ...]:
        kept = [p for p in everything if p.name in ("V1", "V2")]
        return tuple(
            replace(p, instances=TINY[p.name], windows=wide if p.windows else {}) for p in kept
        )

    monkeypatch.setattr(validate, "protocols", small)


@pytest.mark.usefixtures("_tiny")
def test_it_reports_every_seed_and_writes_it_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "found" / "validation.json"
    assert cli.main(["validate", "--seeds", "2", "--json", str(target)]) == 0
    said = capsys.readouterr().out
    assert "every window holds" in said
    found = json.loads(target.read_text())
    assert {r["seed"] for r in found["results"]} == {0, 1}
    assert found["windows_missed"] == 0
    assert found["machine"]["processor"]


@pytest.mark.usefixtures("_tiny")
def test_a_missed_window_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
