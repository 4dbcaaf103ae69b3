"""Distribution of boxes over a set of containers: some containers are emptied and filled again.

If only volume counts, filling one container after the other may leave all heavy boxes for the last
container. Therefore containers are also filled with a share of each kind.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from packing_env.plan import LoadedBox
from packing_env.planner.boxes.loads import BoxLoads
from packing_env.planner.boxes.order import Filled

_START = 0.1
"""Share of the time for each of the two first distributions."""
_STEPS = 40
"""Smallest number of containers that are filled again in the rest of the time."""
_LONG = 0.2
"""Share of the refilled containers that get more time than a first load needs."""
_WORSE = 1.5
"""Factor by which more may be left over for a while, so that the search leaves dead ends."""
_WITHOUT = 0.3
"""Share of the sets (of boxes that stay together) that is not offered to a container."""
_LONGEST = 1.0
"""Largest number of seconds for a container that is filled again."""


class Distribution:
    """The boxes of an order in some containers.

    Attributes:
        sizes: The type of each container.
        boxes: The boxes in each container.
        left: How many boxes of each kind are in no container.

    Args:
        loads: Fills a container.
        filled: Containers that are filled already; each stands for a container of its type in
            ``sizes``. All other containers are empty.
    """

    def __init__(
        self, loads: BoxLoads, sizes: Sequence[int], filled: Sequence[Filled] = ()
    ) -> None:
        self._loads, self._order, self.sizes = loads, loads.order, sizes
        self._random = random.Random(0)
        self.boxes: list[list[LoadedBox]] = []
        waiting = list(filled)
        for size in sizes:
            of_size = [each for each in waiting if each.room is self._order.rooms[size]]
            self.boxes.append(list(of_size[0].boxes) if of_size else [])
            waiting = [each for each in waiting if each not in of_size[:1]]
        self._all = [part.quantity for part in self._order.parts]
        packed = self._order.counts(box for boxes in self.boxes for box in boxes)
        self.left = [n - of for n, of in zip(self._all, packed, strict=True)]
        self._boxes, self._left = list(self.boxes), self.left
        limits = [self._order.rooms[size].rules.weight_limit for size in sizes]
        self._is_limited = any(limit is not None for limit in limits)

    def search(self, deadline: float) -> None:
        """Fill the containers until they take all boxes, or the time is up."""
        start = time.monotonic()
        spare = deadline - start
        if len(self.sizes) == 1 and not self._order.sets:
            self._keep(*self._refill([0], self._all, False, spare))
            return
        # 1. Fill each container with its share of each kind; then fill one container after the
        # other.
        every = list(range(len(self.sizes)))
        for shares in (True, False):
            seconds = _START * spare / len(every)
            self._keep(*self._refill(every, self._all, shares, seconds))
            if self._loads.takes_all(self.left):
                return
        # 2. Empty some containers, and fill them with their own and the left-over boxes.
        seconds = min((deadline - time.monotonic()) / _STEPS, _LONGEST)
        while not self._loads.takes_all(self.left) and not self._loads.is_over(deadline):
            number = min(self._random.choice((1, 2, 2, 3)), len(every))
            chosen = self._random.sample(every, number)
            pool = list(self._left)
            for container in chosen:
                for box in self._boxes[container]:
                    pool[box.kind] += 1
            shares, long = self._random.random() < 0.5, self._random.random() < _LONG
            self._keep(*self._refill(chosen, pool, shares, seconds if long else 0.0))

    def _keep(self, filled: dict[int, list[LoadedBox]], left: list[int]) -> None:
        """Accept new loads of some containers if hardly more is left over; record the best."""
        order = self._order.drawn_by_weight if self._is_limited else self._order
        factor = _WORSE if self._random.random() < 0.5 else 1.0
        if order.worth(left) > factor * order.worth(self._left):
            return
        self._left = left
        for container, boxes in filled.items():
            self._boxes[container] = boxes
        if self._order.worth(left) <= self._order.worth(self.left):
            self.left, self.boxes = left, list(self._boxes)

    def _refill(
        self, chosen: Sequence[int], pool: Sequence[int], shares: bool, seconds: float
    ) -> tuple[dict[int, list[LoadedBox]], list[int]]:
        """Fill some containers, the last with all remaining boxes; return loads and rest."""
        filled, left = {}, list(pool)
        by_weight = self._random.random() < 0.5
        heavy_first = self._random.random() < 0.5
        for place, container in enumerate(chosen):
            size, counts = self.sizes[container], list(left)
            if shares and place < len(chosen) - 1:
                share = self._share(chosen[place:], by_weight)
                counts = [int(share * n + self._random.random()) for n in left]
            for kinds in self._order.sets:  # leave some sets for other containers
                if shares and self._random.random() < _WITHOUT:
                    counts = [0 if kind in kinds else n for kind, n in enumerate(counts)]
                elif sum(left[kind] for kind in kinds):
                    counts = [left[k] if k in kinds else n for k, n in enumerate(counts)]
            heavy = self._is_limited and heavy_first
            filled[container] = self._loads.load(size, counts, seconds, by_weight=heavy)
            for box in filled[container]:
                left[box.kind] -= 1
        return filled, left

    def _share(self, containers: Sequence[int], by_weight: bool) -> float:
        """Return the first container's share of the total volume, or of the total weight limit."""
        sizes = [self.sizes[container] for container in containers]
        limits = [self._order.rooms[size].rules.weight_limit for size in sizes]
        amounts = [float(self._loads.sets.capacity[size]) for size in sizes]
        if by_weight and None not in limits:
            amounts = [float(limit or 0) for limit in limits]
        return amounts[0] / sum(amounts)
