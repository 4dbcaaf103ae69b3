"""Places for one more box in a finished load of a plan, judged by the reference program alone.

A box is tried in each allowed orientation, at every corner where faces of other boxes or walls
meet: next to boxes and walls along x and y, and on the floor or on tops along z. A *free place* has
room and a straight way in through the door; there the box rests on something and carries nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from packing_env.plan import Packing
from packing_env.planner import Part
from packing_env.reference.box_constraints import broken
from packing_env.reference.box_load import BoxCase, BoxLoad, Rules, way
from packing_env.reference.boxes import Box
from packing_env.reference.constraints import Handling

WITHOUT: dict[str, dict[str, Any]] = {
    "no_stacking": {"no_stacking": False},
    "max_load": {"max_load": False},
    "fragile": {"fragile": None},
    "lifo": {"lifo": False},
    "weight_limit": {"weight_limit": None},
    "balance": {"balance": None},
    "clearance": {"clearance": 0},
    "wall_clearance": {"walls": 0},
    "preplaced": {"occupied": ()},
    "support": {"support": None},
    "door": {"door": "top"},
    "overhang": {"overhang": (0, 0)},
    "cut": {"cuts": ()},
}
"""Constraints, each with the values of the reference's rules that switch it off."""
OF_BOXES: dict[str, dict[str, Any]] = {"layers": {"layers": None}, "on_like": {"on_like": False}}
"""Constraints that only boxes state, each with the handling that switches it off."""
MOST_JUDGED = 300
"""Largest number of free places judged per box; if there are more, a random sample is judged."""


@dataclass(frozen=True)
class Item:
    """A box in its place, whole units."""

    name: str
    handling: Handling
    box: Box


def finished(packing: Packing) -> Finished:
    """Return the finished load of a plan."""
    assert packing.unit is not None
    x, y, height = (round(side / packing.unit, 6) for side in packing.container)
    container = round(x), round(y), math.floor(height)
    rules = Rules.of(packing.constraints, packing.unit)
    return Finished(container, rules, packing.stability, items_of(packing), packing.unit)


def items_of(packing: Packing) -> list[Item]:
    """Return the boxes of a plan in the order of packing."""
    assert packing.unit is not None
    items = []
    for item in packing.items:
        sides = np.abs(item.rotation) @ np.array(item.extent) * _metres(item.unit) / packing.unit
        dx, dy, dz = (round(side) for side in sides.tolist())
        (x, y), z = item.cell, round(item.z / packing.unit)
        items.append(Item(item.name, Handling.of(item.handling), (x, y, z, x + dx, y + dy, z + dz)))
    return items


def _metres(unit: str) -> float:
    return {"mm": 1e-3, "cm": 1e-2, "m": 1.0}[unit]


