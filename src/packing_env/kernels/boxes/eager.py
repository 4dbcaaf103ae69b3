"""Rest heights and stability of boxes, in torch: any device, no loops over rows, no host reads.

The rules apply to boxes that stand on others; a box on the floor is stable by every rule.
:mod:`packing_env.reference.boxes` defines them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.kernels.boxes.contacts import (
    Contacts,
    at_rest,
    chord,
    contacts_of,
    is_box,
    overlap,
)
from packing_env.kernels.boxes.equilibrium_eager import equilibrium
from packing_env.kernels.boxes.tree_eager import stacking_tree
from packing_env.kernels.layout import VERTICAL
from packing_env.kernels.stability_rules import RULES, chords_hold, evaluate


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
    contacts = contacts_of(boxes, base)
    if rule == "stacking_tree":
        held = stacking_tree(boxes, base, contacts)
    elif rule == "equilibrium":
        held = equilibrium(boxes, base, contacts)
    else:
        held = evaluate(RULES[rule], _Rest(boxes, base, contacts))
    return is_box(lower, size) & ((z == 0) | held)


@dataclass(frozen=True)
class _Rest:
    """Boxes at rest on others, for the rules that check one box by itself.

    Attributes:
        boxes: ``[B, N, 6]`` packed boxes.
        base: ``[B, Q, 6]`` boxes at rest.
        contacts: The contacts of these boxes.
    """

    boxes: Int[Tensor, "B N 6"]
    base: Int[Tensor, "B Q 6"]
    contacts: Contacts

    def areas(self) -> tuple[Int[Tensor, "B Q"], Int[Tensor, "B Q"]]:
        """Return the area of each base that rests on boxes, and its whole area, in unit squares."""
        contacts, base = self.contacts, self.base
        touching = (contacts.x1 - contacts.x0).long() * (contacts.y1 - contacts.y0)
        area = (base[..., 3] - base[..., 0]).long() * (base[..., 4] - base[..., 1])
        return torch.where(contacts.touch, touching, 0).sum(-1), area

    def corners(self, at_highest: bool) -> tuple[Int[Tensor, "B Q"], Bool[Tensor, "B Q"]]:
        """Count the corner cells at the rule's level; a cell's level is the highest top over it."""
        # 1. The four corner cells of each base.
        x0, y0, _, x1, y1, top = self.boxes[:, None, None].unbind(-1)
        u0, v0, rest, u1, v1, _ = self.base.unbind(-1)
        x = torch.stack((u0, u0, u1 - 1, u1 - 1), -1)[..., None]
        y = torch.stack((v0, v1 - 1, v0, v1 - 1), -1)[..., None]
        # 2. The highest top over each of them; 0 without a box.
        over = (x0 <= x) & (x < x1) & (y0 <= y) & (y < y1)
        levels = torch.cat((torch.zeros_like(x), torch.where(over, top, 0)), -1).amax(-1)
        # 3. The number of cells at the level.
        highest = levels.amax(-1)
        level = highest if at_highest else rest
        return (levels == level[..., None]).sum(-1), highest == rest

    def in_hull(self, centres: bool) -> Bool[Tensor, "B Q"]:
        """Return whether the centre lies in the hull of the contacts or on its boundary.

        See `kernels.stability_rules.chords_hold`. Lengths are in half units. Corners straight above
        or below the centre count for both sides. Rounding to float64 keeps the order of slopes,
        because the integers are small. With ``centres``, corners are moved inwards by half a unit.
        """
        # 1. Twice the centre, so that all numbers are whole.
        base, contacts, inset = self.base, self.contacts, int(centres)
        cx, cy = base[..., 0:1] + base[..., 3:4], base[..., 1:2] + base[..., 4:5]
        # 2. Distances of the contacts' corners from it: above, below and to the side.
        high = torch.where(contacts.touch, (2 * contacts.y1 - inset - cy).double(), -torch.inf)
        low = torch.where(contacts.touch, (cy - 2 * contacts.y0 - inset).double(), -torch.inf)
        dx = torch.cat((2 * contacts.x0 + inset - cx, 2 * contacts.x1 - inset - cx), -1)
        distance = torch.where(dx == 0, VERTICAL, dx.abs().double())
        # 3. The chords above and below the centre.
        slopes = (torch.cat((reach, reach), -1) / distance for reach in (high, low))
        held: Tensor = chords_hold(*(chord(slope, dx <= 0, dx >= 0) for slope in slopes))
        return held
