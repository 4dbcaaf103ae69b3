"""IQN: the paper's loss and embedding, and risk levels."""

import math

import pytest
import torch
from tests.agents.algorithms.test_every_agent import small_config
from tests.agents.distributional import MODES, make_agent, sampled, small_env

from agents.algorithms.iqn import IQN
from agents.config.build import build_agent, build_env, build_replay
from agents.networks.readouts.quantile import CosineEmbedding
from agents.objectives.iqn import QuantileRegression, quantile_huber
from agents.training.rollout import DeviceCollector


@pytest.fixture(scope="module", params=MODES)
def env(request):
    return small_env(request.param)


@pytest.fixture(scope="module")
def batch(env):
    return sampled(make_agent(IQN, env), env)


# ---------------------------------------------------------------------- the loss


def test_quantile_huber_by_hand():
    found, tau = torch.tensor([[0.0, 2.0]]), torch.tensor([[0.25, 0.75]])
    wanted = torch.tensor([[0.5, 3.0, -2.0]])
    # first quantile:  d = 0.5, 3, -2: 0.25 * (0.125 + 2.5) + 0.75 * 1.5
    # second quantile: d = -1.5, 1, -4: 0.25 * 1 + 0.75 * 0.5 + 0.25 * 3.5
    expected = (0.25 * (0.125 + 2.5) + 0.75 * 1.5 + 0.25 * 1.0 + 0.75 * 0.5 + 0.25 * 3.5) / 3
    assert quantile_huber(found, wanted, tau).item() == pytest.approx(expected)
    # kappa 2, divided by kappa: d = 0.5, 3, -2 | -1.5, 1, -4
    expected = 0.25 * (0.125 + 4.0) / 2 + 0.75 * 2.0 / 2
    expected += 0.25 * 1.125 / 2 + 0.75 * 0.5 / 2 + 0.25 * 6.0 / 2
    assert quantile_huber(found, wanted, tau, 2.0).item() == pytest.approx(expected / 3)
    # kappa 0: the quantile loss itself
    expected = 0.25 * 3.5 + 0.75 * 2.0 + 0.25 * 1.5 + 0.75 * 1.0 + 0.25 * 4.0
    assert quantile_huber(found, wanted, tau, 0.0).item() == pytest.approx(expected / 3)
    assert quantile_huber(found, found, tau, 0.0).item() == pytest.approx(0.5)  # d = 0, 2, -2, 0


def test_the_embedding_is_the_papers():
    embed = CosineEmbedding(5, 64)
    tau = torch.rand(2, 3)
    i = torch.arange(64)
    weight, bias = embed.linear.weight, embed.linear.bias
    for row in range(2):
        for column in range(3):
            cosines = torch.cos(math.pi * i * tau[row, column])
            expected = torch.relu(weight @ cosines + bias)
            torch.testing.assert_close(embed(tau)[row, column], expected, rtol=1e-4, atol=1e-5)


def by_hand(agent, batch, best, seed):
    """Losses, given the next actions and the seed of the levels."""
    network, objective = agent.network, agent.objective
    torch.manual_seed(seed)
    with torch.no_grad(), objective.target():
        tau = torch.rand(len(batch), objective.regression.num_target_taus)
        future = network.quantiles_of(objective.next_state(batch), best, tau)
    alive = 1 - batch["next", "terminated"].float()
    discount = agent.gamma ** batch["steps_to_next_obs"] * alive
    tau = torch.rand(len(batch), objective.regression.num_taus)
    found = network.quantiles_of(batch, batch["action"], tau)
    wanted = batch["next", "reward"] + discount * future
    return quantile_huber(found, wanted, tau, objective.regression.kappa)


@pytest.mark.parametrize("double", [True, False])
def test_the_online_network_picks_and_the_target_values(env, batch, double):
    agent = make_agent(IQN, env, double=double)
    following = agent.objective.next_state(batch)
    mask = following["action_mask"]
    online = agent.network(following.clone(False))["action_value"]
    with agent.objective.target():
        target = agent.network(following.clone(False))["action_value"]
    online, target = (torch.where(mask, value, -torch.inf).argmax(-1) for value in (online, target))
    losses = {True: by_hand(agent, batch, online, 5), False: by_hand(agent, batch, target, 5)}
    assert not torch.allclose(losses[True], losses[False])
    torch.manual_seed(5)
    torch.testing.assert_close(agent.objective(batch)["loss"], losses[double].mean())
    assert batch["td_error"].shape == (len(batch),)
    assert (batch["td_error"] >= 0).all()


