"""Reasons of left-over parts, tested one by one with the reference program."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import trimesh
from left_overs import (
    OF_BOXES,
    WITHOUT,
    Finished,
    finished,
    orientations,
    place,
    with_one_more,
)
from left_overs_on_grid import Grid
from random_orders import Order

from packing_env.constraints import Constraints
from packing_env.kernels.stability_rules import LADDER
from packing_env.plan import Packing
from packing_env.planner import Fill, LeftOver, Part, Plan, pack, read_containers
from packing_env.planner.boxes.order import read_boxes
from packing_env.planner.packer import STANDS, TOO_SMALL
from packing_env.planner.reading.constraints import constraints_of
from packing_env.planner.reading.containers import ContainerType
from packing_env.planner.reasons import (
    CAUSES,
    FALLS,
    NO_ROOM,
    NOT_TRIED,
    OFF_CELLS,
    OTHER_FACE,
    OTHER_TURN,
    TOO_HEAVY,
    TOO_LARGE,
)
from packing_env.reference.box_load import Rules
from packing_env.reference.constraints import Handling

TOGETHER = f"together: {CAUSES['together']}"
_FITS = {
    TOO_LARGE: [False, False, False],
    OTHER_TURN: [False, True, True],
    OTHER_FACE: [False, False, True],
}
"""Whether a part fits as ordered, if it may be turned, and if it may also lie on any face."""
_TRIALS = (0.05, 0.2, 0.5, 2.0)
"""Seconds of successive searches for a load with more pieces of a part."""
_ATTRIBUTES = {
    "no_stacking": "stackable", "max_load": "max_load", "fragile": "fragile", "lifo": "group",
    "layers": "layers", "on_like": "on_like", "together": "together",
}  # fmt: skip
"""The attribute of parts that states each constraint."""


_HELD = ((True, True), (False, True), (False, False))
"""Whether turns about z and the faces that may be up are restricted."""


def packed(order: Order, seconds: float) -> Plan:
    """Return the plan of an order."""
    parts = Fill(order["parts"]) if order["fill"] else order["parts"]
    return pack(parts, seconds=seconds, **arguments(order))


def arguments(order: Order) -> dict[str, Any]:
    """Return the arguments of `pack` for an order."""
    return {k: v for k, v in order.items() if k not in ("parts", "fill")}


def reasons_of(plan: Plan, order: Order) -> Reasons:
    """Return the reasons of a plan's left-over parts."""
    return GridReasons(plan, order) if "cell" in order else BoxReasons(plan, order)


