"""Packed boxes in an array, so that plans of thousands of boxes are checked in seconds.

Definitions and results equal those of :mod:`.boxes`. Here, vector operations compare one box with
all packed boxes, and the rules of piles test only the boxes whose loads a new box changes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from packing_env.reference import boxes, equilibrium, stability
from packing_env.reference.boxes import FLOOR, Box, Contact
from packing_env.reference.stability import Touch, corners

Load = tuple[float, float, float]
"""A load on a box: mass and place for ``stacking_tree``, mass and moments for ``equilibrium``."""


@dataclass(frozen=True, eq=False)
class Meeting:
    """A box compared with the ``F + N`` boxes of a pile: first the fixed, then the packed boxes.

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
        """``[F + N]``: bases overlap, seen from above, with positive area."""
        return np.asarray((self.shared[0] > 0) & (self.shared[1] > 0))

    @property
    def overlapping(self) -> np.ndarray:
        """``[F + N]``: the boxes share a volume."""
        return np.asarray((self.shared > 0).all(0))

    @cached_property
    def supporting(self) -> np.ndarray:
        """``[F + N]``: the box rests on these."""
        return np.asarray(self.aligned & (self.others[5] == self.box[2]))

    @property
    def carried(self) -> np.ndarray:
        """``[F + N]``: these rest on the box, which was put in under them."""
        return np.asarray(self.aligned & (self.others[2] == self.box[5]))

    @property
    def drop_height(self) -> int:
        """Height at which the box comes to rest when it is put down from above; -1: it falls."""
        return int(self.others[5, self.aligned].max(initial=0 if self.floor else -1))

    @cached_property
    def contacts(self) -> list[Contact]:
        """Contacts by :func:`.boxes.contacts`; a fixed box counts as `FLOOR`."""
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
        """Touch by :func:`.boxes.touch_of`, of the boxes that are not above this one."""
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


class Pile:
    """The boxes packed so far, in packing order.

    Args:
        capacity: Largest number of packed boxes.
        fixed: Boxes that are in the container from the start. They carry any load, like the floor.
        floor: False if there is no floor at 0 beside the fixed boxes.
    """

    def __init__(self, capacity: int, fixed: Sequence[Box] = (), *, floor: bool = True) -> None:
        self.num_fixed, self.capacity, self.floor = len(fixed), capacity, floor
        self._corners = np.zeros((6, len(fixed) + capacity), np.int64)
        self._corners[:, : len(fixed)] = np.array(fixed, np.int64).reshape(-1, 6).T
        self._contacts: list[list[Contact]] = []
        self._loads: list[dict[int, Load]] = []
        self._changes: dict[int, dict[int, Load]] = {}

    def __len__(self) -> int:
        return len(self._contacts)

    @property
    def corners(self) -> np.ndarray:
        """``[6, F + N]`` fixed and packed boxes."""
        return self._corners[:, : self.num_fixed + len(self)]

    @property
    def height(self) -> int:
        """Highest top of a packed box."""
        return int(self.corners[5, self.num_fixed :].max(initial=0))

    def box(self, index: int) -> Box:
        """Return a packed box."""
        x0, y0, z0, x1, y1, z1 = self.corners[:, self.num_fixed + index].tolist()
        return x0, y0, z0, x1, y1, z1

    def meet(self, box: Box) -> Meeting:
        """Compare a box with those of the pile."""
        corner, others = np.array(box, np.int64)[:, None], self.corners
        shared = np.minimum(corner[3:], others[3:]) - np.maximum(corner[:3], others[:3])
        return Meeting(box, self.num_fixed, self.floor, others, shared)

    def is_stable(self, rule: str, meeting: Meeting) -> bool:
        """Return :func:`.boxes.is_stable`; all packed boxes must be stable by the rule."""
        if rule in boxes.ON_PILES:
            return self._holds(rule, meeting)
        return stability.is_stable(rule, meeting.touch)

    def put(self, meeting: Meeting) -> None:
        """Add a box whose stability was tested last."""
        self._corners[:, self.num_fixed + len(self)] = meeting.box
        self._contacts.append(meeting.contacts)
        self._loads.append({})
        for index, loads in self._changes.items():
            self._loads[index].update(loads)
        self._changes = {}

    def _holds(self, rule: str, meeting: Meeting) -> bool:
        """Test the box, and the boxes below it whose loads change, from the last packed down."""
        self._changes, new = {}, len(self)
        changes: dict[int, dict[int, Load]] = {}
        waiting = [-new]
        while waiting:
            # 1. Take the last packed box whose loads have changed, with all its loads.
            index = -heapq.heappop(waiting)
            box = meeting.box if index == new else self.box(index)
            if box[2] == 0 and self.floor:
                continue
            below = meeting.contacts if index == new else self._contacts[index]
            before = self._loads[index] if index < new else {}
            on_it = before | changes.get(index, {})

            # 2. Compute the loads that it passes on, if it is stable.
            passed = _passed_down(rule, box, below, [on_it[i] for i in sorted(on_it, reverse=True)])
            if passed is None:
                return False

            # 3. Find the boxes whose load differs from before.
            for contact, load in zip(below, passed, strict=True):
                if contact.below == FLOOR:
                    continue
                old = self._loads[contact.below].get(index)
                if load != old and (old is not None or load[0] != 0):
                    if contact.below not in changes:
                        heapq.heappush(waiting, -contact.below)
                    changes.setdefault(contact.below, {})[index] = load
        self._changes = changes
        return True


def _passed_down(rule: str, box: Box, below: list[Contact], loads: list[Load]) -> list[Load] | None:
    """Return the load on each contact of a box, or None if it is not held."""
    x0, y0, z0, x1, y1, z1 = box
    if rule == "stacking_tree":
        mass, centre = boxes.total(box, [(load, np.array(at)) for load, *at in loads])
        if not boxes.is_held(below, centre):
            return None
        shares = boxes.shares(below, centre)
        return [(share * mass, float(at[0]), float(at[1])) for share, at in shares]
    own = float((x1 - x0) * (y1 - y0) * (z1 - z0))
    sums = [own, own * (x0 + x1) / 2, own * (y0 + y1) / 2]
    for load in loads:
        sums = [have + more for have, more in zip(sums, load, strict=True)]
    return equilibrium.loads_below((sums[0], sums[1], sums[2]), [each[1:] for each in below])
