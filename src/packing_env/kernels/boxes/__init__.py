"""Cuboids as integer boxes: the operations `box_drop` and `box_stable`."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.kernels.backends import implement, select
from packing_env.kernels.boxes import eager
from packing_env.kernels.boxes.contacts import is_box
from packing_env.kernels.checks import check_tensor
from packing_env.kernels.operators import declare
from packing_env.kernels.stability_rules import NAMES

PILE_RULES = ("stacking_tree", "equilibrium")
"""Stability rules that follow the load from box to box."""

BOX_RULES = (*NAMES, *PILE_RULES)
"""Stability rules that can be evaluated from the packed boxes."""

_BOX_STABLE_SCHEMA = (
    "box_stable(Tensor boxes, Tensor lower, Tensor size, Tensor z, str rule) -> Tensor"
)


def _empty_flags(boxes: Tensor, lower: Tensor, size: Tensor, z: Tensor, rule: str) -> Tensor:
    return z.new_empty(z.shape, dtype=torch.bool)


_BOX_DROP = implement(
    "box_drop(Tensor boxes, Tensor lower, Tensor size) -> Tensor",
    __name__,
    fake=lambda boxes, lower, size: lower.new_empty(lower.shape[:2]),
    eager=eager.box_drop,
)
_BOX_STABLE = implement(
    _BOX_STABLE_SCHEMA,
    __name__,
    fake=_empty_flags,
    # A single node of a graph instead of the thousands of nodes of the loop over the boxes.
    eager=declare(f"eager_{_BOX_STABLE_SCHEMA}", default=eager.box_stable, fake=_empty_flags),
)


def box_drop(
    boxes: Int[Tensor, "B N 6"],
    lower: Int[Tensor, "B P 2"],
    size: Int[Tensor, "B P 3"],
    *,
    backend: str | None = None,
) -> Int[Tensor, "B P"]:
    """Return the rest heights of boxes: the highest top of a packed box under each base.

    Only overlaps of positive area count. The result is in int32 units. It is 0 on the floor and for
    padding (a corner with a negative coordinate, or a side of 0). The container's walls are
    ignored.

    Args:
        boxes: int32 packed boxes ``(x0 y0 z0 x1 y1 z1)`` in packing order, then zeros.
        lower: int32 lower corners ``(x, y)``.
        size: int32 sides.
        backend: a name in `available_backends`; None for the one chosen for this device.
    """
    _check(boxes, lower, size)
    z: Tensor = select(_BOX_DROP, backend, boxes.device.type)(boxes, lower, size)
    return z


def box_stable(
    boxes: Int[Tensor, "B N 6"],
    lower: Int[Tensor, "B P 2"],
    size: Int[Tensor, "B P 3"],
    z: Int[Tensor, "B P"],
    rule: str,
    *,
    backend: str | None = None,
) -> Bool[Tensor, "B P"]:
    """Return which of the boxes at rest are stable by a rule of `BOX_RULES`; False for padding.

    :mod:`packing_env.reference.boxes` defines the rules. They are exact in integers, except
    `PILE_RULES`, which use float64 and a margin. All backends return the same bits.

    Args:
        boxes: int32 packed boxes ``(x0 y0 z0 x1 y1 z1)`` in packing order, then zeros.
        lower: int32 lower corners ``(x, y)``.
        size: int32 sides.
        z: rest heights, as from `box_drop`.
        rule: a name in `BOX_RULES`.
        backend: a name in `available_backends`; None for the one chosen for this device.
    """
    _check(boxes, lower, size)
    check_tensor("z", z, torch.int32, lower.shape[:2])
    if rule not in BOX_RULES:
        raise ValueError(f"rule {rule!r} is not for boxes: choose from {', '.join(BOX_RULES)}")
    if rule == "none":
        return is_box(lower, size)
    held: Tensor = select(_BOX_STABLE, backend, boxes.device.type)(boxes, lower, size, z, rule)
    return held


def _check(boxes: Tensor, lower: Tensor, size: Tensor) -> None:
    """Raise unless these are int32 boxes, corners and sizes of one batch."""
    batch, count = lower.shape[0], lower.shape[1] if lower.dim() > 1 else 0
    check_tensor("boxes", boxes, torch.int32, (batch, *boxes.shape[1:2], 6))
    check_tensor("lower", lower, torch.int32, (batch, count, 2))
    check_tensor("size", size, torch.int32, (batch, count, 3))
