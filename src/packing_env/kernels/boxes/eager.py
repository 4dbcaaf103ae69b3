"""Cuboids as integer boxes in plain torch: rest heights and the rules that look at one box.

Any device, no loop over rows, nothing is read back. A *query* is a box at rest that is asked about:
a candidate, or a packed box. The rules are for boxes that stand on others: what stands on the floor
is stable by each. They are defined in :mod:`packing_env.reference.boxes`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

VERTICAL = 2.0**-20
"""Stands for |dx| = 0 in a slope: exact, and steeper than any slope of another corner."""


@dataclass(frozen=True)
class Contacts:
    """What the bases of the queries ``Q`` share with the tops of the packed boxes ``N``.

    Attributes:
        touch: ``[B, Q, N]`` whether the query rests on the box.
        x0: ``[B, Q, N]`` int32 lower x of the shared rectangle; ``y0 x1 y1`` likewise. Without
            contact they mean nothing.
    """

    touch: Bool[Tensor, "B Q N"]
    x0: Int[Tensor, "B Q N"]
    y0: Int[Tensor, "B Q N"]
    x1: Int[Tensor, "B Q N"]
    y1: Int[Tensor, "B Q N"]


def drop(
    boxes: Int[Tensor, "B N 6"], lower: Int[Tensor, "B P 2"], size: Int[Tensor, "B P 3"]
) -> Int[Tensor, "B P"]:
    """See `packing_env.kernels.box_drop`."""
    base = at_rest(lower, size, torch.zeros_like(lower[..., 0]))
    found = _overlap(boxes, base)
    shared = (found.x0 < found.x1) & (found.y0 < found.y1) & is_box(lower, size)[..., None]
    top = torch.where(shared, boxes[:, None, :, 5], 0)
    floor = top.new_zeros(*top.shape[:2], 1)  # there may be no box at all
    return torch.cat((floor, top), -1).amax(-1)


def is_box(lower: Int[Tensor, "B P 2"], size: Int[Tensor, "B P 3"]) -> Bool[Tensor, "B P"]:
    """Which queries are boxes, not padding."""
    return (lower >= 0).all(-1) & (size > 0).all(-1)


def at_rest(lower: Tensor, size: Tensor, z: Tensor) -> Int[Tensor, "B P 6"]:
    """The boxes ``(x0 y0 z0 x1 y1 z1)`` of these corners, sizes and rest heights."""
    corner = torch.cat((lower, z[..., None]), -1)
    return torch.cat((corner, corner + size), -1)


def contacts(boxes: Int[Tensor, "B N 6"], base: Int[Tensor, "B Q 6"]) -> Contacts:
    """What boxes at rest stand on; a box on the floor touches none."""
    found = _overlap(boxes, base)
    reached = (boxes[:, None, :, 5] == base[..., None, 2]) & (base[..., None, 2] > 0)
    touch = reached & (found.x0 < found.x1) & (found.y0 < found.y1)
    return Contacts(touch, found.x0, found.y0, found.x1, found.y1)


def _overlap(boxes: Tensor, base: Tensor) -> Contacts:
    """The rectangles that the queries and the boxes share seen from above, if they are any."""
    x0, y0, _, x1, y1, _ = boxes[:, None].unbind(-1)
    u0, v0, _, u1, v1, _ = base[:, :, None].unbind(-1)
    x0, y0, x1, y1 = x0.maximum(u0), y0.maximum(v0), x1.minimum(u1), y1.minimum(v1)
    return Contacts(x0 < x1, x0, y0, x1, y1)


def support_count(found: Contacts) -> Int[Tensor, "B Q"]:
    """Unit squares of the base that rest on boxes; 0 for a box on the floor."""
    area = (found.x1 - found.x0).long() * (found.y1 - found.y0)
    return torch.where(found.touch, area, 0).sum(-1)


def _area(base: Tensor) -> Int[Tensor, "B Q"]:
    return (base[..., 3] - base[..., 0]).long() * (base[..., 4] - base[..., 1])


def _corner_levels(boxes: Tensor, base: Tensor) -> Int[Tensor, "B Q 4"]:
    """The highest tops over the four corner cells of the bases; 0 over the floor."""
    x0, y0, _, x1, y1, top = boxes[:, None, None].unbind(-1)
    u0, v0, u1, v1 = base[..., 0], base[..., 1], base[..., 3] - 1, base[..., 4] - 1
    x, y = (
        torch.stack((u0, u0, u1, u1), -1)[..., None],
        torch.stack((v0, v1, v0, v1), -1)[..., None],
    )
    over = (x0 <= x) & (x < x1) & (y0 <= y) & (y < y1)
    level = torch.where(over, top, 0)
    return torch.cat((torch.zeros_like(x), level), -1).amax(-1)


def area_corners(
    boxes: Int[Tensor, "B N 6"], base: Int[Tensor, "B Q 6"], found: Contacts
) -> Bool[Tensor, "B Q"]:
    """Over 60 % of the base and four corner cells, 80 % and three, or 95 %."""
    count, area = 100 * support_count(found), _area(base)
    corners = (_corner_levels(boxes, base) == base[..., 2:3]).sum(-1)
    four, three = (count > 60 * area) & (corners == 4), (count > 80 * area) & (corners >= 3)
    return four | three | (count > 95 * area)


def area_corners_code(
    boxes: Int[Tensor, "B N 6"], base: Int[Tensor, "B Q 6"], found: Contacts
) -> Bool[Tensor, "B Q"]:
    """Three corner cells at the highest one's level; over 95 %, or 85 % / 50 % in contact."""
    count, area = 100 * support_count(found), _area(base)
    levels = _corner_levels(boxes, base)
    highest = levels.amax(-1)
    corners = (levels == highest[..., None]).sum(-1)
    enough = count > torch.where(corners == 4, 50, 85) * area
    return (corners >= 3) & ((count > 95 * area) | ((highest == base[..., 2]) & enough))


