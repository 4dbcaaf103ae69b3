"""Policies that the package brings: exported from runs, played by name, never resumed."""

import json
from pathlib import Path

import pytest
import torch
from benchmarks.pretrained import export_policy
from omegaconf.errors import ConfigAttributeError

from agents.cli.main import main
from agents.training import checkpoint

TINY_RUN = [
    "agent=afterstate", "env=cuboid_online", "env.num_envs=4", "env.pool_size=16",
    "replay.horizon=4", "trainer.frames=32", "network.width=8", "curve=null",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    assert main(["train", *TINY_RUN, f"run_dir={folder}"]) == 0
    return folder


def test_an_exported_policy_plays_as_its_run_does(run: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(checkpoint, "PRETRAINED", tmp_path / "pretrained")
    with pytest.raises(ConfigAttributeError, match="cel"):
        export_policy(run, tmp_path / "other", ["env.cel=0.005"])
    export_policy(run, tmp_path / "pretrained" / "mine", ["env.num_envs=3"])
    found = checkpoint.load("pretrained/mine")
    assert set(found.state["agent"]) == {"policy"}
    config = checkpoint.read_meta(run)["config"]
    env = {**config["env"], "num_envs": 3}
    assert found.meta["config"] == {**config, "env": env, "run_dir": None}
    played = []
    for name, chosen in (("a", run), ("b", "pretrained/mine")):
        options = ["evaluation.heuristics=[]", "evaluation.instances=4", f"checkpoint={chosen}"]
        assert main(["eval", *options, f"run_dir={tmp_path / name}"]) == 0
        results = json.loads((tmp_path / name / "results.json").read_text())
        played.append(results["policies"]["afterstate"]["instances"]["utilization"])
    assert played[0] == played[1]
    assert main(["train", "resume=pretrained/mine"]) != 0


@pytest.mark.parametrize("changes", [[], ["reward=item"]])
def test_values_of_other_rewards_are_told(
    run: Path, changes: list[str], tmp_path: Path, caplog
) -> None:
    """Values in volumes and rewards in numbers of items do not add up."""
    options = ["evaluation.instances=1", "evaluation.heuristics=[]", f"run_dir={tmp_path / 'new'}"]
    assert main(["eval", f"checkpoint={run}", *changes, *options]) == 0
    said = [record.getMessage() for record in caplog.records]
    warned = [line for line in said if "were learned with the rewards" in line]
    assert len(warned) == len(changes)
    assert all("{'item': 1.0}" in line and str(run) in line for line in warned)


@pytest.mark.parametrize("name", checkpoint.pretrained())
def test_the_package_brings_finite_weights_of_its_own_tasks(name: str) -> None:
    found = checkpoint.load(f"pretrained/{name}")
    assert found.meta["config"]["env"]["task"] == name
    assert found.meta["config"]["run_dir"] is None, "the folder of a machine"
    weights = found.state["agent"]["policy"].values()
    assert all(torch.isfinite(value.float()).all() for value in weights)
    files = (checkpoint.PRETRAINED / name).iterdir()
    assert sum(file.stat().st_size for file in files) < 600_000
