"""Contacts between boxes at rest, in torch: any device, no loops over rows, no host reads.

A *query* is a box at rest that is to be checked: a candidate or a packed box.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Contacts:
    """Rectangles that the bases of queries ``Q`` share with the tops of packed boxes ``N``.

    Attributes:
        touch: ``[B, Q, N]`` whether the query rests on the box.
        x0: ``[B, Q, N]`` int32 lower x of the shared rectangle; ``y0 x1 y1`` are its other sides.
            They are undefined without contact.
    """

    touch: Bool[Tensor, "B Q N"]
    x0: Int[Tensor, "B Q N"]
    y0: Int[Tensor, "B Q N"]
    x1: Int[Tensor, "B Q N"]
    y1: Int[Tensor, "B Q N"]


def is_box(lower: Int[Tensor, "B P 2"], size: Int[Tensor, "B P 3"]) -> Bool[Tensor, "B P"]:
    """Return which queries are boxes; the others are padding."""
    return (lower >= 0).all(-1) & (size > 0).all(-1)


def at_rest(lower: Tensor, size: Tensor, z: Tensor) -> Int[Tensor, "B P 6"]:
    """Return the boxes ``(x0 y0 z0 x1 y1 z1)`` of these corners, sizes and rest heights."""
    corner = torch.cat((lower, z[..., None]), -1)
    return torch.cat((corner, corner + size), -1)


def contacts_of(boxes: Int[Tensor, "B N 6"], base: Int[Tensor, "B Q 6"]) -> Contacts:
    """Return the contacts of boxes at rest with the boxes below; a box on the floor has none."""
    shared = overlap(boxes, base)
    reached = (boxes[:, None, :, 5] == base[..., None, 2]) & (base[..., None, 2] > 0)
    return Contacts(reached & shared.touch, shared.x0, shared.y0, shared.x1, shared.y1)


def overlap(boxes: Int[Tensor, "B N 6"], base: Int[Tensor, "B Q 6"]) -> Contacts:
    """Return the rectangles that queries and boxes share, seen from above, at any height.

    ``touch`` is True where the rectangle has an area.
    """
    x0, y0, _, x1, y1, _ = boxes[:, None].unbind(-1)
    u0, v0, _, u1, v1, _ = base[:, :, None].unbind(-1)
    x0, y0, x1, y1 = x0.maximum(u0), y0.maximum(v0), x1.minimum(u1), y1.minimum(v1)
    return Contacts((x0 < x1) & (y0 < y1), x0, y0, x1, y1)


def first_supports(
    contacts: Contacts, most: int
) -> tuple[Int[Tensor, "B Q S"], Int[Tensor, "B Q"]]:
    """Return up to ``most`` supports in packing order, N in empty slots, and the number of all."""
    num = contacts.touch.shape[-1]
    order = torch.where(contacts.touch, torch.arange(num, device=contacts.touch.device), num)
    return order.sort(-1).values[..., :most], contacts.touch.sum(-1)


def chord(slope: Tensor, left: Tensor, right: Tensor) -> Float[Tensor, "*Q"]:
    """Return the sum of the steepest slopes on both sides; -inf if a side is empty."""
    # An empty side gives -inf, even if there is no box at all.
    sides = [torch.where(side, slope, -torch.inf) for side in (left, right)]
    none = slope.new_full((*slope.shape[:-1], 1), -torch.inf)
    steepest = [torch.cat((none, side), -1).amax(-1) for side in sides]
    return steepest[0] + steepest[1]
