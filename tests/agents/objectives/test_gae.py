"""Generalised advantages equal those of TorchRL, whatever ends where."""

import pytest
import torch
from torchrl.objectives.value.functional import generalized_advantage_estimate

from agents.objectives.gae import generalised_advantage


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


@pytest.mark.parametrize("length", [1, 2, 7, 16, 33])
@pytest.mark.parametrize(("gamma", "lam"), [(0.97, 0.9), (1.0, 1.0), (0.97, 0.0)])
def test_advantages_equal_those_of_torchrl(length: int, gamma: float, lam: float) -> None:
    given = steps(20, length, seed=length)
    if length > 2:
        assert (given["done"] & ~given["terminated"])[:, :-1].any()  # truncated in mid-rollout
    names = ("value", "next_value", "reward", "done", "terminated")
    columns = (given[name][..., None] for name in names)
    expected, _ = generalized_advantage_estimate(gamma, lam, *columns)
    found = generalised_advantage(**given, gamma=gamma, lam=lam)
    torch.testing.assert_close(found[..., None], expected, rtol=1e-5, atol=1e-5)
