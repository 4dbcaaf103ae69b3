"""A mean over instances with its 95 % interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

NORMAL_95 = 1.959963984540054
"""Half-width of the 95 % interval of the standard normal distribution."""


@dataclass(frozen=True)
class Estimate:
    """A mean and the half-width of its 95 % interval (normal approximation)."""

    mean: float
    half_width: float

    @classmethod
    def of(cls, values: Tensor) -> Estimate:
        """Estimate from independent samples ``[n]``; a single sample has an infinite half-width."""
        count = values.numel()
        spread = values.double().std().item() if count > 1 else math.inf
        return cls(values.double().mean().item(), NORMAL_95 * spread / math.sqrt(count))

    def __str__(self) -> str:
        return self.text(3)

    def text(self, decimals: int) -> str:
        """Format as ``mean±half-width``, or only as the mean for a single sample."""
        if math.isinf(self.half_width):
            return f"{self.mean:.{decimals}f}"
        return f"{self.mean:.{decimals}f}±{self.half_width:.{decimals}f}"
