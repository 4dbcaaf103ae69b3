"""Two processes that learn as one: the same parameters, the mean of the gradients."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.agents.conftest import TINY_OVERRIDES
from torch import nn

from agents.algorithms.optimization import GatedAdam
from agents.process_group import average
from agents.training.checkpoint import find, load
from agents.training.distributed import World, joined

PROGRAM = """
import sys, torch
from torch import nn
from agents.training.distributed import joined
from agents.algorithms.optimization import GatedAdam

with joined("cpu") as world:
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    gate = GatedAdam(layer.parameters(), lr=0.1)
    data = torch.arange(24.0).view(2, 4, 3)[world.rank]
    for step in range(4):
        factor = torch.nan if step == 2 and world.rank == 1 else 1.0
        gate.step(layer(data).square().mean() * factor)
    agreed = [world.agree(world.rank == 1), world.agree(False)]
    torch.save({"weight": layer.weight.data, "skipped": gate.skipped, "agreed": agreed},
               f"{sys.argv[1]}/rank{world.rank}.pt")
"""


PPO_PROGRAM = """
import sys, torch
from hydra.utils import instantiate
from agents.config.build import build_agent, build_env, build_replay
from agents.config.compose import compose
from agents.training.distributed import joined
from agents.loggers.logging import NullLogger

with joined("cpu") as world:
    config = compose("train", sys.argv[2:])
    torch.manual_seed(0)
    env = build_env(config, row_offset=4 * world.rank)
    agent = build_agent(config, env)
    torch.manual_seed(world.rank)
    rollout = build_replay(config, env, agent)
    collector = instantiate(config.collector)(env, agent.policy)
    trainer = instantiate(config.trainer)(agent, collector, rollout)
    trainer.world = world
    trainer.run(NullLogger("."))
    weights = [weight.data for weight in agent.policy.parameters()]
    steps = trainer.last["gradient_steps"]
    torch.save({"weights": weights, "steps": steps}, f"{sys.argv[1]}/rank{world.rank}.pt")
"""


def two_processes(*command: str) -> None:
    """Run a command twice, as torchrun does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    started = [
        subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=240)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], said


def test_gradients_are_the_mean_of_the_shards(tmp_path: Path) -> None:
    two_processes("-c", PROGRAM, str(tmp_path))
    found = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2)]
    assert torch.equal(found[0]["weight"], found[1]["weight"])
    torch.manual_seed(0)
    alone = nn.Linear(3, 2)
    gate = GatedAdam(alone.parameters(), lr=0.1)
    for _ in range(3):  # the third of the four steps is broken in one process: none takes it
        gate.step(alone(torch.arange(24.0).view(8, 3)).square().mean())
    torch.testing.assert_close(found[0]["weight"], alone.weight.data)
    for each in found:
        assert each["skipped"] == 1
        assert each["agreed"] == [True, False]


def test_ppo_stops_at_the_same_step_in_every_process(tmp_path: Path) -> None:
    overrides = [*TINY_OVERRIDES, "env.num_envs=4", "agent=ppo", "replay.horizon=8"]
    overrides += ["agent.batch_size=8", "agent.lr=0.05", "agent.target_kl=0.02"]
    two_processes("-c", PPO_PROGRAM, str(tmp_path), *overrides, "trainer.frames=256")
    found = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2)]
    assert found[0]["steps"] == found[1]["steps"] < 16  # of 16: it was ended
    for one, other in zip(found[0]["weights"], found[1]["weights"], strict=True):
        assert torch.equal(one, other)


def test_packing_train_under_torchrun(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    overrides = [*TINY_OVERRIDES, "agent.batch_size=4", "replay.capacity=64", "trainer.frames=96"]
    overrides += ["trainer.warmup=16", "trainer.update_every=8", f"run_dir={folder}"]
    two_processes("-m", "agents.cli", "train", *overrides)
    results = json.loads((folder / "results.json").read_text())
    assert results["training"]["frames"] == 96
    state = load(find(folder)).state
    assert state["counters"]["updates"] == 10  # of 12 steps, the first two fill three-step windows
    assert not list(tmp_path.glob("run-*"))


def test_alone_nothing_happens() -> None:
    value = torch.ones(2)
    average([value])
    assert value.tolist() == [1.0, 1.0]
    with joined("cpu") as world:
        assert world == World()
        assert world.agree(True)
        assert not world.agree(False)


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_0_leads(rank: int) -> None:
    assert World(rank, 2).leads == (rank == 0)
