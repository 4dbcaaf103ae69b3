"""Packed boxes in an array, so that plans of thousands of boxes are checked in seconds.

Results equal those of :mod:`.boxes`, but rules about piles test only the boxes whose loads a new
box changes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from packing_env.reference import boxes, stability
from packing_env.reference.boxes import FLOOR, Box, Contact, Load, Meeting


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
        return boxes.meet(self.corners.T, box, self.num_fixed, self.floor)

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
            loads = [on_it[i] for i in sorted(on_it, reverse=True)]
            held, passed = boxes.pass_down(rule, box, below, loads)
            if not held:
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
