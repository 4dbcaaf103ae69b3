"""Agents train under constraints, which their masks keep."""

from __future__ import annotations

import math

import pytest
import torch
from hydra.utils import instantiate

from agents.config.build import build_agent, build_env, build_replay
from agents.config.compose import compose
from agents.training.trainer import Trainer

UNDER_TWO = [
    "env=cuboid_online",
    "env.num_envs=8",
    "env.num_items=12",
    "env.pool_size=32",
    "env.constraints.max_load=true",
    "env.constraints.lifo=true",
    "env.handling={weight: {density: 1}, max_load: 20.0, group: {uniform: [1, 3]}}",
]

SETTINGS = {
    "afterstate": ["replay.horizon=4", "network=afterstate_net"],
    "hierarchical": [
        "env.num_visible=2", "replay.capacity=64", "trainer.warmup=16", "trainer.update_every=16",
        "agent.stage1_frames=160",
    ],
}  # fmt: skip


@pytest.mark.parametrize("agent", list(SETTINGS))
def test_an_agent_trains_under_two_constraints(agent: str) -> None:
    torch.manual_seed(0)
    given = [*UNDER_TWO, f"agent={agent}", "trainer.frames=1000", "agent.batch_size=16"]
    config = compose("train", [*given, *SETTINGS[agent]])
    env = build_env(config)
    assert env.params.constraints.to_json() == {"max_load": True, "lifo": True}
    learner = build_agent(config, env)
    replay = build_replay(config, env, learner)
    before = [p.clone() for p in learner.policy.parameters()]
    collector = instantiate(config.collector)(env, learner.policy)
    trainer = instantiate(config.trainer)(learner, collector, replay)
    assert isinstance(trainer, Trainer)
    for _ in range(40):
        trainer.step()
    after = list(learner.policy.parameters())
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert all(math.isfinite(float(p.detach().sum())) for p in after)
    assert not env.state["illegal_actions"].any()
    assert env.state["under"].any()
