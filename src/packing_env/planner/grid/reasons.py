"""Reasons of left-over parts: the constraints without which one more piece has a place.

If no constraint keeps a piece from a place in a filled container, the container is packed again
without constraints. If more pieces of a part are packed without a constraint, this constraint is
the reason.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch

from packing_env.constraints import Constraints, milligrams
from packing_env.planner.grid.filling import Filling
from packing_env.planner.grid.poses import Poses
from packing_env.planner.grid.search import ANY, OrderSearch
from packing_env.planner.reasons import (
    CAUSES,
    FALLS,
    NEVER,
    NO_ROOM,
    NOT_TRIED,
    TOO_HEAVY,
    OutOfTimeError,
)
from packing_env.types import State


class Trials:
    """Trials with one container without some of its constraints.

    Args:
        poses: The parts.
        quantity: Number of pieces of each part in the container and left over.
        load: The filled container; None means an empty one.
        deadline: Time of ``time.perf_counter()`` after which no trial begins.
    """

    def __init__(
        self,
        poses: Poses,
        quantity: Sequence[int],
        load: State | None = None,
        deadline: float = math.inf,
    ) -> None:
        self.poses, self.quantity, self.load = poses, quantity, load
        self.deadline = deadline
        rules = poses.params.constraints
        self.names = [name for name in CAUSES if name in rules.to_json()]
        self._counts: dict[frozenset[str], list[int]] = {}
        self._loads: dict[frozenset[str], tuple[Filling, State]] = {}

    def count(self, part: int, without: Sequence[str] = ()) -> int:
        """Return how many pieces of a part are packed again without some constraints.

        Raises:
            OutOfTimeError: The deadline has passed.
        """
        lifted = frozenset(without)
        if lifted not in self._counts:
            self._counts[lifted] = OrderSearch(self._free(lifted), self.quantity).packed()
        return self._counts[lifted][part]

    def has_place(self, part: int, without: Sequence[str] = ()) -> bool:
        """Return whether one more piece of a part has a place without some constraints.

        The pieces in the container keep their places.

        Raises:
            OutOfTimeError: The deadline has passed.
        """
        lifted = frozenset(without)
        if lifted not in self._loads:
            packed = 0 if self.load is None else int(self.load["items_packed"])
            filling = self._free(lifted).filling(packed + 1)
            state = filling.empty(1) if self.load is None else filling.again(self.load)
            self._loads[lifted] = filling, state
        filling, state = self._loads[lifted]
        rows, there = self.poses.of(torch.tensor([part]), torch.tensor([ANY]))
        return bool(filling.put(state, rows, there)[1])

    def _free(self, lifted: frozenset[str]) -> Poses:
        """Return the parts in a container without some constraints."""
        if time.perf_counter() > self.deadline:
            raise OutOfTimeError
        params = self.poses.params
        params = params.evolve(constraints=_without(params.constraints, lifted))
        return replace(self.poses, params=params, _fillings=[])

    def causes(self, part: int) -> list[str]:
        """Return the constraints that keep out a piece, or take room from it."""
        if not self.names:
            return []
        return self._fewest(lambda lifted: self.has_place(part, lifted)) or self._fewest(
            lambda lifted: self.count(part, lifted) > self.count(part)
        )

    def _fewest(self, helps: Callable[[Sequence[str]], bool]) -> list[str]:
        """Return the constraints whose lifting helps: each alone, or else several together."""
        if not helps(self.names):
            return []
        alone = [name for name in self.names if helps([name])]
        if alone:
            return alone
        together = self.names
        for name in self.names:
            fewer = [each for each in together if each != name]
            together = fewer if helps(fewer) else together
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
        filled: The poses for each filled container, and its last state in the search.
        left: Number of left-over pieces of each part.
        seconds: Time for all trials.
    """

    def __init__(
        self,
        sizes: Sequence[Poses],
        filled: Sequence[tuple[Poses, State]],
        left: Sequence[int],
        seconds: float,
    ) -> None:
        self.sizes, self._deadline = sizes, time.perf_counter() + seconds
        self._packed = Counter[int]()
        self._trials = []
        for poses, load in reversed(filled):
            rows = load["item_id"][0, : int(load["items_packed"])]
            in_it = Counter(poses.origin(row)[0] for row in rows.tolist())
            self._packed += in_it
            quantity = [count + in_it[part] for part, count in enumerate(left)]
            self._trials.append(Trials(poses, quantity, load, self._deadline))

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
            if not any(trials.has_place(part) for trials in empty):
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
