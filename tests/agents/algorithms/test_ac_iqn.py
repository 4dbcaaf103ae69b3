"""AC-IQN: the losses by hand, proposals and risk levels."""

from __future__ import annotations

import pytest
import torch
from tests.agents.continuous import NETWORK, make_agent, sampled, small_env
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.algorithms.ac_iqn import ACIQN
from agents.objectives import ACIQNLoss
from agents.objectives.transitions import with_executed_action
from packing_env.types import ParameterError


@pytest.fixture(scope="module")
def env():
    return small_env()


@pytest.fixture(scope="module")
def batch(env):
    return sampled(env)


def quantile_huber(found, wanted, tau, kappa):
    """One row, in plain loops: Dabney et al., ICML 2018, equations 2 and 3."""
    total = 0.0
    for value, level in zip(found, tau, strict=True):
        for sample in wanted:
            d = sample - value
            size = d * d / 2 if abs(d) <= kappa else kappa * (abs(d) - kappa / 2)
            total += abs(level - (d < 0)) * size / kappa / len(wanted)
    return total


@torch.no_grad()
def by_hand(agent, batch, seed):
    """Losses and TD errors of the executed actions against the target returns."""
    objective = agent.objective
    torch.manual_seed(seed)
    wanted = objective._target_returns(with_executed_action(batch))
    tau = torch.rand(len(batch), objective.regression.num_taus)
    seen = batch.select("observation").set("action", batch["executed_action"]).set("tau", tau)
    found = agent.critic(seen)["quantile_value"]
    rows = zip(found.tolist(), wanted.tolist(), tau.tolist(), strict=True)
    losses = torch.tensor([quantile_huber(*row, objective.regression.kappa) for row in rows])
    return losses, (found.mean(1) - wanted.mean(1)).abs()


