"""Behaviour cloning of heuristics: on states that were not seen, far above chance."""

import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from tests.agents.algorithms.test_every_agent import CASES
from tests.agents.conftest import TINY_OVERRIDES
from tests.tiny import tiny_env
from torch import nn

from agents import heuristics
from agents.algorithms.dqn import DQN
from agents.config.build import build_agent, build_env
from agents.config.compose import compose
from agents.networks import ScoreMaps
from agents.policies.policy_wrapper import PolicyWrapper
from agents.training.imitation import (
    WarmStart,
    agreement,
    warm_start,
)
from agents.training.rollout import DeviceCollector
from packing_env.types import ParameterError

SMALL = WarmStart(frames=400, updates=80, batch_size=32, lr=3e-3)


def task(mode="placement", num_envs=16, **params):
    items = {"height": 0.06}
    return tiny_env(num_envs, items=items, action_mode=mode, num_candidates=24, **params)


def dqn(env, **options):
    return DQN(env, network=partial(ScoreMaps, channels=8, precision="fp32"), **options)


def test_it_learns_to_decide_like_the_heuristic():
    def on_new_states():
        """Of other episodes: the items come in another order."""
        other = task(seed=9)
        rule = heuristics.build("lowest_z", other)
        return agreement(agent.policy, DeviceCollector(other, rule), 10)

    env = task()
    torch.manual_seed(0)
    agent = dqn(env)
    before = on_new_states()
    found = warm_start(agent, env, heuristics.build("lowest_z", env), SMALL)
    after = on_new_states()
    assert after["chance"] == before["chance"] < 0.2
    for result in (found, after):
        assert result["agreement"] > 0.4
    assert after["agreement"] > before["agreement"] + 0.2
    assert found["loss"] < 1.5


@pytest.mark.parametrize("name", ["rainbow", "iqn candidate", "ppo"])
def test_agents_of_the_configuration_imitate(name):
    config = compose("train", [*TINY_OVERRIDES, *CASES[name]])
    env = build_env(config)
    agent = build_agent(config, env)
    heuristic = heuristics.build("lowest_z", env)
    weights = [weight.detach().clone() for weight in agent.policy.parameters()]
    found = warm_start(agent, env, heuristic, WarmStart(64, 4, 8))
    assert math.isfinite(found["loss"])
    moved = [
        not torch.equal(weight, old)
        for weight, old in zip(agent.policy.parameters(), weights, strict=True)
    ]
    assert any(moved)
    assert hasattr(agent.policy, "evaluate") == (name == "ppo")
    if name != "ppo":
        assert hasattr(agent, "copy_to_targets")
        online = agent.objective.value_network_params.flatten_keys("/")
        target = agent.objective.target_value_network_params.flatten_keys("/")
        assert all(torch.equal(target[key], online[key]) for key in online.keys())  # noqa: SIM118


def test_what_cannot_imitate_is_refused():
    env = task("multi_head")
    agent = SimpleNamespace(policy=PolicyWrapper(HeightOnly()))
    with pytest.raises(ParameterError, match="in action_mode=multi_head cannot imitate"):
        warm_start(agent, env, None, SMALL)
    with pytest.raises(ParameterError, match=r"warm_start\.updates=0"):
        WarmStart(updates=0)


class HeightOnly(nn.Module):
    in_keys, out_keys = (("observation", "heightmap"),), ("action_value",)
