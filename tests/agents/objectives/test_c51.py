"""`C51Loss` equals TorchRL's loss, with returns inside the support and beyond it."""

import pytest
import torch
from tensordict.nn import TensorDictModuleBase
from tests.agents.distributional import MODES, make_agent, sampled, small_env
from torchrl.objectives import DistributionalDQNLoss

from agents.algorithms.rainbow import Rainbow
from agents.objectives import C51Loss

QUIET = {"noisy": False}
MIXTURES = [None, 3]


@pytest.fixture(scope="module", params=MODES)
def env(request):
    return small_env(request.param)


@pytest.fixture(scope="module")
def batch(env):
    return sampled(make_agent(Rainbow, env), env)


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
