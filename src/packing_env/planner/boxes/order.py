"""Orders that contain only boxes: packed exactly, in whole numbers of a unit, without a grid.

The unit divides every side, the container and the clearances, so that nothing is rounded. Each
container is filled by :class:`packing_env.plan.loading.search.Search`, a beam over blocks of boxes.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

from packing_env.constraints import Constraints, limit_in_mg, weight_in_mg
from packing_env.kernels.loading.arrays_numba import UNLIMITED
from packing_env.kernels.stability_rules import LADDER
from packing_env.plan import BoxType, LoadedBox
from packing_env.plan.loading.places import has_place
from packing_env.plan.loading.problem import Cuboid, LoadRules, Sides
from packing_env.planner.fit import allowed_orientations, fits
from packing_env.planner.reading.containers import ContainerType
from packing_env.planner.reading.lengths import common_unit, exact
from packing_env.planner.reading.parts import Part
from packing_env.values import ParameterError

_LOGGER = logging.getLogger("packing_env.planner")

RULES = ("none", *LADDER)
"""Stability rules that this planner supports for boxes."""
_FINEST = Fraction(1, 1_000_000)
"""Metres to which lengths are rounded if no unit divides all of them."""
_OF_MESHES = _FINEST / 4
"""Metres to which they are rounded if the order has meshes, whose own sides are multiples of it, as
1/32 inch is."""
_MOST_UNITS = 2**29
"""Largest number of units along the longest side."""
_LARGEST_FACTOR = 1e100
"""Largest factor between the worths of two priorities: squares of worths must fit into float64."""
_BALANCE_STEPS = 1000
"""Smallest number of units along the floor if the load must be balanced."""


@dataclass(frozen=True)
class Room:
    """A container of one type with its rules, in whole units.

    Attributes:
        type: The container as the user named it.
        sides: Size in units.
        rules: Rules that every box in the container satisfies.
        constraints: The same rules, as the plan states them.
    """

    type: ContainerType
    sides: Sides
    rules: LoadRules
    constraints: Constraints

    @property
    def inner(self) -> Sides:
        """Sides of the container without the clearance to its walls."""
        x, y, z = self.sides
        walls = 2 * self.rules.walls
        return x - walls, y - walls, z - self.rules.headroom

    def takes(self, boxes: BoxType) -> bool:
        """Return whether a single box of a type has room and is not too heavy."""
        limit = self.rules.weight_limit
        if not fits(boxes.orientations, self.inner) or (limit is not None and boxes.weight > limit):
            return False
        # Pre-placed boxes may leave no place for it.
        rules = replace(self.rules, balance=None)
        alone = [replace(boxes, count=1)]
        return not rules.before or has_place(self.sides, alone, (), 0, rules) is not False


@dataclass(frozen=True)
class BoxOrder:
    """An order in whole units.

    Attributes:
        parts: The kinds of boxes.
        orientations: Sides of each kind of box in its allowed orientations.
        rooms: Types of containers, the smallest first.
        unit: Length of a unit, metres.
        constraints: The constraints of the whole order.
        values: Value of packing one box of each kind; None means its volume.
    """

    parts: Sequence[Part]
    orientations: Sequence[Sequence[Sides]]
    rooms: Sequence[Room]
    unit: Fraction
    constraints: Constraints
    values: Sequence[float] | None = None

    def types(self, left: Sequence[int]) -> list[BoxType]:
        """Return the boxes that are left, by kind; a count may be zero."""
        types = [
            _type_of(part, sides, count)
            for part, sides, count in zip(self.parts, self.orientations, left, strict=True)
        ]
        if self.values is None:
            return types
        pairs = zip(types, self.values, strict=True)
        return [replace(boxes, value=value) for boxes, value in pairs]

    @cached_property
    def lengths(self) -> list[list[int]]:
        """Sides of one box of each kind as ordered, units."""
        return [[math.ceil(side / self.unit) for side in part.exact_sides] for part in self.parts]

    @cached_property
    def volumes(self) -> list[int]:
        """Volume of one box of each kind, units^3."""
        return [math.prod(orientations[0]) for orientations in self.orientations]

    @cached_property
    def weights(self) -> list[int]:
        """Weight of one box of each kind, milligrams."""
        return [_weight(part) for part in self.parts]

    @cached_property
    def sets(self) -> list[tuple[int, ...]]:
        """Sets of kinds that stay together: one container takes all boxes of a set, or none.

        A single box is not a set.
        """
        kinds: dict[str, list[int]] = {}
        for kind, part in enumerate(self.parts):
            if "together" in part.handling:
                kinds.setdefault(part.handling["together"], []).append(kind)
        return [
            tuple(each)
            for each in kinds.values()
            if sum(self.parts[kind].quantity for kind in each) > 1
        ]

    @cached_property
    def set_types(self) -> list[list[tuple[object, ...]]]:
        """Sides, numbers and handling of the boxes of each set; equal for equal sets."""
        types = self.types([part.quantity for part in self.parts])
        exclusive = {boxes.name for boxes in types if boxes.on_like}
        return [
            [(types[k].orientations, types[k].count, *types[k].handling(exclusive)) for k in kinds]
            for kinds in self.sets
        ]

    def volume(self, counts: Sequence[int]) -> int:
        """Return the volume of some boxes of each kind, units^3."""
        return sum(volume * n for volume, n in zip(self.volumes, counts, strict=True))

    def worth(self, counts: Sequence[int]) -> float:
        """Return the worth of some boxes of each kind, which the search maximizes."""
        if self.values is None:
            return float(self.volume(counts))
        return sum(value * n for value, n in zip(self.values, counts, strict=True))

    @cached_property
    def drawn_by_weight(self) -> BoxOrder:
        """The order; the value of each box is increased by its share of the total weight."""
        total = [part.quantity for part in self.parts]
        weight = sum(w * n for w, n in zip(self.weights, total, strict=True))
        own = self.values or self.volumes
        factor = self.worth(total) / max(weight, 1)
        values = [value + factor * w for value, w in zip(own, self.weights, strict=True)]
        return replace(self, values=values)

    def counts(self, boxes: Iterable[LoadedBox]) -> list[int]:
        """Count the boxes of each kind."""
        number = Counter(box.kind for box in boxes)
        return [number[kind] for kind in range(len(self.parts))]


@dataclass(frozen=True, eq=False)
class Filled:
    """A container with its boxes, in the order of packing.

    Attributes:
        room: The container.
        boxes: The boxes; ``kind`` is the index of a part.
    """

    room: Room
    boxes: Sequence[LoadedBox]


def is_exact(parts: Sequence[Part], stability: str, *, cell: bool = False) -> bool:
    """Return whether all parts are boxes, and this planner supports the stability rule.

    Meshes of boxes count if no cell is given, and if no unit rounds their sides: a plan refers to
    the solid of the mesh.
    """

    def is_exact_mesh(part: Part) -> bool:
        may_be_exact = not cell and part.is_box
        return may_be_exact and not any(side % _OF_MESHES for side in part.exact_sides)

    return stability in RULES and all(part.sides or is_exact_mesh(part) for part in parts)


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
        constraints: The constraints of the whole order.
        stability: One of :data:`RULES`.

    Raises:
        ParameterError: A constraint leaves no room in a container.
    """
    # 1. A unit that divides all lengths, or the finest unit that is supported.
    sizes = [container.room for container in containers]
    rules = [container.constraints(constraints) for container in containers]
    boxes = [part.exact_sides for part in parts]
    lengths = [length for size in (*sizes, *boxes) for length in size]
    for (x, y, height), own in zip(sizes, rules, strict=True):
        own.check_container((float(x), float(y), float(height)))
        lengths += [exact(length) for length in own.lengths]
    longest = max(length for size in sizes for length in size)
    unit = common_unit(lengths)
    if constraints.balance is not None:  # a load must be able to reach the middle
        shortest = min(side for size in sizes for side in size[:2])
        unit /= 2 * math.ceil(unit / (shortest / _BALANCE_STEPS))
    if longest / unit > _MOST_UNITS:
        unit = _FINEST if all(part.sides for part in parts) else _OF_MESHES
        _LOGGER.warning(
            "no unit divides all lengths: boxes are rounded up, and containers down, to %g mm; "
            "give lengths with fewer digits to avoid it",
            1e3 * unit,
        )
    # 2. Boxes in all orientations, and containers with their rules.
    orientations = [
        allowed_orientations(part, [math.ceil(side / unit) for side in sides])
        for part, sides in zip(parts, boxes, strict=True)
    ]
    rooms = []
    for container, (x, y, height), own in zip(containers, sizes, rules, strict=True):
        sides = math.floor(x / unit), math.floor(y / unit), math.floor(height / unit)
        rooms.append(Room(container, sides, load_rules(own, stability, unit), own))
    volumes = [math.prod(sides[0]) for sides in orientations]
    values = box_values(parts, volumes)
    return BoxOrder(parts, orientations, rooms, unit, constraints, values)


