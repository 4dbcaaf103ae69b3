"""Loads of single containers, the step that every search for the containers of an order repeats."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence

from packing_env.plan import LoadedBox
from packing_env.plan.loading.loader import Loader
from packing_env.planner.boxes.container_sets import ContainerSets
from packing_env.planner.boxes.order import BoxOrder

_LOGGER = logging.getLogger("packing_env.planner")


class BoxLoads:
    """Fills a container with boxes of an order.

    Attributes:
        order: The boxes.
        sets: The sets of containers to choose from. Its capacity of a type is lowered when a load
            of the whole order has a smaller bound.
        tried: How many loads were compared.
        interrupted: True if Ctrl-C ended the search.
    """

    def __init__(self, order: BoxOrder, sets: ContainerSets) -> None:
        self.order, self.sets = order, sets
        self.tried, self.interrupted = 0, False
        self._packable = [bool(takes) for takes in sets.demand.takes]
        self._reported = 0.0

    def takes_all(self, left: Sequence[int]) -> bool:
        """Return whether no container takes any box that is left."""
        return not any(n and takes for n, takes in zip(left, self._packable, strict=True))

    def load(
        self, size: int, counts: Sequence[int], seconds: float, *, by_weight: bool = False
    ) -> list[LoadedBox]:
        """Fill an empty container; pack boxes that stay together as a whole, or not at all.

        Args:
            size: Index of the container's type.
            counts: Boxes of each kind to take from.
            seconds: Time; the first load is always completed.
            by_weight: True prefers heavy boxes, even if more volume stays free.
        """
        order = self.order.drawn_by_weight if by_weight else self.order
        counts, of_all = list(counts), [part.quantity for part in order.parts]
        rounds = 1 + len(order.sets).bit_length()  # each round leaves out half of the broken sets
        while True:
            # 1. Leave out the sets that are incomplete in `counts`.
            for kinds in order.sets:
                if any(counts[kind] < of_all[kind] for kind in kinds):
                    counts = [0 if kind in kinds else n for kind, n in enumerate(counts)]
            boxes = self._load_any(order, size, counts, seconds / rounds)
            # 2. Load again without half of the broken sets, those that are least complete.
            packed = order.counts(boxes)
            shares = [
                (sum(packed[kind] for kind in kinds) / sum(of_all[kind] for kind in kinds), kinds)
                for kinds in order.sets
            ]
            broken = sorted(each for each in shares if 0 < each[0] < 1)
            if not broken:
                return boxes
            for _, kinds in broken[: (len(broken) + 1) // 2]:
                counts = [0 if kind in kinds else n for kind, n in enumerate(counts)]

    def _load_any(
        self, order: BoxOrder, size: int, counts: Sequence[int], seconds: float
    ) -> list[LoadedBox]:
        room = order.rooms[size]
        loader = Loader(room.sides, order.types(counts), rules=room.rules)
        if loader.is_empty:
            return []
        if order.values is None:
            loader.progress = self._report
        boxes = loader.run(0.0 if self.interrupted else seconds)
        self.interrupted |= loader.interrupted
        self.tried += loader.tried
        whole = list(counts) == [part.quantity for part in order.parts]
        # The bound is exact as long as float64 holds the volumes.
        if order.values is None and whole and math.prod(room.sides) < 2**53:
            self.sets.capacity[size] = min(self.sets.capacity[size], int(loader.bound))
        return boxes

    def is_over(self, deadline: float) -> bool:
        """Return whether the search has to end."""
        return self.interrupted or time.monotonic() >= deadline

    def _report(self, share: float) -> None:
        """Log how full a container is, at most once a second."""
        now = time.monotonic()
        if now - self._reported >= 1.0:
            self._reported = now
            _LOGGER.info("a container is %.1f %% full", 100 * share)
