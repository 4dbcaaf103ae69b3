"""Masks of the heads item, orientation, x and y; each depends on the earlier choices.

A placement is chosen in four parts, in this order. The legal values of a part depend on the parts
before it. Every sequence of legal values is one legal placement, and every legal placement is one
sequence.
"""

from __future__ import annotations

from jaxtyping import Bool, Int
from torch import Tensor

HEADS = ("item", "orientation", "x", "y")
"""The heads in the order in which they are chosen; x and y count lattice points."""


def next_head_mask(
    legal: Bool[Tensor, "*batch L R Xs Ys"], chosen: Int[Tensor, "*batch heads"]
) -> Bool[Tensor, "*batch A"]:
    """Return the legal values of the next head, after the choices in ``chosen`` (none to three).

    A chosen value out of range is clamped. If no legal placement begins with
    the chosen values, nothing is legal.
    """
    # Index the maps by each chosen value; the next mask is a reduction to the following axis.
    left = legal
    for head in range(chosen.shape[-1]):
        left = _narrowed(left, chosen[..., head])
    return left.flatten(chosen.dim()).any(-1) if left.dim() > chosen.dim() else left


def head_masks(
    legal: Bool[Tensor, "*batch L R Xs Ys"], action: Int[Tensor, "*batch 4"]
) -> tuple[Bool[Tensor, "*batch _"], ...]:
    """Return the legal values of every head, depending on the earlier heads in ``action``.

    They are four masks, over ``L``, ``R``, ``Xs`` and ``Ys``.
    """
    # Each mask is a reduction over the placements that agree with the earlier heads.
    left, masks = legal, []
    first = action.dim()  # the axis of the next head
    for value in action.unbind(-1):
        masks.append(left.flatten(first).any(-1) if left.dim() > first else left)
        left = _narrowed(left, value)
    return tuple(masks)


def _narrowed(left: Tensor, value: Int[Tensor, "*batch"]) -> Tensor:
    """Index the first axis after the batch by this value."""
    axis = value.dim()
    at = value.clamp(0, left.shape[axis] - 1).view(*value.shape, *(1,) * (left.dim() - axis))
    return left.gather(axis, at.expand(*value.shape, 1, *left.shape[axis + 1 :])).squeeze(axis)
