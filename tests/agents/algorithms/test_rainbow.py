"""Rainbow: its noise, and that it learns, saves and reads nothing back."""

from __future__ import annotations

import pytest
import torch
from tests.agents.distributional import (
    MODES,
    assert_acts_row_by_row,
    assert_reads_nothing,
    assert_saves_all,
    make_agent,
    sampled,
    small_env,
)
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.algorithms.rainbow import Rainbow
from agents.networks.readouts.noisy import NoisyLinear


@pytest.fixture(scope="module", params=MODES)
def env(request):
    return small_env(request.param)


@pytest.fixture(scope="module")
def batch(env):
    return sampled(make_agent(Rainbow, env), env)


def noises(agent):
    """Noise of the online and of the target network, as lists."""
    with agent.objective.target():
        target = [layer.noise_in.clone() for layer in layers(agent)]
    return [layer.noise_in.clone() for layer in layers(agent)], target


def layers(agent):
    return [layer for layer in agent.network.modules() if isinstance(layer, NoisyLinear)]


def test_every_sigma_learns(env, batch):
    agent = make_agent(Rainbow, env)
    assert len(layers(agent)) >= 4
    before = [layer.weight_sigma.detach().clone() for layer in layers(agent)]
    agent.update(batch)
    for layer, sigma in zip(layers(agent), before, strict=True):
        assert layer.weight_sigma.grad.abs().max() > 0
        assert not torch.equal(layer.weight_sigma, sigma)


def test_an_update_draws_both_networks_noise_anew(env, batch):
    agent = make_agent(Rainbow, env)
    online, target = noises(agent)
    agent.update(batch)
    new_online, new_target = noises(agent)
    for pair in zip(online + target + online, new_online + new_target + new_target, strict=True):
        assert not torch.equal(*pair)
    # and it is on in the loss, though evaluation is set around it
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        first, second = (agent.objective(batch)["loss"] for _ in range(2))
    assert first != second


def test_the_policy_explores_by_noise_and_evaluates_without(env):
    agent = make_agent(Rainbow, env, sigma=2.0)
    root = env.reset()
    with set_exploration_type(ExplorationType.RANDOM):
        first, second = (agent.policy.action_values(root) for _ in range(2))
    assert not torch.equal(first, second)
    mu = [layer.weight_mu for layer in layers(agent)]
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        first, second = (agent.policy.action_values(root) for _ in range(2))
        assert all(layer.weight is each for layer, each in zip(layers(agent), mu, strict=True))
    assert torch.equal(first, second)


@pytest.mark.parametrize("mixture", [None, 3])
def test_updates_reduce_the_loss_and_move_the_target(env, batch, mixture):
    agent = make_agent(Rainbow, env, mixture=mixture, lr=1e-2, noisy=False, target_rate=0.05)
    target = agent.objective.target_value_network_params
    before = target.clone()
    errors = []
    for _ in range(30):
        agent.update(batch)
        errors.append(batch["td_error"].mean())
    assert errors[-1] < 0.5 * errors[0]
    key = ("readout", "support")
    moved = {k for k, v in target.items(True, True) if not torch.equal(v, before[k])}
    assert len(moved) == len(list(agent.network.parameters()))
    assert torch.equal(target[key], agent.network.support)


@pytest.mark.parametrize("mode", MODES)
def test_batched_equals_row_by_row_on_any_leading_axes(mode):
    env = small_env(mode, (2, 3))
    assert_acts_row_by_row(make_agent(Rainbow, env), env)


def test_reads_nothing(env, batch):
    assert_reads_nothing(make_agent(Rainbow, env), batch)


def test_saves_all(env, batch):
    assert_saves_all(Rainbow, make_agent(Rainbow, env), env, batch)


def test_learning_rate_follows_the_frames():
    agent = make_agent(Rainbow, small_env("candidate", 2), lr=1e-3, lr_end=1e-4, lr_frames=100)
    agent.set_frames(50)
    assert agent.optimizer.optimizer.param_groups[0]["lr"] == pytest.approx(5.5e-4)
