"""Runs and YAML files from before modules moved into folders still load."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from tests.agents.conftest import TINY_OVERRIDES

from agents.cli import main as cli
from agents.config.build import build_env
from agents.config.folders import config_folder
from agents.config.names import MODULES, present_name, rename_saved, rename_task, targets
from agents.training import checkpoint
from packing_env.registration import ENVIRONMENT

FORMER = {present: former for former, present in MODULES.items()}
RUN = [
    *TINY_OVERRIDES, "agent.batch_size=4", "replay.capacity=200", "trainer.frames=64",
    "trainer.warmup=16", "trainer.update_every=16", "trainer.log_every=32", "curve=null",
]  # fmt: skip
FORMER_TARGETS = (
    "agents.dqn.DQN", "agents.trainer.Trainer", "agents.trainer.OnPolicyTrainer",
    "agents.logging.CSVLogger", "agents.logging.NullLogger", "agents.telemetry.TorchRLLogger",
    "agents.telemetry.MLflowLogger", "agents.workers.device_collector",
    "agents.rollout.TorchRLCollector", "agents.ac_iqn.ACIQN", "agents.branching.Branching",
    "agents.ddpg.DDPG", "agents.hierarchical.Hierarchical", "agents.iqn.IQN", "agents.ppo.PPO",
    "agents.rainbow.Rainbow", "agents.sac.SAC",
)  # fmt: skip
"""Those that files of the configuration had."""


def with_former_names(node: Any) -> Any:
    """Plain data as a former version saved it."""
    if isinstance(node, dict):
        return {
            key: former_name(value) if key == "_target_" else with_former_names(value)
            for key, value in node.items()
        }
    return node


def former_name(target: str) -> str:
    module, _, name = target.rpartition(".")
    return f"{FORMER.get(module, module)}.{name}"


def make_old(run: Path) -> None:
    """Give a run's checkpoint the targets and the options that it had before."""
    place = checkpoint.find(run)
    saved = checkpoint.load(place)
    config = with_former_names(saved.meta["config"])
    assert config["agent"]["_target_"] == "agents.dqn.DQN"
    assert config["collector"]["_target_"] == "agents.workers.device_collector"
    checkpoint.write(place, saved.state, {**saved.meta, "config": config})


@pytest.mark.parametrize("target", FORMER_TARGETS)
def test_every_former_target_has_a_present_one(target: str) -> None:
    module, _, name = present_name(target).rpartition(".")
    assert hasattr(importlib.import_module(module), name)
    with pytest.raises(ImportError):
        importlib.import_module(target.rpartition(".")[0])


def test_the_configuration_has_no_former_name() -> None:
    for path in config_folder().rglob("*.yaml"):
        for place, node in targets(OmegaConf.load(path)):
            assert present_name(node["_target_"]) == node["_target_"], f"{path}: {place}"


def test_removed_options_are_left_out_where_they_say_what_agents_do() -> None:
    target = {"_target_": "agents.algorithms.ppo.PPO"}
    assert rename_saved({**target, "clip": "joint", "clip_value": None}) == target
    assert rename_saved({**target, "clip": "heads"}) == {**target, "clip": "heads"}


def test_an_old_run_is_resumed_and_evaluated(tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    assert cli.main(["train", *RUN, f"run_dir={run}"]) == 0
    make_old(run)
    evaluate = ["evaluation.heuristics=[]", "evaluation.instances=4", "env.num_envs=4"]
    results = tmp_path / "eval"
    assert cli.main(["eval", f"checkpoint={run}", *evaluate, f"run_dir={results}"]) == 0
    assert list(json.loads((results / "results.json").read_text())["policies"]) == ["dqn"]
    assert cli.main(["train", f"resume={run}", "trainer.frames=96"]) == 0
    assert "after 64 frames" in " ".join(capsys.readouterr().out.split())
    assert json.loads((run / "results.json").read_text())["training"]["frames"] == 96


@pytest.mark.parametrize("made", ["Packing-v0", "Packing-v1"])
def test_a_former_irregular_keeps_its_rules(made: str) -> None:
    """Its tolerance is null, which would mean that of the present preset."""
    meta = {"environment": made, "task": "irregular", "config": {"env": {"task": "irregular"}}}
    present = rename_task(meta)
    assert present["task"] == present["config"]["env"]["task"] == "irregular_com_hull"
    assert present["environment"] == ("Packing-v0" if made == "Packing-v0" else ENVIRONMENT)
    assert meta["task"] == "irregular"  # what was given stays
    standing = {**meta, "config": {"env": {"task": "irregular_standing"}}}
    assert rename_task(standing)["config"]["env"]["task"] == "irregular"


def test_a_checkpoint_of_the_former_irregular_is_played_by_its_rules(tmp_path: Path) -> None:
    assert cli.main(["train", *RUN, "env=irregular_com_hull", f"run_dir={tmp_path}"]) == 0
    place = checkpoint.find(tmp_path)
    saved = checkpoint.load(place)
    saved.meta["config"]["env"]["task"] = "irregular"
    checkpoint.write(place, saved.state, {**saved.meta, "environment": "Packing-v1"})
    found = checkpoint.load(tmp_path)
    assert found.meta["config"]["env"]["task"] == "irregular_com_hull"
    played = build_env(OmegaConf.create(found.meta["config"])).params
    assert (played.stability, played.surest) == ("com_hull", ())
    assert played.tolerance == pytest.approx(played.cell, rel=1e-6)
    assert cli.main(["train", f"resume={tmp_path}", "trainer.frames=80"]) == 0
