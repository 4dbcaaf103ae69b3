"""A random entry of a mask: every backend takes the same one."""

import pytest
import torch
from tests.tiny import stream

from packing_env import kernels


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("size", [1, 7, 31, 32, 33, 64, 200, 1000])
def test_backends_choose_alike(size: int, share: float) -> None:
    generator = stream(size)
    mask = torch.rand(3, 60, size, generator=generator) < share
    for dtype in (torch.float32, torch.float64):
        uniform = torch.rand(3, 60, generator=generator, dtype=dtype)
        rank = (uniform.double() * mask.sum(-1)).long()
        for backend in kernels.available_backends():
            chosen = kernels.choose_uniform(mask, uniform, backend=backend)
            found = mask.any(-1)
            before = (mask.cumsum(-1) - mask.long()).gather(-1, chosen[..., None]).squeeze(-1)
            assert mask.gather(-1, chosen[..., None]).squeeze(-1)[found].all()
            assert torch.equal(before[found], rank[found])
            assert not chosen[~found].any()


@pytest.mark.parametrize("size", [1, 33, 200])
def test_backends_are_alike_epsilon_greedy(size: int) -> None:
    value, mask, *draws, rates = epsilon_greedy_case(size)
    for epsilon in (rates[:1, :1], rates, rates[:, :1]):
        best = torch.where(mask, value, -torch.inf).argmax(-1)
        any_of = kernels.choose_uniform(mask, draws[1], backend="eager")
        expected = torch.where(draws[0] < epsilon, any_of, best)
        assert size == 1 or not torch.equal(expected, best)
        for backend in kernels.available_backends():
            found = kernels.choose_epsilon_greedy(value, mask, *draws, epsilon, backend=backend)
            assert torch.equal(found, expected)


def epsilon_greedy_case(size: int) -> tuple[torch.Tensor, ...]:
    """Values with ties, masks of which some are empty, two draws, and rates; NaN here and there."""
    generator = stream(size)
    value = torch.randint(-3, 3, (2, 20, size), generator=generator).float() / 2
    value[0, :2, -1] = torch.nan
    mask = torch.rand(2, 20, size, generator=generator) < 0.3
    draw = torch.rand(2, 20, generator=generator)
    place = torch.rand(2, 20, generator=generator, dtype=torch.float64)
    return value, mask, draw, place, torch.rand(2, 20, generator=generator)
