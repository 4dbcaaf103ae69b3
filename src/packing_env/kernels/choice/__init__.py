"""Choice of one entry per row of a mask: `choose_uniform`, `choose_epsilon_greedy`."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.kernels.backends import BACKENDS, implement, resolve, select
from packing_env.kernels.checks import check_tensor
from packing_env.kernels.choice import eager
from packing_env.kernels.operators import declare

_CHOOSE_UNIFORM = implement(
    "choose_uniform(Tensor mask, Tensor uniform) -> Tensor",
    __name__,
    fake=lambda mask, uniform: mask.new_empty(mask.shape[:-1], dtype=torch.int64),
    eager=eager.choose_uniform,
)
_CHOOSE_EPSILON_GREEDY = declare(
    "triton_choose_epsilon_greedy(Tensor value, Tensor mask, Tensor draw, Tensor place, "
    "Tensor epsilon) -> Tensor",
    **dict.fromkeys(BACKENDS["triton"].runs_on or (), f"{__name__}.triton:choose_epsilon_greedy"),
    fake=lambda value, mask, *others: mask.new_empty(mask.shape[:-1], dtype=torch.int64),
)


def choose_uniform(
    mask: Bool[Tensor, "*batch A"],
    uniform: Float[Tensor, "*batch"],
    *,
    backend: str | None = None,
) -> Int[Tensor, "*batch"]:
    """Return the index of a random True entry, all equally likely, from a uniform number in [0, 1).

    It is the True entry of rank ``floor(uniform * count)`` in float64. In a row without True
    entries it is 0.

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
    index: Tensor = select(_CHOOSE_UNIFORM, backend, mask.device.type)(mask, uniform)
    return index


def choose_epsilon_greedy(
    value: Float[Tensor, "*batch A"],
    mask: Bool[Tensor, "*batch A"],
    draw: Float[Tensor, "*batch"],
    place: Float[Tensor, "*batch"],
    epsilon: Float[Tensor, "*#batch"],
    *,
    backend: str | None = None,
) -> Int[Tensor, "*batch"]:
    """Return the index of the best True entry, or of a random one where draw < epsilon.

    Ties go to the first entry. No gradient flows through the choice.

    Args:
        value: float32.
        mask: the entries.
        draw: float32 uniform numbers in [0, 1).
        place: float64 uniform numbers for `choose_uniform`.
        epsilon: float32, one number or one per row.
        backend: as in `choose_uniform`.
    """
    check_tensor("value", value, torch.float32, mask.shape)
    check_tensor("mask", mask, torch.bool, value.shape)
    if resolve(backend, mask.device.type) == "triton":
        index: Tensor = _CHOOSE_EPSILON_GREEDY(value.detach(), mask, draw, place, epsilon)
        return index
    best = torch.where(mask, value, -torch.inf).argmax(-1)
    return torch.where(draw < epsilon, choose_uniform(mask, place, backend=backend), best)
