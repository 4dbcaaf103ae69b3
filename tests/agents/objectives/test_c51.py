"""`C51Loss` and categorical readouts equal the paper's projection and TorchRL's loss."""

import pytest
import torch
from tensordict.nn import TensorDictModuleBase
from tests.agents.distributional import MODES, make_agent, sampled, small_env
from torchrl.objectives import DistributionalDQNLoss

from agents.algorithms.rainbow import Rainbow
from agents.networks.readouts.values import CategoricalReadout
from agents.objectives import C51Loss
from agents.objectives.c51 import project

QUIET = {"noisy": False}
MIXTURES = [None, 3]


@pytest.fixture(scope="module", params=MODES)
def env(request):
    return small_env(request.param)


@pytest.fixture(scope="module")
def batch(env):
    return sampled(make_agent(Rainbow, env), env)


# ---------------------------------------------------------------------- projection


def test_projection_by_hand():
    support = torch.tensor([0.0, 1.0, 2.0])
    chance = torch.tensor([[0.2, 0.5, 0.3]])
    # 0.25 lies between the first two atoms, 1 on the second, 2.5 beyond the end
    found = project(chance, torch.tensor([[0.25, 1.0, 2.5]]), support)
    torch.testing.assert_close(found, torch.tensor([[0.15, 0.05 + 0.5, 0.3]]))


@pytest.mark.parametrize(("v_min", "v_max"), [(-1.0, 1.5), (-7.0, -3.0), (2.0, 2.5)])
def test_projection_keeps_mass_and_mean(v_min, v_max):
    torch.manual_seed(0)
    support = torch.linspace(v_min, v_max, 51)
    chance = torch.rand(256, 51).softmax(-1)
    inside = v_min + (v_max - v_min) * torch.rand(256, 51)
    found = project(chance, inside, support)
    assert (found >= 0).all()
    torch.testing.assert_close(found.sum(-1), torch.ones(256))
    torch.testing.assert_close(found @ support, (chance * inside).sum(-1), rtol=1e-5, atol=1e-5)
    beyond = project(chance, inside + 10 * (v_max - v_min), support)
    torch.testing.assert_close(beyond.sum(-1), torch.ones(256))
    torch.testing.assert_close(beyond[:, -1], torch.ones(256))


# ---------------------------------------------------------------------- readouts


@pytest.mark.parametrize("mixture", MIXTURES)
def test_the_mean_is_the_expectation_of_the_distribution(mixture):
    torch.manual_seed(0)
    readout = CategoricalReadout(0, mixture=mixture, num_atoms=11)
    value, score = torch.randn(4, 2, readout.num_values), torch.randn(4, 2, readout.num_scores, 6)
    chance = readout.log_probs(value, score).exp()
    assert chance.shape == (4, 2, 11, 6)
    torch.testing.assert_close(chance.sum(-2), torch.ones(4, 2, 6))
    expected = (chance * readout.support[:, None]).sum(-2)
    torch.testing.assert_close(readout.mean(value, score), expected)


# ---------------------------------------------------------------------- the loss


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
@pytest.mark.parametrize("mixture", MIXTURES)
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
