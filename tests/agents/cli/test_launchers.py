"""Sweeps that other processes run: each launcher plays four jobs and ends with their table."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agents.conftest import TINY_RUN

from agents.cli.sweep import EXTRAS
from agents.config.compose import expand
from packing_env import extras

FAST = [*TINY_RUN, "trainer.frames=48"]


def sweep(folder: Path, *arguments: str) -> str:
    """Run a sweep in another process, in ``folder``; return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "agents.cli", "train", "-m", *FAST, *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs(option: str) -> None:
    """Skip, with the command that installs it, where a launcher is missing."""
    try:
        extras.check(*EXTRAS[option])
    except extras.MissingPackageError as error:
        pytest.skip(f"NOT TESTED: {error}")


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local", "ray"])
def test_a_launcher_plays_four_jobs(launcher: str, tmp_path: Path) -> None:
    needs(f"hydra/launcher={launcher}")
    said = sweep(tmp_path, "seed=0,1,2,3", f"hydra/launcher={launcher}", "hydra.sweep.dir=sweep")
    table = said[said.rindex("utilization") :]
    for seed in range(4):
        results = json.loads((tmp_path / f"sweep/{seed}/results.json").read_text())
        assert results["seed"] == seed
        assert results["training"]["frames"] == 48
        assert f"seed={seed}" in table
    assert table.count("done") == 4


@pytest.mark.slow
def test_optuna_maximises_utilization(tmp_path: Path) -> None:
    needs("hydra/sweeper=optuna")
    sweep(
        tmp_path,
        "hydra/sweeper=optuna",
        "hydra.sweeper.direction=maximize",
        "hydra.sweeper.n_trials=4",
        "hydra.sweeper.n_jobs=1",
        "agent.lr=tag(log,interval(1e-4,1e-2))",
        "hydra.sweep.dir=sweep",
    )
    found = [
        json.loads((tmp_path / f"sweep/{job}/results.json").read_text())["training"]["last"]
        for job in range(4)
    ]
    best = (tmp_path / "sweep/optimization_results.yaml").read_text()
    value = float(best.split("best_value:")[1].split()[0])
    assert value == pytest.approx(max(row["utilization"] or 0.0 for row in found))


def test_the_ends_of_an_interval_are_checked() -> None:
    jobs = list(expand(["agent.lr=tag(log,interval(1e-4,1e-2))", "seed=0,1"]))
    assert [job[0] for job in jobs] == ["agent.lr=0.0001"] * 2 + ["agent.lr=0.01"] * 2
