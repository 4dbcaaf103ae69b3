"""Rainbow: its noise, and a support that fits the reward."""

import pytest
import torch
from tests.agents.distributional import MODES, make_agent, sampled, small_env
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.algorithms.rainbow import Rainbow
from agents.config.build import build_agent, build_env
from agents.config.compose import compose
from agents.networks.readouts.noisy import NoisyLinear
from agents.networks.readouts.values import Distribution
from packing_env.core import rewards
from packing_env.types import ParameterError


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


def test_equal_rows_explore_differently(env):
    """Before, all rows shared one draw of the noise, so equal states had equal values."""
    agent, root = make_agent(Rainbow, env, sigma=2.0), env.reset()
    same = root.clone().copy_(root[:1].expand(len(root)))
    with set_exploration_type(ExplorationType.RANDOM):
        value = agent.policy.action_values(same)
    assert (value[1:] != value[0]).flatten(1).any(1).all()


def test_the_support_fits_the_reward_and_actions_have_their_own_distributions():
    """The support was [-1, 1.5] for returns in [0, 1], and a map's placements mixed four of them.

    A task with many placements still mixes four distributions.
    """
    few = ["agent=rainbow", "env.num_envs=1", "env.pool_size=4"]
    for reward, ends in (("utilization", (0.0, 1.0)), ("low_height", (-0.1, 1.0))):
        config = compose("train", ["env=cuboid_online", *few, f"reward={reward}"])
        readout = build_agent(config, build_env(config)).network.readout
        support = readout.support
        assert (support[0].item(), support[-1].item()) == pytest.approx(ends)
        assert support.diff().max() <= 0.0221
        assert readout.mixture is None
    config = compose("train", ["items=example_cuboids", *few])  # 24,576 placements
    assert build_agent(config, build_env(config)).network.readout.mixture == 4


def test_returns_stay_in_their_bounds(env):
    assert rewards.return_bounds({"item": 2.0, "height": -0.5}, 4) == (0.0, 8.5)
    weights = {"utilization": 10.0, "height": 2.0, "objective": 1.0}
    low, high = rewards.return_bounds(weights, 4)
    playing = small_env("placement", 64, reward=weights)
    torch.manual_seed(0)
    root, total = playing.reset(), torch.zeros(64)
    for _ in range(4):
        root = playing.step(playing.rand_action(root))["next"]
        total += root["reward"].squeeze(-1)
        assert (total >= low).all()
        assert (total <= high).all()


def test_a_reward_without_bounds_asks_for_a_support(monkeypatch):
    monkeypatch.setitem(rewards.TERMS, "mine", rewards.TERMS["utilization"])
    env = small_env("placement", 1, reward={"mine": 1.0})
    with pytest.raises(ParameterError, match="set v_min and v_max"):
        make_agent(Rainbow, env)
    assert make_agent(Rainbow, env, v_min=0.0, v_max=1.0).network.support[-1] == 1
    with pytest.raises(ParameterError, match="mixture='many'"):
        Distribution(mixture="many")
