"""Rows that two Ray workers step: what one process plays, a trained agent, a clean end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.agents.conftest import TINY_OVERRIDES

from agents.config.build import build_agent, build_env
from agents.config.compose import compose
from agents.training.ray_workers import RayWorkers
from agents.training.rollout import DeviceCollector
from packing_env import extras

GREEDY = ["agent.epsilon_start=0", "agent.epsilon_end=0", "env.num_envs=4"]


@pytest.fixture
def _ray() -> None:
    if not extras.is_installed("ray"):
        pytest.skip(f"NOT TESTED: Ray is not installed: {extras.command('ray')}")


@pytest.mark.slow
@pytest.mark.usefixtures("_ray")
def test_two_workers_play_what_one_process_plays() -> None:
    import ray

    config = compose("train", [*TINY_OVERRIDES, *GREEDY, "distributed=ray"])
    torch.manual_seed(0)
    env, same = build_env(config), build_env(config)
    policy = build_agent(config, env).policy
    wanted = DeviceCollector(same, policy)
    workers = RayWorkers(num_workers=2, horizon=3)
    with workers.joined("cpu"):
        rows = workers.collector(DeviceCollector, env, policy)
        for step in range(7):
            if step == 3:  # the weights of the next message are new ones
                for weight in policy.parameters():
                    weight.data.neg_()
            expected, found = wanted.step(), rows.step()
            for key in (("observation", "heightmap"), "action", ("next", "reward")):
                assert torch.equal(found.get(key), expected.get(key)), (step, key)
        rows.close()
    assert not ray.is_initialized()


@pytest.mark.slow
@pytest.mark.usefixtures("_ray")
def test_training_on_two_workers_ends_clean(tmp_path: Path) -> None:
    overrides = [*TINY_OVERRIDES, "agent=ppo", "replay.horizon=4", "trainer.frames=96"]
    overrides += ["curve=null", "distributed=ray", "distributed.horizon=4"]
    overrides.append(f"run_dir={tmp_path / 'run'}")
    done = subprocess.run(
        [sys.executable, "-m", "agents.cli", "train", *overrides],
        env={**os.environ, "PACKING_RAY_TEST": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "run/results.json").read_text())
    assert results["training"]["frames"] == 96
    assert results["training"]["updates"] == 6
    left = [place for place in Path("/proc").glob("[0-9]*/environ") if _is_of(place, tmp_path)]
    assert not left


def _is_of(environ: Path, folder: Path) -> bool:
    """Return whether a process belongs to the job that was started for ``folder``."""
    try:
        return f"PACKING_RAY_TEST={folder}".encode() in environ.read_bytes()
    except OSError:
        return False
