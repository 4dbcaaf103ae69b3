"""Sets of containers: which may take an order, and which of them is the best.

A set is the number of containers of each type. Volume, weight, and boxes of which no container
takes two exclude sets; what they do not exclude has to be tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from packing_env.plan import BoxType
from packing_env.planner.boxes import BoxOrder, Room, fits

FEWEST, CHEAPEST, BALANCED = CHOICES = ("fewest", "cheapest", "balanced")
"""Which set is the best: of fewest containers, of least cost, or of fewest and alike in weight."""
ContainerSet = tuple[int, ...]
"""How many containers of each type."""
_MOST_SETS = 50_000
"""Sets that are looked at."""


@dataclass(frozen=True)
class Demand:
    """The boxes that have to be packed.

    Attributes:
        volume: Of all, units^3.
        weight: Of all, milligrams.
        alone: How many there are of which no container takes two.
        places: For each kind the types of containers that it fits into.
    """

    volume: int
    weight: int
    alone: int
    places: tuple[frozenset[int], ...]


def demand_of(order: BoxOrder) -> Demand:
    """Return what the boxes of an order need that fit into a container each."""
    volume = weight = large = heavy = 0
    places = []
    for kind, boxes in enumerate(order.types([part.quantity for part in order.parts])):
        takes = frozenset(number for number, room in enumerate(order.rooms) if room.takes(boxes))
        if not takes or not boxes.count:
            continue
        places.append(takes)
        volume += boxes.count * math.prod(order.orientations[kind][0])
        weight += boxes.count * boxes.weight
        rooms = [order.rooms[number] for number in takes]
        large += boxes.count * all(_fills_half(room, boxes) for room in rooms)
        limits = [room.rules.weight_limit for room in rooms]
        heavy += boxes.count * all(n is not None and 2 * boxes.weight > n for n in limits)
    return Demand(volume, weight, max(large, heavy), tuple(dict.fromkeys(places)))


def _fills_half(room: Room, boxes: BoxType) -> bool:
    """Return whether a box is longer than half of a room along each axis, however it lies."""
    placed = [sides for sides in boxes.orientations if fits([sides], room.inner)]
    return all(2 * s > side for sides in placed for s, side in zip(sides, room.inner, strict=True))


class ContainerSets:
    """The sets of at most some containers.

    Attributes:
        capacity: Volume that a container of each type takes at most, units^3; may be lowered.
        demand: What has to be packed.

    Args:
        order: The boxes and the types.
        limit: Containers.
        choose: One of :data:`CHOICES`.
    """

    def __init__(self, order: BoxOrder, limit: int, choose: str) -> None:
        self.rooms, self.choose = order.rooms, choose
        self.demand = demand_of(order)
        self.capacity = [math.prod(room.inner) for room in order.rooms]
        self._most = [min(room.type.number or limit, limit) for room in order.rooms]
        self.limit = min(limit, sum(self._most))

    def key(self, chosen: ContainerSet) -> tuple[float, ...]:
        """Return what is compared: the best set has the least."""
        number, cost = float(sum(chosen)), self.cost(chosen)
        volume = float(sum(n * self.rooms[k].type.volume for k, n in enumerate(chosen)))
        first = (cost, number) if self.choose == CHEAPEST else (number, cost)
        return (*first, volume)

    def cost(self, chosen: ContainerSet) -> float:
        """Return the sum of the costs that are stated."""
        return sum(n * float(self.rooms[k].type.cost or 0.0) for k, n in enumerate(chosen))

    def may_take_all(self, chosen: ContainerSet) -> bool:
        """Return whether volume, weight and sizes leave it open that a set takes all boxes."""
        demand, rooms = self.demand, [k for k, n in enumerate(chosen) if n]
        limits = [self.rooms[k].rules.weight_limit for k in rooms]
        weight = sum(
            math.inf if limit is None else chosen[k] * limit
            for k, limit in zip(rooms, limits, strict=True)
        )
        return (
            sum(chosen) >= demand.alone
            and sum(chosen[k] * self.capacity[k] for k in rooms) >= demand.volume
            and weight >= demand.weight
            and all(places.intersection(rooms) for places in demand.places)
        )

    def better(self, key: tuple[float, ...] | None = None) -> list[ContainerSet]:
        """Return the sets that may take all, and are better than a key; the best first."""
        most = self.limit
        if key is not None and self.choose != CHEAPEST:
            most = int(key[0])
        sets = [
            (self.key(chosen), chosen)
            for chosen in islice(_sets(self._most, most), _MOST_SETS)
            if self.may_take_all(chosen)
        ]
        return [chosen for own, chosen in sorted(sets) if key is None or own < key]

    def least_number(self) -> int:
        """Return a number of containers below which no set takes all boxes."""
        limits = [room.rules.weight_limit for room in self.rooms]
        volumes = self._largest([float(volume) for volume in self.capacity])
        weights = self._largest([math.inf if limit is None else limit for limit in limits])
        number = max(1, self.demand.alone)
        while number < self.limit and (
            sum(volumes[:number]) < self.demand.volume or sum(weights[:number]) < self.demand.weight
        ):
            number += 1
        return number

    def _largest(self, of_type: Sequence[float]) -> list[float]:
        """Return a property of all containers that there are, the largest first."""
        each = [value for value, most in zip(of_type, self._most, strict=True) for _ in range(most)]
        return sorted(each, reverse=True)

    def least_cost(self) -> float | None:
        """Return a cost below which no set takes all boxes; None if there are too many sets."""
        if sum(1 for _ in islice(_sets(self._most, self.limit), _MOST_SETS + 1)) > _MOST_SETS:
            return None
        return min(map(self.cost, self.better()), default=None)


def _sets(most: Sequence[int], limit: int) -> Iterator[ContainerSet]:
    """Yield the sets of at most ``limit`` containers, and at most ``most`` of each type."""
    if not most:
        yield ()
        return
    for number in range(min(most[0], limit) + 1):
        for rest in _sets(most[1:], limit - number):
            yield (number, *rest)
