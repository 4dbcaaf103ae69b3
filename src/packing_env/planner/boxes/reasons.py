"""Why boxes are left over: the constraints without which one more box has a place.

If no constraint keeps the box from a place in the finished load, the boxes are loaded again without
the constraints that take room.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from packing_env.plan.loading.loader import Loader
from packing_env.plan.loading.places import has_place
from packing_env.plan.loading.problem import UNLIMITED, LoadedBox, LoadRules
from packing_env.planner.boxes.order import BoxOrder, Filled, Room, allowed_orientations, fits
from packing_env.planner.boxes.packer import BoxPacker
from packing_env.planner.reasons import (
    CAUSES,
    NO_ROOM,
    NOT_TRIED,
    OTHER_FACE,
    OTHER_TURN,
    TOO_HEAVY,
    TOO_LARGE,
    OutOfTimeError,
)

_TRIAL = 0.2
"""Largest number of seconds of a search without some constraints."""
_TRIALS_OF_KIND = 3
"""Searches of one kind that its share of the time is divided among."""
_OF_ROOM: dict[str, dict[str, Any]] = {
    "clearance": {"gap": 0},
    "wall_clearance": {"walls": 0},
    "preplaced": {"before": ()},
    "door": {"door": "top"},
    "support": {"support": 0.0},
    "balance": {"balance": None},
    "overhang": {"overhang": (0, 0)},
    "cut": {"cuts": ()},
}
"""Constraints that may leave no place in a load, each with the rules that lift it."""
_WITHOUT: dict[str, dict[str, Any]] = _OF_ROOM | {
    "weight_limit": {"weight_limit": None},
    "max_load": {"max_load": False},
    "no_stacking": {"no_stacking": False},
    "fragile": {"fragile": None},
    "lifo": {"lifo": False},
}
"""All constraints, each with the rules that lift it."""
_OF_TYPES: dict[str, dict[str, Any]] = {
    "layers": {"layers": UNLIMITED},
    "on_like": {"on_like": False},
}
"""Constraints that only boxes state, each with the attributes that lift it."""
_WORDS = CAUSES | {
    "layers": "the stack would have too many levels",
    "on_like": "it would rest on boxes of another name",
}


@dataclass
class BoxReasons:
    """The reasons of left-over boxes of an order.

    Attributes:
        order: The boxes.
        packer: The finished search.
        seconds: Time for all trials.
    """

    order: BoxOrder
    packer: BoxPacker
    seconds: float
    _counts: dict[Any, Counter[int]] = field(default_factory=dict)
    _recent: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + self.seconds
        self._waiting = sum(count > 0 for count in self.packer.left)
        self._end_of_share = self._deadline

    def of(self, kind: int) -> str:
        """Return why some boxes of a kind are left over.

        Every kind has an equal share of the remaining time. If several constraints are the cause,
        the result names those found within this share, and at least one.
        """
        now = time.monotonic()
        self._end_of_share = now + (self._deadline - now) / max(self._waiting, 1)
        self._waiting -= 1
        return self._of(kind)

    def _of(self, kind: int) -> str:
        rooms, sides = self.order.rooms, self.order.orientations[kind]
        # 1. The box fits into no container.
        if not any(fits(sides, room.sides) for room in rooms):
            part = self.order.parts[kind]
            lengths = [math.ceil(side / self.order.unit) for side in part.exact_sides]
            for reason, free in ((OTHER_TURN, part.faces), (OTHER_FACE, ())):
                turned = allowed_orientations(replace(part, faces=free, turn=True), lengths)
                if any(fits(turned, room.sides) for room in rooms):
                    return reason
            return TOO_LARGE
        weight = self.order.weights[kind]
        limits = [room.rules.weight_limit for room in rooms if fits(sides, room.sides)]
        if all(limit is not None and weight > limit for limit in limits):
            return TOO_HEAVY
        try:
            # 2. The box has a place alone, but its set of boxes that stay together has none.
            if self._waits_for_its_set(kind):
                return f"together: {CAUSES['together']}"
            # 3. A constraint keeps the box from a place, or takes room.
            causes = self._of_places(kind) or self._of_trials(kind)
        except OutOfTimeError:
            return NOT_TRIED
        return "; ".join(f"{name}: {_WORDS[name]}" for name in causes) or NO_ROOM

    def _waits_for_its_set(self, kind: int) -> bool:
        """Return whether a box of a set has a place, but the whole set has none."""
        if not any(kind in kinds for kinds in self.order.sets):
            return False
        loads: list[tuple[Room, Sequence[LoadedBox]]] = [(room, ()) for room in self.order.rooms]
        loads += [(filled.room, filled.boxes) for filled in self.packer.filled]
        return any(self._has_place(*load, kind) for load in loads)

    def _of_places(self, kind: int) -> list[str]:
        """Return the constraints that keep one more box from a place."""
        # 1. The constraints that forbid the box in an empty container.
        loads: list[tuple[Room, Sequence[LoadedBox]]] = [(room, ()) for room in self.order.rooms]
        if any(self._has_place(*load, kind) for load in loads):
            # 2. The constraints that forbid the box in a packed container, the last one first, or
            # in one that may still be used.
            loads = [(filled.room, filled.boxes) for filled in reversed(self.packer.filled)]
            loads += [(room, ()) for room in self.order.rooms if self.packer.may_use(room)]
        causes = (self._keeping_out(room, boxes, kind) for room, boxes in loads)
        return next(filter(None, causes), [])

    def _keeping_out(self, room: Room, boxes: Sequence[LoadedBox], kind: int) -> list[str]:
        """Return the constraints that keep one more box from a place in one load."""
        return self._fewest(
            self._asked(room), lambda lifted: self._has_place(room, boxes, kind, lifted)
        )

    def _of_trials(self, kind: int) -> list[str]:
        """Return the constraints without which more of a kind is loaded."""
        causes = (self._taking_room(filled, kind) for filled in reversed(self.packer.filled))
        return next(filter(None, causes), [])

    def _taking_room(self, filled: Filled, kind: int) -> list[str]:
        """Return the constraints without which one container takes more of a kind."""
        packed = Counter(box.kind for box in filled.boxes)
        counts = [packed[each] for each in range(len(self.order.parts))]
        counts[kind] += self.packer.left[kind]
        room = filled.room
        names = [name for name in self._asked(room) if name in _OF_ROOM]
        if not names or not self._may_take_more(room, packed, names):
            return []

        def takes_more(lifted: Sequence[str]) -> bool:
            """Return whether more of the kind is loaded, and not in place of other boxes."""
            loaded = self._loaded(room, counts, lifted)
            more = loaded[kind] > packed[kind] and self._volume(loaded) > self._volume(packed)
            return more and loaded[kind] > self._loaded(room, counts, ())[kind]

        return self._fewest(names, takes_more)

    def _may_take_more(self, room: Room, packed: Counter[int], names: Sequence[str]) -> bool:
        """Return whether a container takes more volume of all left boxes without constraints."""
        counts = [packed[kind] + left for kind, left in enumerate(self.packer.left)]
        return self._volume(self._loaded(room, counts, names)) > self._volume(packed)

    def _volume(self, loaded: Counter[int]) -> int:
        """Return the volume of boxes, units^3."""
        return self.order.volume([loaded[each] for each in range(len(self.order.parts))])

    def _asked(self, room: Room) -> list[str]:
        """Return the constraints that apply in a container."""
        asked = [name for name in _WITHOUT if room.rules != self._rules(room, [name])]
        handling = [part.handling for part in self.order.parts]
        return asked + [name for name in _OF_TYPES if any(each.get(name) for each in handling)]

    def _rules(self, room: Room, lifted: Sequence[str]) -> LoadRules:
        """Return the rules of a container without some constraints."""
        free = {key: value for name in lifted for key, value in _WITHOUT.get(name, {}).items()}
        if self.order.constraints.wall_clearance is None:  # the clearance applies to walls, too
            free.pop("walls", None)
            free |= {"walls": 0} if "clearance" in lifted else {}
        return replace(room.rules, **free)

    def _has_place(
        self, room: Room, boxes: Sequence[LoadedBox], kind: int, lifted: Sequence[str] = ()
    ) -> bool:
        """Return whether one more box has a place in a load without some constraints."""
        self._check_time()
        free = {key: value for name in lifted for key, value in _OF_TYPES.get(name, {}).items()}
        types = [replace(each, **free) for each in self.order.types([1] * len(self.order.parts))]
        place_exists = has_place(room.sides, types, boxes, kind, self._rules(room, lifted))
        if place_exists is None:
            raise OutOfTimeError
        return place_exists

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise OutOfTimeError

    def _loaded(self, room: Room, counts: Sequence[int], lifted: Sequence[str]) -> Counter[int]:
        """Return how many boxes of each kind are loaded without some constraints."""
        key = room.type, tuple(counts), tuple(sorted(lifted))
        if key not in self._counts:
            self._check_time()
            self._counts[key] = self._load(room, counts, self._rules(room, lifted))
        return self._counts[key]

    def _load(self, room: Room, counts: Sequence[int], rules: LoadRules) -> Counter[int]:
        kinds = [kind for kind, count in enumerate(counts) if count]
        types = self.order.types(counts)
        loader = Loader(room.sides, [types[kind] for kind in kinds], rules=rules)
        share = max(self._end_of_share - time.monotonic(), 0.0) / _TRIALS_OF_KIND
        seconds = min(_TRIAL, self.packer.seconds, share)
        loaded = [] if loader.is_empty else loader.run(seconds)
        return Counter(kinds[box.kind] for box in loaded)

    def _fewest(self, names: Sequence[str], helps: Callable[[Sequence[str]], bool]) -> list[str]:
        """Return the constraints whose lifting helps: each alone, or else the fewest together."""
        # 1. Each alone, beginning with those that were the cause for other boxes.
        latest = [name for name in self._recent if name in names]
        alone = [name for name in latest[:1] if helps([name])]
        if not names or not (alone or helps(names)):
            return []
        for name in dict.fromkeys([*latest, *names]):
            if alone and time.monotonic() > self._end_of_share:
                break
            if name not in latest[:1] and helps([name]):
                alone.append(name)
        if alone:
            self._recent = list(dict.fromkeys([*alone, *self._recent]))
            return [name for name in names if name in alone]
        # 2. Several together.
        together = list(names)
        for name in names:
            fewer = [each for each in together if each != name]
            together = fewer if helps(fewer) else together
        return together
