"""The specification of cuboids as integer boxes, in plain loops.

A box is ``(x0, y0, z0, x1, y1, z1)`` in whole units. Packed boxes are listed in packing order, so
the supports of a box precede it. A box put down at ``(x, y)`` comes to rest on the highest top that
its base overlaps with positive area, or on the floor. Its centre of mass is its centre.

Most rules are those of :mod:`packing_env.reference.stability`. ``stacking_tree`` is defined only
here, and ``equilibrium`` in :mod:`packing_env.reference.equilibrium`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from packing_env.reference import equilibrium, stability
from packing_env.reference.stability import Point, Touch, corners, hull

Box = tuple[int, int, int, int, int, int]
Size = tuple[int, int, int]

FLOOR = -1
SHRINK = 0.1
"""Share by which each corner of the contacts' hull is moved towards the mean of the corners."""
TOLERANCE = 1e-6
"""Units; a point that is closer to an outline lies on it.

If lever arm times base is smaller, it counts as 0.
"""
MAX_SHARING = 16
"""Least squares share the load among the first 16 supports in packing order; the other supports get
none.
"""


class Contact(NamedTuple):
    """The rectangle, in units, in which a base touches a box (by index) or the `FLOOR`."""

    below: int
    x0: int
    y0: int
    x1: int
    y1: int

    @property
    def centre(self) -> np.ndarray:
        """``(x, y)``."""
        return np.array([self.x0 + self.x1, self.y0 + self.y1]) / 2


