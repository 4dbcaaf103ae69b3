"""The problem of container loading: the boxes that fit, and grids of equal boxes.

Equal types form one kind. Types without boxes, and types that fit in no orientation, are left out.
No count exceeds the number that the container can hold.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, product, takewhile
from typing import Annotated, NamedTuple

import numpy as np

from packing_env.kernels.loading.arrays_numba import UNLIMITED
from packing_env.kernels.stability_rules import LADDER
from packing_env.values import Count, Option, ParameterError, Whole, check, read

MOST_BLOCKS = 10_000
_MOST_THINNED = MOST_BLOCKS * 3 // 4
"""Largest number of grids if some are left out; the remaining places are for joined blocks."""
_MOST_REPEATS = 64
"""Largest number of repetitions of a box along an axis that are tried."""
_MOST_BOXES = 10_000_000
"""Largest number of boxes that a load may list."""
_LONGEST = 2**60
"""Longest side of a container, so that sums of three sides fit into int64."""
_EXACT = 53
"""Whole numbers of at most this many bits are exact in float64."""

Sides = tuple[Count, Count, Count]


@dataclass(frozen=True)
class BoxType:
    """Equal boxes.

    Attributes:
        orientations: Sides along x, y and z, a triple for each allowed orientation.
        count: Number of boxes.
        weight: Weight of a box, milligrams.
        max_load: Milligrams that may rest on a box, directly or through others.
        stackable: False if nothing may rest on a box.
        fragile: True if the boxes are fragile.
        group: Order of unloading, smaller numbers first.
        layers: Largest number of levels in a stack whose lowest level is a box of this type.
        on_like: True if a box may only rest on the floor and on boxes of the same ``name``.
        name: Name of the boxes.
        value: Value of packing one box; None means its volume. Either all types have a value, or
            none.
    """

    orientations: Annotated[Sequence[Sides], Option(filled=True)]
    count: Count
    weight: Whole = 0
    max_load: Whole = UNLIMITED
    stackable: bool = True
    fragile: bool = False
    group: int = 0
    layers: Count = UNLIMITED
    on_like: bool = False
    name: str = ""
    value: Annotated[float, Option(at_least=0.0)] | None = None

    def handling(self, exclusive: Collection[str]) -> tuple[object, ...]:
        """Return the attributes besides sides and count; they are equal for boxes of one kind.

        Args:
            exclusive: Names whose boxes rest only on boxes of the same name.
        """
        like = self.name if self.name in exclusive else ""
        return (
            self.weight, self.max_load, self.stackable, self.fragile, self.group, self.layers,
            self.on_like, like,
        )  # fmt: skip


Cuboid = tuple[int, int, int, int, int, int]
Cut = tuple[int, bool, int, int, bool, int]
"""A cut edge: for both of its walls the axis, True for the far wall, and the length along it."""


@dataclass(frozen=True)
class LoadRules:
    """Rules for every box of a load, in addition to geometry. By default there are no rules.

    Lengths are in the unit of the container.

    Attributes:
        stability: ``"none"``, or a rule of ``stability_rules.LADDER``: the centre of mass lies over
            the hull of the contacts, with a margin.
        support: Share of the base of a box that must rest on the floor or on other boxes.
        door: Side from which boxes move straight in: ``"top"``, ``"rear"`` (along -x) or ``"side"``
            (along -y).
        gap: Clearance between boxes beside each other.
        walls: Clearance between boxes and walls.
        headroom: Clearance between boxes and the top of the container.
        before: Cuboids that are in the container from the start, each as lower and upper corner.
        no_stacking: Nothing rests on boxes that are not ``stackable``.
        max_load: No box bears more than its ``max_load``.
        fragile: ``"top"``: only fragile boxes rest on fragile boxes. ``"last"``: fragile boxes come
            last.
        lifo: No box is in the way out of a box of a smaller ``group``.
        weight_limit: Largest weight of the whole load, milligrams.
        balance: Largest distance of the load's centre of mass from the middle of the floor or the
            deck, as a share of its length and width.
        overhang: Lengths along x and y by which the container exceeds the deck of a pallet on each
            side. Only the deck supports boxes.
        cuts: Edges of the container that are cut off; no box reaches beyond the planes.
    """

    stability: Annotated[str, Option(choices=("none", *LADDER))] = "none"
    support: Annotated[float, Option(at_least=0.0, at_most=1.0)] = 0.0
    door: Annotated[str, Option(choices=("top", "rear", "side"))] = "top"
    gap: Whole = 0
    walls: Whole = 0
    headroom: Whole = 0
    before: tuple[Cuboid, ...] = ()
    no_stacking: bool = False
    max_load: bool = False
    fragile: Annotated[str, Option(choices=("top", "last"))] | None = None
    lifo: bool = False
    weight_limit: Whole | None = None
    balance: Annotated[float, Option(at_least=0.0, at_most=0.5)] | None = None
    overhang: tuple[Whole, Whole] = (0, 0)
    cuts: tuple[Cut, ...] = ()

    @property
    def room(self) -> tuple[int, int, int]:
        """Lengths that the clearances take from a room; boxes include the gap behind them."""
        across = 2 * self.walls - self.gap
        return across, across, self.headroom


class LoadedBox(NamedTuple):
    """A box in the container.

    Attributes:
        kind: Index of its type.
        orientation: Index of an orientation of the type.
        corner: Lower corner.
    """

    kind: int
    orientation: int
    corner: Sides


class Problem:
    """The kinds of boxes that fit into a container.

    Attributes:
        container: Sides of the room that the clearances leave, plus the gap behind the last box.
        orientations: Sides of each kind in its orientations that fit, including the gap.
        volumes: Volume of one box of each kind, as exact float64. If the container's volume has
            more than 53 bits, the lowest bits are dropped.
        values: Value of one box of each kind; None means its volume.
        counts: Largest number of boxes of each kind; see :meth:`limit`.
        before: Cuboids that are in the container from the start; the deck of a pallet comes first,
            from z = -1 to 0.
        floor: Rectangle in which boxes may stand on the floor, including the gap behind the last
            box.

    Args:
        container: Its sides.
        types: The boxes; a count may be 0.
        rules: Additional rules. Boxes include the gap behind them along x and y.
    """

    def __init__(
        self, container: Sides, types: Sequence[BoxType], rules: LoadRules | None = None
    ) -> None:
        self.rules = rules = rules or LoadRules()
        present = [boxes for boxes in types if boxes.count]
        self.active = rules != LoadRules() or any(
            t.on_like or t.layers < UNLIMITED for t in present
        )
        # 1. Subtract clearances from the room, and add gaps to the boxes.
        self.container = room = _sides(container, [-less for less in rules.room])
        self.gap = (rules.gap, rules.gap, 0)
        self._types = [[_sides(sides, self.gap) for sides in kind.orientations] for kind in types]
        # 2. Join equal types into kinds; leave out kinds that do not fit.
        fitting: dict[tuple[frozenset[Sides], tuple[object, ...]], list[int]] = {}
        exclusive = {each.name for each in present if each.on_like}
        for index, orientations in enumerate(self._types):
            fit = [s for s in orientations if all(map(int.__le__, s, room))]
            if fit and types[index].count:
                handling = types[index].handling(exclusive) if self.active else ()
                handling += (types[index].value,)
                fitting.setdefault((frozenset(fit), handling), []).append(index)
        self._members = list(fitting.values())
        self.kinds = [types[members[0]] for members in self._members]
        self.orientations = [
            [s for s in dict.fromkeys(self._types[members[0]]) if s in fit]
            for (fit, _), members in fitting.items()
        ]
        # 3. The deck of a pallet, and cuboids that are in the container from the start.
        walls = (rules.walls, rules.walls, 0) * 2
        self.before = [
            tuple(side - wall for side, wall in zip(box, walls, strict=True))
            for box in rules.before
        ]
        self.floor = (0, 0, *room[:2])
        if any(rules.overhang):
            (x, y), (length, width) = rules.overhang, container[:2]
            self.floor = (x, y, length - x + rules.gap, width - y + rules.gap)
            self.before.insert(0, (x, y, -1, length - x, width - y, 0))
        self._type_counts = [boxes.count for boxes in types]
        drop = max(math.prod(self.container).bit_length() - _EXACT, 0)
        boxes = [
            [side - g for side, g in zip(o[0], self.gap, strict=True)] for o in self.orientations
        ]
        self.volumes = [float(max(math.prod(box) >> drop, 1) << drop) for box in boxes]
        self.values = [float(kind.value) for kind in self.kinds if kind.value is not None] or None
        self.counts = [sum(self._type_counts[m] for m in members) for members in self._members]
        self.whole = 0.0

    def limit(self, room: int) -> None:
        """Limit the counts to what a volume ``room`` holds; set ``whole``.

        ``whole`` is an upper bound of the volume (or value) of a load.

        Raises:
            ParameterError: A load may have more boxes than can be listed.
        """
        # With its gaps, a box has a different volume in each orientation.
        volumes = [min(map(math.prod, kind)) for kind in self.orientations]
        left, most = room, 0
        for volume, count in sorted(zip(volumes, self.counts, strict=True)):  # the smallest first
            number = min(count, left // volume)
            left, most = left - number * volume, most + number
        if most > _MOST_BOXES:
            raise ParameterError(
                f"the load may have {most:,} boxes, more than {_MOST_BOXES:,}, the limit; lower "
                "the counts of small boxes, or join small boxes into larger ones"
            )
        self.counts = [
            min(count, room // volume) for count, volume in zip(self.counts, volumes, strict=True)
        ]
        least_room = min(float(room), self._capacity())
        values = self.values or self.volumes
        self.whole = fractional_knapsack(values, self.volumes, self.counts, least_room)

    def _capacity(self) -> float:
        """Return the volume of the container without the edges that are cut off."""
        sides = [side - gap for side, gap in zip(self.container, self.gap, strict=True)]
        wedges = [one * other * sides[3 - a - b] for a, _, one, b, _, other in self.rules.cuts]
        return math.prod(sides) - sum(wedges) / 2

    def grids(self) -> np.ndarray:
        """Return kind, orientation and repetitions of the blocks of equal boxes, ``[G, 5]``.

        If there are too many grids, only some numbers of repetitions are used: small and large
        ones.
        """
        single = sum(map(len, self.orientations))
        tried, most = _MOST_REPEATS if single <= MOST_BLOCKS else 1, MOST_BLOCKS
        while True:
            grids = list(islice(self._grids(tried), most + 1 if tried > 1 else None))
            if len(grids) <= most or tried == 1:
                return np.array(grids)
            tried, most = tried * 3 // 4, _MOST_THINNED

    def _grids(self, tried: int) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield the grids of at most ``tried`` repetitions along each axis."""
        for kind, (orientations, count) in enumerate(
            zip(self.orientations, self.counts, strict=True)
        ):
            for number, sides in enumerate(orientations):
                x, y, z = (
                    _spread(min(count, c // side), tried)
                    for c, side in zip(self.container, sides, strict=True)
                )
                for nx, ny in product(x, y):
                    for nz in takewhile((count // (nx * ny)).__ge__, z):
                        yield kind, number, nx, ny, nz

    def kind_of(self, index: int) -> int | None:
        """Return the kind of a type, or None if it does not fit."""
        return next((k for k, members in enumerate(self._members) if index in members), None)

    def rows(self, load: Sequence[LoadedBox]) -> np.ndarray:
        """Convert boxes of the caller to rows of kind, orientation and corner, ``[N, 5]``."""
        walls = (self.rules.walls, self.rules.walls, 0)
        rows = []
        for box in load:
            kind, sides = self.kind_of(box.kind), self._types[box.kind][box.orientation]
            assert kind is not None
            low = [c - w for c, w in zip(box.corner, walls, strict=True)]
            rows.append((kind, self.orientations[kind].index(sides), *low))
        return np.array(rows, np.int64).reshape(-1, 5)

    def loaded(self, boxes: np.ndarray, packed: Sequence[LoadedBox] = ()) -> list[LoadedBox]:
        """Convert rows of kind, orientation and corner to boxes of types.

        Each type of a kind gets at least as many boxes as it has in ``packed``.
        """
        least = Counter(box.kind for box in packed)
        types, orientations = np.empty(len(boxes), np.int64), np.empty(len(boxes), np.int64)
        for kind, members in enumerate(self._members):
            at = np.flatnonzero(boxes[:, 0] == kind)
            spare = len(at) - sum(least[member] for member in members)
            for member in members:
                more = min(self._type_counts[member] - least[member], spare)
                mine, at = np.split(at, [least[member] + more])
                spare -= more
                index = np.array(list(map(self._types[member].index, self.orientations[kind])))
                types[mine], orientations[mine] = member, index[boxes[mine, 1]]
        walls = np.array([self.rules.walls, self.rules.walls, 0])
        x, y, z = (boxes[:, 2:] + walls).T.tolist()
        rows = zip(types.tolist(), orientations.tolist(), zip(x, y, z, strict=True), strict=True)
        return list(map(LoadedBox._make, rows))


def fractional_knapsack(
    values: Sequence[float], sizes: Sequence[float], counts: Sequence[int], room: float
) -> float:
    """Return the largest value of boxes that have room, if boxes could be divided (Dantzig, 1957).

    Args:
        values: Value of one box of each kind.
        sizes: Volume or weight of one box of each kind; 0 takes no room.
        counts: Number of boxes of each kind.
        room: Volume or weight of all boxes together.
    """
    kinds = list(zip(values, sizes, counts, strict=True))
    kinds.sort(key=lambda kind: kind[0] / kind[1] if kind[1] else math.inf, reverse=True)
    worth = 0.0
    for value, size, count in kinds:
        taken = min(count, room / size) if size else count
        worth, room = worth + taken * value, max(room - taken * size, 0.0)
    return worth


def check_problem(container: Sides, types: Sequence[BoxType], rules: LoadRules) -> None:
    """Raise if an option of a load is wrong; store options as plain values."""
    if max(read("container", container, Sides)) > _LONGEST:
        raise ParameterError(
            f"container={container!r} must have sides of at most 2**60; use a longer unit"
        )
    if not types:
        raise ParameterError("types is empty: there is nothing to load")
    for index, kind in enumerate(types):
        if not isinstance(kind, BoxType):
            raise ParameterError(f"types[{index}]={kind!r} must be a BoxType")
        check(kind, f"types[{index}].")
    check(rules, "rules.")
    if len({kind.value is None for kind in types}) > 1:
        raise ParameterError("types: give a value to each type, or to none")


def _sides(sides: Sequence[int], more: Sequence[int]) -> Sides:
    """Return the sums of sides and ``more``, as whole numbers."""
    x, y, z = (int(side) + length for side, length in zip(sides, more, strict=True))
    return x, y, z


@cache
def _spread(most: int, number: int) -> list[int]:
    """Return at most ``number`` whole numbers from 1 to ``most``; small numbers lie closer."""
    if most <= number:
        return list(range(1, most + 1))
    numbers: list[int] = np.unique(np.geomspace(1, most, number).round().astype(np.int64)).tolist()
    return numbers
