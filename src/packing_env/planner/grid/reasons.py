"""Reasons of left-over parts, found by packing again without a constraint.

The same order of parts gives the same container (:mod:`packing_env.planner.grid.search`). If more
copies of a part are packed without a constraint, this constraint is the reason.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from packing_env.constraints import Constraints, milligrams
from packing_env.planner.grid.poses import Poses
from packing_env.planner.grid.search import Gene, OrderSearch
from packing_env.planner.reasons import (
    CAUSES,
    FALLS,
    NEVER,
    NO_ROOM,
    NOT_TRIED,
    TOO_HEAVY,
    OutOfTimeError,
)


class Trials:
    """Repeated packings of one container without some of its constraints.

    Args:
        poses: The parts.
        quantity: Number of pieces of each part.
        packed: Parts to pack first, in order; the others follow, the largest first.
        deadline: Time of ``time.perf_counter()`` after which no trial begins.
    """

    def __init__(
        self,
        poses: Poses,
        quantity: Sequence[int],
        packed: Sequence[Gene] = (),
        deadline: float = math.inf,
    ) -> None:
        self.poses, self.quantity, self.packed = poses, quantity, packed
        self.deadline = deadline
        rules = poses.params.constraints
        self.names = [name for name in CAUSES if name in rules.to_json()]
        self._counts: dict[frozenset[str], list[int]] = {}

    def count(self, part: int, without: Sequence[str] = ()) -> int:
        """Return how many pieces of a part are packed without some constraints.

        Raises:
            OutOfTimeError: The deadline has passed.
        """
        lifted = frozenset(without)
        if lifted not in self._counts:
            if time.perf_counter() > self.deadline:
                raise OutOfTimeError
            params = self.poses.params
            rules = _without(params.constraints, lifted)
            params = params.evolve(constraints=rules)
            poses = replace(self.poses, params=params, _fillings=[])
            again = OrderSearch(poses, self.quantity, packed=self.packed)
            self._counts[lifted] = again.packed()
        return self._counts[lifted][part]

    def causes(self, part: int) -> list[str]:
        """Return the constraints that are the cause: each alone, or else several together."""
        before = self.count(part) if self.names else 0
        if not self.names or self.count(part, self.names) <= before:
            return []
        alone = [name for name in self.names if self.count(part, [name]) > before]
        if alone:
            return alone
        together = self.names
        for name in self.names:
            fewer = [each for each in together if each != name]
            together = fewer if self.count(part, fewer) > before else together
        return together


def _without(rules: Constraints, lifted: frozenset[str]) -> Constraints:
    free = Constraints()
    changes = {name: getattr(free, name) for name in lifted}
    if "wall_clearance" in lifted:
        changes["wall_clearance"] = 0.0  # None would mean the clearance
    return replace(rules, **changes)


class Reasons:
    """Reasons of all left-over parts.

    Args:
        sizes: The parts in each size of container.
        filled: The poses for each filled container, and its packed parts in order.
        left: Number of left-over pieces of each part.
        seconds: Time for all trials.
    """

    def __init__(
        self,
        sizes: Sequence[Poses],
        filled: Sequence[tuple[Poses, Sequence[Gene]]],
        left: Sequence[int],
        seconds: float,
    ) -> None:
        self.sizes, self._deadline = sizes, time.perf_counter() + seconds
        self._packed = {part for _, packed in filled for part, _ in packed}
        self._trials = []
        for poses, packed in reversed(filled):
            in_it = Counter(part for part, _ in packed)
            quantity = [count + in_it[part] for part, count in enumerate(left)]
            self._trials += [
                Trials(poses, quantity, packed, self._deadline),
                Trials(poses, quantity, deadline=self._deadline),
            ]

    def of(self, part: int) -> str:
        """Return why some pieces of a part are left over."""
        possible = [poses for poses in self.sizes if poses.count[part]]
        if not possible:
            return min((poses.reasons[part] for poses in self.sizes), key=NEVER.index)
        if all(_is_too_heavy(poses, part) for poses in possible):
            return TOO_HEAVY
        try:
            return self._by_trials(part, possible)
        except OutOfTimeError:
            return NOT_TRIED

    def _by_trials(self, part: int, possible: Sequence[Poses]) -> str:
        """Return why pieces of a part are left over although the part fits into a container."""
        if part not in self._packed:
            alone = [int(each == part) for each in range(len(possible[0].count))]
            empty = [Trials(poses, alone, deadline=self._deadline) for poses in possible]
            if not any(trials.count(part) for trials in empty):
                return _text(empty, part) or FALLS
        return _text(self._trials, part) or NO_ROOM


def _is_too_heavy(poses: Poses, part: int) -> bool:
    """Return whether one piece of a part is heavier than the load that a container may carry."""
    limit, handling = poses.params.constraints.weight_limit, poses.catalogue.handling
    if limit is None or handling is None:
        return False
    return int(handling.weight[poses.first[part]]) > milligrams("weight_limit", limit)


def _text(trials: Iterable[Trials], part: int) -> str:
    """Return the causes that the first successful trials find, as a text."""
    causes = next(filter(None, (each.causes(part) for each in trials)), [])
    return "; ".join(f"{name}: {CAUSES[name]}" for name in causes)
