"""Rainbow: TorchRL's loss, noise, and a support that fits the reward."""

import pytest
import torch
from tensordict.nn import TensorDictModuleBase
from tests.agents.distributional import MODES, make_agent, sampled, small_env
from tests.tiny import tiny_env
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.objectives import DistributionalDQNLoss

from agents.algorithms.rainbow import Rainbow
from agents.networks.readouts.noisy import NoisyLinear
from agents.networks.readouts.values import Distribution
from agents.objectives import C51Loss
from packing_env import make_env
from packing_env.core import rewards
from packing_env.types import ParameterError


@pytest.fixture(scope="module", params=MODES)
def env(request):
    return small_env(request.param)


@pytest.fixture(scope="module")
def batch(env):
    return sampled(make_agent(Rainbow, env), env)


# ---------------------------------------------------------------------- the loss

QUIET = {"noisy": False}


class AllLogProbs(TensorDictModuleBase):
    """A network in the form that TorchRL's loss wants: log-probabilities of every action."""

    action_space = "categorical"
    out_keys = ("action_value", "action")

    def __init__(self, network):
        super().__init__()
        self.network = network
        self.in_keys = network.in_keys
        self.register_buffer("support", network.support.clone())

    def forward(self, tensordict):
        network = self.network
        seen = [tensordict.get(key) for key in network.in_keys]
        log_probs = network.readout.log_probs(*network.streams(seen, gain=None))
        log_probs = log_probs.transpose(1, 2).flatten(2)  # [B, atoms, A]
        tensordict.set("action_value", log_probs)
        mean = torch.einsum("bza,z->ba", log_probs.exp(), self.support)
        return tensordict.set("action", mean.argmax(-1))


@pytest.mark.filterwarnings("ignore:No target network updater")  # the test sets the target itself
@pytest.mark.parametrize("support", [(-1.0, 1.5), (-3.0, -1.0)])
@pytest.mark.parametrize("mixture", [None, 3])
def test_loss_and_gradient_equal_torchrl_where_all_is_legal(env, batch, mixture, support):
    v_min, v_max = support
    agent = make_agent(Rainbow, env, mixture=mixture, v_min=v_min, v_max=v_max, **QUIET)
    batch = batch.clone()
    for where in (batch, batch["next"]):
        where["action_mask"] = torch.ones_like(where["action_mask"])
    batch["next", "legal_mask"] = batch["next", "action_mask"]
    batch["action"] = torch.randint_like(batch["action"], env.mode.num_actions)
    theirs = DistributionalDQNLoss(AllLogProbs(agent.network), gamma=agent.gamma)
    for key, value in agent.objective.target_value_network_params.items(True, True):
        name = key if isinstance(key, tuple) else (key,)
        theirs.target_value_network_params["network", *name].data.copy_(value)
    expected = theirs(batch.clone())["loss"]
    batch["next", "action_mask"] = torch.zeros_like(batch["action_mask"])  # `legal_mask` counts
    ours = agent.objective(batch)["loss"]
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)
    assert 0 < batch["td_error"].mean() < ours  # a divergence, without the target's entropy
    parameters = list(agent.network.parameters())
    for got, want in zip(
        torch.autograd.grad(ours, parameters),
        torch.autograd.grad(expected, parameters),
        strict=True,
    ):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-6)


@pytest.mark.filterwarnings("ignore:No target network updater")
def test_works_on_one_step(env, batch):
    network = make_agent(Rainbow, env, **QUIET).network
    loss = C51Loss(network, gamma=0.9)
    batch = batch.exclude("steps_to_next_obs")
    found = loss(batch.clone())
    found["loss"].backward()
    one = torch.ones_like(batch["next", "done"], dtype=torch.int64)
    torch.testing.assert_close(loss(batch.clone().set("steps_to_next_obs", one)), found)


# ---------------------------------------------------------------------- noise


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


# ---------------------------------------------------------------------- the support


def test_the_support_fits_the_reward_and_actions_have_their_own_distributions():
    """The support was [-1, 1.5] for returns in [0, 1], and a map's placements mixed four of them.

    A task with many placements still mixes four distributions.
    """
    low_height = {"utilization": 1.0, "height": 0.1}
    for reward, ends in (({"utilization": 1.0}, (0.0, 1.0)), (low_height, (-0.1, 1.0))):
        env = make_env("cuboid_online", 1, pool_size=4, reward=reward)
        readout = Rainbow(env).network.readout
        support = readout.support
        assert (support[0].item(), support[-1].item()) == pytest.approx(ends)
        assert support.diff().max() <= 0.0221
        assert readout.mixture is None
    many = tiny_env(1, items={"grid": (80, 80)})  # 19,200 placements
    assert Rainbow(many).network.readout.mixture == 4


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
