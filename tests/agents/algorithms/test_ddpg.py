"""DDPG: targets by hand, exact target updates, and that it climbs, saves and reads nothing."""

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

from agents.algorithms.ddpg import DDPG
from agents.objectives.transitions import with_valued_action


@pytest.fixture(scope="module")
def env():
    return small_env()


@pytest.fixture(scope="module")
def batch(env):
    return sampled(env)


@torch.no_grad()
def by_hand(agent, batch, action):
    """Losses and TD errors, of r + gamma^m (1 - terminated) Q'(s', mu'(s'))."""
    objective = agent.objective
    following = batch["next"].select("observation")
    with objective.target_actor_network_params.to_module(agent.actor):
        following = agent.actor(following)
    with objective.target_value_network_params.to_module(agent.critic):
        future = agent.critic(following)["state_action_value"]
    alive = 1 - batch["next", "terminated"].float()
    wanted = batch["next", "reward"] + agent.gamma ** batch["steps_to_next_obs"] * alive * future
    seen = batch.select("observation").set("action", batch[action])
    value = agent.critic(seen)["state_action_value"]
    losses = functional.smooth_l1_loss(value, wanted, reduction="none")
    return losses.squeeze(1), (value - wanted).abs().squeeze(1)


@pytest.mark.parametrize(
    ("learn_from", "action"), [("executed", "executed_action"), ("asked", "action")]
)
def test_the_loss_is_that_of_n_step_targets(env, batch, learn_from, action):
    agent = make_agent(DDPG, env, learn_from=learn_from)
    assert batch["steps_to_next_obs"].unique().numel() > 1
    batch = batch.clone()
    losses, error = by_hand(agent, batch, action)
    found = agent.update(batch)
    torch.testing.assert_close(found["loss"], losses.mean(), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(batch["td_error"], error, rtol=1e-3, atol=1e-5)


def test_importance_weights_weight_the_loss(env, batch):
    agent = make_agent(DDPG, env)
    batch = batch.clone()
    weight = batch["priority_weight"] = torch.rand(len(batch))
    losses, _ = by_hand(agent, batch, "executed_action")
    found = agent.update(batch)
    torch.testing.assert_close(found["loss"], (weight * losses).mean(), rtol=1e-5, atol=1e-7)


def test_the_actors_loss_is_minus_its_own_value(env, batch):
    agent = make_agent(DDPG, env)
    with torch.no_grad():
        value = agent.critic(agent.actor(batch.select("observation")))["state_action_value"]
    losses, _ = agent.objective.loss_actor(with_valued_action(batch, "executed"))
    torch.testing.assert_close(losses, -value.squeeze(1))
    losses.mean().backward()
    assert all(parameter.grad is None for parameter in agent.critic.parameters())
    assert all(parameter.grad is not None for parameter in agent.actor.parameters())


@pytest.mark.parametrize("rate", [0.02, 0.5])
def test_targets_move_exactly_by_the_rate(env, batch, rate):
    assert_targets_move_by_the_rate(make_agent(DDPG, env, target_rate=rate), batch, rate)


def test_it_climbs_to_the_best_action():
    torch.manual_seed(0)
    best = torch.tensor([0.5, -0.3, 0.0])
    agent = DDPG(small_env(2), network=Toy, actor_lr=1e-3, lr=1e-2)
    for _ in range(800):
        agent.update(toy_batch(lambda action: -(action - best).square().sum(-1)))
    with torch.no_grad():
        action = agent.actor(toy_batch(lambda action: action[:, 0], 1))["action"]
    torch.testing.assert_close(action[0], best, rtol=0, atol=0.2)


def test_it_continues_from_what_it_saved(env, batch):
    assert_saves_all(partial(make_agent, DDPG, env), batch)


def test_an_update_that_is_not_finite_is_left_out(env, batch):
    assert_skips_what_is_not_finite(make_agent(DDPG, env), batch)


def test_it_runs_without_values(env):
    agent = make_agent(DDPG, env)

    def losses(batch):
        seen = with_valued_action(batch, agent.learn_from)
        return agent.objective.loss_value(seen)[0], agent.objective.loss_actor(seen)[0]

    assert_runs_without_values(env, agent, losses)


def test_an_update_reads_nothing(env, batch, monkeypatch):
    assert_reads_nothing(make_agent(DDPG, env), batch.clone(), monkeypatch)


def test_schedules_follow_the_frames(env):
    agent = make_agent(DDPG, env, lr=1e-3, actor_lr=2e-4, lr_end=0.1, lr_frames=100)
    agent.set_frames(50)
    assert agent.optimizer.optimizer.param_groups[0]["lr"] == pytest.approx(5.5e-4)
    assert agent.actor_optimizer.optimizer.param_groups[0]["lr"] == pytest.approx(1.1e-4)
    agent.set_frames(15_000)
    assert agent.policy.epsilon.item() == pytest.approx(0.1)
    assert agent.policy.noise.item() == pytest.approx(0.15)


def test_an_unknown_action_to_learn_from_is_refused(env):
    with pytest.raises(ValueError, match=r"learn_from='snapped'.*executed, asked"):
        make_agent(DDPG, env, learn_from="snapped")
