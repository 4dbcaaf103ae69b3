"""DDPG and SAC: losses by hand, and that an actor follows its critic."""

import pytest
import torch
from tests.agents.continuous import make_agent, sampled, small_env
from torch.nn import functional

from agents.algorithms.ddpg import DDPG
from agents.algorithms.sac import SAC
from agents.objectives.transitions import with_executed_action
from agents.policies.continuous import TanhGaussian


@pytest.fixture(scope="module")
def env():
    return small_env()


@pytest.fixture(scope="module")
def batch(env):
    batch = sampled(env)
    assert batch["steps_to_next_obs"].unique().numel() > 1
    return batch


def n_step(agent, batch, future):
    """r + gamma^m (1 - terminated) times the future value, ``[B]``."""
    alive = 1 - batch["next", "terminated"].float().squeeze(1)
    discount = agent.gamma ** batch["steps_to_next_obs"].squeeze(1)
    return batch["next", "reward"].squeeze(1) + discount * alive * future


# ---------------------------------------------------------------------- DDPG


@torch.no_grad()
def ddpg_by_hand(agent, batch):
    """Losses and TD errors of Q'(s', mu'(s'))."""
    objective = agent.objective
    following = batch["next"].select("observation")
    with objective.target_actor_network_params.to_module(agent.actor):
        following = agent.actor(following)
    with objective.target_value_network_params.to_module(agent.critic):
        future = agent.critic(following)["state_action_value"].squeeze(1)
    wanted = n_step(agent, batch, future)
    seen = batch.select("observation").set("action", batch["executed_action"])
    value = agent.critic(seen)["state_action_value"].squeeze(1)
    losses = functional.smooth_l1_loss(value, wanted, reduction="none")
    return losses, (value - wanted).abs()


def test_the_loss_is_that_of_n_step_targets(env, batch):
    agent, batch = make_agent(DDPG, env), batch.clone()
    losses, error = ddpg_by_hand(agent, batch)
    found = agent.update(batch)
    torch.testing.assert_close(found["loss"], losses.mean(), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(batch["td_error"], error, rtol=1e-3, atol=1e-5)


def test_the_actors_loss_is_minus_its_own_value(env, batch):
    agent = make_agent(DDPG, env)
    with torch.no_grad():
        value = agent.critic(agent.actor(batch.select("observation")))["state_action_value"]
    losses, _ = agent.objective.loss_actor(with_executed_action(batch))
    torch.testing.assert_close(losses, -value.squeeze(1))
    losses.mean().backward()
    assert all(parameter.grad is None for parameter in agent.critic.parameters())
    assert all(parameter.grad is not None for parameter in agent.actor.parameters())


# ---------------------------------------------------------------------- SAC


def values(agent, params, seen):
    """Values of both critics, ``[2, B]``."""
    critic = agent.objective.qvalue_network
    found = []
    for index in range(2):
        with params[index].to_module(critic):
            found.append(critic(seen.copy())["state_action_value"].squeeze(1))
    return torch.stack(found)


@torch.no_grad()
def sac_by_hand(agent, batch, seed):
    """Losses and TD errors of min Q' - alpha log p."""
    torch.manual_seed(seed)
    following = agent.actor(batch["next"].select("observation"))
    drawn, score = TanhGaussian(following["loc"], following["scale"]).rsample_and_log_prob()
    params = agent.objective.target_qvalue_network_params
    future = values(agent, params, following.set("action", drawn)).amin(0)
    wanted = n_step(agent, batch, future - agent.objective.log_alpha.exp() * score)
    seen = batch.select("observation").set("action", batch["executed_action"])
    value = values(agent, agent.objective.qvalue_network_params, seen)
    losses = functional.smooth_l1_loss(value, wanted.expand_as(value), reduction="none").sum(0)
    return losses, (value - wanted).abs().amax(0)


def test_the_loss_is_that_of_soft_n_step_targets(env, batch):
    agent, batch = make_agent(SAC, env, alpha=0.1), batch.clone()
    losses, error = sac_by_hand(agent, batch, 7)
    torch.manual_seed(7)
    found = agent.update(batch)
    torch.testing.assert_close(found["loss"], losses.mean(), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(batch["td_error"], error, rtol=1e-3, atol=1e-5)


def test_the_critics_begin_apart(env):
    first, second = make_agent(SAC, env).objective.qvalue_network_params["out", "weight"]
    assert not torch.equal(first, second)