# ---------------------------------------------------------------------- values and risk


@pytest.mark.parametrize("risk", [1.0, 0.25, "support", ("risk", "level")])
def test_values_are_means_of_quantiles(env, batch, risk):
    network = make_agent(IQN, env, risk=risk).network
    torch.manual_seed(0)
    level = torch.full((len(batch), 1), risk) if isinstance(risk, float) else torch.rand(64, 1)
    batch = batch.clone()
    if not isinstance(risk, float):
        batch[network.readout.level_key] = level
    midpoint = (torch.arange(32) + 0.5) / 32
    action = batch["action"]
    quantiles = network.quantiles_of(batch, action, midpoint * level.clamp(min=0.01))
    value = network.value_of(batch, action)
    torch.testing.assert_close(quantiles.mean(-1), value, rtol=1e-4, atol=1e-5)
    whole = network(batch.clone(False))["action_value"]
    torch.testing.assert_close(whole.gather(1, action[:, None]).squeeze(1), value)


def test_a_replay_without_levels_bootstraps_at_level_one(env, batch):
    losses = []
    for risk in (1.0, "support"):
        agent = make_agent(IQN, env, risk=risk)
        torch.manual_seed(2)
        losses.append(agent.objective(batch.clone())["loss"])
    assert losses[0] == losses[1]
    held = batch.clone()
    held["next", "metrics", "support_ratio"] = torch.full((len(batch), 1), 0.05)
    averse = make_agent(IQN, env, risk=0.05)
    torch.manual_seed(2)
    expected = averse.objective(batch.clone())["loss"]
    torch.manual_seed(2)
    torch.testing.assert_close(agent.objective(held)["loss"], expected)


def test_the_default_kappa_learns_quantiles():
    """The gradient changes its sign at the quantile, give or take a seventh of the spread.

    The former kappa, 1, learned expectiles: a value at risk of -1.24 spreads for -1.75 at 0.1.
    """
    names = ("num_taus", "num_target_taus", "kappa")
    agents = [small_config(agent).agent for agent in ("iqn", "ac_iqn")]
    regression, other = (QuantileRegression(**{n: a[n] for n in names}) for a in agents)
    assert regression == other
    returns = torch.distributions.Normal(0.5, 0.1)
    wanted = returns.icdf((torch.arange(1_000) + 0.5) / 1_000)[None]
    tau = torch.tensor([[0.01, 0.1, 0.25, 0.5, 0.9]])
    for distance in (-0.015, 0.015):
        found = (returns.icdf(tau) + distance).requires_grad_()
        (gradient,) = torch.autograd.grad(regression.compare(found, wanted, tau)[0].sum(), found)
        assert (gradient.sign() * distance > 0).all()


# ---------------------------------------------------------------------- levels in a replay


@pytest.mark.parametrize("agent", ["iqn", "ac_iqn"])
def test_levels_from_the_state_are_learned_from(agent):
    """They stay in the replay, so that targets follow the policy that acts."""
    torch.manual_seed(0)
    config = small_config(agent, "agent.risk=support")
    env = build_env(config)
    made = build_agent(config, env)
    replay = build_replay(config, env, made)
    collector = DeviceCollector(env, made.policy)
    seen = []
    for _ in range(12):
        transition = collector.step()
        seen += [state["metrics", "support_ratio"] for state in (transition, transition["next"])]
        replay.extend(transition)
    batch = replay.sample(32)
    for state in (batch, batch["next"]):
        level = state["metrics", "support_ratio"]
        assert torch.isin(level, torch.cat(seen)).all()
    assert (batch["metrics", "support_ratio"] == 0).any()  # containers that were empty
    assert (batch["next", "metrics", "support_ratio"] > 0).all()
    assert made.update(batch)["skipped"] == 0
    if agent == "iqn":
        assert torch.equal(
            made.objective.next_state(batch)["metrics", "support_ratio"],
            batch["next", "metrics", "support_ratio"],
        )
