"""A random entry of each row of a mask: the operation `choose_uniform`."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.kernels.backends import implement, select
from packing_env.kernels.choice import eager

_CHOOSE_UNIFORM = implement(
    "choose_uniform(Tensor mask, Tensor uniform) -> Tensor",
    __name__,
    fake=lambda mask, uniform: mask.new_empty(mask.shape[:-1], dtype=torch.int64),
    eager=eager.choose_uniform,
)


def choose_uniform(
    mask: Bool[Tensor, "*batch A"],
    uniform: Float[Tensor, "*batch"],
    *,
    backend: str | None = None,
) -> Int[Tensor, "*batch"]:
    """Return the index of a True entry, each equally likely, from a uniform number in [0, 1).

    It is the entry of rank ``floor(uniform * count)`` in float64; 0 in a row without any.

    Args:
        mask: the entries.
        uniform: float32 or float64, one per row.
        backend: a name in `available_backends`; None for the one chosen for this device.
    """
    if mask.dtype != torch.bool or uniform.shape != mask.shape[:-1]:
        raise ValueError(
            f"mask should be bool [*batch, A] and uniform [*batch], not {mask.dtype} "
            f"{list(mask.shape)} and {list(uniform.shape)}"
        )
    found: Tensor = select(_CHOOSE_UNIFORM, backend, mask.device.type)(mask, uniform)
    return found
