"""Loads of classes BR0 to BR15, 100 of each, as their authors draw them.

Bischoff and Ratcliff, Omega 1995 (BR1 to BR7); Davies and Bischoff, European Journal of Operational
Research 1999 (the others). A Lehmer generator draws sides and numbers. Its seed is 2502505 for the
first load of each class and grows by 100 for each further load.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

CONTAINER = (587, 233, 220)
"""Sides, centimetres."""
TYPES = (1, 3, 5, 8, 10, 12, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100)
"""Number of box types, by class."""
_SHORTEST, _LONGEST = (30, 25, 20), (120, 100, 80)
_STEEPEST = 2
"""A side may be vertical if it is less than this many times the shortest other side."""


class Kind(NamedTuple):
    """Equal boxes: descending sides, a flag for each side that may be vertical, and the number."""

    sides: tuple[int, int, int]
    upright: tuple[bool, ...]
    quantity: int


def draw_load(number: int, instance: int) -> list[Kind]:
    """Return the boxes of load ``instance``, from 1, of class BR ``number``."""
    draws = _uniform(2502505 + 100 * (instance - 1))
    # 1. Draw the sides and the flags of vertical sides.
    kinds = []
    for _ in range(TYPES[number]):
        a, b, c = sorted(
            (
                low + int(next(draws) * (high - low + 1))
                for low, high in zip(_SHORTEST, _LONGEST, strict=True)
            ),
            reverse=True,
        )
        upright = (a < _STEEPEST * c, b < _STEEPEST * c, c < _STEEPEST * b)
        kinds.append(((a, b, c), upright))
    # 2. Take one box of each type, then random types until the next box would exceed the container.
    volumes = [sides[0] * sides[1] * sides[2] for sides, _ in kinds]
    counts = [1] * len(kinds)
    left = CONTAINER[0] * CONTAINER[1] * CONTAINER[2] - sum(volumes)
    while True:
        kind = int(next(draws) * len(kinds))
        left -= volumes[kind]
        if left < 0:
            break
        counts[kind] += 1
    return [Kind(*kind, count) for kind, count in zip(kinds, counts, strict=True)]


def _uniform(seed: int) -> Iterator[float]:
    """Yield random numbers between 0 and 1; skip the first ten."""
    state, skipped = seed, 10
    while True:
        state = 16807 * state % (2**31 - 1)
        skipped -= 1
        if skipped < 0:
            yield state / (2**31 - 1)
