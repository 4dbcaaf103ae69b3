"""Orders of boxes alone: packed exactly, in whole numbers of a unit, without a grid.

The unit divides every side, the container and the clearances, so that nothing is rounded. Each
container is filled by :class:`packing_env.plan.loading_search.Search`, a beam over blocks of boxes.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from packing_env.constraints import Constraints, milligrams
from packing_env.kernels.stability_rules import LADDER
from packing_env.plan import BoxType, LoadedBox
from packing_env.plan.loading import Loader
from packing_env.plan.loading_problem import UNLIMITED, Cuboid, LoadRules, Sides
from packing_env.planner.container_types import ContainerType
from packing_env.planner.lengths import common_unit, exact
from packing_env.planner.parts import Part

_LOGGER = logging.getLogger("packing_env.planner")

RULES = ("none", *LADDER)
"""Stability rules of boxes that this planner knows."""
_FINEST = Fraction(1, 1_000_000)
"""Metres that lengths are rounded to where no unit divides them all."""
_MOST_UNITS = 2**29
"""Units along the longest side."""
_BALANCE_STEPS = 1000
"""Units along the floor, at least, where a load must be in balance."""
_SHORTEST = 0.05
"""Seconds for one container, at least; its first load is always completed."""


@dataclass(frozen=True)
class Room:
    """A container of one type, and what holds in it, in whole units.

    Attributes:
        type: Its type.
        sides: Its size in units.
        rules: What holds for every box in it.
        constraints: The same as the plan states it.
    """

    type: ContainerType
    sides: Sides
    rules: LoadRules
    constraints: Constraints

    @property
    def inner(self) -> Sides:
        """The sides that clearance to walls leaves for one box."""
        x, y, z = self.sides
        walls = 2 * self.rules.walls
        return x - walls, y - walls, z - self.rules.headroom


@dataclass(frozen=True)
class BoxOrder:
    """An order in whole units.

    Attributes:
        parts: The kinds of boxes.
        orientations: Sides of each in the orientations that its faces allow.
        rooms: Types of containers, the smallest first.
        unit: Metres.
        constraints: Those of the whole order.
    """

    parts: Sequence[Part]
    orientations: Sequence[Sequence[Sides]]
    rooms: Sequence[Room]
    unit: Fraction
    constraints: Constraints

    def types(self, left: Sequence[int]) -> list[BoxType]:
        """Return the boxes that are left, by kind; a count may be zero."""
        return [
            _type_of(part, sides, count)
            for part, sides, count in zip(self.parts, self.orientations, left, strict=True)
        ]


@dataclass(frozen=True)
class Filled:
    """A container with its boxes, in the order of packing.

    Attributes:
        room: Its size.
        boxes: Kind is the index of a part.
    """

    room: Room
    boxes: Sequence[LoadedBox]


def fits(orientations: Sequence[Sequence[int]], room: Sequence[int]) -> bool:
    """Return whether a box fits into a room in one of its orientations."""
    return any(all(map(int.__le__, sides, room)) for sides in orientations)


def is_exact(parts: Sequence[Part], stability: str) -> bool:
    """Return whether all parts are boxes, and the rule is one that is known for them."""
    return stability in RULES and all(part.sides is not None for part in parts)


def read_boxes(
    parts: Sequence[Part],
    containers: Sequence[ContainerType],
    constraints: Constraints,
    stability: str,
) -> BoxOrder:
    """Return an order in whole units.

    Args:
        parts: Boxes.
        containers: Types to choose from.
        constraints: Those of the whole order.
        stability: One of :data:`RULES`.

    Raises:
        ParameterError: A constraint leaves no room in a container.
    """
    # 1. A unit that divides all lengths, or the finest there is.
    sizes = [container.room for container in containers]
    rules = [container.constraints(constraints) for container in containers]
    boxes = [part.exact_sides for part in parts]
    lengths = [length for size in (*sizes, *boxes) for length in size]
    for (x, y, height), own in zip(sizes, rules, strict=True):
        own.check_container((float(x), float(y), float(height)))
        lengths += [exact(length) for length in own.lengths]
    longest = max(length for size in sizes for length in size)
    unit = common_unit(lengths)
    if constraints.balance is not None:  # a load is moved by units, also to the very middle
        shortest = min(side for size in sizes for side in size[:2])
        unit /= 2 * math.ceil(unit / (shortest / _BALANCE_STEPS))
    if longest / unit > _MOST_UNITS:
        unit = _FINEST
        _LOGGER.warning(
            "no unit divides all lengths: boxes are rounded up, and containers down, to 0.001 mm"
        )
    # 2. Boxes in all orientations, containers with their rules.
    orientations = [
        allowed_orientations(part, [math.ceil(side / unit) for side in sides])
        for part, sides in zip(parts, boxes, strict=True)
    ]
    rooms = []
    for container, (x, y, height), own in zip(containers, sizes, rules, strict=True):
        sides = math.floor(x / unit), math.floor(y / unit), math.floor(height / unit)
        rooms.append(Room(container, sides, _load_rules(own, stability, unit), own))
    return BoxOrder(parts, orientations, rooms, unit, constraints)


def _load_rules(rules: Constraints, stability: str, unit: Fraction) -> LoadRules:
    """Return constraints in whole units; lengths that boxes keep free are rounded up."""

    def steps(length: float | None) -> int:
        return math.ceil(exact(length or 0.0) / unit)

    along_x, along_y = rules.overhang or (0.0, 0.0)
    return LoadRules(
        stability=stability,
        support=rules.support or 0.0,
        door=rules.door or "top",
        gap=steps(rules.clearance),
        walls=steps(rules.walls),
        before=tuple(_cuboid([exact(length) for length in box], unit) for box in rules.preplaced),
        no_stacking=rules.no_stacking,
        max_load=rules.max_load,
        fragile=rules.fragile,
        lifo=rules.lifo,
        weight_limit=_milligrams(rules.weight_limit),
        balance=rules.balance,
        overhang=(steps(along_x), steps(along_y)),
        cuts=tuple(
            ("xyz".index(e[1]), e[0] == "+", steps(a), "xyz".index(e[3]), e[2] == "+", steps(b))
            for e, a, b in rules.cut
        ),
    )


def _cuboid(box: Sequence[Fraction], unit: Fraction) -> Cuboid:
    """Return the lower and the upper corner of a box that stands in a container, rounded out."""
    x, y, z = (math.floor(low / unit) for low in box[:3])
    a, b, c = (math.ceil((low + side) / unit) for low, side in zip(box[:3], box[3:], strict=True))
    return x, y, z, a, b, c


def _milligrams(kilograms: float | None) -> int | None:
    return None if kilograms is None else milligrams("weight_limit", kilograms)


def allowed_orientations(part: Part, sides: Sequence[int]) -> list[Sides]:
    """Return the distinct sides along x, y and z that a box may have; the file's own first."""
    upright = {face[1] for face in part.faces}
    allowed: dict[Sides, None] = {}
    for i, j, k in itertools.permutations(range(3)):
        if (part.turn or i == 0) and (not upright or "xyz"[k] in upright):
            allowed[sides[i], sides[j], sides[k]] = None
    return list(allowed)


