"""Why boxes are left over: found by loading again without a constraint."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from packing_env.plan.loading import Loader
from packing_env.plan.loading_problem import UNLIMITED, LoadRules
from packing_env.planner.boxes import (
    BoxOrder,
    BoxPacker,
    Filled,
    Room,
    allowed_orientations,
    fits,
)
from packing_env.planner.poses import OTHER_FACE, OTHER_TURN, TOO_LARGE
from packing_env.planner.reasons import CAUSES, NO_ROOM, NOT_TRIED
from packing_env.planner.search import OutOfTimeError

_TRIAL = 0.2
"""Seconds of a search without some constraints."""
_OF_PLACES: dict[str, dict[str, Any]] = {
    "clearance": {"gap": 0, "walls": 0},
    "wall_clearance": {"walls": 0},
    "preplaced": {"before": ()},
    "door": {"door": "top"},
    "support": {"support": 0.0},
    "overhang": {"overhang": (0, 0)},
    "cut": {"cuts": ()},
}
"""Constraints on places, and rules without them."""
_OF_BOXES: dict[str, dict[str, Any]] = {
    "weight_limit": {"weight_limit": None},
    "max_load": {"max_load": False},
    "no_stacking": {"no_stacking": False},
    "fragile": {"fragile": None},
    "lifo": {"lifo": False},
    "balance": {"balance": None},
}
"""Constraints on boxes and those about them, and rules without them."""


@dataclass
class BoxReasons:
    """The reasons of left-over boxes of an order.

    Attributes:
        order: The boxes.
        packer: What was packed.
        seconds: Time for all trials.
    """

    order: BoxOrder
    packer: BoxPacker
    seconds: float
    _counts: dict[Any, Counter[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + self.seconds

    def of(self, kind: int) -> str:
        """Return why some boxes of a kind are left over."""
        rooms, sides = self.order.rooms, self.order.orientations[kind]
        # 1. It fits into no container.
        if not any(fits(sides, room.sides) for room in rooms):
            part = self.order.parts[kind]
            lengths = [math.ceil(side / self.order.unit) for side in part.exact_sides]
            for reason, free in ((OTHER_TURN, part.faces), (OTHER_FACE, ())):
                turned = allowed_orientations(replace(part, faces=free, turn=True), lengths)
                if any(fits(turned, room.sides) for room in rooms):
                    return reason
            return TOO_LARGE
        try:
            return self._by_trials(kind)
        except OutOfTimeError:
            return NOT_TRIED

    def _by_trials(self, kind: int) -> str:
        # 2. It may not be alone in a container.
        alone = [int(each == kind) for each in range(len(self.order.parts))]
        rooms = self.order.rooms
        if not any(self._number(room, alone, (), kind) for room in rooms):
            return next(filter(None, (self._causes(r, alone, kind, 0, r) for r in rooms)), NO_ROOM)
        # 3. It may not be with what was packed; the last container first.
        for filled in reversed(self.packer.filled):
            packed = Counter(box.kind for box in filled.boxes)
            counts = [packed[each] for each in range(len(self.order.parts))]
            counts[kind] += self.packer.left[kind]
            causes = self._causes(filled.room, counts, kind, packed[kind], filled)
            if causes:
                return causes
        return NO_ROOM

    def _causes(
        self, room: Room, counts: Sequence[int], kind: int, packed: int, of: Room | Filled
    ) -> str:
        """Return the constraints without which more of a kind is loaded: each, or some together."""
        full = isinstance(of, Filled) and not self._has_place(of, kind)
        lifted = _OF_PLACES | _OF_BOXES
        if full:  # but to be in balance, boxes may be where they leave no place
            lifted = _OF_PLACES | {"balance": _OF_BOXES["balance"]}
        names = [
            name
            for name, free in lifted.items()
            if any(getattr(room.rules, key) != value for key, value in free.items())
        ]
        if isinstance(of, Filled) and "weight_limit" in names and not self._is_heavy(of, kind):
            names.remove("weight_limit")
        if self.order.constraints.wall_clearance is None and "wall_clearance" in names:
            names.remove("wall_clearance")  # not an option of the order: clearance is
        most = max(packed, self._number(room, counts, (), kind))
        if not names or self._number(room, counts, names, kind) <= most:
            return "" if full or isinstance(of, Room) else self._together(names)
        causes = [name for name in names if self._number(room, counts, [name], kind) > most]
        if not causes:
            causes = list(names)
            for name in names:
                fewer = [each for each in causes if each != name]
                if self._number(room, counts, fewer, kind) > most:
                    causes = fewer
        return "; ".join(f"{name}: {CAUSES[name]}" for name in causes)

    def _is_heavy(self, filled: Filled, kind: int) -> bool:
        """Return whether one more box is too heavy for a container."""
        types, limit = self.order.types(self.packer.left), filled.room.rules.weight_limit
        total = sum(types[box.kind].weight for box in filled.boxes) + types[kind].weight
        return limit is not None and total > limit

    def _together(self, names: Sequence[str]) -> str:
        """Return the text where there is a place, and no trial shows which constraint is why."""
        asked = [
            key
            for part in self.order.parts
            for key in ("layers", "on_like")
            if key in part.handling
        ]
        return f"no place found that keeps {', '.join(dict.fromkeys([*names, *asked]))}"

    def _has_place(self, filled: Filled, kind: int) -> bool:
        """Return whether one more box has a place, whatever constraints say of other boxes."""
        boxes = []
        for box in filled.boxes:
            x, y, z = box.corner
            dx, dy, dz = self.order.orientations[box.kind][box.orientation]
            boxes.append((x, y, z, x + dx, y + dy, z + dz))
        free = {key: value for entry in _OF_BOXES.values() for key, value in entry.items()}
        rules = replace(filled.room.rules, **free, before=(*filled.room.rules.before, *boxes))
        box_type = self.order.types([1] * len(self.order.parts))[kind]
        plain = replace(box_type, layers=UNLIMITED, on_like=False)
        loader = Loader(filled.room.sides, [plain], rules=rules)
        return not loader.is_empty and bool(loader.run(_TRIAL, 1))

    def _number(self, room: Room, counts: Sequence[int], lifted: Sequence[str], kind: int) -> int:
        """Return how many boxes of a kind are loaded without some constraints."""
        key = room.type, tuple(counts), tuple(sorted(lifted))
        if key not in self._counts:
            if time.monotonic() > self._deadline:
                raise OutOfTimeError
            free = {k: v for name in lifted for k, v in (_OF_PLACES | _OF_BOXES)[name].items()}
            self._counts[key] = self._load(room, counts, replace(room.rules, **free))
        return self._counts[key][kind]

    def _load(self, room: Room, counts: Sequence[int], rules: LoadRules) -> Counter[int]:
        kinds = [kind for kind, count in enumerate(counts) if count]
        types = self.order.types(counts)
        loader = Loader(room.sides, [types[kind] for kind in kinds], rules=rules)
        loaded = [] if loader.is_empty else loader.run(_TRIAL)
        return Counter(kinds[box.kind] for box in loaded)
