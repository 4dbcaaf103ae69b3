"""Attention over candidates: no order, no garbage, and the same value for one and for all."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tests.agents.distributional import NETWORKS, small_env
from tests.tiny import tiny_env
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.networks import CandidateScores
from agents.networks.readouts.quantile import QuantileReadout
from agents.networks.readouts.values import CategoricalReadout, ValueReadout
from packing_env.types import ParameterError

READOUTS = {
    "value": ValueReadout,
    "categorical": partial(CategoricalReadout, noisy=False),
    "quantile": QuantileReadout,
}
LISTED = ("observation", "candidates")


@pytest.fixture(scope="module")
def root():
    env = small_env("candidate")
    root = env.reset()
    for _ in range(3):
        root = env.step_and_maybe_reset(env.rand_action(root))[1]
    assert not root["action_mask"].all()
    return root


@pytest.fixture(params=READOUTS)
def network(request):
    torch.manual_seed(0)
    network = NETWORKS["candidate"](small_env("candidate"), readout=READOUTS[request.param])
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return network


def test_the_order_of_the_list_does_not_matter(network, root):
    order = torch.randperm(root[LISTED].shape[1])
    expected = network(root.clone())["action_value"][:, order]
    shuffled = root.clone().set(LISTED, root[LISTED][:, order])
    torch.testing.assert_close(network(shuffled)["action_value"], expected, rtol=1e-4, atol=1e-6)


def test_empty_places_change_nothing(network, root):
    there = root[LISTED][..., -1:] > 0
    garbage = torch.rand_like(root[LISTED])
    garbage[..., -1] = 0
    other = root.clone().set(LISTED, torch.where(there, root[LISTED], garbage))
    expected = network(root.clone())["action_value"]
    found = network(other)["action_value"]
    torch.testing.assert_close(found[there[..., 0]], expected[there[..., 0]])


def test_a_candidate_depends_on_the_others_and_on_the_container(network, root):
    before = network(root.clone())["action_value"][:, 0]
    fewer = root.clone()
    fewer[LISTED][:, 1:] = 0
    assert not torch.isclose(network(fewer)["action_value"][:, 0], before, atol=1e-7).all()
    higher = root.clone()
    higher["observation", "heightmap"] = (higher["observation", "heightmap"] + 0.2).clamp(max=1)
    assert not torch.isclose(network(higher)["action_value"][:, 0], before, atol=1e-7).any()


def test_value_of_is_the_gathered_action_value(network, root):
    action = root["action_mask"].int().argmax(-1)
    whole = network(root.clone())["action_value"]
    expected = whole.gather(1, action[:, None]).squeeze(1)
    torch.testing.assert_close(network.value_of(root, action), expected)


def test_nothing_to_choose_from_gives_no_nan(network, root):
    bare = root.clone().set(LISTED, torch.zeros_like(root[LISTED]))
    value = network(bare)["action_value"]
    assert value.isfinite().all()
    value.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


def test_bfloat16_changes_the_transformer_only(root):
    made = []
    for precision in ("fp32", "bf16"):
        torch.manual_seed(0)
        network = CandidateScores(small_env("candidate"), width=16, precision=precision)
        made.append(network(root.clone())["action_value"])
    assert made[1].dtype == torch.float32
    assert not torch.equal(*made)
    torch.testing.assert_close(*made, rtol=0.05, atol=0.02)


def test_dqn_acts_on_it(root):
    from agents.policies.policy_wrapper import PolicyWrapper

    policy = PolicyWrapper(CandidateScores(small_env("candidate"), width=16))
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        action = policy(root.clone())["action"]
    assert root["action_mask"].gather(1, action[:, None]).all()


def test_other_modes_are_refused():
    with pytest.raises(ParameterError, match="action_mode"):
        CandidateScores(tiny_env(2))
