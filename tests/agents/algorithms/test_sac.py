"""SAC: soft targets by hand, the temperature, evaluation without draws."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tests.agents.continuous import (
    Toy,
    assert_reads_nothing,
    assert_runs_without_values,
    assert_saves_all,
    assert_skips_what_is_not_finite,
    assert_targets_move_by_the_rate,
    make_agent,
    sampled,
    small_env,
    toy_batch,
)
from torch.nn import functional
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.algorithms.sac import SAC
from agents.objectives.transitions import with_valued_action
from agents.policies.continuous import TanhGaussian


@pytest.fixture(scope="module")
def env():
    return small_env()


@pytest.fixture(scope="module")
def batch(env):
    return sampled(env)


def values(agent, params, seen):
    """Of both critics, ``[2, B]``."""
    critic = agent.objective.qvalue_network
    found = []
    for index in range(2):
        with params[index].to_module(critic):
            found.append(critic(seen.copy())["state_action_value"].squeeze(1))
    return torch.stack(found)


@torch.no_grad()
def by_hand(agent, batch, action, seed):
    """Losses and TD errors of r + gamma^m (1 - terminated) (min Q' - alpha log p)."""
    torch.manual_seed(seed)
    following = agent.actor(batch["next"].select("observation"))
    drawn, score = TanhGaussian(following["loc"], following["scale"]).rsample_and_log_prob()
    params = agent.objective.target_qvalue_network_params
    future = values(agent, params, following.set("action", drawn)).amin(0)
    future = future - agent.objective.log_alpha.exp() * score
    alive = 1 - batch["next", "terminated"].float().squeeze(1)
    discount = agent.gamma ** batch["steps_to_next_obs"].squeeze(1)
    wanted = batch["next", "reward"].squeeze(1) + discount * alive * future
    seen = batch.select("observation").set("action", batch[action])
    value = values(agent, agent.objective.qvalue_network_params, seen)
    losses = functional.smooth_l1_loss(value, wanted.expand_as(value), reduction="none").sum(0)
    return losses, (value - wanted).abs().amax(0)


@pytest.mark.parametrize(
    ("learn_from", "action"), [("executed", "executed_action"), ("asked", "action")]
)
def test_the_loss_is_that_of_soft_n_step_targets(env, batch, learn_from, action):
    agent = make_agent(SAC, env, learn_from=learn_from, alpha=0.1)
    batch = batch.clone()
    losses, error = by_hand(agent, batch, action, 7)
    torch.manual_seed(7)
    found = agent.update(batch)
    torch.testing.assert_close(found["loss"], losses.mean(), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(batch["td_error"], error, rtol=1e-3, atol=1e-5)


def test_importance_weights_weight_the_loss(env, batch):
    agent = make_agent(SAC, env)
    batch = batch.clone()
    weight = batch["priority_weight"] = torch.rand(len(batch))
    losses, _ = by_hand(agent, batch, "executed_action", 7)
    torch.manual_seed(7)
    found = agent.update(batch)
    torch.testing.assert_close(found["loss"], (weight * losses).mean(), rtol=1e-5, atol=1e-7)


def test_the_critics_begin_apart(env):
    first, second = make_agent(SAC, env).objective.qvalue_network_params["out", "weight"]
    assert not torch.equal(first, second)


@pytest.mark.parametrize("rate", [0.02, 0.5])
def test_targets_move_exactly_by_the_rate(env, batch, rate):
    assert_targets_move_by_the_rate(make_agent(SAC, env, target_rate=rate), batch, rate)


@pytest.mark.parametrize(("target", "rises"), [(-30.0, False), (30.0, True)])
def test_the_temperature_moves_towards_the_target_entropy(env, batch, target, rises):
    agent = make_agent(SAC, env, target_entropy=target, alpha=0.1)
    found = agent.update(batch.clone())
    assert -30 < found["entropy"] < 30
    assert bool(found["alpha"] > 0.1) == rises


def test_the_entropy_arrives_at_its_target():
    torch.manual_seed(0)
    agent = SAC(small_env(2), network=Toy, lr=1e-2, actor_lr=3e-3, alpha_lr=3e-2, alpha=0.1)
    assert agent.objective.target_entropy == -3
    best = torch.tensor([0.5, -0.3, 0.0])
    entropy = [
        agent.update(toy_batch(lambda action: -(action - best).square().sum(-1)))["entropy"]
        for _ in range(500)
    ]
    assert torch.stack(entropy[-50:]).mean().item() == pytest.approx(-3.0, abs=0.4)
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        action = agent.policy(toy_batch(lambda action: action[:, 0], 1))["action"]
    torch.testing.assert_close(action[0], best, rtol=0, atol=0.15)


@torch.no_grad()
def test_evaluation_is_the_tanh_of_the_mean_and_repeatable(env, batch):
    agent = make_agent(SAC, env)
    seen = batch.select("observation")
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        first, second = (agent.policy(seen.copy())["action"] for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(first, torch.tanh(agent.actor(seen.copy())["loc"]))
    agent.policy.set_frames(10**9)
    with set_exploration_type(ExplorationType.RANDOM):
        drawn, again = (agent.policy(seen.copy())["action"] for _ in range(2))
    assert (drawn != again).any(1).all()


def test_it_continues_from_what_it_saved(env, batch):
    assert_saves_all(partial(make_agent, SAC, env), batch)


def test_an_update_that_is_not_finite_is_left_out(env, batch):
    assert_skips_what_is_not_finite(make_agent(SAC, env), batch)


def test_it_runs_without_values(env):
    agent = make_agent(SAC, env)

    def losses(batch):
        seen = with_valued_action(batch, agent.learn_from)
        actor_losses, found = agent.objective.actor_loss(seen)
        critic_losses, _ = agent.objective.qvalue_v2_loss(seen)
        return critic_losses, actor_losses, agent.objective.alpha_loss(found["log_prob"])

    assert_runs_without_values(env, agent, losses)


def test_an_update_reads_nothing(env, batch, monkeypatch):
    assert_reads_nothing(make_agent(SAC, env), batch.clone(), monkeypatch)
