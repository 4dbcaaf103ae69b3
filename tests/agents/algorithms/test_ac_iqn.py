"""AC-IQN: the losses by hand, proposals and risk levels."""

import pytest
import torch
from tests.agents.continuous import NETWORK, make_agent, sampled, small_env
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.algorithms.ac_iqn import ACIQN
from agents.networks.readouts.quantile import QuantileReadout
from agents.objectives import ACIQNLoss
from agents.objectives.iqn import quantile_huber
from agents.objectives.transitions import with_executed_action


@pytest.fixture(scope="module")
def env():
    return small_env()


@pytest.fixture(scope="module")
def batch(env):
    return sampled(env)


@torch.no_grad()
def by_hand(agent, batch, seed):
    """Losses and TD errors of the executed actions against the target returns."""
    objective = agent.objective
    torch.manual_seed(seed)
    wanted = objective._target_returns(with_executed_action(batch))
    tau = torch.rand(len(batch), objective.regression.num_taus)
    seen = batch.select("observation").set("action", batch["executed_action"]).set("tau", tau)
    found = agent.critic(seen)["quantile_value"]
    losses = quantile_huber(found, wanted, tau, objective.regression.kappa)
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
    readout = QuantileReadout(made.size.width, num_cosines=8, num_samples=8, risk=1.0)
    critic = made.critic(readout)
    loss = ACIQNLoss(made.proposer(), critic, gamma=0.9)
    assert {"action", ("next", "reward"), ("observation", "heightmap")} <= set(loss.in_keys)
    with pytest.warns(UserWarning, match="target"):
        found = loss(with_executed_action(batch))
    assert set(found.keys()) == set(loss.out_keys)
    (found["loss_value"] + found["loss_actor"]).backward()
    assert all(parameter.grad is not None for parameter in loss.parameters())


# ---------------------------------------------------------------------- proposals


def proposed(agent, state, draw=False, count=8):
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
    drawn = [proposed(agent, state, draw=True)[0].place for _ in range(500)]
    first = torch.stack(drawn)[:, 0, 0]
    share = proposed(agent, state)[1][0, 0].softmax(-1)
    found = torch.bincount(first, minlength=len(share)) / len(first)
    assert (found - share).abs().max() < 0.08
    heads = drawn[0].unflatten(1, (2, 4)).sort(-1).values
    assert (heads.diff(dim=-1) > 0).all()


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
