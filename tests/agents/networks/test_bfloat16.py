"""Weights that are rounded together give the bits of autocast, and are the module's own again."""

import pytest
import torch
from torch import nn

from agents.networks.precision import in_bf16

CPU = torch.device("cpu")


def network() -> nn.Sequential:
    torch.manual_seed(0)
    stem = nn.Conv2d(2, 8, 3, padding=1).to(memory_format=torch.channels_last)
    return nn.Sequential(stem, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))


def test_weights_rounded_together_give_the_bits_of_autocast() -> None:
    net, images = network(), torch.rand(3, 2, 6, 6)
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            expected = net(images)
        with in_bf16([net], device=CPU, enabled=True):
            assert net[0].weight.dtype == torch.bfloat16
            found = net(images)
        with in_bf16([net], device=CPU, enabled=False):
            assert net(images).dtype == torch.float32
    assert torch.equal(found, expected)
    assert not torch.equal(found.float(), net(images))


def test_the_weights_are_the_modules_own_again() -> None:
    net = network()
    before = list(net.parameters())

    def fails() -> None:
        with torch.no_grad(), in_bf16([net], device=CPU, enabled=True):
            raise RuntimeError("planned")

    with pytest.raises(RuntimeError, match="planned"):
        fails()
    assert all(a is b for a, b in zip(net.parameters(), before, strict=True))
