"""Cuboids as integer boxes: the public operations, and their choice of a backend."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.kernels.backends import _resolve
from packing_env.kernels.boxes import eager as boxes_eager
from packing_env.kernels.boxes import tree_eager as boxes_tree_eager

BOX_RULES = (
    "none",
    "area_corners",
    "area_corners_code",
    "center_hull",
    "com_hull",
    "stacking_tree",
)
"""Stability rules that can be evaluated from the packed boxes."""

_STABLE = "(Tensor boxes, Tensor lower, Tensor size, Tensor z, str rule) -> Tensor"
torch.library.define(
    "packing_env::numba_box_drop", "(Tensor boxes, Tensor lower, Tensor size) -> Tensor"
)
torch.library.define("packing_env::numba_box_stable", _STABLE)
# One node of a graph, not the thousands of the loop over the boxes.
torch.library.define("packing_env::eager_box_stable", _STABLE)


@torch.library.impl("packing_env::numba_box_drop", "cpu")
def _numba_box_drop(boxes: Tensor, lower: Tensor, size: Tensor) -> Tensor:
    from packing_env.kernels.boxes import numba as boxes_numba

    return boxes_numba.drop(boxes, lower, size)


@torch.library.impl("packing_env::numba_box_stable", "cpu")
def _numba_box_stable(boxes: Tensor, lower: Tensor, size: Tensor, z: Tensor, rule: str) -> Tensor:
    from packing_env.kernels.boxes import numba as boxes_numba

    return boxes_numba.stable(boxes, lower, size, z, rule)


@torch.library.impl("packing_env::eager_box_stable", "CompositeExplicitAutograd")
def _eager_box_stable(boxes: Tensor, lower: Tensor, size: Tensor, z: Tensor, rule: str) -> Tensor:
    base = boxes_eager.at_rest(lower, size, z)
    found = boxes_eager.contacts(boxes, base)
    if rule == "area_corners":
        held = boxes_eager.area_corners(boxes, base, found)
    elif rule == "area_corners_code":
        held = boxes_eager.area_corners_code(boxes, base, found)
    elif rule == "center_hull":
        held = boxes_eager.center_hull(base, found)
    elif rule == "com_hull":
        held = boxes_eager.com_hull(base, found)
    else:
        held = boxes_tree_eager.stacking_tree(boxes, base, found)
    return boxes_eager.is_box(lower, size) & ((z == 0) | held)


@torch.library.register_fake("packing_env::numba_box_drop")
def _fake_box_drop(boxes: Tensor, lower: Tensor, size: Tensor) -> Tensor:
    return lower.new_empty(lower.shape[:2])


@torch.library.register_fake("packing_env::numba_box_stable")
@torch.library.register_fake("packing_env::eager_box_stable")
def _fake_box_stable(boxes: Tensor, lower: Tensor, size: Tensor, z: Tensor, rule: str) -> Tensor:
    return z.new_empty(z.shape, dtype=torch.bool)


def box_drop(
    boxes: Int[Tensor, "B N 6"],
    lower: Int[Tensor, "B P 2"],
    size: Int[Tensor, "B P 3"],
    *,
    backend: str | None = None,
) -> Int[Tensor, "B P"]:
    """Rest height of boxes put down at these corners: the highest top that their base overlaps.

    Only overlaps of positive area count; 0 on the floor and for padding (a corner below 0 or a side
    of 0). The container's walls are not looked at. int32 units.

    Args:
        boxes: int32 packed boxes ``(x0 y0 z0 x1 y1 z1)`` in packing order, then zeros.
        lower: int32 lower corners ``(x, y)``.
        size: int32 sides.
        backend: a name in `available_backends`; None for the one chosen for this device.
    """
    _check(boxes, lower, size)
    if _resolve(backend, boxes.device.type) == "numba":
        return torch.ops.packing_env.numba_box_drop(boxes, lower, size)
    return boxes_eager.drop(boxes, lower, size)


def box_stable(
    boxes: Int[Tensor, "B N 6"],
    lower: Int[Tensor, "B P 2"],
    size: Int[Tensor, "B P 3"],
    z: Int[Tensor, "B P"],
    rule: str,
    *,
    backend: str | None = None,
) -> Bool[Tensor, "B P"]:
    """Which of the boxes at rest are stable by a rule of `BOX_RULES`; False for padding.

    The rules are defined in :mod:`packing_env.reference.boxes`: exact in integers, except
    `stacking_tree`, which is float64 with a tolerance and has the same bits on every backend.

    Args:
        boxes: int32 packed boxes ``(x0 y0 z0 x1 y1 z1)`` in packing order, then zeros.
        lower: int32 lower corners ``(x, y)``.
        size: int32 sides.
        z: what `box_drop` returned.
        rule: a name in `BOX_RULES`.
        backend: a name in `available_backends`; None for the one chosen for this device.
    """
    _check(boxes, lower, size)
    if z.dtype != torch.int32:
        raise TypeError(f"z should be torch.int32, not {z.dtype}")
    if z.shape != lower.shape[:2]:
        raise ValueError(f"z should have shape {list(lower.shape[:2])}, not {list(z.shape)}")
    if rule not in BOX_RULES:
        raise ValueError(f"no rule {rule!r} on boxes: choose from {', '.join(BOX_RULES)}")
    if rule == "none":
        return boxes_eager.is_box(lower, size)
    if _resolve(backend, boxes.device.type) == "numba":
        return torch.ops.packing_env.numba_box_stable(boxes, lower, size, z, rule)
    return torch.ops.packing_env.eager_box_stable(boxes, lower, size, z, rule)


def _check(boxes: Tensor, lower: Tensor, size: Tensor) -> None:
    """The compiled kernels trust shapes and dtypes, so every backend checks them alike."""
    for name, tensor in (("boxes", boxes), ("lower", lower), ("size", size)):
        if tensor.dtype != torch.int32:
            raise TypeError(f"{name} should be torch.int32, not {tensor.dtype}")
    batch, count = lower.shape[0], lower.shape[1] if lower.dim() > 1 else 0
    wanted = (
        ("boxes", boxes, (batch, *boxes.shape[1:2], 6)),
        ("lower", lower, (batch, count, 2)),
        ("size", size, (batch, count, 3)),
    )
    for name, tensor, shape in wanted:
        if tensor.shape != shape:
            raise ValueError(f"{name} should have shape {list(shape)}, not {list(tensor.shape)}")