def center_hull(base: Int[Tensor, "B Q 6"], found: Contacts) -> Bool[Tensor, "B Q"]:
    """Over half of the base, or its centre in the hull of the supporting cells' centres."""
    return (2 * support_count(found) > _area(base)) | _hull_holds(base, found, inset=1)


def com_hull(base: Int[Tensor, "B Q 6"], found: Contacts) -> Bool[Tensor, "B Q"]:
    """The centre in the hull of the contacts."""
    return _hull_holds(base, found, inset=0)


def _hull_holds(base: Tensor, found: Contacts, inset: int) -> Bool[Tensor, "B Q"]:
    """Whether the centre lies in the hull of the contacts, boundary included; in half units.

    Seen from it, corners to its left and right span a chord that passes above it iff their largest
    slopes ``dy / |dx|`` sum to at least 0, and below it likewise. Corners straight above or below
    count on both sides. Fractions of integers this small, rounded to float64, keep their order.
    The corners are moved in by ``inset``.
    """
    cx, cy = base[..., 0:1] + base[..., 3:4], base[..., 1:2] + base[..., 4:5]
    high = torch.where(found.touch, (2 * found.y1 - inset - cy).double(), -torch.inf)
    low = torch.where(found.touch, (cy - 2 * found.y0 - inset).double(), -torch.inf)
    dx = torch.cat((2 * found.x0 + inset - cx, 2 * found.x1 - inset - cx), -1)
    distance = torch.where(dx == 0, VERTICAL, dx.abs().double())
    held = base.new_ones(base.shape[:2], dtype=torch.bool)
    for reach in (high, low):
        slope = torch.cat((reach, reach), -1) / distance
        held = held & (chord(slope, dx <= 0, dx >= 0) >= 0)
    return held


def chord(slope: Tensor, left: Tensor, right: Tensor) -> Float[Tensor, "B Q"]:
    """Steepest slope on the left plus steepest on the right; -inf if a side is empty."""
    sides = [torch.where(side, slope, -torch.inf) for side in (left, right)]
    none = slope.new_full((*slope.shape[:-1], 1), -torch.inf)
    steepest = [torch.cat((none, side), -1).amax(-1) for side in sides]
    return steepest[0] + steepest[1]
