"""States of agents: what their parts hold, moved and restored part by part."""

import torch
from torch import nn

from agents.algorithms.base import Learner
from agents.algorithms.optimization import GatedAdam
from agents.nested import named_tensors


class Parts(Learner):
    """A module, optimizers by name, a tensor and a number."""

    parts = ("policy", "optimizers", "count", "updates")

    def __init__(self) -> None:
        self.policy = nn.Linear(2, 1)
        self.optimizers = {
            "first": GatedAdam(self.policy.parameters(), lr=0.1, schedule=lambda frames: 0.5)
        }
        self.count, self.updates = torch.zeros(()), 0


def test_an_agent_is_its_parts() -> None:
    one, other = Parts(), Parts()
    one.optimizers["first"].step(one.policy(torch.ones(1, 2)).sum())
    one.count += 3
    one.updates = 7
    memory = other.count
    other.load_state_dict(one.state_dict())
    assert other.count is memory
    assert (other.count.item(), other.updates) == (3, 7)
    states = [named_tensors(agent.state_dict()).items() for agent in (one, other)]
    for (name, value), (again, restored) in zip(*states, strict=True):
        assert name == again
        assert torch.equal(value, restored), name
    other.set_frames(1)
    assert other.optimizers["first"].optimizer.param_groups[0]["lr"] == 0.5


def test_an_agent_moves_whole() -> None:
    agent = Parts()
    agent.optimizers["first"].step(agent.policy(torch.ones(1, 2)).sum())
    agent.to("meta")
    assert {value.device.type for value in named_tensors(agent.state_dict()).values()} == {"meta"}
