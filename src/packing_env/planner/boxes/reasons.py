"""Why boxes are left over (:mod:`packing_env.planner.reasons`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from packing_env.kernels.loading.arrays_numba import UNLIMITED
from packing_env.plan import LoadedBox
from packing_env.plan.loading.loader import Loader
from packing_env.plan.loading.places import has_place
from packing_env.plan.loading.problem import LoadRules
from packing_env.planner.boxes.order import Room, load_rules
from packing_env.planner.boxes.packer import BoxPacker
from packing_env.planner.fit import fits, misfit
from packing_env.planner.reasons import (
    CAUSES,
    NO_ROOM,
    NOT_TRIED,
    TOO_HEAVY,
    Causes,
    Load,
    OutOfTimeError,
    without,
)

_TRIAL = 0.2
"""Largest number of seconds of a search without some constraints."""
_TRIALS_OF_KIND = 3
"""Number of searches for one kind, among which its share of the time is divided."""
_TAKE_ROOM = (
    "clearance", "wall_clearance", "preplaced", "door", "support", "balance", "overhang", "cut",
)  # fmt: skip
"""Constraints that may leave less room in a load; the others only forbid places."""
_OF_TYPES: dict[str, dict[str, Any]] = {
    "layers": {"layers": UNLIMITED},
    "on_like": {"on_like": False},
}
"""Constraints that only boxes state, each with the attributes that lift it."""


class BoxReasons:
    """The reasons of left-over boxes of an order.

    Args:
        packer: The finished search.
        seconds: Time for all trials.
    """

    def __init__(self, packer: BoxPacker, seconds: float) -> None:
        self._order, self._packer = packer.order, packer
        self._causes = Causes(seconds, sum(count > 0 for count in packer.left))
        self._empty = [_BoxLoad(packer, self._causes, room, ()) for room in packer.order.rooms]
        self._filled = [
            _BoxLoad(packer, self._causes, filled.room, filled.boxes)
            for filled in reversed(packer.filled)
        ]

    def of(self, kind: int) -> str:
        """Return why some boxes of a kind are left over."""
        self._causes.begin_share()
        rooms, sides = self._order.rooms, self._order.orientations[kind]
        # 1. The box fits into no container.
        part, lengths = self._order.parts[kind], self._order.lengths[kind]
        if reason := misfit(part, lengths, [room.sides for room in rooms]):
            return reason
        weight = self._order.weights[kind]
        limits = [room.rules.weight_limit for room in rooms if fits(sides, room.sides)]
        if all(limit is not None and weight > limit for limit in limits):
            return TOO_HEAVY
        try:
            # 2. The box has a place alone, but its set of boxes that stay together has none.
            loads = [*self._empty, *self._filled]
            in_set = any(kind in kinds for kinds in self._order.sets)
            if in_set and any(load.has_place(kind) for load in loads):
                return f"together: {CAUSES['together']}"
            # 3. A constraint forbids the box in every empty container. Or, in a container, it keeps
            # the box from a place or takes its room.
            if any(load.has_place(kind) for load in self._empty):
                usable = [load for load in self._empty if self._packer.may_use(load.room)]
                loads = [*self._filled, *usable]
            return self._causes.text(kind, loads) or NO_ROOM
        except OutOfTimeError:
            return NOT_TRIED


class _BoxLoad(Load):
    """A container of an order with its boxes."""

    def __init__(
        self, packer: BoxPacker, causes: Causes, room: Room, boxes: Sequence[LoadedBox]
    ) -> None:
        self._order, self._packer, self._causes = packer.order, packer, causes
        self.room, self._boxes = room, boxes
        self._packed = packer.order.counts(boxes)
        self._loaded: dict[Any, list[int]] = {}
        handling = [part.handling for part in packer.order.parts]
        self.names = [name for name in CAUSES if self._rules([name]) != room.rules]
        self.names += [name for name in _OF_TYPES if any(each.get(name) for each in handling)]

    def _rules(self, lifted: Sequence[str]) -> LoadRules:
        rules = without(self.room.constraints, lifted)
        return load_rules(rules, self.room.rules.stability, self._order.unit)

    def has_place(self, part: int, lifted: Sequence[str] = ()) -> bool:
        self._causes.check_time()
        free = {key: value for name in lifted for key, value in _OF_TYPES.get(name, {}).items()}
        types = [replace(each, **free) for each in self._order.types([1] * len(self._order.parts))]
        rules, share = self._rules(lifted), self._causes.share
        place_exists = has_place(self.room.sides, types, self._boxes, part, rules, share)
        if place_exists is None:
            raise OutOfTimeError
        return place_exists

    def takes_more(self, part: int, lifted: Sequence[str]) -> bool:
        volume, names = self._order.volume, [name for name in self.names if name in _TAKE_ROOM]
        lifted = [name for name in names if name in lifted]
        if not self._boxes or not lifted:
            return False
        # 1. Lift all constraints that take room: the container must take more volume.
        if volume(self._load(self._packer.left, names)) <= volume(self._packed):
            return False
        # 2. Lift the given constraints: the container must take more volume and more boxes of this
        # kind, compared with its present load and with a second search under all constraints.
        more = [n if kind == part else 0 for kind, n in enumerate(self._packer.left)]
        loaded = self._load(more, lifted)
        gains = loaded[part] > self._packed[part] and volume(loaded) > volume(self._packed)
        return gains and loaded[part] > self._load(more, ())[part]

    def _load(self, more: Sequence[int], lifted: Sequence[str]) -> list[int]:
        """Load the container's boxes and more; return how many of each kind are loaded."""
        key = tuple(more), tuple(lifted)
        if key not in self._loaded:
            self._causes.check_time()
            counts = [packed + n for packed, n in zip(self._packed, more, strict=True)]
            loader = Loader(self.room.sides, self._order.types(counts), rules=self._rules(lifted))
            share = self._causes.share / _TRIALS_OF_KIND
            seconds = min(_TRIAL, self._packer.seconds, share)
            boxes = [] if loader.is_empty else loader.run(seconds)
            self._loaded[key] = self._order.counts(boxes)
        return self._loaded[key]