def base_overlap(box: Box, other: Box, index: int = FLOOR) -> Contact | None:
    """Return the overlap of two boxes seen from above, or ``None`` if it has no area."""
    x0, y0 = max(box[0], other[0]), max(box[1], other[1])
    x1, y1 = min(box[3], other[3]), min(box[4], other[4])
    return Contact(index, x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None


def drop(boxes: Sequence[Box], lower: Point, size: Size) -> Box:
    """Return the box of this size at rest, with its lower corner at ``(x, y)``."""
    x, y = lower
    column = (x, y, 0, x + size[0], y + size[1], size[2])
    z = max([other[5] for other in boxes if base_overlap(column, other)], default=0)
    return (x, y, z, x + size[0], y + size[1], z + size[2])


def contacts(boxes: list[Box], box: Box) -> list[Contact]:
    """Return the contacts on which a box at rest stands, in packing order."""
    if box[2] == 0:
        return [Contact(FLOOR, box[0], box[1], box[3], box[4])]
    touched = [base_overlap(box, other, i) for i, other in enumerate(boxes) if other[5] == box[2]]
    return [contact for contact in touched if contact]


def touch_of(boxes: list[Box], box: Box) -> Touch:
    """Describe the contacts of a box at rest, in units."""
    x0, y0, z0, x1, y1, _ = box
    window = (x0, y0, x1, y1)
    return Touch(
        contacts=[contact[1:] for contact in contacts(boxes, box)],
        area=(x1 - x0) * (y1 - y0),
        window=window,
        corner_levels=[drop(boxes, cell, (1, 1, 1))[2] for cell in corners(window)],
        z=z0,
        com=(32 * (x0 + x1), 32 * (y0 + y1)),
    )


def support_ratio(boxes: list[Box], box: Box) -> float:
    """Return the supported share of the base."""
    touch = touch_of(boxes, box)
    return touch.support / touch.area


def is_legal(rule: str, boxes: list[Box], lower: Point, size: Size, container: Size) -> bool:
    """Test if the dropped box is inside the container ``(X, Y, H)`` and stable by the rule."""
    box = drop(boxes, lower, size)
    inside = min(lower) >= 0 and all(box[3 + axis] <= container[axis] for axis in range(3))
    return inside and is_stable(rule, boxes, box)


def is_stable(rule: str, boxes: list[Box], box: Box) -> bool:
    """Test a box at rest by a named rule; raise ValueError if the reference does not define it."""
    if rule == "stacking_tree":
        return stacking_tree(boxes, box)
    if rule == "equilibrium":
        return box[2] == 0 or stands([*boxes, box])
    return stability.is_stable(rule, touch_of(boxes, box))


# ---------------------------------------------------------------------- the stacking tree


def stacking_tree(boxes: list[Box], box: Box) -> bool:
    """Test if the contacts hold the new box and every box below it, directly or indirectly.

    A box on the floor is always held. For any other box, take the common centre of mass, seen from
    above, of the box and the loads on it (mass is volume). It must lie strictly inside the hull of
    the box's contacts, after this hull is shrunk by 10 % towards the mean of its corners. The mass
    and its centre are then passed down as loads to the supports of the box (:func:`shares`), which
    are tested with everything that they carry. Boxes are visited from the last packed to the first,
    so all loads on a box are known when it is tested, and it is tested once.

    The source is Zhao et al., ICLR 2022, as in their program (Online-3D-BPP-PCT, ``space.py``;
    equal in its discrete and its continuous environment). There are three differences:

    - Their check before a placement follows each path down separately, so a box that is reached
      over two paths is tested twice, each time with one of the two new loads. Here it is tested
      once, with both loads, as in their program after the placement.
    - Depending on rounding, their hull includes or omits points in the middle of an edge parallel
      to y. Here such points are omitted.
    - For the choice of a support, their tolerance is 0 in the discrete environment and a millionth
      of the container in the continuous one. Here it is always :data:`TOLERANCE`.

    In their program, too, the loads depend only on the list of boxes, so no other state is needed.
    """
    pile = [*boxes, box]
    loads: list[list[tuple[float, np.ndarray]]] = [[] for _ in pile]
    tested = {len(boxes)}
    for i in reversed(range(len(pile))):
        if pile[i][2] == 0:
            continue
        mass, centre = total(pile[i], loads[i])
        below = contacts(pile[:i], pile[i])
        if i in tested and not is_held(below, centre):
            return False
        for contact, (share, at) in zip(below, shares(below, centre), strict=True):
            loads[contact.below].append((share * mass, at))
            if i in tested:
                tested.add(contact.below)
    return True


ON_PILES = ("stacking_tree", "equilibrium")
"""Stability rules that also consider boxes further down than the supports of a box."""
ON_CELLS = ("equilibrium",)
"""The rules of :data:`ON_PILES` that also apply to cuboids of whole cells on heightmaps."""
RULES = (*(rule for rule in stability.RULES if rule not in stability.MARGINS), *ON_PILES)
"""The stability rules for boxes."""


def stands(pile: list[Box]) -> bool:
    """Test if every box of a pile is held under its loads; see :mod:`.equilibrium`."""
    below = [contacts(pile[:i], box) for i, box in enumerate(pile)]
    shared = [[(contact.below, contact[1:]) for contact in each] for each in below]
    return equilibrium.stands(pile, shared)


def total(box: Box, loads: list[tuple[float, np.ndarray]]) -> tuple[float, np.ndarray]:
    """Return mass and centre of mass of a box with its loads."""
    x0, y0, z0, x1, y1, z1 = box
    own = float((x1 - x0) * (y1 - y0) * (z1 - z0))
    middle = np.array([x0 + x1, y0 + y1]) / 2
    mass = own + sum(load for load, _ in loads)
    moment = own * middle + sum((load * at for load, at in loads), np.zeros(2))
    with np.errstate(all="ignore"):  # with negative shares the total mass can be 0
        return mass, moment / mass


def is_held(below: list[Contact], centre: np.ndarray) -> bool:
    """Test if the centre of mass lies strictly inside the shrunken hull of the contacts.

    Each corner of the hull moves towards the mean of the corners, by :data:`SHRINK` of its
    distance. A point that is closer than :data:`TOLERANCE` to the outline is not inside.
    """
    if not below or not np.isfinite(centre).all():
        return False
    points = [(x, y) for _, x0, y0, x1, y1 in below for x, y in product((x0, x1), (y0, y1))]
    vertices = np.array(hull(points), float)
    vertices -= SHRINK * (vertices - vertices.mean(0))
    for a, b in pairwise([*vertices, vertices[0]]):
        along, to = b - a, centre - a
        if along[0] * to[1] - along[1] * to[0] <= TOLERANCE * np.hypot(*along):
            return False
    return True


def shares(below: list[Contact], centre: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """Return each contact's share of the load, and the point where it acts.

    - A single contact takes the whole load, at the centre of mass. If there are several, the first
      contact in packing order whose rectangle has the centre of mass strictly inside does so.
    - Otherwise the load acts at the centres of the contacts. Two contacts share it by the lever
      rule: the share of each is the projected distance of the centre of mass from the *other*
      contact, divided by the distance between the contacts.
    - Three or more contacts take the least squares solution of these equations: the shares sum to
      1; and for each pair ``i < j`` with the vector ``t`` from ``c_j`` to ``c_i``, ``share_i =
      share_j |(com - c_j) . t| / ((com - c_i) . t)``, unless the divisor is 0. The sign is the same
      as in their program. Between the two centres the divisor is negative, so the equations ask for
      shares of opposite signs. The shares then sum to less than 1, and some are negative.
    """
    directly = [i for i, contact in enumerate(below) if _is_over(contact, centre)]
    if len(below) == 1:
        directly = [0]
    if directly:
        return [(1.0 if i == directly[0] else 0.0, centre) for i in range(len(below))]
    at = [contact.centre for contact in below]
    if len(below) == 2:
        along = at[0] - at[1]
        arms = [abs(np.dot(centre - at[1], along)), abs(np.dot(centre - at[0], along))]
        return [(arm / np.dot(along, along), c) for arm, c in zip(arms, at, strict=True)]
    sharing = np.zeros(len(below))
    sharing[:MAX_SHARING] = least_squares(at[:MAX_SHARING], centre)
    return list(zip(sharing.tolist(), at, strict=True))


def _is_over(contact: Contact, centre: np.ndarray) -> bool:
    x, y = centre
    lower = x - contact.x0 > TOLERANCE and y - contact.y0 > TOLERANCE
    return lower and contact.x1 - x > TOLERANCE and contact.y1 - y > TOLERANCE


def least_squares(at: list[np.ndarray], centre: np.ndarray) -> np.ndarray:
    """Solve for the shares of three or more contacts; see :func:`shares`."""
    rows = [np.ones(len(at))]
    for i in range(len(at)):
        for j in range(i + 1, len(at)):
            along = at[i] - at[j]
            arm = np.dot(centre - at[i], along)
            if abs(arm) > TOLERANCE:
                row = np.zeros(len(at))
                row[i], row[j] = 1.0, -abs(np.dot(centre - at[j], along)) / arm
                rows.append(row)
    right = np.zeros(len(rows))
    right[0] = 1.0
    if not np.isfinite(rows).all():
        return np.full(len(at), np.nan)
    return np.linalg.lstsq(np.array(rows), right, rcond=None)[0]
