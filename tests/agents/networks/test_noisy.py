"""Noisy layers: TorchRL's formula, noise that is drawn anew and is off in evaluation."""

import pytest
import torch
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import NoisyLinear as TorchRLNoisyLinear

from agents.networks.readouts.noisy import NoisyLinear, noise_per_row, reset_noise

QUIET = (ExplorationType.DETERMINISTIC, ExplorationType.MODE, ExplorationType.MEAN)


@pytest.mark.parametrize("bias", [True, False])
def test_equals_torchrl_with_the_same_noise(bias):
    ours, theirs = NoisyLinear(5, 3, bias=bias), TorchRLNoisyLinear(5, 3, bias=bias)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.copy_(getattr(ours, name))
        theirs.weight_epsilon.copy_(torch.outer(ours.noise_out, ours.noise_in))
        if bias:
            theirs.bias_epsilon.copy_(ours.noise_out)
    x = torch.randn(4, 5)
    for mode in (ExplorationType.RANDOM, *QUIET):
        with set_exploration_type(mode):
            torch.testing.assert_close(ours(x), theirs(x))


def test_noise_has_the_distribution_of_the_paper():
    torch.manual_seed(0)
    layer = NoisyLinear(4000, 4000, sigma=0.5)
    bound = 4000**-0.5
    assert torch.equal(layer.weight_sigma, torch.full_like(layer.weight_sigma, 0.5 * bound))
    assert torch.equal(layer.bias_sigma, torch.full_like(layer.bias_sigma, 0.5 * bound))
    assert layer.weight_mu.abs().max() <= bound
    # f(e) = sign(e) sqrt|e|: mean 0, and E f^2 = E|e| = sqrt(2 / pi)
    noise = torch.cat((layer.noise_in, layer.noise_out))
    assert abs(noise.mean()) < 0.04
    assert abs(noise.square().mean() - (2 / torch.pi) ** 0.5) < 0.03
    assert abs((layer.noise_in * layer.noise_out).mean()) < 0.06


def test_rows_have_noise_of_their_own():
    """The variance over draws is that of shared noise, by the formula."""
    torch.manual_seed(0)
    layer = NoisyLinear(6, 3, sigma=2.0)
    x = torch.randn(6)
    rows, groups = 4000, 2
    with torch.no_grad(), noise_per_row(layer, rows), set_exploration_type(ExplorationType.RANDOM):
        found = layer(x.expand(rows * groups, 6)).view(rows, groups, 3)
    assert layer.rows is None
    assert torch.equal(found[:, 0], found[:, 1])  # one draw for all that belongs to a row
    assert not torch.isclose(found[0], found[1]).any()
    plain = x @ layer.weight_mu.T + layer.bias_mu
    shared = torch.stack([(reset_noise(layer), layer(x))[1] for _ in range(rows)]).detach()
    for values in (found[:, 0], shared):
        torch.testing.assert_close(values.mean(0), plain, rtol=0, atol=0.12)
    torch.testing.assert_close(found[:, 0].std(0), shared.std(0), rtol=0.1, atol=0)
