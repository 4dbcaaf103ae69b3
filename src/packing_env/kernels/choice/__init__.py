"""A random entry of each row of a mask: the public operation, and its choice of a backend."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.kernels.backends import _resolve

torch.library.define("packing_env::numba_choose_uniform", "(Tensor mask, Tensor uniform) -> Tensor")


@torch.library.impl("packing_env::numba_choose_uniform", "cpu")
def _numba_choose_uniform(mask: Tensor, uniform: Tensor) -> Tensor:
    from packing_env.kernels.choice import numba as choice_numba

    return choice_numba.choose_uniform(mask, uniform)


@torch.library.register_fake("packing_env::numba_choose_uniform")
def _fake_choose_uniform(mask: Tensor, uniform: Tensor) -> Tensor:
    return mask.new_empty(mask.shape[:-1], dtype=torch.int64)


def choose_uniform(
    mask: Bool[Tensor, "*batch A"],
    uniform: Float[Tensor, "*batch"],
    *,
    backend: str | None = None,
) -> Int[Tensor, "*batch"]:
    """Index of a True entry, each equally likely, from one uniform number in [0, 1) per row.

    It is the entry of rank ``floor(uniform * count)`` in float64; 0 in a row without any.

    Args:
        mask: the entries.
        uniform: float32 or float64.
        backend: a name in `available_backends`; None for the one chosen for this device.
    """
    if mask.dtype != torch.bool or uniform.shape != mask.shape[:-1]:
        raise ValueError(
            f"mask should be bool [*batch, A] and uniform [*batch], not {mask.dtype} "
            f"{list(mask.shape)} and {list(uniform.shape)}"
        )
    if _resolve(backend, mask.device.type) == "numba":
        return torch.ops.packing_env.numba_choose_uniform(mask, uniform)
    return _choose_uniform(mask, uniform)


def _choose_uniform(mask: Tensor, uniform: Tensor) -> Tensor:
    """In two steps, block and place within it, so that one block per row is scanned one by one."""
    size = mask.shape[-1]
    width = 1 << max(0, (size - 1).bit_length() // 2)
    blocks = torch.nn.functional.pad(mask, (0, -size % width)).unflatten(-1, (-1, width))
    counts = blocks.sum(-1, dtype=torch.int32)
    ends = counts.cumsum(-1)
    total = ends[..., -1]
    rank = torch.minimum((uniform.double() * total).long(), total - 1)
    block = (ends <= rank[..., None]).sum(-1, keepdim=True).clamp(max=ends.shape[-1] - 1)
    rank = rank - (ends - counts).gather(-1, block).squeeze(-1)
    index = block[..., None].expand(*block.shape, width)
    ranks = blocks.gather(-2, index).squeeze(-2).cumsum(-1)
    place = (ranks <= rank[..., None]).sum(-1)
    return (block.squeeze(-1) * width + place).clamp(max=size - 1)
