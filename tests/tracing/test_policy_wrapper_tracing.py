"""`PolicyWrapper` compiles to one graph, with exploration in it."""

from __future__ import annotations

import torch
from tests.agents.policies.test_policy_wrapper import batch, wrapper

from agents.policies.policy_wrapper import EpsilonSchedule


def test_one_graph():
    policy = wrapper(EpsilonSchedule(0.5, 0.5))
    compiled = torch.compile(policy, backend="eager", fullgraph=True)
    td = batch((3, 4))
    torch.manual_seed(0)
    expected = policy(td.clone())["action"]
    torch.manual_seed(0)
    assert torch.equal(compiled(td.clone())["action"], expected)
