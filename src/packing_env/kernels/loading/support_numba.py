"""Supports of a box, for `packing_env.kernels.loading`: contacts, their area and their hull."""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit


@jit
def find_contacts(box, pile):
    """Write the contacts of a box above the floor; return their number and area.

    ``pile.contacts [C, 5]`` holds the entry below and the shared rectangle ``(x0, y0, x1, y1)``.
    """
    found, area = 0, np.int64(0)
    boxes, contacts = pile.boxes, pile.contacts
    for m in range(pile.size[0]):
        if boxes[m, 5] != box[2]:
            continue
        x0, x1 = max(box[0], boxes[m, 0]), min(box[3], boxes[m, 3])
        y0, y1 = max(box[1], boxes[m, 1]), min(box[4], boxes[m, 4])
        if x0 < x1 and y0 < y1:
            area += (x1 - x0) * (y1 - y0)
            if found < contacts.shape[0]:
                contacts[found, 0] = m
                contacts[found, 1], contacts[found, 2] = x0, y0
                contacts[found, 3], contacts[found, 4] = x1, y1
            found += 1
    return found, area


@jit
def _turn(points, i, j, x, y):
    """Return twice the signed area of a triangle; positive where it turns left."""
    along, up = points[j, 0] - points[i, 0], points[j, 1] - points[i, 1]
    return along * (y - points[i, 1]) - up * (x - points[i, 0])


@jit
def _hull(contacts, found, points, hull, fine):
    """Write the corners of the contacts' hull, counter-clockwise; return their number.

    Lengths are in steps, ``fine`` to a unit.
    """
    # 1. All corners, sorted by x, then y.
    num = 0
    for k in range(found):
        for corner in range(4):
            x = contacts[k, 3 if corner & 1 else 1] * fine
            y = contacts[k, 4 if corner & 2 else 2] * fine
            at = num
            while at > 0 and (
                points[at - 1, 0] > x or (points[at - 1, 0] == x and points[at - 1, 1] > y)
            ):
                points[at, 0], points[at, 1] = points[at - 1, 0], points[at - 1, 1]
                at -= 1
            points[at, 0], points[at, 1] = x, y
            num += 1
    # 2. The lower half from left to right, then the upper one back (Andrew's monotone chain).
    size = 0
    for back in range(2):
        start = size
        for k in range(num):
            n = num - 1 - k if back else k
            while (
                size > start + 1
                and _turn(hull, size - 2, size - 1, points[n, 0], points[n, 1]) <= 0
            ):
                size -= 1
            hull[size, 0], hull[size, 1] = points[n, 0], points[n, 1]
            size += 1
        size -= 1
    return size


@jit
def _is_over_hull(box, rules, pile, found):
    """Return whether the centre of a box, with its margin, is over the hull of its contacts."""
    # 1. Compute the hull; contacts have area, so it has at least three corners.
    size = _hull(
        pile.contacts, min(found, pile.contacts.shape[0]), pile.points, pile.hull, rules.fine
    )
    hull = pile.hull
    # 2. Round the rectangle about the centre up to whole steps.
    reach_x, reach_y = np.int64(0), np.int64(0)
    if rules.margin >= 0:
        reach_x = max(np.int64(1), (rules.fine * (box[3] - box[0]) * rules.margin + 99) // 100)
        reach_y = max(np.int64(1), (rules.fine * (box[4] - box[1]) * rules.margin + 99) // 100)
    x, y = rules.fine // 2 * (box[0] + box[3]), rules.fine // 2 * (box[1] + box[4])
    # 3. Check that its corners are left of every edge, or on it.
    for k in range(size):
        after = k + 1 if k + 1 < size else 0
        for corner in range(4):
            u = x + reach_x if corner & 1 else x - reach_x
            v = y + reach_y if corner & 2 else y - reach_y
            if _turn(hull, k, after, u, v) < 0:
                return False
    return True


@jit
def stands(box, rules, pile):
    """Return whether a box stands, and the number of its contacts; 0 on the floor."""
    if box[2] == 0 and not rules.deck:
        return True, 0
    found, area = find_contacts(box, pile)
    base = (box[3] - box[0]) * (box[4] - box[1])
    short = area < base if rules.support >= 1.0 else area < rules.support * base
    if found == 0 or short:
        return False, found
    if area >= base or not rules.hull:
        return True, found
    return _is_over_hull(box, rules, pile, found), found
