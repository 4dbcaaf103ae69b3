"""Rest heights and stability rules of boxes, in torch: any device, no loop over rows, no host read.

The rules are for boxes that stand on others: one on the floor is stable by each. They are defined
in :mod:`packing_env.reference.boxes`.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.kernels.boxes.contacts import Contacts, at_rest, chord, contacts, is_box, overlap
from packing_env.kernels.boxes.tree_eager import stacking_tree
from packing_env.kernels.layout import VERTICAL
from packing_env.kernels.rules import RULES, Rule, Support, chords_hold, limit


def box_drop(
    boxes: Int[Tensor, "B N 6"], lower: Int[Tensor, "B P 2"], size: Int[Tensor, "B P 3"]
) -> Int[Tensor, "B P"]:
    """Carry out `packing_env.kernels.box_drop`."""
    base = at_rest(lower, size, torch.zeros_like(lower[..., 0]))
    shared = overlap(boxes, base).touch & is_box(lower, size)[..., None]
    top = torch.where(shared, boxes[:, None, :, 5], 0)
    floor = top.new_zeros(*top.shape[:2], 1)  # there may be no box at all
    return torch.cat((floor, top), -1).amax(-1)


def box_stable(
    boxes: Int[Tensor, "B N 6"],
    lower: Int[Tensor, "B P 2"],
    size: Int[Tensor, "B P 3"],
    z: Int[Tensor, "B P"],
    rule: str,
) -> Bool[Tensor, "B P"]:
    """Carry out `packing_env.kernels.box_stable`."""
    base = at_rest(lower, size, z)
    found = contacts(boxes, base)
    if rule == "stacking_tree":
        held = stacking_tree(boxes, base, found)
    else:
        held = _judge(RULES[rule], boxes, base, found)
    return is_box(lower, size) & ((z == 0) | held)


def support_count(found: Contacts) -> Int[Tensor, "B Q"]:
    """Return the unit squares of the base that rest on boxes; 0 for a box on the floor."""
    area = (found.x1 - found.x0).long() * (found.y1 - found.y0)
    return torch.where(found.touch, area, 0).sum(-1)


def _judge(
    rule: Rule, boxes: Int[Tensor, "B N 6"], base: Int[Tensor, "B Q 6"], found: Contacts
) -> Bool[Tensor, "B Q"]:
    """Return which boxes on others are stable by a rule that looks at one box alone."""
    support = Support()
    if rule.percents:
        area = (base[..., 3] - base[..., 0]).long() * (base[..., 4] - base[..., 1])
        limits = tuple(limit(area, percent) for percent in rule.percents)
        support = support._replace(count=support_count(found), limits=limits)
    if rule.corners:
        levels, rest = _corner_levels(boxes, base), base[..., 2]
        highest = levels.amax(-1)
        level = highest if rule.corners == "highest" else rest
        corners = (levels == level[..., None]).sum(-1)
        support = support._replace(corners=corners, touching=highest == rest)
    if rule.hull:
        in_hull = _hull_holds(base, found, inset=int(rule.hull == "centres"))
        support = support._replace(in_hull=in_hull)
    return torch.ones_like(base[..., 2], dtype=torch.bool) & rule.formula(support)


def _corner_levels(boxes: Tensor, base: Tensor) -> Int[Tensor, "B Q 4"]:
    """Return the highest tops over the four corner cells of the bases; 0 over the floor."""
    x0, y0, _, x1, y1, top = boxes[:, None, None].unbind(-1)
    u0, v0, u1, v1 = base[..., 0], base[..., 1], base[..., 3] - 1, base[..., 4] - 1
    x, y = (
        torch.stack((u0, u0, u1, u1), -1)[..., None],
        torch.stack((v0, v1, v0, v1), -1)[..., None],
    )
    over = (x0 <= x) & (x < x1) & (y0 <= y) & (y < y1)
    level = torch.where(over, top, 0)
    return torch.cat((torch.zeros_like(x), level), -1).amax(-1)


def _hull_holds(base: Tensor, found: Contacts, inset: int) -> Bool[Tensor, "B Q"]:
    """Return True for a centre in the hull of the contacts, boundary included; in half units.

    See :func:`packing_env.kernels.rules.chords_hold`. Corners straight above or below count on
    both sides. Fractions of integers this small, rounded to float64, keep their order.
    The corners are moved in by ``inset``.
    """
    cx, cy = base[..., 0:1] + base[..., 3:4], base[..., 1:2] + base[..., 4:5]
    high = torch.where(found.touch, (2 * found.y1 - inset - cy).double(), -torch.inf)
    low = torch.where(found.touch, (cy - 2 * found.y0 - inset).double(), -torch.inf)
    dx = torch.cat((2 * found.x0 + inset - cx, 2 * found.x1 - inset - cx), -1)
    distance = torch.where(dx == 0, VERTICAL, dx.abs().double())
    upper, lower = (
        chord(torch.cat((reach, reach), -1) / distance, dx <= 0, dx >= 0) for reach in (high, low)
    )
    held: Tensor = chords_hold(upper, lower)
    return held
