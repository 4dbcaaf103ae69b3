"""Memory of the results of fused kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def channels_last(images: Tensor, *given: Any) -> Tensor:
    """Make images of the same sizes and type, with their channels last in memory."""
    return torch.empty_like(images, memory_format=torch.channels_last)


def stacks(images: Tensor, ground: Tensor, grid: Tensor, fold: int, short: bool) -> list[Tensor]:
    """Make the folded images of all maps, and the images that all maps of a row share."""
    rows, planes, own, xs, ys = images.shape
    dtype = torch.bfloat16 if short else torch.float32
    coarse = (-(-xs // fold), -(-ys // fold))
    sizes = ((rows * planes, own), (rows, 1 + len(grid)))
    made = [images.new_empty(n, *coarse, c * fold**2, dtype=dtype) for n, c in sizes]
    return [stack.permute(0, 3, 1, 2) for stack in made]