class Reasons:
    """The reasons of a plan's left-over parts.

    Attributes:
        verdicts: How each reason was verified, and how often.
    """

    where = ""

    def __init__(self, plan: Plan, order: Order) -> None:
        self.verdicts = Counter[str]()
        self._plan, self._order = plan, order
        self._parts: dict[str, Part] = {part.label: part for part in order["parts"]}
        self._sizes = read_containers(order["container"])
        used = Counter(packing.container for packing in plan.containers)
        more = len(plan.containers) < order["containers"]
        self._may_be_used = [
            more and (size.number is None or used[_metres(size)] < size.number)
            for size in self._sizes
        ]

    def wrong(self) -> str:
        """Return the first wrong reason, or ""."""
        for rest in self._plan.left:
            wrong = self._wrong(self._parts[rest.name], rest)
            if wrong:
                return f"{rest.name}: {rest.reason}, but {wrong}"
        return ""

    def _wrong(self, part: Part, rest: LeftOver) -> str:
        """Return what is wrong with a reason, or ""."""
        if not rest.reason:
            return "this is no reason"
        if rest.reason == NOT_TRIED:
            self._is(rest.reason)
            return ""
        never = self._wrong_of_part(part, rest.reason)
        if never is not None:
            self._is(f"{rest.reason}: true by arithmetic")
            return never
        if rest.reason == TOGETHER:
            self._is(f"{rest.reason}: a place alone, and none for the set")
            return self._wrong_set(part)
        # 1. No place may satisfy all constraints.
        place = self._place(part, [])
        if place:
            return f"it has a place: {place}"
        # 2. If no constraint is named, there may be no place even without constraints.
        if rest.reason == NO_ROOM:
            self._is(f"{rest.reason}: no free place")
            place = self._place(part, [*WITHOUT, *OF_BOXES])
            return f"without constraints there is a place: {place}" if place else ""
        # 3. Without the named constraints there must be a place.
        names = [cause.split(":")[0] for cause in rest.reason.split("; ")]
        label = " and ".join(names) if len(names) < 3 else "three or more constraints"
        if self._place(part, names, alone=True):
            self._is(f"{label}: a place without")
        elif self._packs_more(part, names, rest.quantity):
            self._is(f"{label}: more are packed without")
        else:
            self._is(f"{label}: not confirmed")
        return ""

    def _is(self, verdict: str) -> None:
        self.verdicts[self.where + verdict] += 1

    def _wrong_of_part(self, part: Part, reason: str) -> str | None:
        """Check a reason that concerns the part alone; return the error, or "".

        For other reasons, return None.
        """
        raise NotImplementedError

    def _wrong_set(self, part: Part) -> str:
        """Check that a set has no room; return the error, or ""."""
        raise NotImplementedError

    def _place(self, part: Part, names: Sequence[str], *, alone: bool = False) -> Any:
        """Return a place for one more part, with some constraints switched off.

        With ``alone``, empty containers of any size are tried too.
        """
        raise NotImplementedError

    def _packs_more(self, part: Part, names: Sequence[str], left: int) -> bool:
        """Return whether a container takes more of a part without some constraints."""
        return any(
            left > sum(each.quantity for each in plan.left if each.name == part.label)
            for packing in self._plan.containers
            for plan in self._packed_again(packing, part, names, left)
        )

    def _packed_again(
        self, packing: Packing, part: Part, names: Sequence[str], left: int
    ) -> Iterator[Plan]:
        """Yield plans of a container and the left-over pieces of a part, without constraints."""
        # 1. The parts, without the attributes that state the constraints.
        attributes = {_ATTRIBUTES.get(name) for name in [*names, "together"]}
        counts = Counter(item.name for item in packing.items)
        counts[part.label] += left
        parts = [
            replace(
                each,
                quantity=counts[each.label],
                kit=None,
                handling={k: v for k, v in each.handling.items() if k not in attributes},
            )
            for each in self._order["parts"]
            if counts[each.label]
        ]
        # 2. The other constraints.
        lifted = {*names, "together"}
        rules = {k: v for k, v in packing.constraints.items() if k not in lifted}
        walls = "clearance" in names and "wall_clearance" not in self._order
        rules |= {"wall_clearance": 0.0} if walls or "wall_clearance" in names else {}
        options = {k: self._order[k] for k in ("stability", "cell") if k in self._order}
        # Without a door, boxes come from above, which a cut of an upper edge does not allow.
        if "door" in names and any("+z" in edge for edge, *_ in rules.get("cut", ())):
            return
        for seconds in _TRIALS:
            yield pack(parts, packing.container, seconds, **rules, **options)


def _metres(size: ContainerType) -> tuple[float, float, float]:
    x, y, height = size.room
    return float(x), float(y), float(height)


