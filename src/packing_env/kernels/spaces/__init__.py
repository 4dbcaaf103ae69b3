"""The operation `split_spaces`: empty maximal spaces after a box was placed."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.kernels.backends import implement, select
from packing_env.kernels.checks import check_tensor
from packing_env.kernels.spaces import eager


def _empty(spaces: Tensor, box: Tensor, placed: Tensor, smallest: Tensor) -> tuple[Tensor, Tensor]:
    return spaces.new_empty(spaces.shape), box.new_empty(box.shape[:1], dtype=torch.int64)


_SPLIT_SPACES = implement(
    "split_spaces(Tensor spaces, Tensor box, Tensor placed, Tensor smallest) -> (Tensor, Tensor)",
    __name__,
    fake=_empty,
    eager=eager.split_spaces,
)


def split_spaces(
    spaces: Int[Tensor, "B E 6"],
    box: Int[Tensor, "B 6"],
    placed: Bool[Tensor, " B"],
    smallest: Int[Tensor, ""],
    *,
    backend: str | None = None,
) -> tuple[Int[Tensor, "B E 6"], Int[Tensor, " B"]]:
    """Return the empty maximal spaces after placing a box in each container, and the number lost.

    A space ``(x0, y0, z0, x1, y1, z1)`` that shares volume with the box is replaced by its
    remainders: before and behind the box in x, then in y, and above it. They are appended in this
    order, except remainders with a side below ``smallest`` or inside another space. Untouched
    spaces keep their order and come first. Spaces that do not fit into the list are counted. The
    source is Zhao et al., ICLR 2022, as in their program; :mod:`packing_env.reference.spaces` has
    the details.

    Args:
        spaces: int32 lists: first the spaces, then zeros; no space lies within another one.
        box: int32, the box that was placed.
        placed: False for rows without a box, which keep their list.
        smallest: int32, at least 1.
        backend: a name in `available_backends`; None for the one chosen for this device.

    Returns:
        The new lists, of the same shape, and the number of spaces dropped from their ends (int64).
    """
    batch = spaces.shape[0]
    check_tensor("box", box, torch.int32, (batch, 6))
    check_tensor("placed", placed, torch.bool, (batch,))
    check_tensor("smallest", smallest, torch.int32, ())
    check_tensor("spaces", spaces, torch.int32, (batch, *spaces.shape[1:2], 6))
    result: tuple[Tensor, Tensor] = select(_SPLIT_SPACES, backend, spaces.device.type)(
        spaces, box, placed, smallest
    )
    return result
