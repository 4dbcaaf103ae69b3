"""Sweeps that other processes run, and what a sweep refuses; each launcher plays four jobs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.agents.conftest import TINY_RUN

from agents.cli import sweep
from agents.config.compose import expand, named
from agents.config.folders import ConfigError
from agents.config.keys import Request
from packing_env import extras

FAST = [*TINY_RUN, "trainer.frames=48"]


def swept(folder: Path, *arguments: str) -> str:
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
        extras.check(*sweep.EXTRAS[option])
    except extras.MissingPackageError as error:
        pytest.skip(f"NOT TESTED: {error}")


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local", "ray"])
def test_a_launcher_plays_four_jobs(launcher: str, tmp_path: Path) -> None:
    needs(f"hydra/launcher={launcher}")
    said = swept(tmp_path, "seed=0,1,2,3", f"hydra/launcher={launcher}", "hydra.sweep.dir=sweep")
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
    swept(
        tmp_path,
        "hydra/sweeper=optuna",
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


def test_the_ends_of_an_interval_are_checked(tmp_path: Path) -> None:
    interval = "agent.lr=tag(log,interval(1e-4,1e-2))"
    jobs = list(expand([interval, "seed=0,1"]))
    assert [job[0] for job in jobs] == ["agent.lr=0.0001"] * 2 + ["agent.lr=0.01"] * 2
    for chosen in ([], ["hydra/sweeper=basic"]):  # Hydra's own sweeper has none
        with pytest.raises(ConfigError, match=re.escape(interval)):
            sweep._check(Request("train", [interval, "seed=0,1", *chosen], []))
    # An experiment in a folder of the user may choose another sweeper.
    assert sweep._check(Request("train", [interval, "seed=0,1"], [tmp_path])) == 4


def test_a_pattern_sweeps_the_options_of_a_group(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "dmine.yaml").touch()
    words = named(["seed=1", "agent=glob(d*)"], [tmp_path])
    assert words == ["seed=1", "agent=ddpg,dmine,dqn"]
    with pytest.raises(ConfigError, match=re.escape("agent=glob(z*)")):
        named(["agent=glob(z*)"])


@pytest.mark.parametrize("own", [[], ["hydra.sweeper.direction=minimize"]])
def test_optuna_maximizes_unless_told_otherwise(own: list[str]) -> None:
    added = [] if own else ["hydra.sweeper.direction=maximize"]
    assert list(sweep._plugin_options(["hydra/sweeper=optuna", *own])) == added


@pytest.mark.parametrize("own", ["", "hydra.launcher.ray.init.address=auto", "RAY_ADDRESS"])
def test_a_sweep_on_ray_is_reached_from_this_machine_only(own: str, monkeypatch: Any) -> None:
    words: list[str] = []
    monkeypatch.setattr(
        sweep.hydra, "main", lambda *_, **__: lambda task: lambda: words.extend(sys.argv)
    )
    monkeypatch.setattr(sweep, "_check", lambda request: 1)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if own == "RAY_ADDRESS":
        monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    overrides = ["seed=0,1", "hydra/launcher=ray", *[own] * ("=" in own)]
    sweep.sweep(Request("train", overrides, []), lambda *_: 0, lambda run: run())
    added = "++hydra.launcher.ray.init._node_ip_address=127.0.0.1" in words
    assert added == (not own)
    assert ("++hydra.launcher.ray.init.address=local" in words) == (not own)
    assert sys.argv != words


def test_a_sweep_adds_the_options_of_the_run_s_agent() -> None:
    overrides = ["checkpoint=RUN", "agent.gamma=0.5,0.9"]
    with pytest.raises(ConfigError, match=re.escape("with --multirun write +agent.gamma=0.5,0.9")):
        sweep._check(Request("eval", overrides, []))


def test_a_sweep_refuses_one_folder_for_all_its_runs() -> None:
    with pytest.raises(ConfigError, match=re.escape("run_dir=here: ")):
        sweep._check(Request("train", ["run_dir=here", "seed=0,1"], []))