class BoxReasons(Reasons):
    """The reasons of left-over boxes of an exact order."""

    def __init__(self, plan: Plan, order: Order) -> None:
        super().__init__(plan, order)
        constraints = {k: v for k, v in order.items() if k in Constraints.__dataclass_fields__}
        rules = constraints_of(order["parts"], self._sizes, constraints)
        rule = LADDER[-1] if order["stability"] == STANDS else order["stability"]
        boxes = read_boxes(order["parts"], self._sizes, rules, rule)
        self._unit = float(boxes.unit)
        self._walls_too = "wall_clearance" not in order
        self._loads = [finished(packing) for packing in plan.containers]
        self._empty = [
            Finished(
                room.sides, Rules.of(room.constraints.to_json(), self._unit), rule, [], self._unit
            )
            for room in boxes.rooms
        ]
        pairs = zip(self._empty, self._may_be_used, strict=True)
        self._open = self._loads + [empty for empty, usable in pairs if usable]

    def _wrong_of_part(self, part: Part, reason: str) -> str | None:
        turned = replace(part, turn=True)
        fits = [bool(self._sizes_for(p)) for p in (part, turned, replace(turned, faces=()))]
        if reason in _FITS:
            return "" if fits == _FITS[reason] else f"it fits: {fits}"
        if not fits[0]:
            return "it does not fit"
        if reason != TOO_HEAVY:
            return None
        heavy = Handling.of(part.handling).weight
        limits = [empty.rules.weight_limit for empty in self._sizes_for(part)]
        return "" if all(limit is not None and heavy > limit for limit in limits) else "it is not"

    def _sizes_for(self, part: Part) -> list[Finished]:
        """Return the empty containers that are large enough for a box."""
        return [
            empty
            for empty in self._empty
            if any(
                all(a <= b for a, b in zip(sides, empty.container, strict=True))
                for sides in orientations(part, self._unit)
            )
        ]

    def _wrong_set(self, part: Part) -> str:
        if not self._place(part, [], alone=True):
            return "it has no place alone"
        label = part.handling["together"]
        kinds = [p for p in self._order["parts"] if p.handling.get("together") == label]
        kinds.sort(key=lambda kind: -math.prod(kind.exact_sides))
        for load in self._open:
            more: Finished | None = load
            for kind in (each for each in kinds for _ in range(each.quantity)):
                more = with_one_more(more, kind) if more is not None else None
            if more is not None:
                return f"a container takes the set: {more.items}"
        return ""

    def _place(self, part: Part, names: Sequence[str], *, alone: bool = False) -> Any:
        # Only the single box is tried, not its set. If it has a place, its reason is `together`.
        label = part.handling.get("together")
        pieces = (p.quantity for p in self._parts.values() if p.handling.get("together") == label)
        is_set = label is not None and sum(pieces) > 1
        alone = alone or (is_set and not names)
        loads = [*self._loads, *self._empty] if alone else self._open
        places = (place(load, part, names, self._walls_too) for load in loads)
        return next(filter(None, places), None)


class GridReasons(Reasons):
    """The reasons of left-over parts on a grid."""

    where = "on a grid: "

    def _wrong_of_part(self, part: Part, reason: str) -> str | None:
        if reason == TOO_SMALL:
            extents = trimesh.load_mesh(part.file).extents
            return "" if extents.max() < 0.01 else f"its sides are {extents} mm"
        grid, name = self._grid, part.label
        fits = [grid.fits(name, turn=turn, faces=faces) for turn, faces in _HELD]
        if reason in _FITS:
            return "" if fits == _FITS[reason] else f"it fits: {fits}"
        if not fits[0]:
            return "it does not fit"
        if reason == OFF_CELLS:
            return "it fits on the cells" if grid.fits(name, on_cells=True) else ""
        if reason == TOO_HEAVY:
            return "" if grid.is_too_heavy(name) else "it is not"
        if reason == FALLS:
            weakest = LADDER[0] if self._order["stability"] == STANDS else ""
            place = grid.place(None, name, [*WITHOUT], weakest)
            return f"alone it stands: {place}" if place else ""
        return None

    def _place(self, part: Part, names: Sequence[str], *, alone: bool = False) -> Any:
        empty = [None] if alone or any(self._may_be_used) else []
        loads: list[Packing | None] = [*self._plan.containers, *empty]
        places = (self._grid.place(load, part.label, names) for load in loads)
        return next(filter(None, places), None)

    @cached_property
    def _grid(self) -> Grid:
        return Grid(self._order)