@pytest.mark.parametrize("kappa", [1.0, 0.01])
def test_the_loss_is_that_of_n_step_quantile_targets(env, batch, kappa):
    agent = make_agent(ACIQN, env, kappa=kappa, num_target_taus=5)
    batch = batch.clone()
    losses, error = by_hand(agent, batch, 7)
    torch.manual_seed(7)
    found = agent.update(batch)
    torch.testing.assert_close(found["loss"], losses.mean(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(batch["td_error"], error, rtol=1e-4, atol=1e-6)


def test_forward_gives_both_losses_to_any_trainer(env, batch):
    made = NETWORK(env)
    critic = made.quantile_critic(num_cosines=8, num_samples=8, risk=1.0)
    loss = ACIQNLoss(made.proposer(), critic, gamma=0.9)
    assert {"action", ("next", "reward"), ("observation", "heightmap")} <= set(loss.in_keys)
    with pytest.warns(UserWarning, match="target"):
        found = loss(with_executed_action(batch))
    assert set(found.keys()) == set(loss.out_keys)
    (found["loss_value"] + found["loss_actor"]).backward()
    assert all(parameter.grad is not None for parameter in loss.parameters())


# ---------------------------------------------------------------------- proposals


def proposed(agent, state, draw=False, count=8):
    """Proposals and scores of a state."""
    observed = [state[key] for key in agent.actor.in_keys]
    return agent.actor.propose(observed, count, draw=draw), agent.actor.scores(
        agent.actor.encoder(observed)
    )


def one_by_one(agent, state, actions, tau):
    """Mean quantiles of several actions, each by a call of the critic."""
    found = []
    for action in actions.unbind(1):
        seen = state.select("observation").set("action", action).set("tau", tau)
        found.append(agent.critic(seen)["quantile_value"].mean(1))
    return torch.stack(found, 1)


@torch.no_grad()
def test_proposals_are_the_most_probable_placements_of_each_head(env):
    agent, state = make_agent(ACIQN, env), env.reset()
    made, score = proposed(agent, state)
    expected = score.topk(4, -1).indices.flatten(1)
    assert torch.equal(made.place, expected)
    legal = (state["observation", "drop_height"] < 1).flatten(1)
    assert torch.equal(made.legal, legal.gather(1, made.place))
    torch.testing.assert_close(made.log_share.exp(), score.softmax(-1).mean(1))
    placed = env.step(state.clone().set("action", made.action[:, 0]))
    torch.testing.assert_close(placed["next", "executed_action"], made.action[:, 0])


@torch.no_grad()
def test_drawn_proposals_follow_the_distribution_and_do_not_repeat(env):
    agent, state = make_agent(ACIQN, env), env.reset()
    torch.manual_seed(0)
    drawn = [proposed(agent, state, draw=True)[0].place for _ in range(2000)]
    first = torch.stack(drawn)[:, 0, 0]
    share = proposed(agent, state)[1][0, 0].softmax(-1)
    found = torch.bincount(first, minlength=len(share)) / len(first)
    assert (found - share).abs().max() < 0.04
    heads = drawn[0].unflatten(1, (2, 4)).sort(-1).values
    assert (heads.diff(dim=-1) > 0).all()


@torch.no_grad()
def test_the_critic_compares_actions_as_it_values_each(env, batch):
    agent = make_agent(ACIQN, env)
    actions, tau = torch.rand(len(batch), 5, 3) * 2 - 1, torch.rand(len(batch), 6)
    observed = [batch[key] for key in agent.critic.encoder.in_keys]
    found = agent.critic.compare(observed, actions, tau)
    torch.testing.assert_close(found, one_by_one(agent, batch, actions, tau))


@pytest.mark.parametrize("risk", [1.0, 0.25, "level"])
@torch.no_grad()
def test_the_policy_takes_the_proposal_with_the_best_value_at_risk(env, risk):
    agent, state = make_agent(ACIQN, env, risk=risk, num_proposals=8), env.reset()
    level = state["level"] = torch.linspace(0.1, 1, 8)[:, None]
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        action = agent.policy(state.copy())["action"]
    made, _ = proposed(agent, state)
    level = level if risk == "level" else torch.full_like(level, risk)
    tau = level * agent.readout.midpoint
    value = one_by_one(agent, state, made.action, tau)
    best = value.masked_fill(~made.legal, -torch.inf).argmax(1)
    assert torch.equal(action, made.action[torch.arange(len(best)), best])


def test_the_actor_learns_to_propose_the_best(env, batch):
    agent = make_agent(ACIQN, env, num_proposals=8)
    seen = with_executed_action(batch)
    torch.manual_seed(3)
    losses = agent.objective.loss_actor(seen)
    torch.manual_seed(3)
    made, _ = proposed(agent, seen, draw=True)
    tau = torch.rand(len(batch), agent.objective.num_actor_taus)
    with torch.no_grad():
        value = one_by_one(agent, seen, made.action, tau).masked_fill(~made.legal, -torch.inf)
    best = made.place.gather(1, value.argmax(1, keepdim=True))
    torch.testing.assert_close(losses, -made.log_share.gather(1, best).squeeze(1))
    losses.mean().backward()
    assert all(parameter.grad is None for parameter in agent.critic.parameters())
    assert all(parameter.grad is not None for parameter in agent.actor.parameters())


@torch.no_grad()
def test_the_target_takes_the_best_of_the_targets_proposals(env, batch):
    agent = make_agent(ACIQN, env, num_proposals=8, num_target_taus=5)
    objective, following = agent.objective, batch["next"]
    torch.manual_seed(3)
    wanted = objective._target_returns(with_executed_action(batch))
    torch.manual_seed(3)
    target_tau = torch.rand(len(batch), 5)
    with objective.target_actor_network_params.to_module(agent.actor):
        made, _ = proposed(agent, following, draw=True)
    tau = torch.rand(len(batch), objective.num_actor_taus)
    with objective.target_value_network_params.to_module(agent.critic):
        value = one_by_one(agent, following, made.action, tau)
        best = value.masked_fill(~made.legal, -torch.inf).argmax(1)
        seen = following.select("observation").set("tau", target_tau)
        seen["action"] = made.action[torch.arange(len(best)), best]
        future = agent.critic(seen)["quantile_value"]
    alive = 1 - following["terminated"].float()
    expected = following["reward"] + agent.gamma ** batch["steps_to_next_obs"] * alive * future
    torch.testing.assert_close(wanted, expected)


def test_values_that_jump_are_learned(env, batch):
    """Nothing is gained but on one side of the box: there, and elsewhere, no gradient points."""
    agent = make_agent(ACIQN, env, lr=3e-3, actor_lr=3e-3, kappa=0.1)
    ended = batch.clone()
    ended["next", "terminated"][:] = True
    ended["next", "reward"] = (ended["executed_action"][:, :1] > 0).float()
    for _ in range(150):
        agent.update(ended.clone())
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        action = agent.policy(env.reset())["action"]
    assert (action[:, 0] > 0).all()


# ---------------------------------------------------------------------- risk


def test_impossible_levels_are_refused(env):
    with pytest.raises(ParameterError, match="risk=0"):
        make_agent(ACIQN, env, risk=0.0)
    made = NETWORK(env)
    critic = made.quantile_critic(num_cosines=8, num_samples=8, risk=1.0)
    with pytest.raises(ValueError, match=r"risk=1\.5"):
        ACIQNLoss(made.proposer(), critic, gamma=0.9, risk=1.5)


def test_no_proposals_are_refused(env):
    with pytest.raises(ParameterError, match="num_proposals"):
        make_agent(ACIQN, env, num_proposals=0)
