"""DDPG, SAC and AC-IQN: losses by hand, proposals and risk levels."""

import pytest
import torch
from tests.agents.continuous import NETWORK, make_agent, sampled, small_env
from tests.agents.learning import shaken
from torch.nn import functional
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.algorithms.ac_iqn import ACIQN
from agents.algorithms.ddpg import DDPG
from agents.algorithms.sac import SAC
from agents.networks.readouts.quantile import QuantileReadout
from agents.objectives import ACIQNLoss
from agents.objectives.iqn import quantile_huber
from agents.objectives.transitions import with_executed_action
from agents.policies.continuous import TanhGaussian


@pytest.fixture(scope="module")
def env():
    return small_env()


@pytest.fixture(scope="module")
def batch(env):
    return sampled(env)


# ---------------------------------------------------------------------- losses by hand


def n_step(agent, batch, future):
    """r + gamma^m (1 - terminated) times the future value, ``[B]``."""
    alive = 1 - batch["next", "terminated"].float().squeeze(1)
    discount = agent.gamma ** batch["steps_to_next_obs"].squeeze(1)
    return batch["next", "reward"].squeeze(1) + discount * alive * future


@torch.no_grad()
def ddpg_by_hand(agent, batch, seed):
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


@torch.no_grad()
def ac_iqn_by_hand(agent, batch, seed):
    """Losses and TD errors of n-step quantile targets."""
    objective = agent.objective
    torch.manual_seed(seed)
    wanted = objective._target_returns(with_executed_action(batch))
    shaken(agent.actor)  # the target actor proposes
    torch.manual_seed(seed)
    assert torch.equal(objective._target_returns(with_executed_action(batch)), wanted)
    tau = torch.rand(len(batch), objective.regression.num_taus)
    seen = batch.select("observation").set("action", batch["executed_action"]).set("tau", tau)
    found = agent.critic(seen)["quantile_value"]
    losses = quantile_huber(found, wanted, tau, objective.regression.kappa)
    return losses, (found.mean(1) - wanted.mean(1)).abs()


@pytest.mark.parametrize(
    ("kind", "options", "by_hand"),
    [
        (DDPG, {}, ddpg_by_hand),
        (SAC, {"alpha": 0.1}, sac_by_hand),
        (ACIQN, {"kappa": 1.0, "num_target_taus": 5}, ac_iqn_by_hand),
        (ACIQN, {"kappa": 0.01, "num_target_taus": 5}, ac_iqn_by_hand),
    ],
)
def test_losses_equal_those_by_hand(env, batch, kind, options, by_hand):
    agent, batch = make_agent(kind, env, **options), batch.clone()
    losses, error = by_hand(agent, batch, 7)
    torch.manual_seed(7)
    found = agent.update(batch)
    torch.testing.assert_close(found["loss"], losses.mean(), rtol=1e-4, atol=1e-6)
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


def test_the_critics_begin_apart(env):
    first, second = make_agent(SAC, env).objective.qvalue_network_params["out", "weight"]
    assert not torch.equal(first, second)


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
