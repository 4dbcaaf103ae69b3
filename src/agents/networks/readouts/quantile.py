"""Quantiles of returns at any level, and the risk measure by which actions are chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from tensordict import TensorDictBase
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.readouts.values import ValueReadout
from packing_env.types import ParameterError

Risk = float | str | Sequence[str] | None
STATE_LEVELS = {"support": ("metrics", "support_ratio")}
"""Named risk levels and their keys in the environment's output.

``support`` is the support ratio of the episode so far. If it is 0, nothing is packed yet, and the
level is 1.
"""
_LEAST = 0.01


class CosineEmbedding(nn.Module):
    """``phi(tau) = ReLU(W cos(pi i tau) + b)``, i = 0 ... n - 1.

    Dabney et al., "Implicit quantile networks", ICML 2018, equation 4.

    Args:
        width: Length of phi.
        num_cosines: n; 64 in the paper.
    """

    frequency: Tensor

    def __init__(self, width: int, num_cosines: int = 64) -> None:
        super().__init__()
        frequency = math.pi * torch.arange(num_cosines)
        self.register_buffer("frequency", frequency, persistent=False)
        self.linear = nn.Linear(num_cosines, width)

    def forward(self, tau: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch D"]:
        """Embed levels in [0, 1]."""
        return functional.relu(self.linear(torch.cos(tau[..., None] * self.frequency)))


class QuantileReadout(ValueReadout):
    """The quantile function of each action's return, and its mean at a risk level.

    ``Z_tau = f(psi(x) * phi(tau))``: the hidden features of a state and an action are multiplied by
    the embedding of tau, as in Dabney et al., ICML 2018. Here f is linear (the paper has one more
    layer). So the mean over taus follows from the mean of phi, at the cost of a single tau.

    Actions are chosen by the conditional value at risk at level c: the mean of the worst share c of
    the returns (section 3.1 of the paper). It is the mean over K taus, the midpoints of K equal
    parts of [0, c]. The taus are not drawn, so a state always gets the same values.

    Args:
        width: Number of hidden features that phi multiplies.
        num_cosines: Cosines of the embedding.
        num_samples: K.
        risk: The level c in (0, 1]; None means 1. It can also be the key of a tensor ``[*batch]``
            or ``[*batch, 1]`` of levels, or a name in :data:`STATE_LEVELS`; such levels are clamped
            to [0.01, 1].

    Attributes:
        level_key: Key of the levels, or None.
    """

    midpoint: Tensor

    def __init__(
        self, width: int, *, num_cosines: int = 64, num_samples: int = 32, risk: Risk = None
    ) -> None:
        super().__init__(width)
        self.embed = CosineEmbedding(width, num_cosines)
        midpoint = (torch.arange(num_samples) + 0.5) / num_samples
        self.register_buffer("midpoint", midpoint, persistent=False)
        self.level_key: Any = None
        self.named = isinstance(risk, str) and risk in STATE_LEVELS
        self.risk = 1.0
        if isinstance(risk, (int, float)):
            if not 0 < risk <= 1:
                raise ParameterError(f"risk={risk} must lie in (0, 1]; 1 is the plain mean")
            self.risk = float(risk)
        elif isinstance(risk, str):
            self.level_key = STATE_LEVELS.get(risk, risk)
        elif risk is not None:
            self.level_key = tuple(risk)
        self.in_keys = [] if self.level_key is None else [self.level_key]

    def levels(self, tensordict: TensorDictBase) -> Float[Tensor, " B"] | None:
        """Return the risk level of each row, with flattened leading axes; None if it is fixed."""
        if self.level_key is None:
            return None
        level = tensordict.get(self.level_key).reshape(-1).float()
        if self.named:
            level = torch.where(level > 0, level, 1.0)
        return level.clamp(_LEAST, 1.0)

    def taus(self, tensordict: TensorDictBase) -> Float[Tensor, "b K"]:
        """Return the K taus of each row, or a single row for all rows if the level is fixed."""
        level = self.levels(tensordict)
        return self.midpoint[None] * (self.risk if level is None else level[:, None])

    def gain(self, tensordict: TensorDictBase) -> Float[Tensor, "B 1 D"]:
        """Return the mean of phi over the K taus of each row, or a single row for all rows."""
        return self.embed(self.taus(tensordict)).mean(-2)[:, None]
