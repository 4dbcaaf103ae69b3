"""A random entry of a mask: every backend takes the same one."""

from __future__ import annotations

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


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="mask should be bool"):
        kernels.choose_uniform(torch.ones(2, 3), torch.rand(2))
    with pytest.raises(ValueError, match="uniform"):
        kernels.choose_uniform(torch.ones(2, 3, dtype=torch.bool), torch.rand(3))
