"""Decisions by fused kernels on a GPU: as by torch's own operations."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.tiny import cuboid_env, stream

from agents.networks import ScoreMaps
from agents.policies import sampling
from packing_env import kernels

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@torch.no_grad()
def both(decide: Callable[[], Any]) -> tuple[Any, Any]:
    """Return what torch's own operations find, and what the kernels do."""
    kernels.set_backend("eager")
    try:
        expected = decide()
    finally:
        kernels.set_backend(None)
    return expected, decide()


def test_values_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    env = cuboid_env(64, shell={"device": "cuda"})
    torch.manual_seed(0)
    network = ScoreMaps(env, channels=16, depth=2, fold=1, context=True, precision="fp32")
    root = env.reset()
    expected, found = both(lambda: network(root.clone())["action_value"])
    assert not torch.equal(found, expected)
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()


def test_draws_are_those_of_torch() -> None:
    generator = stream(0)
    logits = (3 * torch.randn(4096, 700, generator=generator)).cuda()
    mask = (torch.rand(4096, 700, generator=generator) < 0.3).cuda()
    uniform = torch.rand(4096, generator=generator, dtype=torch.float64).cuda()
    expected, found = both(lambda: sampling.draw_by_logits(logits, mask, uniform))
    same = found[0] == expected[0]
    assert same.float().mean() > 0.999
    torch.testing.assert_close(found[1][same], expected[1][same], rtol=1e-5, atol=1e-5)
