"""Attention over candidates: no order, no garbage, and the same value for one and for all."""

import pytest
import torch
from tests.agents.distributional import NETWORKS, small_env
from tests.agents.learning import shaken
from tests.agents.networks.test_every_network import READOUTS
from tests.tiny import play

LISTED = ("observation", "candidates")


@pytest.fixture(scope="module")
def root():
    root = play(small_env("candidate"), 4)[-1]
    assert not root["action_mask"].all()
    return root


@pytest.fixture(params=["value", "categorical", "quantile"])
def network(request):
    torch.manual_seed(0)
    network = NETWORKS["candidate"](small_env("candidate"), readout=READOUTS[request.param])
    shaken(network)
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


def test_nothing_to_choose_from_gives_no_nan(network, root):
    bare = root.clone().set(LISTED, torch.zeros_like(root[LISTED]))
    value = network(bare)["action_value"]
    assert value.isfinite().all()
    value.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())
