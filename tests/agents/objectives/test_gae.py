"""Generalised advantages equal a plain loop, whatever ends where."""

import pytest
import torch
from torchrl.objectives.value.functional import generalized_advantage_estimate

from agents.objectives.gae import generalised_advantage

GAMMA, LAM = 0.97, 0.9


def steps(rows: int, length: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Rewards and values, with episodes that end in both ways, also within the rollout."""
    stream = torch.Generator().manual_seed(seed)
    shape = (rows, length)
    terminated = torch.rand(shape, generator=stream) < 0.15
    truncated = torch.rand(shape, generator=stream) < 0.15
    return {
        "reward": torch.randn(shape, generator=stream),
        "value": torch.randn(shape, generator=stream),
        "next_value": torch.randn(shape, generator=stream),
        "done": terminated | truncated,
        "terminated": terminated,
    }


def loop(given: dict[str, torch.Tensor], gamma: float, lam: float) -> torch.Tensor:
    out = torch.zeros(given["reward"].shape, dtype=torch.float64)
    for row in range(out.shape[0]):
        after = 0.0
        for t in reversed(range(out.shape[1])):
            at = {key: value[row, t].item() for key, value in given.items()}
            future = 0.0 if at["terminated"] else at["next_value"]
            delta = at["reward"] + gamma * future - at["value"]
            after = delta + gamma * lam * (0.0 if at["done"] else after)
            out[row, t] = after
    return out


@pytest.mark.parametrize("length", [1, 2, 7, 16, 33])
def test_advantages_equal_a_loop(length: int) -> None:
    given = steps(20, length, seed=length)
    if length > 2:
        assert (given["done"] & ~given["terminated"])[:, :-1].any()  # truncated in mid-rollout
    for gamma, lam in ((GAMMA, LAM), (1.0, 1.0), (GAMMA, 0.0)):
        found = generalised_advantage(**given, gamma=gamma, lam=lam)
        expected = loop(given, gamma, lam).float()
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_they_equal_those_of_torchrl() -> None:
    given = steps(9, 25)
    columns = {key: value[..., None] for key, value in given.items()}
    expected, _ = generalized_advantage_estimate(
        GAMMA,
        LAM,
        columns["value"],
        columns["next_value"],
        columns["reward"],
        columns["done"],
        columns["terminated"],
    )
    found = generalised_advantage(**given, gamma=GAMMA, lam=LAM)
    torch.testing.assert_close(found[..., None], expected, rtol=1e-5, atol=1e-5)
