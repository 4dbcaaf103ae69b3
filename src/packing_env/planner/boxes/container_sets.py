"""Sets of containers: which sets may take an order, and which set is the best.

A set is the number of containers of each type. Volume, weight, and the number of boxes that need a
container each exclude sets. All other sets have to be tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from packing_env.plan import BoxType
from packing_env.planner.boxes.order import BoxOrder, Room
from packing_env.planner.fit import fits

FEWEST, CHEAPEST, BALANCED = CHOICES = ("fewest", "cheapest", "balanced")
"""Criteria: fewest containers, least cost, or fewest containers with equal weights."""
ContainerSet = tuple[int, ...]
"""Number of containers of each type."""
_MOST_SETS = 50_000
"""Largest number of sets that are compared."""


@dataclass(frozen=True)
class Demand:
    """The boxes that have to be packed.

    Attributes:
        volume: Volume of all boxes, units^3.
        weight: Weight of all boxes, milligrams.
        alone: Number of boxes so large, or so heavy, that no container takes two of them.
        places: The distinct sets of container types that take the boxes of some kind.
        takes: For each kind of the order, the types of containers that take it.
    """

    volume: int
    weight: int
    alone: int
    places: tuple[frozenset[int], ...]
    takes: tuple[frozenset[int], ...]


def demand_of(order: BoxOrder) -> Demand:
    """Return the demand of the boxes of an order that fit into some container."""
    volume = weight = large = heavy = 0
    places, all_takes = [], []
    for kind, boxes in enumerate(order.types([part.quantity for part in order.parts])):
        takes = frozenset(number for number, room in enumerate(order.rooms) if room.takes(boxes))
        all_takes.append(takes)
        if not takes or not boxes.count:
            continue
        places.append(takes)
        volume += boxes.count * math.prod(order.orientations[kind][0])
        weight += boxes.count * boxes.weight
        rooms = [order.rooms[number] for number in takes]
        large += boxes.count * all(_fills_half(room, boxes) for room in rooms)
        limits = [room.rules.weight_limit for room in rooms]
        heavy += boxes.count * all(n is not None and 2 * boxes.weight > n for n in limits)
    distinct = tuple(dict.fromkeys(places))
    return Demand(volume, weight, max(large, heavy), distinct, tuple(all_takes))


def _fills_half(room: Room, boxes: BoxType) -> bool:
    """Return whether a box in every orientation is longer than half of a room along each axis."""
    placed = [sides for sides in boxes.orientations if fits([sides], room.inner)]
    return all(2 * s > side for sides in placed for s, side in zip(sides, room.inner, strict=True))


class ContainerSets:
    """The sets of at most ``limit`` containers.

    Attributes:
        capacity: Largest volume that a container of each type takes, units^3; may be lowered.
        demand: The boxes to pack.

    Args:
        order: The boxes and the types.
        limit: Largest number of containers in a set.
        choose: One of :data:`CHOICES`.
    """

    def __init__(self, order: BoxOrder, limit: int, choose: str) -> None:
        self.rooms, self.choose = order.rooms, choose
        self.demand = demand_of(order)
        # No set has more containers than there are boxes.
        limit = min(limit, max(1, sum(part.quantity for part in order.parts)))
        self.capacity = [math.prod(room.inner) for room in order.rooms]
        self._most = [min(room.type.number or limit, limit) for room in order.rooms]
        self._costs = [float(room.type.cost or 0.0) for room in order.rooms]
        self.limit = min(limit, sum(self._most))

    def key(self, chosen: ContainerSet) -> tuple[float, ...]:
        """Return the key by which sets are compared; the best set has the least key."""
        number, cost = float(sum(chosen)), self.cost(chosen)
        volume = float(sum(n * self.rooms[k].type.volume for k, n in enumerate(chosen)))
        first = (cost, number) if self.choose == CHEAPEST else (number, cost)
        return (*first, volume)

    def cost(self, chosen: ContainerSet) -> float:
        """Return the sum of the stated costs."""
        return sum(n * cost for n, cost in zip(chosen, self._costs, strict=True))

    def may_take_all(self, chosen: ContainerSet) -> bool:
        """Return False if volume, weight or sizes show that a set cannot take all boxes."""
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
        """Return the sets that may take all boxes and beat a key; the best set first."""
        most, budget = self.limit, math.inf
        if key is not None and self.choose == CHEAPEST:
            budget = key[0]
        elif key is not None:
            most = int(key[0])
        sets = [
            (self.key(chosen), chosen)
            for chosen in islice(_sets(self._most, self._costs, most, budget), _MOST_SETS)
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
        """Return a property of every available container, the largest value first."""
        each = [value for value, most in zip(of_type, self._most, strict=True) for _ in range(most)]
        return sorted(each, reverse=True)

    def least_cost(self, cost: float) -> float | None:
        """Return a cost below which no set takes all boxes; None if it is unknown.

        It is unknown if there are too many sets, or if no set may take all boxes.

        Args:
            cost: Cost of a plan; only sets up to this cost are enumerated.
        """
        within = _sets(self._most, self._costs, self.limit, cost)
        sets = list(islice(within, _MOST_SETS + 1))
        if len(sets) > _MOST_SETS:
            return None
        return min(map(self.cost, filter(self.may_take_all, sets)), default=None)


def _sets(
    most: Sequence[int], costs: Sequence[float], limit: int, budget: float
) -> Iterator[ContainerSet]:
    """Yield the sets of at most ``limit`` containers and ``most`` of each type within a budget."""
    if not most:
        yield ()
        return
    affordable = min(most[0], limit)
    if costs[0] > 0.0 and budget < math.inf:
        affordable = min(affordable, math.floor(budget / costs[0] * (1 + 1e-12)))
    for number in range(affordable + 1):
        for rest in _sets(most[1:], costs[1:], limit - number, budget - number * costs[0]):
            yield (number, *rest)
