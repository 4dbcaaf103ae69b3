"""The splitting of empty maximal spaces: the public operation, and its choice of a backend."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.kernels.backends import _resolve
from packing_env.kernels.spaces import eager as spaces_eager

torch.library.define(
    "packing_env::numba_split_spaces",
    "(Tensor spaces, Tensor box, Tensor placed, Tensor smallest) -> (Tensor, Tensor)",
)


@torch.library.impl("packing_env::numba_split_spaces", "cpu")
def _numba_split_spaces(
    spaces: Tensor, box: Tensor, placed: Tensor, smallest: Tensor
) -> tuple[Tensor, Tensor]:
    from packing_env.kernels.spaces import numba as spaces_numba

    return spaces_numba.split_spaces(spaces, box, placed, smallest)


@torch.library.register_fake("packing_env::numba_split_spaces")
def _fake_split_spaces(
    spaces: Tensor, box: Tensor, placed: Tensor, smallest: Tensor
) -> tuple[Tensor, Tensor]:
    return spaces.new_empty(spaces.shape), box.new_empty(box.shape[:1], dtype=torch.int64)


def split_spaces(
    spaces: Int[Tensor, "B E 6"],
    box: Int[Tensor, "B 6"],
    placed: Bool[Tensor, " B"],
    smallest: Int[Tensor, ""],
    *,
    backend: str | None = None,
) -> tuple[Int[Tensor, "B E 6"], Int[Tensor, " B"]]:
    """The lists of empty maximal spaces after a box was put into each container, and what is lost.

    A space ``(x0, y0, z0, x1, y1, z1)`` that shares volume with the box gives way to the remainders
    before and behind the box in x, likewise in y, and above it, appended in this order, except
    those with a side below ``smallest`` and those that lie within another space. Untouched spaces
    keep their order and stand first. What does not fit into the list is counted.
    Zhao et al., ICLR 2022, as in their program; :mod:`packing_env.reference.spaces` says more.

    Args:
        spaces: int32 lists, real spaces first, then zeros; none lies within another one.
        box: int32, what was put down.
        placed: rows without a box keep their list.
        smallest: int32, at least 1.
        backend: a name in `available_backends`; None for the one chosen for this device.

    Returns:
        The new lists, of the same shape, and how many spaces were dropped from their ends (int64).
    """
    _check(spaces, box, placed, smallest)
    if _resolve(backend, spaces.device.type) == "numba":
        return torch.ops.packing_env.numba_split_spaces(spaces, box, placed, smallest)
    return spaces_eager.split_spaces(spaces, box, placed, smallest)


def _check(spaces: Tensor, box: Tensor, placed: Tensor, smallest: Tensor) -> None:
    """The compiled kernel trusts shapes and dtypes, so every backend checks them alike."""
    batch = spaces.shape[0]
    wanted = (
        ("box", box, torch.int32, (batch, 6)),
        ("placed", placed, torch.bool, (batch,)),
        ("smallest", smallest, torch.int32, ()),
        ("spaces", spaces, torch.int32, (batch, *spaces.shape[1:2], 6)),
    )
    for name, tensor, dtype, shape in wanted:
        if tensor.dtype != dtype:
            raise TypeError(f"{name} should be {dtype}, not {tensor.dtype}")
        if tensor.shape != shape:
            raise ValueError(f"{name} should have shape {list(shape)}, not {list(tensor.shape)}")
