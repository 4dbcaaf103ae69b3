"""Branching double Q: heads share a target, which leaves out heads with a single option."""

import pytest
import torch
from tensordict import TensorDict
from tests.agents.learning import Table
from tests.tiny import tiny_env
from torch import Tensor
from torch.nn import functional

from agents.algorithms.branching import Branching, judge
from agents.policies.heads import Heads

SIZES = (2, 2, 3, 2)


def random_mask(rows: int, seed: int = 0) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, 24, generator=stream) < 0.4
    mask[:, 5] = True
    mask[0] = torch.arange(24) == 5  # one placement: no head has a choice
    return mask


def options(legal: Tensor, prefix: tuple[int, ...]) -> list[int]:
    """Values of the next head that some legal placement completes."""
    left = legal.view(SIZES)[prefix]
    return [v for v in range(left.shape[0]) if left[v].any()]


def plain(network: Table, row: int, legal: Tensor, action: list[int] | None = None):
    """Return the choice of each head, its value, and whether the head had several options."""
    prefix: tuple[int, ...] = ()
    values, free = [], []
    for head in range(4):
        scores = network.table[head].detach()[(row, *prefix)]
        known = options(legal, prefix)
        pick = max(known, key=lambda v, s=scores: s[v].item()) if action is None else action[head]
        centre = scores[known].mean() if known else 0.0
        values.append((network.state_value[row] + scores[pick] - centre).item())
        free.append(len(known) > 1)
        prefix = (*prefix, pick)
    return list(prefix), values, free


def mean_of_free(values: list[float], free: list[bool]) -> float:
    kept = [v for v, f in zip(values, free, strict=True) if f] or values
    return sum(kept) / len(kept)


def agent_of(online: Table, target: Table, **options) -> Branching:
    """An agent whose networks are tables; the environment only gives the heads' sizes."""
    made = iter([online])
    env = tiny_env(2, action_mode="multi_head")
    agent = Branching(env, network=lambda env: next(made), **options)
    agent.heads = agent.policy.heads = Heads(SIZES)
    agent.target = target
    agent.target_parameters = list(target.parameters())
    return agent


def transitions(rows: int = 5) -> TensorDict:
    stream = torch.Generator().manual_seed(7)
    mask = random_mask(rows, 1)
    index = torch.where(mask, torch.rand(rows, 24, generator=stream), -1.0).argmax(1)
    return TensorDict(
        {
            "row": torch.arange(rows),
            "action_mask": mask,
            "action": torch.stack(torch.unravel_index(index, SIZES), -1),
            "steps_to_next_obs": torch.tensor([[3], [1], [2], [3], [2]]),
            "next": {
                "row": torch.arange(rows).flip(0),
                "action_mask": torch.ones(rows, 24, dtype=torch.bool),
                "legal_mask": random_mask(rows, 2),
                "reward": torch.randn(rows, 1, generator=stream),
                "terminated": torch.tensor([[False], [True], [False], [False], [False]]),
            },
        },
        [rows],
    )


@pytest.mark.parametrize("double", [True, False])
def test_loss_equals_a_plain_one(double: bool) -> None:
    online, target = Table(SIZES, seed=0), Table(SIZES, seed=1)
    agent = agent_of(online, target, double=double, gamma=0.9)
    batch = transitions()
    losses, values = agent.loss(batch)
    mask, action = batch["action_mask"], batch["action"]
    weight = judge(online, agent.heads, batch, mask, action).weight
    legal = batch["next", "legal_mask"]
    for row in range(5):
        after = batch["next", "row"][row].item()
        best, _, _ = plain(online if double else target, after, legal[row])
        _, ahead, free = plain(target, after, legal[row], best)
        future = 0.0 if batch["next", "terminated"][row] else mean_of_free(ahead, free)
        y = batch["next", "reward"][row].item()
        y += 0.9 ** batch["steps_to_next_obs"][row].item() * future
        action = batch["action"][row].tolist()
        _, own, free = plain(online, row, batch["action_mask"][row], action)
        assert values[row].item() == pytest.approx(mean_of_free(own, free), abs=1e-5)
        errors = [abs(y - value) for value in own]
        each = [
            functional.smooth_l1_loss(torch.tensor(e), torch.tensor(0.0)).item() for e in errors
        ]
        assert losses[row].item() == pytest.approx(mean_of_free(each, free), abs=1e-5)
        counted = [e for e, f in zip(errors, free, strict=True) if f] or errors
        assert batch["td_error"][row].item() == pytest.approx(sum(counted), abs=1e-5)
    assert not any(parameter.grad is not None for parameter in target.parameters())
    # a head without a choice teaches nothing: its scores get no gradient
    losses.sum().backward()
    for head in range(4):
        for row in range(5):
            if not weight[row, head]:
                assert not online.table[head].grad[row].any()
