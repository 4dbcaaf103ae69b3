"""AC-IQN: the losses by hand, proposals, risk levels and the two arms."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tests.agents.continuous import NETWORK, Toy, make_agent, sampled, small_env, toy_batch
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.algorithms.ac_iqn import ACIQN
from agents.objectives import ACIQNLoss
from agents.objectives.transitions import with_valued_action
from packing_env.types import ParameterError


@pytest.fixture(scope="module")
def env():
    return small_env()


@pytest.fixture(scope="module")
def batch(env):
    return sampled(env)


PROPOSES = partial(ACIQN, num_proposals=32)
"""The critic chooses."""


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
def by_hand(agent, batch, action, seed):
    """Losses and TD errors of r + gamma^m (1 - terminated) Z'_tau(s', mu'(s'))."""
    objective = agent.objective
    torch.manual_seed(seed)
    target_tau = torch.rand(len(batch), objective.regression.num_target_taus)
    tau = torch.rand(len(batch), objective.regression.num_taus)
    following = batch["next"].select("observation").set("tau", target_tau)
    with objective.target_actor_network_params.to_module(agent.actor):
        following = agent.actor(following)
    with objective.target_value_network_params.to_module(agent.critic):
        future = agent.critic(following)["quantile_value"]
    alive = 1 - batch["next", "terminated"].float()
    wanted = batch["next", "reward"] + agent.gamma ** batch["steps_to_next_obs"] * alive * future
    seen = batch.select("observation").set("action", batch[action]).set("tau", tau)
    found = agent.critic(seen)["quantile_value"]
    rows = zip(found.tolist(), wanted.tolist(), tau.tolist(), strict=True)
    losses = torch.tensor([quantile_huber(*row, objective.regression.kappa) for row in rows])
    return losses, (found.mean(1) - wanted.mean(1)).abs()


@pytest.mark.parametrize(
    ("learn_from", "action"), [("executed", "executed_action"), ("asked", "action")]
)
@pytest.mark.parametrize("kappa", [1.0, 0.01])
def test_the_loss_is_that_of_n_step_quantile_targets(env, batch, learn_from, action, kappa):
    agent = make_agent(ACIQN, env, learn_from=learn_from, kappa=kappa, num_target_taus=5)
    batch = batch.clone()
    losses, error = by_hand(agent, batch, action, 7)
    torch.manual_seed(7)
    found = agent.update(batch)
    torch.testing.assert_close(found["loss"], losses.mean(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(batch["td_error"], error, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("risk", [1.0, 0.25])
def test_the_actors_loss_is_minus_the_value_at_risk(env, batch, risk):
    agent = make_agent(ACIQN, env, risk=risk)
    seen = with_valued_action(batch, "executed")
    torch.manual_seed(3)
    losses = agent.objective.loss_actor(seen)
    torch.manual_seed(3)
    tau = risk * torch.rand(len(batch), agent.objective.num_actor_taus)
    with torch.no_grad():
        own = agent.actor(batch.select("observation")).set("tau", tau)
        expected = -agent.critic(own)["quantile_value"].mean(1)
    torch.testing.assert_close(losses, expected)
    losses.mean().backward()
    assert all(parameter.grad is None for parameter in agent.critic.parameters())
    assert all(parameter.grad is not None for parameter in agent.actor.parameters())


def test_forward_gives_both_losses_to_any_trainer(env, batch):
    made = NETWORK(env)
    critic = made.quantile_critic(num_cosines=8, num_samples=8, risk=1.0)
    loss = ACIQNLoss(made.actor(), critic, gamma=0.9)
    assert {"action", ("next", "reward"), ("observation", "heightmap")} <= set(loss.in_keys)
    with pytest.warns(UserWarning, match="target"):
        found = loss(with_valued_action(batch, "executed"))
    assert set(found.keys()) == set(loss.out_keys)
    (found["loss_value"] + found["loss_actor"]).backward()
    assert all(parameter.grad is not None for parameter in loss.parameters())


# ---------------------------------------------------------------------- proposals


def proposed(agent, state, draw=False, count=8):
    """Proposals and scores of a state."""
    observed = [state[key] for key in agent.actor.in_keys]
    return agent.actor.propose(count, *observed, draw=draw), agent.actor.scores(
        agent.actor.encoder(*observed)
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
    agent, state = make_agent(PROPOSES, env), env.reset()
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
    agent, state = make_agent(PROPOSES, env), env.reset()
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
    agent = make_agent(PROPOSES, env)
    actions, tau = torch.rand(len(batch), 5, 3) * 2 - 1, torch.rand(len(batch), 6)
    observed = [batch[key] for key in agent.critic.encoder.in_keys]
    found = agent.critic.compare(actions, tau, *observed)
    torch.testing.assert_close(found, one_by_one(agent, batch, actions, tau))


@pytest.mark.parametrize("risk", [1.0, 0.25])
@torch.no_grad()
def test_the_policy_takes_the_proposal_with_the_best_value_at_risk(env, risk):
    agent, state = make_agent(ACIQN, env, risk=risk, num_proposals=8), env.reset()
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        action = agent.policy(state.copy())["action"]
    made, _ = proposed(agent, state)
    tau = (risk * agent.readout.midpoint).expand(len(action), -1)
    value = one_by_one(agent, state, made.action, tau)
    best = value.masked_fill(~made.legal, -torch.inf).argmax(1)
    assert torch.equal(action, made.action[torch.arange(len(best)), best])


def test_the_actor_learns_to_propose_the_best(env, batch):
    agent = make_agent(ACIQN, env, num_proposals=8)
    seen = with_valued_action(batch, "executed")
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
    wanted = objective._wanted(with_valued_action(batch, "executed"))
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
    agent = make_agent(PROPOSES, env, lr=3e-3, actor_lr=3e-3, kappa=0.1)
    ended = batch.clone()
    ended["next", "terminated"][:] = True
    ended["next", "reward"] = (ended["executed_action"][:, :1] > 0).float()
    for _ in range(150):
        agent.update(ended.clone())
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        action = agent.policy(env.reset())["action"]
    assert (action[:, 0] > 0).all()


# ---------------------------------------------------------------------- risk


def two_arms(action):
    """A sure 0.4 at one side of the box; 0 or 1 at the other. In between, shares of both."""
    share = (action[:, 0] + 1) / 2
    return (1 - share) * 0.4 + share * (torch.rand(len(action)) < 0.5)


def with_levels(size):
    """The arms, every other row to be played cautiously."""
    batch = toy_batch(two_arms, size)
    level = torch.where(torch.arange(size) % 2 == 0, 0.1, 1.0)
    batch["level"] = batch["next", "level"] = level
    return batch


def test_one_actor_serves_the_level_of_each_row():
    torch.manual_seed(0)
    agent = ACIQN(
        small_env(2), network=Toy, lr=1e-2, actor_lr=1e-3, kappa=0.02, risk="level", num_taus=16,
        num_target_taus=1, num_actor_taus=16,
    )  # fmt: skip
    for _ in range(500):
        agent.update(with_levels(256))
    probe = with_levels(4).select("observation", "level")
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        played = agent.policy(probe)["action"][:, 0].tolist()
    assert played == pytest.approx([-1, 1, -1, 1], abs=0.3)


@pytest.mark.parametrize(
    "risk", ["support", lambda td: td["observation", "heightmap"].mean((-2, -1))]
)
def test_levels_from_the_state(env, batch, risk):
    agent = make_agent(ACIQN, env, risk=risk)
    agent.update(batch.clone())
    root = env.reset()
    agent.policy.eval()
    with torch.no_grad():
        low = agent.policy(root.copy())["action"]
        level = agent.readout.levels(root)
        assert level.shape == (8,)
        with_risk = root.copy().set("risk", level[:, None])
        assert torch.equal(low, agent.actor(with_risk)["action"])
        other = root.copy().set("risk", 1 - 0.5 * level[:, None])
        assert not torch.equal(low, agent.actor(other)["action"])


def test_impossible_levels_are_refused(env):
    with pytest.raises(ParameterError, match="risk=0"):
        make_agent(ACIQN, env, risk=0.0)
    made = NETWORK(env)
    critic = made.quantile_critic(num_cosines=8, num_samples=8, risk=1.0)
    with pytest.raises(ValueError, match=r"risk=1\.5"):
        ACIQNLoss(made.actor(), critic, gamma=0.9, risk=1.5)


def test_fewer_proposals_than_none_are_refused(env):
    with pytest.raises(ParameterError, match="num_proposals"):
        make_agent(ACIQN, env, num_proposals=-1)
