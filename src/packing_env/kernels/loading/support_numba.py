"""Supports of a box, for `packing_env.kernels.loading`: contacts, their area and their hull."""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit
from packing_env.kernels.compiled.stable import contacts_hold


@jit
def find_contacts(box, pile):
    """Write the contacts of a box above the floor; return their number and area.

    ``pile.contacts [C, 5]`` holds the entry below and the shared rectangle ``(x0, y0, x1, y1)``.
    """
    num_contacts, area = 0, np.int64(0)
    boxes, contacts = pile.boxes, pile.contacts
    for k in range(pile.num_near[0]):
        m = pile.near[k]
        if boxes[m, 5] != box[2]:
            continue
        x0, x1 = max(box[0], boxes[m, 0]), min(box[3], boxes[m, 3])
        y0, y1 = max(box[1], boxes[m, 1]), min(box[4], boxes[m, 4])
        if x0 < x1 and y0 < y1:
            area += (x1 - x0) * (y1 - y0)
            if num_contacts < contacts.shape[0]:
                contacts[num_contacts, 0] = m
                contacts[num_contacts, 1], contacts[num_contacts, 2] = x0, y0
                contacts[num_contacts, 3], contacts[num_contacts, 4] = x1, y1
            num_contacts += 1
    return num_contacts, area


@jit
def _is_over_hull(box, rules, pile, num_contacts):
    """Return whether the centre of a box, with its margin, is over the hull of its contacts."""
    # 1. The centre in whole steps, ``fine`` to a unit.
    contacts, count = pile.contacts, min(num_contacts, pile.contacts.shape[0])
    x, y = rules.fine // 2 * (box[0] + box[3]), rules.fine // 2 * (box[1] + box[4])
    if rules.margin < 0:
        return contacts_hold(contacts, count, rules.fine, 0, x, y)
    # 2. The corners of the margin around the centre, rounded up to whole steps.
    reach_x = max(np.int64(1), (rules.fine * (box[3] - box[0]) * rules.margin + 99) // 100)
    reach_y = max(np.int64(1), (rules.fine * (box[4] - box[1]) * rules.margin + 99) // 100)
    for corner in range(4):
        u = x + reach_x if corner & 1 else x - reach_x
        v = y + reach_y if corner & 2 else y - reach_y
        if not contacts_hold(contacts, count, rules.fine, 0, u, v):
            return False
    return True


@jit
def stands(box, rules, pile):
    """Return whether a box stands, and the number of its contacts; 0 on the floor."""
    if box[2] == 0 and not rules.deck:
        return True, 0
    num_contacts, area = find_contacts(box, pile)
    base = (box[3] - box[0]) * (box[4] - box[1])
    short = area < base if rules.support >= 1.0 else area < rules.support * base
    if num_contacts == 0 or short:
        return False, num_contacts
    if area >= base or not rules.hull:
        return True, num_contacts
    return _is_over_hull(box, rules, pile, num_contacts), num_contacts
