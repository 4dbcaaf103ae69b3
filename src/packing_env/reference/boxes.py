"""The specification of cuboids as integer boxes.

A box is ``(x0, y0, z0, x1, y1, z1)`` in whole units. Packed boxes are listed in packing order, so
the supports of a box precede it. A box put down at ``(x, y)`` comes to rest on the highest top that
its base overlaps with positive area, or on the floor. Its centre of mass is its centre.

Most rules are those of :mod:`packing_env.reference.stability`. ``stacking_tree`` is defined only
here, and ``equilibrium`` in :mod:`packing_env.reference.equilibrium`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from packing_env.reference import equilibrium, stability
from packing_env.reference.stability import Point, Touch, corners, hull

Box = tuple[int, int, int, int, int, int]
Size = tuple[int, int, int]
Load = tuple[float, float, float]
"""A load on a box: mass and place for ``stacking_tree``, mass and moments for ``equilibrium``."""

FLOOR = -1
SHRINK = 0.1
"""Share by which each corner of the contacts' hull is moved towards the mean of the corners."""
TOLERANCE = 1e-6
"""Units; a point that is closer to an outline lies on it.

In least squares, a product of lever arm and base that is smaller than this counts as 0.
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


@dataclass(frozen=True, eq=False)
class Meeting:
    """A box compared with the ``F + N`` boxes of a pile: first the fixed, then the packed boxes.

    A fixed box carries any load, like the floor.

    Attributes:
        box: The box.
        num_fixed: F.
        floor: True if there is a floor at 0.
        others: ``[6, F + N]`` corners of the boxes of the pile.
        shared: ``[3, F + N]`` lengths that the box shares with each box along x, y and z. A
            negative length is a distance.
    """

    box: Box
    num_fixed: int
    floor: bool
    others: np.ndarray
    shared: np.ndarray

    @cached_property
    def aligned(self) -> np.ndarray:
        """``[F + N]``: True for the boxes whose area, seen from above, overlaps that of the box."""
        return np.asarray((self.shared[0] > 0) & (self.shared[1] > 0))

    @property
    def overlapping(self) -> np.ndarray:
        """``[F + N]``: True for the boxes that share a volume with the box."""
        return np.asarray((self.shared > 0).all(0))

    @cached_property
    def supporting(self) -> np.ndarray:
        """``[F + N]``: True for the boxes on which the box rests."""
        return np.asarray(self.aligned & (self.others[5] == self.box[2]))

    @property
    def carried(self) -> np.ndarray:
        """``[F + N]``: True for the boxes that rest on the box, which was put in under them."""
        return np.asarray(self.aligned & (self.others[2] == self.box[5]))

    @property
    def drop_height(self) -> int:
        """Height at which the box comes to rest when put down from above; -1 if it falls."""
        return int(self.others[5, self.aligned].max(initial=0 if self.floor else -1))

    @cached_property
    def contacts(self) -> list[Contact]:
        """Contacts on which the box stands, in packing order; a fixed box counts as `FLOOR`."""
        x0, y0, z0, x1, y1, _ = self.box
        if z0 == 0 and self.floor:
            return [Contact(FLOOR, x0, y0, x1, y1)]
        rows = np.nonzero(self.supporting)[0]
        lower = np.maximum(self.others[:2, rows].T, (x0, y0)).tolist()
        upper = np.minimum(self.others[3:5, rows].T, (x1, y1)).tolist()
        below = np.maximum(rows - self.num_fixed, FLOOR).tolist()
        return [Contact(i, *low, *high) for i, low, high in zip(below, lower, upper, strict=True)]

    @cached_property
    def touch(self) -> Touch:
        """Contacts of the box at rest, in units; boxes above it do not count."""
        x0, y0, z0, x1, y1, _ = self.box
        left, front, _, right, back, top = self.others[:, self.aligned]
        window = (x0, y0, x1, y1)
        levels = []
        for x, y in corners(window):
            here = (left <= x) & (x < right) & (front <= y) & (y < back) & (top <= z0)
            levels.append(int(top[here].max(initial=0)))
        return Touch(
            contacts=[contact[1:] for contact in self.contacts],
            area=(x1 - x0) * (y1 - y0),
            window=window,
            corner_levels=levels,
            z=z0,
            com=(32 * (x0 + x1), 32 * (y0 + y1)),
        )


def meet(
    boxes: Sequence[Box] | np.ndarray, box: Box, fixed: int = 0, floor: bool = True
) -> Meeting:
    """Compare a box with boxes ``[F + N, 6]``, of which the first ``fixed`` are fixed."""
    corner = np.array(box, np.int64)[:, None]
    others = np.asarray(boxes, np.int64).reshape(-1, 6).T
    shared = np.minimum(corner[3:], others[3:]) - np.maximum(corner[:3], others[:3])
    return Meeting(box, fixed, floor, others, shared)


def drop(boxes: Sequence[Box], lower: Point, size: Size) -> Box:
    """Return the box of this size at rest, with its lower corner at ``(x, y)``."""
    (x, y), (w, h, d) = lower, size
    z = meet(boxes, (x, y, 0, x + w, y + h, d)).drop_height
    return (x, y, z, x + w, y + h, z + d)


def contacts(boxes: Sequence[Box], box: Box) -> list[Contact]:
    """Return the contacts on which a box at rest stands, in packing order."""
    return meet(boxes, box).contacts


def is_legal(rule: str, boxes: list[Box], lower: Point, size: Size, container: Size) -> bool:
    """Test if the dropped box is inside the container ``(X, Y, H)`` and stable by the rule."""
    box = drop(boxes, lower, size)
    inside = min(lower) >= 0 and all(box[3 + axis] <= container[axis] for axis in range(3))
    return inside and is_stable(rule, boxes, box)


def is_stable(rule: str, boxes: Sequence[Box], box: Box) -> bool:
    """Test a box at rest by a named rule; raise ValueError if the reference does not define it."""
    if rule == "equilibrium" and box[2] == 0:
        return True
    if rule in ON_PILES:
        return holds(rule, [*boxes, box])
    return stability.is_stable(rule, meet(boxes, box).touch)


# ---------------------------------------------------------------------- rules about piles

ON_PILES = ("stacking_tree", "equilibrium")
"""Stability rules that also consider boxes further down than the supports of a box."""
ON_CELLS = ("equilibrium",)
"""The rules of :data:`ON_PILES` that also apply to cuboids of whole cells on heightmaps."""
RULES = (*(rule for rule in stability.RULES if rule not in stability.MARGINS), *ON_PILES)
"""The stability rules for boxes."""


def holds(rule: str, pile: Sequence[Box]) -> bool:
    """Test if the contacts hold the last box of a pile, and the boxes below it with their loads.

    Boxes are visited from the last packed to the first, so all loads on a box are known when it is
    tested, and it is tested once. Its own mass (mass is volume) and its loads are then passed down
    to its supports. The loads depend only on the list of boxes, so no other state is needed.

    - A box on the floor is always held: each load lies inside the box that carries it.
    - ``equilibrium`` tests every box of the pile (:func:`.equilibrium.loads_below`).
    - ``stacking_tree`` tests the last box and every box below it, directly or indirectly. The
      common centre of mass, seen from above, of a box and the loads on it must lie strictly inside
      the hull of the box's contacts, after this hull is shrunk by 10 % towards the mean of its
      corners (:func:`is_held`). The supports share the mass and its centre (:func:`shares`).

    The source of the stacking tree is Zhao et al., ICLR 2022, as in their program
    (Online-3D-BPP-PCT, ``space.py``; equal in its discrete and its continuous environment). There
    are three differences:

    - Their check before a placement follows each path down separately, so a box that is reached
      over two paths is tested twice, each time with one of the two new loads. Here it is tested
      once, with both loads, as in their program after the placement.
    - Depending on rounding, their hull includes or omits points in the middle of an edge parallel
      to y. Here such points are omitted.
    - For the choice of a support, their tolerance is 0 in the discrete environment and a millionth
      of the container in the continuous one. Here it is always :data:`TOLERANCE`.
    """
    loads: list[list[Load]] = [[] for _ in pile]
    tested = set(range(len(pile))) if rule == "equilibrium" else {len(pile) - 1}
    for i in reversed(range(len(pile))):
        if pile[i][2] == 0:
            continue
        below = contacts(pile[:i], pile[i])
        held, passed = pass_down(rule, pile[i], below, loads[i])
        if i in tested and not held:
            return False
        for contact, load in zip(below, passed, strict=True):
            loads[contact.below].append(load)
            if i in tested:
                tested.add(contact.below)
    return True


def pass_down(
    rule: str, box: Box, below: list[Contact], loads: list[Load]
) -> tuple[bool, list[Load]]:
    """Return whether the contacts hold a box with its loads, and the load on each contact."""
    if rule == "stacking_tree":
        mass, centre = total(box, loads)
        held = is_held(below, centre)
        passed = shares(below, centre) if below else []
        return held, [(share * mass, float(at[0]), float(at[1])) for share, at in passed]
    x0, y0, z0, x1, y1, z1 = box
    mass = float((x1 - x0) * (y1 - y0) * (z1 - z0))
    moment_x, moment_y = mass * (x0 + x1) / 2, mass * (y0 + y1) / 2
    for load in loads:
        mass, moment_x, moment_y = mass + load[0], moment_x + load[1], moment_y + load[2]
    forces = equilibrium.loads_below((mass, moment_x, moment_y), [each[1:] for each in below])
    return forces is not None, forces or []


# ---------------------------------------------------------------------- the stacking tree


def total(box: Box, loads: list[Load]) -> tuple[float, np.ndarray]:
    """Return mass and centre of mass of a box with its loads."""
    x0, y0, z0, x1, y1, z1 = box
    own = float((x1 - x0) * (y1 - y0) * (z1 - z0))
    middle = np.array([x0 + x1, y0 + y1]) / 2
    mass = own + sum(load for load, *_ in loads)
    moment = own * middle + sum((load * np.array(at) for load, *at in loads), np.zeros(2))
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
      as in their program. If ``com`` is between the two centres, the divisor is negative, so the
      equations ask for shares of opposite signs. The shares then sum to less than 1, and some are
      negative.
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