@lru_cache(4096)
def load_rules(rules: Constraints, stability: str, unit: Fraction) -> LoadRules:
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
        weight_limit=_limit(rules.weight_limit),
        balance=rules.balance,
        overhang=(steps(along_x), steps(along_y)),
        cuts=tuple(
            ("xyz".index(e[1]), e[0] == "+", steps(a), "xyz".index(e[3]), e[2] == "+", steps(b))
            for e, a, b in rules.cut
        ),
    )


def box_values(parts: Sequence[Part], volumes: Sequence[int]) -> list[float] | None:
    """Return the worth of one box of each kind; None if every box is worth its volume.

    A box is worth its ``value``, or its volume if no box has a value. If there are priorities, each
    box is worth more than all boxes of later priorities together.

    Raises:
        ParameterError: Some boxes have a value, and others have none.
    """
    asked = {key for part in parts for key in part.handling}
    if not asked & {"value", "priority"}:
        return None
    # 1. Without priorities.
    own = [float(volume) for volume in volumes]
    if "value" in asked:
        lacking = [part.label for part in parts if "value" not in part.handling]
        if lacking:
            raise ParameterError(
                f"no value is given for {', '.join(lacking[:3])}; give one to each"
            )
        own = [float(part.handling["value"]) for part in parts]
    # 2. From the last priority to the first. Boxes without a priority come last.
    order = [part.handling.get("priority", math.inf) for part in parts]
    values, later = [0.0] * len(parts), 0.0
    for priority in sorted(set(order), reverse=True):
        kinds = [kind for kind, each in enumerate(order) if each == priority]
        least = min((own[kind] for kind in kinds if own[kind]), default=1.0)
        factor = (later + least) / least if later else 1.0
        if factor > _LARGEST_FACTOR:
            raise ParameterError(
                f"priority has {len(set(order))} levels, too many for {len(parts)} kinds of boxes; "
                "give the same priority to more of them"
            )
        for kind in kinds:
            values[kind] = factor * own[kind]
        later += sum(values[kind] * parts[kind].quantity for kind in kinds)
    return values


def _cuboid(box: Sequence[Fraction], unit: Fraction) -> Cuboid:
    """Return the lower and the upper corner of a pre-placed box in units, rounded outwards."""
    x, y, z = (math.floor(low / unit) for low in box[:3])
    a, b, c = (math.ceil((low + side) / unit) for low, side in zip(box[:3], box[3:], strict=True))
    return x, y, z, a, b, c


def _weight(part: Part) -> int:
    return weight_in_mg(part.handling.get("weight", 0.0))


def _limit(kilograms: float | None) -> int | None:
    return None if kilograms is None else limit_in_mg(kilograms)


def _type_of(part: Part, orientations: Sequence[Sides], count: int) -> BoxType:
    handling = part.handling
    max_load = _limit(handling.get("max_load"))
    return BoxType(
        orientations,
        count,
        weight=_weight(part),
        max_load=UNLIMITED if max_load is None else max_load,
        stackable=handling.get("stackable", True),
        fragile=handling.get("fragile", False),
        group=handling.get("group", 0),
        layers=handling.get("layers") or UNLIMITED,
        on_like=handling.get("on_like", False),
        name=handling.get("like", part.label),
    )
