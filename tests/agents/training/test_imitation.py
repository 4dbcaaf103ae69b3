"""Behaviour cloning of heuristics: on states that were not seen, far above chance."""

import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from tensordict import TensorDict
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
    from_config,
    log_likelihood,
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


def test_targets_follow_and_the_optimizer_is_fresh():
    env = task()
    agent = dqn(env)
    assert hasattr(agent, "copy_to_targets")
    before = agent.target_parameters[0].clone()
    warm_start(agent, env, heuristics.build("lowest_z", env), WarmStart(64, 3, 8))
    assert not torch.equal(agent.target_parameters[0], before)
    for target, online in zip(agent.target_parameters, agent.parameters, strict=True):
        assert torch.equal(target, online)
    assert not agent.optimizer.optimizer.state


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


def test_likelihood_of_values_is_a_softmax_over_what_is_legal():
    class Fixed(nn.Module):
        in_keys, out_keys = ("value",), ("action_value",)

        def forward(self, td):
            return td.set("action_value", td.get("value"))

    policy = PolicyWrapper(Fixed())
    value = torch.tensor([[0.1, 0.3, 0.9], [0.0, 0.5, 0.2]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    batch = TensorDict({"value": value, "action_mask": mask, "action": torch.tensor([1, 2])}, [2])
    found = log_likelihood(policy, batch, temperature=0.1)
    first = torch.tensor([1.0, 3.0]).log_softmax(0)[1]
    second = torch.tensor([0.0, 5.0, 2.0]).log_softmax(0)[2]
    torch.testing.assert_close(found, torch.stack((first, second)))


def test_what_cannot_imitate_is_refused():
    env = task("multi_head")
    agent = SimpleNamespace(policy=PolicyWrapper(HeightOnly()))
    with pytest.raises(ParameterError, match="in action_mode=multi_head cannot imitate"):
        warm_start(agent, env, None, SMALL)
    with pytest.raises(ParameterError, match=r"warm_start\.updates=0"):
        WarmStart(updates=0)


class HeightOnly(nn.Module):
    in_keys, out_keys = (("observation", "heightmap"),), ("action_value",)


def test_from_a_configuration():
    env = task()
    agent = dqn(env)
    options = {"frames": 64, "updates": 3, "batch_size": 8, "lr": 1e-3, "temperature": 0.05}
    assert from_config({"heuristic": None, **options}, agent, env) is None
    said = from_config({"heuristic": "lowest_z", **options}, agent, env)
    assert said.startswith("warm start: the policy agrees with lowest_z in ")
    with pytest.raises(ParameterError, match="heuristic='lowest'"):
        from_config({"heuristic": "lowest", **options}, agent, env)
