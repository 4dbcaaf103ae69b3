"""Containers of equal weight: a heavy and a light container exchange boxes.

BoxPacker's ``WeightRedistributor`` does the same (github.com/dvdoug/BoxPacker).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packing_env.plan import LoadedBox
from packing_env.planner.boxes.loads import BoxLoads
from packing_env.planner.boxes.order import Filled

_SECONDS = 0.2
"""Seconds in which a container has to take its new boxes."""


def equalize(loads: BoxLoads, filled: Sequence[Filled], deadline: float) -> list[Filled]:
    """Return containers with the same boxes overall, as equal in weight as the search finds.

    If no box has a weight, volumes are compared.

    Args:
        loads: Fills a container.
        filled: The containers.
        deadline: End of the search, a time of ``time.monotonic()``.
    """
    search = _Equal(loads, filled, deadline)
    # 1. Try the most equal distribution.
    search.accept(search.dealt())
    # 2. Move a few boxes out of the heaviest container, perhaps in exchange for boxes of a lighter
    # container.
    while search.improve():
        pass
    return search.filled


class _Equal:
    """Containers with their boxes, and the weight of each kind of box."""

    def __init__(self, loads: BoxLoads, filled: Sequence[Filled], deadline: float) -> None:
        self._loads, self._deadline, self._order = loads, deadline, loads.order
        order = loads.order
        self._measures = order.weights if any(order.weights) else order.volumes
        self._fixed = {kind for kinds in order.sets for kind in kinds}
        self.filled = list(filled)
        self._counts = [self._order.counts(each.boxes) for each in self.filled]
        self._refused: set[tuple[int, ...]] = set()

    def weight(self, counts: Sequence[int]) -> int:
        return sum(n * each for n, each in zip(counts, self._measures, strict=True))

    def dealt(self) -> dict[int, list[int]]:
        """Return a distribution: each box, the heaviest first, goes to the lightest container."""
        total = [sum(counts) for counts in zip(*self._counts, strict=True)]
        units = [{kind: total[kind] for kind in kinds} for kinds in self._order.sets]
        for kind, number in enumerate(total):
            units += [{kind: 1}] * (0 if kind in self._fixed else number)
        heavy = [(sum(self._measures[k] * n for k, n in unit.items()), unit) for unit in units]
        dealt = [[0] * len(total) for _ in self.filled]
        weights = [0] * len(self.filled)
        for weight, unit in sorted(heavy, key=lambda pair: -pair[0]):
            lightest = weights.index(min(weights))
            weights[lightest] += weight
            for kind, number in unit.items():
                dealt[lightest][kind] += number
        return dict(enumerate(dealt))

    def accept(self, changed: dict[int, list[int]]) -> bool:
        """Give containers other boxes if these fit and make the weights more equal."""
        counts = [changed.get(place, old) for place, old in enumerate(self._counts)]
        if self._unlike(counts) >= self._unlike(self._counts):
            return False
        taken: dict[int, list[LoadedBox]] = {}
        for place, wanted in changed.items():
            size = self._order.rooms.index(self.filled[place].room)
            key = (size, *wanted)
            if key in self._refused or self._loads.is_over(self._deadline):
                return False
            taken[place] = self._loads.load(size, wanted, _SECONDS)
            if len(taken[place]) < sum(wanted):
                self._refused.add(key)
                return False
        for place, boxes in taken.items():
            self.filled[place] = Filled(self.filled[place].room, boxes)
        self._counts = counts
        return True

    def _unlike(self, counts: Sequence[Sequence[int]]) -> tuple[int, int]:
        """Return the range of the weights of the containers, and the sum of squares."""
        weights = [self.weight(each) for each in counts]
        return max(weights) - min(weights), sum(weight**2 for weight in weights)

    def improve(self) -> bool:
        """Move or exchange a few boxes; return whether an exchange was accepted."""
        weights = [self.weight(counts) for counts in self._counts]
        by_weight = sorted(range(len(weights)), key=weights.__getitem__)
        for light in by_weight[:-1]:
            for heavy in reversed(by_weight):
                gap = weights[heavy] - weights[light]
                if gap <= 0:
                    break
                moves = sorted(self._moves(heavy, light, gap), key=lambda move: move[0])
                if any(self.accept(changed) for _, changed in moves):
                    return True
                if self._loads.is_over(self._deadline):
                    return False
        return False

    def _moves(
        self, heavy: int, light: int, gap: int
    ) -> Iterator[tuple[int, dict[int, list[int]]]]:
        """Yield other contents of two containers, with the difference of their weights."""
        kinds = [kind for kind in range(len(self._measures)) if kind not in self._fixed]
        for kind in kinds:
            for other in (None, *kinds):
                step = self._measures[kind] - (0 if other is None else self._measures[other])
                if not 0 < step < gap:
                    continue
                here, there = self._counts[heavy][kind], 1 << 62
                if other is not None:
                    there = self._counts[light][other]
                for number in {1, gap // (2 * step), gap // (2 * step) + 1}:
                    if 0 < number <= min(here, there):
                        changed = {p: list(self._counts[p]) for p in (heavy, light)}
                        for p, sign in ((heavy, -1), (light, 1)):
                            changed[p][kind] += sign * number
                            if other is not None:
                                changed[p][other] -= sign * number
                        yield abs(gap - 2 * step * number), changed
