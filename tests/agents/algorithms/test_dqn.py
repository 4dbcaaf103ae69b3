"""Masked double dueling DQN equals TorchRL's loss, and saves work where the result allows it."""

import pytest
import torch
from tensordict.nn import TensorDictSequential
from tests.agents.distributional import NETWORKS, small_env
from tests.agents.learning import sampled, shaken
from torchrl.modules import QValueModule
from torchrl.objectives import DQNLoss

from agents.algorithms.dqn import DQN
from agents.networks import ScoreMaps


@pytest.fixture(scope="module")
def batch_and_env():
    """A sampled batch of three-step transitions, with finished rows in it."""
    torch.manual_seed(0)
    env = small_env("placement")
    agent = DQN(env, network=NETWORKS["placement"], n_steps=3)
    return sampled(env, agent.policy, agent.gamma), env


def make_agent(env, **options):
    torch.manual_seed(1)
    agent = DQN(env, network=NETWORKS["placement"], n_steps=3, **options)
    shaken(agent.network)
    shaken(agent.target_parameters)  # away from the online network
    return agent


@pytest.mark.filterwarnings("ignore:No target network updater")  # the test sets the target itself
@pytest.mark.parametrize("double", [True, False])
def test_loss_and_gradient_equal_torchrl(batch_and_env, double):
    batch, env = batch_and_env
    agent = make_agent(env, double=double)
    ours, _ = agent.loss(batch.clone(False))
    gradient = torch.autograd.grad(ours.mean(), agent.parameters, allow_unused=True)

    choose = QValueModule(action_space="categorical", action_mask_key="action_mask")
    theirs = DQNLoss(
        TensorDictSequential(agent.network, choose),
        loss_function="smooth_l1",
        delay_value=True,
        double_dqn=double,
        action_space="categorical",
    )
    theirs.make_value_estimator(gamma=agent.gamma)
    names = [name for name, _ in agent.network.named_parameters()]
    values = dict(zip(names, agent.target_parameters, strict=True))
    for name, value in values.items():
        theirs.target_value_network_params["module", "0", *name.split(".")].copy_(value)
    expected = theirs(batch.clone())["loss"]
    torch.testing.assert_close(ours.mean(), expected, rtol=1e-5, atol=1e-7)
    expected.backward()
    for name, got in zip(names, gradient, strict=True):
        want = theirs.value_network_params["module", "0", *name.split(".")].grad
        if got is None:
            assert want is None or want.abs().max() == 0
        else:
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)


def test_advantages_of_a_map_are_centred_over_its_legal_placements(batch_and_env):
    """The mean of a map is the map's value, whatever the scores of its placements are."""
    batch, env = batch_and_env
    network = ScoreMaps(env, channels=8, precision="fp32")
    legal = batch["action_mask"].view(len(batch), 6, -1)  # two items in three orientations
    values, means = [], []
    for _ in range(2):
        values.append(network(batch.clone(False))["action_value"].view_as(legal))
        means.append((values[-1] * legal).sum(2) / legal.sum(2).clamp(min=1))
        shaken(network.map_scores, 1.0)
    torch.testing.assert_close(*means, rtol=1e-4, atol=1e-5)
    assert (values[0] - values[1])[legal].abs().max() > 0.1
