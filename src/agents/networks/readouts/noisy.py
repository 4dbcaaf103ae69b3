"""Linear layers with noise of learned scale, for exploration."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torchrl.envs.utils import ExplorationType, exploration_type


def explores(module: nn.Module) -> bool:
    """Return whether a module explores by TorchRL's type; in training mode where none is set."""
    mode = exploration_type()
    return module.training if mode is None else mode is ExplorationType.RANDOM


class NoisyLinear(nn.Module):
    """A linear layer whose weights carry factorised Gaussian noise of learned scale.

    ``y = (mu_w + sigma_w * outer(f(e_out), f(e_in))) x + mu_b + sigma_b * f(e_out)`` with
    ``f(e) = sign(e) sqrt(|e|)`` and standard normal ``e``: Fortunato et al., "Noisy networks for
    exploration", ICLR 2018, section 3 (b), with the initialisation of its section 3.2.

    The noise is on under TorchRL's ``ExplorationType.RANDOM``, off under every other type, and
    follows the training mode where no type is set. It stays fixed until :meth:`reset_noise`.
    TorchRL's layer of this name has the same formula; it has no noise where no type is set, and
    stores the noise as a full matrix.

    Args:
        in_features: See ``nn.Linear``, as ``out_features`` and ``bias``.
        sigma: Initial scale of the noise, before division by the root of ``in_features``.
    """

    noise_in: Tensor
    noise_out: Tensor

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
        # redrawn before every use, hence not saved
        self.register_buffer("noise_in", torch.empty(in_features), persistent=False)
        self.register_buffer("noise_out", torch.empty(out_features), persistent=False)
        self.reset_noise()

    @torch.no_grad()
    def reset_noise(self) -> None:
        """Draw new noise."""
        for noise in (self.noise_in, self.noise_out):
            drawn = torch.randn_like(noise)
            noise.copy_(drawn.sign() * drawn.abs().sqrt())

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
        return functional.linear(x, self.weight, self.bias)


def reset_noise(network: nn.Module) -> None:
    """Draw new noise for all layers of a network."""
    for layer in network.modules():
        if isinstance(layer, NoisyLinear):
            layer.reset_noise()
