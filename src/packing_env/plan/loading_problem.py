"""The problem that container loading searches: boxes that fit, and their grids.

Equal types are one kind, types that fit in no orientation are left out, and no count exceeds what
the container can hold. Lengths are divided by their greatest common divisor along each axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice, product, takewhile
from typing import NamedTuple

import numpy as np

from packing_env.types import ParameterError, check_integer

MOST_BLOCKS = 10_000
_MOST_THINNED = MOST_BLOCKS * 3 // 4
"""Grids where all of them would be too many; the rest of the blocks are joined ones."""
_MOST_REPEATS = 64
"""Repetitions of a box along an axis that are tried."""
_MOST_BOXES = 10_000_000
"""Boxes of a load, which is a list of them."""
_LONGEST = 2**60
"""Longest side of a container: sums of three sides are int64."""
_EXACT = 53
"""Bits of the whole numbers that float64 holds."""

Sides = tuple[int, int, int]


@dataclass(frozen=True)
class BoxType:
    """Equal boxes.

    Attributes:
        orientations: Sides along x, y and z, one triple per allowed orientation.
        count: Number of boxes.
    """

    orientations: Sequence[Sides]
    count: int


class LoadedBox(NamedTuple):
    """A box in the container.

    Attributes:
        kind: Index of its type.
        orientation: Index in the type's orientations.
        corner: Lower corner.
    """

    kind: int
    orientation: int
    corner: Sides


class Problem:
    """The kinds of boxes that fit a container, in units of its own.

    Attributes:
        unit: Length of a unit along each axis, in those of the caller.
        container: Its sides, in units.
        orientations: Sides of each kind in the orientations that fit, in units.
        volumes: Volume of a box of each kind, as exact float64; its lowest bits are dropped where
            the container's volume has more than 53.
        counts: Boxes of each kind, at most; see :meth:`limit`.

    Args:
        container: Its sides.
        types: The boxes.
    """

    def __init__(self, container: Sides, types: Sequence[BoxType]) -> None:
        fitting: dict[frozenset[Sides], list[int]] = {}
        self._types = [[_sides(sides) for sides in boxes.orientations] for boxes in types]
        for index, orientations in enumerate(self._types):
            fit = [s for s in orientations if all(map(int.__le__, s, container))]
            if fit:
                fitting.setdefault(frozenset(fit), []).append(index)
        self._members = list(fitting.values())
        kept = [
            [s for s in dict.fromkeys(self._types[members[0]]) if s in fit]
            for fit, members in fitting.items()
        ]
        self.unit = tuple(math.gcd(*(s[a] for s in chain(*kept))) or 1 for a in range(3))
        self.container = self._reduced(container)
        self.orientations = [[self._reduced(sides) for sides in kind] for kind in kept]
        self._type_counts = [boxes.count for boxes in types]
        drop = max(math.prod(self.container).bit_length() - _EXACT, 0)
        self.volumes = [float(max(math.prod(o[0]) >> drop, 1) << drop) for o in self.orientations]
        self.counts = [sum(self._type_counts[m] for m in members) for members in self._members]
        self.whole = 0.0

    def _reduced(self, sides: Sides) -> Sides:
        x, y, z = (side // unit for side, unit in zip(sides, self.unit, strict=True))
        return x, y, z

    def _restored(self, sides: Sides) -> Sides:
        """Return sides of a box in the lengths of the caller."""
        x, y, z = (side * unit for side, unit in zip(sides, self.unit, strict=True))
        return x, y, z

    def limit(self, room: int) -> None:
        """Limit the counts to what a room holds, and set ``whole``: no load has a larger volume.

        Raises:
            ParameterError: A load may have more boxes than can be listed.
        """
        volumes = [math.prod(kind[0]) for kind in self.orientations]
        left, most = room, 0
        for volume, count in sorted(zip(volumes, self.counts, strict=True)):  # the smallest first
            number = min(count, left // volume)
            left, most = left - number * volume, most + number
        if most > _MOST_BOXES:
            raise ParameterError(
                f"the load may have {most:,} boxes, too many to list: at most {_MOST_BOXES:,} are; "
                "lower the counts of small boxes, or join small boxes into larger ones"
            )
        self.counts = [
            min(count, room // volume) for count, volume in zip(self.counts, volumes, strict=True)
        ]
        boxes = sum(v * c for v, c in zip(self.volumes, self.counts, strict=True))
        self.whole = min(boxes, float(room))

    def grids(self) -> np.ndarray:
        """Return kind, orientation and repetitions of the blocks of equal boxes, ``[G, 5]``.

        All of them, or, where they are too many, those of fewer repetitions: small and large ones.
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

    def loaded(self, boxes: np.ndarray) -> list[LoadedBox]:
        """Return boxes with rows of kind, orientation and corner as those of the caller."""
        types, orientations = np.empty(len(boxes), np.int64), np.empty(len(boxes), np.int64)
        for kind, members in enumerate(self._members):
            at = np.flatnonzero(boxes[:, 0] == kind)
            fitting = [self._restored(sides) for sides in self.orientations[kind]]
            start = 0
            for member in members:
                mine = at[start : start + min(self._type_counts[member], len(at))]
                start += len(mine)
                index = np.array([self._types[member].index(sides) for sides in fitting])
                types[mine], orientations[mine] = member, index[boxes[mine, 1]]
        x, y, z = (boxes[:, 2:] * np.array(self.unit)).T.tolist()
        rows = zip(types.tolist(), orientations.tolist(), zip(x, y, z, strict=True), strict=True)
        return list(map(LoadedBox._make, rows))


def check_problem(container: Sides, types: Sequence[BoxType]) -> None:
    """Raise on sides and counts that are no positive whole numbers, and on a container too long."""
    if len(container) != 3:
        raise ParameterError(f"container={container!r} must have three sides")
    for side in container:
        if check_integer("container", side, 1) > _LONGEST:
            raise ParameterError(
                f"container={container!r} must have sides of at most 2**60; use a longer unit"
            )
    if not types:
        raise ParameterError("types is empty: there is nothing to load")
    for kind in types:
        check_integer("count", kind.count, 1)
        if not kind.orientations:
            raise ParameterError("orientations is empty: name one triple of sides at least")
        for sides in kind.orientations:
            if len(sides) != 3:
                raise ParameterError(f"orientations has {sides!r}, which must have three sides")
            for side in sides:
                check_integer("orientations", side, 1)


def _sides(sides: Sides) -> Sides:
    x, y, z = map(int, sides)
    return x, y, z


@cache
def _spread(most: int, number: int) -> list[int]:
    """Return at most a number of the whole numbers from 1 to ``most``, denser where small."""
    if most <= number:
        return list(range(1, most + 1))
    numbers: list[int] = np.unique(np.geomspace(1, most, number).round().astype(np.int64)).tolist()
    return numbers
