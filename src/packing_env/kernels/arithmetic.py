"""Arithmetic with the same rounding on every device."""

from __future__ import annotations

import torch
from jaxtyping import Float, Shaped
from torch import Tensor


def divide(dividend: Shaped[Tensor, "*axes"], divisor: float) -> Float[Tensor, "*axes"]:
    """Return ``dividend / divisor``, rounded once.

    torch on CUDA multiplies by the rounded reciprocal if the divisor is a Python number or a CPU
    tensor. This rounds twice: 41 / 41 gives 0.99999994. So the divisor becomes a tensor on the
    device, without a copy from the host.
    """
    dtype = dividend.dtype if dividend.is_floating_point() else torch.get_default_dtype()
    return dividend / torch.full((), divisor, dtype=dtype, device=dividend.device)