@dataclass(frozen=True)
class Finished:
    """A finished load without some of its constraints.

    Attributes:
        container: ``(X, Y, H)``, units.
        rules: The remaining rules.
        stability: The stability rule.
        items: Boxes in the order of packing.
        unit: Length of a unit, metres.
    """

    container: tuple[int, int, int]
    rules: Rules
    stability: str
    items: Sequence[Item]
    unit: float

    def without(self, names: Sequence[str], walls_too: bool) -> Finished:
        """Return the load without some constraints."""
        free = {key: value for name in names for key, value in WITHOUT.get(name, {}).items()}
        if "clearance" in names and walls_too:
            free["walls"] = 0
        handling = {k: v for name in names for k, v in OF_BOXES.get(name, {}).items()}
        items = [replace(i, handling=replace(i.handling, **handling)) for i in self.items]
        return replace(self, rules=replace(self.rules, **free), items=items)

    def load(self) -> BoxLoad:
        """Return the load in the form of the reference program."""
        pile = self.rules.pile(len(self.items) + 1, self.container)
        load = BoxLoad(self.rules, self.container, pile)
        for item in self.items:
            load.put(BoxCase(load, item.name, item.handling, pile.meet(item.box)))
        return load

    def free_places(self, sides: tuple[int, int, int]) -> np.ndarray:
        """Return the free places of a box with these sides, ``[P, 6]``."""
        boxes = np.array([*self.rules.occupied, *(i.box for i in self.items)], np.int64)
        boxes = boxes.reshape(-1, 6)
        gap, walls = self.rules.clearance, self.rules.walls
        zs = np.unique([0, *boxes[:, 5]])
        corners: list[np.ndarray] = []
        for axis in range(2):
            last, over = self.container[axis] - walls - sides[axis], self.rules.overhang[axis]
            alone = [walls, last, over, last - over]
            if self.rules.cuts or self.rules.balance is not None or any(self.rules.overhang):
                alone.append((walls + last) // 2)
            ends = boxes[:, 3 + axis] + gap, boxes[:, axis] - gap - sides[axis]
            corners.append(np.unique(np.concatenate([np.array(alone), *ends])))
        lengths = []
        for axis in range(2):
            last = self.container[axis] - walls - sides[axis]
            beside = self._beside_cuts(axis, [*corners, zs], sides)
            each = np.unique(np.concatenate([corners[axis], np.array(beside, np.int64)]))
            lengths.append(each[(each >= walls) & (each <= last)])
        x, y = lengths
        places = []
        for z in zs.tolist():
            if z + sides[2] > self.container[2] or not len(x) or not len(y):
                continue
            free = self._free(boxes, x, y, z, sides)
            if z:
                free &= _meets(boxes[boxes[:, 5] == z], x, y, sides, 0)
            i, j = np.nonzero(free)
            low = np.stack([x[i], y[j], np.full(len(i), z)], 1)
            places.append(np.concatenate([low, low + np.array(sides)], 1))
        return np.concatenate(places) if places else np.zeros((0, 6), np.int64)

    def _beside_cuts(
        self, axis: int, corners: Sequence[np.ndarray], sides: tuple[int, int, int]
    ) -> list[int]:
        """Return the coordinates along x or y at which a box touches the plane of a cut."""
        coordinates = []
        walls = (self.rules.walls, self.rules.walls, 0)
        for cut in self.rules.cuts:
            pairs = list(zip(cut.walls, cut.lengths, strict=True))
            for ((own, at_end), a), ((other, far), b) in (pairs, pairs[::-1]):
                if own != axis:
                    continue
                end = self.container[other] - walls[other] - sides[other]
                for low in corners[other].tolist():
                    distance = (end - low) if far else low - walls[other]
                    least = walls[own] + math.ceil(a - distance * a / b)
                    coordinates.append(
                        self.container[own] - least - sides[own] if at_end else least
                    )
        return coordinates

    def _free(
        self, boxes: np.ndarray, x: np.ndarray, y: np.ndarray, z: int, sides: tuple[int, int, int]
    ) -> np.ndarray:
        """Return a mask ``[X, Y]`` of places with room, a way in, and nothing on top of the box."""
        beside = (boxes[:, 5] > z) & (boxes[:, 2] < z + sides[2])
        blocked = _meets(boxes[beside], x, y, sides, self.rules.clearance)
        if self.rules.door == "top":
            return ~(blocked | _meets(boxes[boxes[:, 2] >= z + sides[2]], x, y, sides, 0))
        blocked |= _meets(boxes[boxes[:, 2] == z + sides[2]], x, y, sides, 0)
        axis = 0 if self.rules.door == "rear" else 1
        long = list(sides)
        long[axis] = self.container[axis]
        return ~(blocked | _meets(boxes[beside], x, y, long, 0))

    def judge(
        self, name: str, handling: Handling, places: np.ndarray, random: np.random.Generator
    ) -> Iterator[Box]:
        """Yield the free places of a box that satisfy every constraint."""
        rules, added = self.rules, handling
        if rules.weight_limit is not None:
            total = sum(item.handling.weight for item in self.items)
            if total + handling.weight > rules.weight_limit:
                return
        places = places[self._balanced(places, handling.weight)]
        if len(places) > MOST_JUDGED:
            places = places[np.sort(random.choice(len(places), MOST_JUDGED, replace=False))]
        # A box that is not fragile may come before fragile boxes.
        late = [i for i in self.items if i.handling.fragile] if rules.fragile == "last" else []
        late = [] if added.fragile else late
        early = [item for item in self.items if item not in late] if late else self.items
        load = replace(self, items=early).load() if len(places) else None
        for place in places.tolist():
            x0, y0, z0, x1, y1, z1 = place
            box = (x0, y0, z0, x1, y1, z1)
            assert load is not None
            meeting = load.pile.meet(box)
            if (z0 or not meeting.floor) and not meeting.supporting.any():
                continue
            if not load.pile.is_stable(self.stability, meeting):
                continue
            if broken(BoxCase(load, name, added, meeting)):
                continue
            order = [*early, Item(name, added, box), *late]
            if not late or replace(self, items=order).holds(len(early)):
                yield box

    def _balanced(self, places: np.ndarray, weight: int) -> np.ndarray:
        """Return a mask ``[P]`` of places at which the load with one more box is balanced."""
        least, most = self.moves(places, weight)
        return np.asarray((least <= most).all(1))

    def moves(self, places: np.ndarray, weight: int) -> tuple[np.ndarray, np.ndarray]:
        """Return how far the load with one more box may move along x and y, ``[P, 2]``, units.

        These are the smallest and the largest whole number of units by which the load may move so
        that it is balanced and inside. The whole load may move only if no box is pre-placed and no
        edge is cut off. On a pallet, no edge of the load may leave the deck.
        """
        rules = self.rules
        least, most = (np.zeros((len(places), 2), np.int64) for _ in range(2))
        if rules.balance is None:
            return least, most
        stays = rules.occupied or rules.cuts
        total = sum(item.handling.weight for item in self.items) + weight
        for axis in range(2):
            side = self.container[axis]
            if not stays:
                low = min([side, *(i.box[axis] for i in self.items)])
                high = max([0, *(i.box[3 + axis] for i in self.items)])
                edge = max(rules.walls, rules.overhang[axis])
                least[:, axis] = np.minimum(edge - np.minimum(low, places[:, axis]), 0)
                most[:, axis] = np.maximum(side - edge - np.maximum(high, places[:, 3 + axis]), 0)
            moment = sum(
                i.handling.weight * (i.box[axis] + i.box[3 + axis] - side) for i in self.items
            )
            moments = moment + weight * (places[:, axis] + places[:, 3 + axis] - side)
            bound = math.floor(2 * rules.balance * (side - 2 * rules.overhang[axis]) * total)
            if total:
                least[:, axis] = np.maximum(least[:, axis], -((bound + moments) // (2 * total)))
                most[:, axis] = np.minimum(most[:, axis], (bound - moments) // (2 * total))
        return least, most

    def holds(self, first: int) -> bool:
        """Return whether each box from ``first`` on has a way in, stands, and obeys the rules."""
        pile = self.rules.pile(len(self.items), self.container)
        load = BoxLoad(self.rules, self.container, pile)
        for number, item in enumerate(self.items):
            case = BoxCase(load, item.name, item.handling, pile.meet(item.box))
            if number >= first:
                swept = way(item.box, self.rules.door, self.container)
                blocked = pile.meet(swept).overlapping.any()
                floor = item.box[2] == 0 and case.meeting.floor
                rests = floor or case.meeting.supporting.any()
                stands = pile.is_stable(self.stability, case.meeting)
                if blocked or not rests or not stands or broken(case):
                    return False
            load.put(case)
        return True


def _meets(
    boxes: np.ndarray, x: np.ndarray, y: np.ndarray, sides: Sequence[int], gap: int
) -> np.ndarray:
    """Return a mask ``[X, Y]`` of places that overlap a box, or are closer to it than ``gap``."""
    along_x = (x[:, None] < boxes[:, 3] + gap) & (x[:, None] + sides[0] + gap > boxes[:, 0])
    along_y = (y[:, None] < boxes[:, 4] + gap) & (y[:, None] + sides[1] + gap > boxes[:, 1])
    return (along_x.astype(np.float32) @ along_y.T.astype(np.float32)) > 0


def orientations(part: Part, unit: float) -> list[tuple[int, int, int]]:
    """Return the sides of a box in its allowed orientations, units."""
    sides = [round(float(side) / unit) for side in part.exact_sides]
    upright = {face[1] for face in part.faces}
    turned = [
        (sides[i], sides[j], sides[k])
        for i, j, k in itertools.permutations(range(3))
        if (part.turn or i == 0) and (not upright or "xyz"[k] in upright)
    ]
    return list(dict.fromkeys(turned))


def place(load: Finished, part: Part, names: Sequence[str], walls_too: bool) -> Box | None:
    """Return a place for one more box that satisfies all but the named constraints, or None."""
    load = load.without(names, walls_too)
    free = {key: value for name in names for key, value in OF_BOXES.get(name, {}).items()}
    handling = replace(Handling.of(part.handling), **free)
    random = np.random.default_rng(0)
    for sides in orientations(part, load.unit):
        places = load.free_places(sides)
        box = next(load.judge(part.label, handling, places, random), None)
        if box is not None:
            return box
    return None


def with_one_more(load: Finished, part: Part) -> Finished | None:
    """Return a load with one more box, or None if it has no place."""
    box = place(load, part, [], walls_too=False)
    if box is None:
        return None
    # 1. The load moves as a whole if it must be balanced.
    item = Item(part.label, Handling.of(part.handling), box)
    least, most = load.moves(np.array([box]), item.handling.weight)
    move = np.tile([*np.clip(0, least[0], most[0]), 0], 2)
    items = [replace(i, box=tuple((np.array(i.box) + move).tolist())) for i in [*load.items, item]]
    # 2. Fragile boxes remain the last ones.
    late = [i for i in items if i.handling.fragile] if load.rules.fragile == "last" else []
    return replace(load, items=[*(i for i in items if i not in late), *late])
