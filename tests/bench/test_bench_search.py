"""``packing bench search``: packing as low as possible with and without maps."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agents.conftest import TINY_OVERRIDES
from tests.bench.test_bench_command import QUICK, bench, refused, values_of

TASK = [*TINY_OVERRIDES, "env.grid_step=1"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_both_ways_pack_alike() -> None:
    rules = "bench.rules=[none,com_hull,area_corners]"
    report = bench("search", *TASK, *QUICK, rules, "bench.episodes=2")
    for rule in ("none", "com_hull"):
        search = values_of(report, rule=rule, method="search")
        maps = values_of(report, rule=rule, method="maps")
        assert search["same_placements"] is True
        assert search["decisions"] == maps["decisions"] == search["items_packed"] > 4
        assert 1 <= search["judged"] <= search["measured"] < maps["measured"]
        assert search["times_maps"] > 0
        assert search["p50_ms"] <= search["p95_ms"]
    assert values_of(report, rule="area_corners", method="maps")["decisions"] > 0
    (left_out,) = report["left_out"]
    assert left_out["case"]["rule"] == "area_corners"
    assert "a stability rule that it supports" in left_out["reason"]


def test_what_cannot_be_measured_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "score, height" in refused(capsys, "search", *TASK, "bench.orders=[lowest]")
    assert "bench.episodes=0" in refused(capsys, "search", *TASK, "bench.episodes=0")
