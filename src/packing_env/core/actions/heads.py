"""Masks of the heads item, orientation, x and y; each depends on the earlier choices.

A placement is chosen in four parts, in this order; x and y count lattice points. The legal values
of a part depend on the parts before it. Every sequence of legal values is one legal placement, and
every legal placement is one sequence.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def next_head_mask(
    legal: Bool[Tensor, "*batch L R Xs Ys"], chosen: Int[Tensor, "*batch heads"]
) -> Bool[Tensor, "*batch A"]:
    """Return the legal values of the next head, after the choices in ``chosen`` (none to three).

    A chosen value out of range is clamped. If no legal placement begins with the chosen values,
    nothing is legal.
    """
    # 1. Index the maps by the chosen values.
    batch = chosen.shape[:-1]
    sizes = legal.shape[len(batch) :]
    left = legal.reshape(-1, *sizes)
    rows = torch.arange(len(left), device=legal.device)
    choices = zip(chosen.unbind(-1), sizes, strict=False)
    values = [value.flatten().clamp(0, size - 1) for value, size in choices]
    if values:
        left = left[(rows, *values)]
    # 2. Reduce the remaining axes to the axis of the next head.
    mask = left.flatten(2).any(-1) if left.dim() > 2 else left
    return mask.reshape(*batch, mask.shape[1])
