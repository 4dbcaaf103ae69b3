"""Why parts are left over (:mod:`packing_env.planner.reasons`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch

from packing_env.constraints import limit_in_mg
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
    Causes,
    Load,
    OutOfTimeError,
    without,
)
from packing_env.types import State


class _GridLoad(Load):
    """A container on a grid.

    Args:
        poses: The parts.
        quantity: Number of pieces of each part in the container and left over.
        causes: The search, which keeps the time.
        load: The filled container; None means an empty one.
    """

    def __init__(
        self, poses: Poses, quantity: Sequence[int], causes: Causes, load: State | None = None
    ) -> None:
        self._poses, self._quantity, self._causes, self._load = poses, quantity, causes, load
        self.names = [name for name in CAUSES if name in poses.params.constraints.to_json()]
        self._counts: dict[frozenset[str], list[int]] = {}
        self._loads: dict[frozenset[str], tuple[Filling, State]] = {}

    def has_place(self, part: int, lifted: Sequence[str] = ()) -> bool:
        key = frozenset(lifted)
        if key not in self._loads:
            packed = 0 if self._load is None else int(self._load["items_packed"])
            filling = self._free(lifted).filling(packed + 1)
            state = filling.empty(1) if self._load is None else filling.again(self._load)
            self._loads[key] = filling, state
        filling, state = self._loads[key]
        rows, there = self._poses.of(torch.tensor([part]), torch.tensor([ANY]))
        return bool(filling.put(state, rows, there)[1])

    def takes_more(self, part: int, lifted: Sequence[str]) -> bool:
        return self._count(lifted)[part] > self._count(())[part]

    def _count(self, lifted: Sequence[str]) -> list[int]:
        key = frozenset(lifted)
        if key not in self._counts:
            self._counts[key] = OrderSearch(self._free(lifted), self._quantity).packed()
        return self._counts[key]

    def _free(self, lifted: Sequence[str]) -> Poses:
        """Return the parts in a container without some constraints."""
        self._causes.check_time()
        params = self._poses.params
        params = params.evolve(constraints=without(params.constraints, lifted))
        return replace(self._poses, params=params, _fillings=[])


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
        self._sizes = sizes
        self._causes = Causes(seconds, sum(count > 0 for count in left))
        self._packed = Counter[int]()
        self._filled = []
        for poses, load in reversed(filled):
            rows = load["item_id"][0, : int(load["items_packed"])]
            in_it = Counter(poses.origin(row)[0] for row in rows.tolist())
            self._packed += in_it
            quantity = [count + in_it[part] for part, count in enumerate(left)]
            self._filled.append(_GridLoad(poses, quantity, self._causes, load))

    def of(self, part: int) -> str:
        """Return why some pieces of a part are left over."""
        self._causes.begin_share()
        # 1. The part fits into no container.
        possible = [poses for poses in self._sizes if poses.count[part]]
        if not possible:
            return min((poses.reasons[part] for poses in self._sizes), key=NEVER.index)
        if all(_is_too_heavy(poses, part) for poses in possible):
            return TOO_HEAVY
        try:
            # 2. A constraint, or the stability rule, forbids the part in an empty container.
            if part not in self._packed:
                alone = [int(each == part) for each in range(len(possible[0].count))]
                empty = [_GridLoad(poses, alone, self._causes) for poses in possible]
                if not any(load.has_place(part) for load in empty):
                    return self._causes.text(part, empty) or FALLS
            # 3. A constraint keeps the part from a place, or takes its room.
            return self._causes.text(part, self._filled) or NO_ROOM
        except OutOfTimeError:
            return NOT_TRIED


def _is_too_heavy(poses: Poses, part: int) -> bool:
    """Return whether one piece of a part is heavier than the load that a container may carry."""
    limit, handling = poses.params.constraints.weight_limit, poses.catalogue.handling
    if limit is None or handling is None:
        return False
    return int(handling.weight[poses.first[part]]) > limit_in_mg(limit)
