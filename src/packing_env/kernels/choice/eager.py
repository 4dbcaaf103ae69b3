"""The choice of a random entry of a mask, in torch."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def choose_uniform(
    mask: Bool[Tensor, "*batch A"], uniform: Float[Tensor, "*batch"]
) -> Int[Tensor, "*batch"]:
    """Carry out `packing_env.kernels.choose_uniform`.

    It works in two steps, block and index within the block, so only one block per row is scanned in
    full.
    """
    # 1. Count the entries of each block.
    size = mask.shape[-1]
    width = 1 << max(0, (size - 1).bit_length() // 2)
    blocks = torch.nn.functional.pad(mask, (0, -size % width)).unflatten(-1, (-1, width))
    counts = blocks.sum(-1, dtype=torch.int32)
    ends = counts.cumsum(-1)
    total = ends[..., -1]
    # 2. Find the block that contains that rank, and the rank within it.
    rank = torch.minimum((uniform.double() * total).long(), total - 1)
    block = (ends <= rank[..., None]).sum(-1, keepdim=True).clamp(max=ends.shape[-1] - 1)
    rank = rank - (ends - counts).gather(-1, block).squeeze(-1)
    # 3. Find the entry within the block.
    index = block[..., None].expand(*block.shape, width)
    ranks = blocks.gather(-2, index).squeeze(-2).cumsum(-1)
    place = (ranks <= rank[..., None]).sum(-1)
    return (block.squeeze(-1) * width + place).clamp(max=size - 1)