def _type_of(part: Part, orientations: Sequence[Sides], count: int) -> BoxType:
    handling = part.handling
    max_load = handling.get("max_load")
    return BoxType(
        orientations,
        count,
        weight=milligrams("weight", handling.get("weight", 0.0)),
        max_load=UNLIMITED if max_load is None else milligrams("max_load", max_load),
        stackable=handling.get("stackable", True),
        fragile=handling.get("fragile", False),
        group=handling.get("group", 0),
        layers=handling.get("layers") or UNLIMITED,
        on_like=handling.get("on_like", False),
        name=part.label,
    )


class BoxPacker:
    """Fills containers, one after the other.

    Attributes:
        filled: The containers so far.
        left: How many of each part are in none of them.
        tried: Loads that were compared.
        bound: Volume that no plan with this number of containers exceeds, m^3.
        seconds: Time of the search.

    Args:
        order: The boxes.
    """

    def __init__(self, order: BoxOrder) -> None:
        self.order = order
        self.left = [part.quantity for part in order.parts]
        self.filled: list[Filled] = []
        self.tried = 0
        self.bound = 0.0
        self.seconds = 0.0
        self._bounds = [0.0] * len(order.rooms)
        self._reported = 0.0
        self._interrupted = False

    def pack(self, limit: int, seconds: float) -> None:
        """Fill containers until all is packed, nothing fits, or there are enough of them.

        Args:
            limit: Containers.
            seconds: Time of the search; the first load of each container is always completed.
        """
        Loader.compile()
        start = time.monotonic()
        deadline = start + seconds
        fitting = [n * self.fits(kind) for kind, n in enumerate(self.left)]
        while len(self.filled) < limit and any(self.left):
            best = self._fill(deadline, limit - len(self.filled))
            if best is None:
                break
            for box in best.boxes:
                self.left[box.kind] -= 1
            if not self.filled:
                largest = limit * max(self._bounds)
                cubic = float(self.order.unit**3)
                self.bound = cubic * min(largest, float(self._volume(fitting)))
            self.filled.append(best)
        self.seconds = time.monotonic() - start

    def fits(self, kind: int) -> bool:
        """Return whether a box alone has room in an empty container of some size."""
        return any(fits(self.order.orientations[kind], room.inner) for room in self.order.rooms)

    def _fill(self, deadline: float, limit: int) -> Filled | None:
        """Return the next container: the smallest that takes all, or the one that takes most."""
        waiting = self._volume(self.left)
        best, most = None, 0
        rooms = self.order.rooms
        for number, room in enumerate(rooms):
            used = sum(filled.room is room for filled in self.filled)
            if used >= (room.type.number or math.inf):
                continue
            # A share of the time for each size that is still to be tried, and each container.
            spare = max(deadline - time.monotonic(), 0.0)
            capacity = math.prod(room.sides)
            to_come = max(1, min(limit, math.ceil(waiting / (0.9 * capacity))))
            seconds = max(spare / to_come / (len(rooms) - number), _SHORTEST)
            boxes = self._load(number, seconds)
            volume = sum(
                math.prod(self.order.orientations[box.kind][box.orientation]) for box in boxes
            )
            if volume > most:
                best, most = Filled(room, boxes), volume
            if len(boxes) == sum(self.left):
                break
        return best

    def _report(self, share: float) -> None:
        """Log how full the container is, at most once a second."""
        now = time.monotonic()
        if now - self._reported >= 1.0:
            self._reported = now
            _LOGGER.info("container %d: %.1f %% filled", len(self.filled) + 1, 100 * share)

    def _volume(self, counts: Sequence[int]) -> int:
        """Return the volume of some boxes of each kind, units^3."""
        sides = self.order.orientations
        return sum(math.prod(sides[kind][0]) * count for kind, count in enumerate(counts))

    def _load(self, size: int, seconds: float) -> list[LoadedBox]:
        """Fill an empty container of one size with what is left."""
        room = self.order.rooms[size]
        kinds = [kind for kind, count in enumerate(self.left) if count]
        types = self.order.types(self.left)
        loader = Loader(room.sides, [types[kind] for kind in kinds], rules=room.rules)
        if loader.is_empty:
            return []
        loader.progress = self._report
        boxes = loader.run(0.0 if self._interrupted else seconds)
        self._interrupted |= loader.interrupted
        self.tried += loader.tried
        self._bounds[size] = max(self._bounds[size], loader.bound)
        return [box._replace(kind=kinds[box.kind]) for box in boxes]
