"""Linear layers with noise of learned scale, for exploration."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torchrl.envs.utils import ExplorationType, exploration_type


def explores(module: nn.Module) -> bool:
    """Return whether a module explores: by TorchRL's exploration type, else in training mode."""
    mode = exploration_type()
    return module.training if mode is None else mode is ExplorationType.RANDOM


class NoisyLinear(nn.Module):
    """A linear layer whose weights carry factorised Gaussian noise of learned scale.

    ``y = (mu_w + sigma_w * outer(f(e_out), f(e_in))) x + mu_b + sigma_b * f(e_out)`` with ``f(e) =
    sign(e) sqrt(|e|)`` and standard normal ``e``. The source is Fortunato et al., "Noisy networks
    for exploration", ICLR 2018, section 3 (b), with the initialisation of its section 3.2.

    The noise is on under TorchRL's ``ExplorationType.RANDOM`` and off under every other type. If no
    type is set, it is on in training mode. It stays fixed until :meth:`reset_noise`. TorchRL's
    layer of this name has the same formula, but stores the noise as a full matrix.

    Args:
        in_features: See ``nn.Linear``; the same holds for ``out_features`` and ``bias``.
        sigma: Initial scale of the noise, before division by the root of ``in_features``.
    """

    noise_in: Tensor
    noise_out: Tensor
    rows: int | None = None
    """Number of rows with their own noise, see :func:`noise_per_row`; None means shared noise."""

    def __init__(
        self, in_features: int, out_features: int, *, bias: bool = True, sigma: float = 0.5
    ) -> None:
        super().__init__()
        bound = 1 / math.sqrt(in_features)
        self.weight_mu = nn.Parameter(torch.empty(out_features, in_features))
        self.weight_sigma = nn.Parameter(torch.full_like(self.weight_mu, sigma * bound))
        nn.init.uniform_(self.weight_mu, -bound, bound)
        if bias:
            self.bias_mu = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))
            self.bias_sigma = nn.Parameter(torch.full_like(self.bias_mu, sigma * bound))
        else:
            self.register_parameter("bias_mu", None)
            self.register_parameter("bias_sigma", None)
        # Not saved, because the noise is redrawn before every use.
        self.register_buffer("noise_in", torch.empty(in_features), persistent=False)
        self.register_buffer("noise_out", torch.empty(out_features), persistent=False)
        self.reset_noise()

    @torch.no_grad()
    def reset_noise(self) -> None:
        """Draw new noise."""
        for noise in (self.noise_in, self.noise_out):
            noise.copy_(_rooted(torch.randn_like(noise)))

    @property
    def weight(self) -> Float[Tensor, "out in"]:
        """The weights, with the noise if it is on."""
        if not explores(self):
            return self.weight_mu
        return self.weight_mu + self.weight_sigma * torch.outer(self.noise_out, self.noise_in)

    @property
    def bias(self) -> Float[Tensor, " out"] | None:
        """The bias, with the noise if it is on."""
        if self.bias_mu is None or not explores(self):
            return self.bias_mu
        return self.bias_mu + self.bias_sigma * self.noise_out

    def forward(self, x: Float[Tensor, "*batch in"]) -> Float[Tensor, "*batch out"]:
        """Apply the layer."""
        if self.rows is None or not explores(self):
            return functional.linear(x, self.weight, self.bias)
        return self._by_row(x, self.rows)

    def _by_row(self, x: Float[Tensor, "*batch in"], rows: int) -> Float[Tensor, "*batch out"]:
        """Apply the layer with separate noise for each row; ``x`` holds the inputs row by row.

        ``outer(f_out, f_in) * sigma`` times x is ``f_out * (sigma (f_in * x))``.
        """
        drawn = x.new_empty(rows, 1, self.noise_in.numel() + self.noise_out.numel())
        before, after = _rooted(drawn.normal_()).tensor_split((self.noise_in.numel(),), -1)
        flat = x.reshape(rows, -1, x.shape[-1])
        noise = functional.linear(flat * before, self.weight_sigma, self.bias_sigma)
        plain = functional.linear(flat, self.weight_mu, self.bias_mu)
        return (plain + after * noise).view(*x.shape[:-1], -1)


def _rooted(drawn: Tensor) -> Tensor:
    return drawn.sign() * drawn.abs().sqrt()


@contextmanager
def noise_per_row(network: nn.Module, rows: int) -> Iterator[None]:
    """Give each row of a batch its own noise, which is redrawn at every use of a layer."""
    layers = [layer for layer in network.modules() if isinstance(layer, NoisyLinear)]
    for layer in layers:
        layer.rows = rows
    try:
        yield
    finally:
        for layer in layers:
            layer.rows = None


def reset_noise(network: nn.Module) -> None:
    """Draw new noise for all layers of a network."""
    for layer in network.modules():
        if isinstance(layer, NoisyLinear):
            layer.reset_noise()
