"""Orders of boxes into containers: a first answer, then better sets of containers, then balance.

The first answer fills one container after the other. While time is left and a better set of
containers is possible, :class:`packing_env.planner.boxes.distribution.Distribution` tries this set.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from packing_env.plan.loading.places import add_boxes
from packing_env.plan.loading.problem import fractional_knapsack
from packing_env.plan.loading.search import compile_kernels
from packing_env.planner.boxes.container_sets import BALANCED, FEWEST, ContainerSet, ContainerSets
from packing_env.planner.boxes.distribution import Distribution
from packing_env.planner.boxes.equal_weights import equalize
from packing_env.planner.boxes.loads import BoxLoads
from packing_env.planner.boxes.order import BoxOrder, Filled, Room
from packing_env.planner.fit import fits

_SHORTEST = 0.05
"""Smallest number of seconds for each container of the first answer."""
_FIRST = 0.7
"""Share of the time for the first answer, if other sets of containers may be better."""
_BALANCE = 0.2
"""Share of the time in which the containers are balanced."""
_MOST_TRIED = 32
"""Largest number of sets of containers that are tried in one pass."""


class BoxPacker(BoxLoads):
    """Search for the containers of an order.

    Attributes:
        filled: The packed containers.
        seconds: Time that the search took.

    Args:
        order: The boxes.
        limit: Largest number of containers that may be used.
        choose: One of :data:`packing_env.planner.boxes.container_sets.CHOICES`.
    """

    def __init__(self, order: BoxOrder, limit: int, choose: str = FEWEST) -> None:
        super().__init__(order, ContainerSets(order, limit, choose))
        self.filled: list[Filled] = []
        self.seconds = 0.0
        self._exhausted: set[ContainerSet] = set()

    @property
    def left(self) -> list[int]:
        """Number of boxes of each part that are in no container."""
        packed = self.order.counts(box for filled in self.filled for box in filled.boxes)
        return [part.quantity - n for part, n in zip(self.order.parts, packed, strict=True)]

    def pack(self, seconds: float) -> None:
        """Pack as much of the order as the search can.

        Args:
            seconds: Time of the search; the first load of each container is always completed.
        """
        compile_kernels()
        start = time.monotonic()
        try:
            self._search(start, seconds)
        except KeyboardInterrupt:  # during a first load, or after the search
            if not self.filled:
                raise
            self.interrupted = True
        self.seconds = time.monotonic() - start

    def _search(self, start: float, seconds: float) -> None:
        deadline = start + seconds
        # 1. A first answer, with all the time if there is only one set of containers to choose.
        alone = self.sets.limit == 1 and not self.order.sets
        alone = alone and (len(self.order.rooms) == 1 or not self.sets.better())
        self._fill_all(start + seconds * (1.0 if alone else _FIRST))
        # 2. Better sets of containers, or more boxes in the same set.
        balanced = self.sets.choose == BALANCED
        if not alone:
            self._try_sets(deadline - seconds * (_BALANCE if balanced else 0.0))
            # The best set may have fewer containers than are available, and room for more boxes.
            if not self.is_complete:
                self._add_more()
                self._fill_all(deadline)
        # 3. Equal weights.
        if balanced and len(self.filled) > 1:
            self.filled = equalize(self, self.filled, deadline)

    def pack_first(self, first: Sequence[int], seconds: float) -> None:
        """Pack some boxes of each kind, then every other box that has a place beside them."""
        # 1. The boxes that come first.
        pairs = zip(self.order.parts, first, strict=True)
        parts = [replace(part, quantity=n) for part, n in pairs]
        order = replace(self.order, parts=parts)
        search = BoxPacker(order, self.sets.limit, self.sets.choose)
        search.pack(seconds)
        self.seconds, self.tried, self.interrupted = (
            search.seconds, search.tried, search.interrupted,
        )  # fmt: skip
        # 2. Other boxes, in the containers in use.
        self.filled = search.filled
        self._add_more()
        # 3. More containers with the rest.
        self._fill_all(time.monotonic())

    def _add_more(self) -> None:
        """Add single boxes and sets until none has a place; an added box may carry others."""
        labelled = {kind for kinds in self.order.sets for kind in kinds}
        before: list[int] = []
        while before != self.left:
            before = self.left
            for container, filled in enumerate(self.filled):
                more = [0 if kind in labelled else n for kind, n in enumerate(self.left)]
                self.filled[container] = _with_more(self.order, filled, more)
            self._add_labelled()

    def _add_labelled(self) -> None:
        """Add the boxes that stay together if a container takes them all."""
        failed = []
        for number, kinds in enumerate(self.order.sets):
            left, alike = self.left, self.order.set_types[number]
            if all(left[kind] == self.order.parts[kind].quantity for kind in kinds):
                more = [n if kind in kinds else 0 for kind, n in enumerate(left)]
                # A set has no place if an equal set had none.
                if alike not in failed and not self._add_all(more):
                    failed.append(alike)

    def _add_all(self, more: Sequence[int]) -> bool:
        """Add boxes to one container if it takes them all; return whether one does."""
        # The largest come first: all are packed, so the values of single boxes do not matter.
        order = replace(self.order, values=None)
        # 1. Beside the boxes of a filled container.
        for container, filled in enumerate(self.filled):
            fuller = _with_more(order, filled, more)
            if len(fuller.boxes) == len(filled.boxes) + sum(more):
                self.filled[container] = fuller
                return True
        # 2. In another container, the smallest that takes them; the search may split them.
        for size, room in enumerate(self.order.rooms):
            if self.may_use(room):
                filled = Filled(room, self.load(size, more, _SHORTEST))
                if not filled.boxes:
                    filled = _with_more(order, filled, more)
                if len(filled.boxes) == sum(more):
                    self.filled.append(filled)
                    return True
        return False

    def may_use(self, room: Room) -> bool:
        """Return whether the plan may have one more container of a type."""
        return len(self.filled) < self.sets.limit and self._available(room)

    def _available(self, room: Room) -> bool:
        """Return whether there is one more container of a type."""
        used = sum(filled.room is room for filled in self.filled)
        return used < (room.type.number or math.inf)

    @property
    def bound(self) -> float:
        """Volume that no plan with this number of containers exceeds, m^3."""
        largest = len(self.filled) * max(self.sets.capacity)
        return float(self.order.unit**3) * min(largest, self.sets.demand.volume)

    @property
    def value_bound(self) -> float | None:
        """Sum of values that no plan with this number of containers exceeds; None without values.

        The smaller of two fractional knapsacks: boxes by value per volume until the containers are
        full, and by value per weight until they are as heavy as allowed.
        """
        values = [part.handling["value"] for part in self.order.parts if "value" in part.handling]
        if len(values) < len(self.order.parts) or not self.filled:
            return None
        limits = [room.rules.weight_limit for room in self.order.rooms]
        weight = math.inf if None in limits else max(limit or 0 for limit in limits)
        pairs = zip(self.order.parts, self._packable, strict=True)
        numbers = [part.quantity if packable else 0 for part, packable in pairs]
        return min(
            fractional_knapsack(values, sizes, numbers, len(self.filled) * room)
            for sizes, room in (
                (self.order.volumes, max(self.sets.capacity)),
                (self.order.weights, weight),
            )
        )

    @property
    def cost(self) -> float | None:
        """Cost of the containers; None if a type of container states none."""
        if any(room.type.cost is None for room in self.order.rooms):
            return None
        return self.sets.cost(self._set())

    @property
    def is_complete(self) -> bool:
        """True if every box that fits into some container is packed."""
        return self.takes_all(self.left)

    @property
    def _is_full(self) -> bool:
        """True if no volume is free in as many of the largest containers as there may be."""
        packed = self.order.volume([part.quantity for part in self.order.parts])
        packed -= self.order.volume(self.left)
        return self.order.values is None and packed >= self.sets.limit * max(self.sets.capacity)

    def fits(self, kind: int) -> bool:
        """Return whether a box fits alone into an empty container of some size."""
        return any(fits(self.order.orientations[kind], room.inner) for room in self.order.rooms)

    # ------------------------------------------------------------------ the first answer

    def _fill_all(self, deadline: float) -> None:
        """Fill one container after the other until all is packed, or nothing fits."""
        while len(self.filled) < self.sets.limit and any(self.left):
            best = self._fill(deadline, self.sets.limit - len(self.filled))
            if best is None:
                break
            self.filled.append(best)

    def _fill(self, deadline: float, limit: int) -> Filled | None:
        """Return the next container: the smallest that takes all, or the one that takes most."""
        left, best, most = self.left, None, (0.0, 0)
        waiting = self.order.volume(left)
        rooms = self.order.rooms
        for number, room in enumerate(rooms):
            if not self._available(room):
                continue
            # The time is divided among the containers to come and the sizes that are not tried yet.
            spare = max(deadline - time.monotonic(), 0.0)
            capacity = math.prod(room.sides)
            to_come = max(1, min(limit, math.ceil(waiting / (0.9 * capacity))))
            seconds = max(spare / to_come / (len(rooms) - number), _SHORTEST)
            boxes = self.load(number, left, seconds)
            # If worths are equal, take the larger volume, because boxes may be worth nothing.
            counts = self.order.counts(boxes)
            worth = self.order.worth(counts), self.order.volume(counts)
            if worth > most:
                best, most = Filled(room, boxes), worth
            if len(boxes) == sum(left):
                break
        return best

    # ------------------------------------------------------------------ better sets

    def _try_sets(self, deadline: float) -> None:
        """Try sets of containers that may be better, the best first, until the time is up."""
        while not self.is_over(deadline):
            sets = self.sets.better(self.sets.key(self._set()) if self.is_complete else None)
            if not sets and (self.is_complete or self._is_full):
                return
            # If no set takes all, the containers may still take more.
            sets = sets or [self._set()]
            sets = [each for each in sets if any(each) and each not in self._exhausted]
            if not sets:
                return
            for number, chosen in enumerate(sets := _spread(sets)):
                spare = max(deadline - time.monotonic(), 0.0)
                if self._improve(chosen, time.monotonic() + spare / (len(sets) - number)):
                    break
                if self.is_over(deadline):
                    return

    def _set(self) -> ContainerSet:
        """Return the set of the filled containers."""
        rooms = self.order.rooms
        return tuple(sum(filled.room is room for filled in self.filled) for room in rooms)

    def _improve(self, chosen: ContainerSet, deadline: float) -> bool:
        """Pack the order into a set; keep a better result; return whether it takes all."""
        sizes = [size for size, number in enumerate(chosen) for _ in range(number)]
        result = Distribution(self, sizes, self.filled if chosen == self._set() else ())
        result.search(deadline)
        if not self.is_over(deadline) and not self.takes_all(result.left):
            self._exhausted.add(chosen)
        # `better` only proposes sets that beat the current one if both take all boxes. Otherwise
        # the result that packs more wins.
        complete = self.takes_all(result.left)
        before, after = (
            (self.order.worth(left), self.order.volume(left)) for left in (self.left, result.left)
        )
        if after < before or (after == before and complete and self.is_complete):
            pairs = zip(sizes, result.boxes, strict=True)
            self.filled = [Filled(self.order.rooms[size], boxes) for size, boxes in pairs if boxes]
        return complete


def _with_more(order: BoxOrder, filled: Filled, more: Sequence[int]) -> Filled:
    """Return a filled container, with every further box that has a place in it."""
    packed = order.counts(filled.boxes)
    types = order.types([n + other for n, other in zip(packed, more, strict=True)])
    boxes = add_boxes(filled.room.sides, types, filled.boxes, filled.room.rules)
    return Filled(filled.room, boxes)


def _spread(sets: Sequence[ContainerSet]) -> list[ContainerSet]:
    """Return the sets; if there are too many, return some, evenly spread over the list."""
    if len(sets) <= _MOST_TRIED:
        return list(sets)
    last = len(sets) - 1
    return [sets[round(k * last / (_MOST_TRIED - 1))] for k in range(_MOST_TRIED)]
