"""Exact checks of a nest: parts in free poses, apart as solids, each with a straight way out.

Nothing in a nest stands on anything, as in the powder of a printer. Items are compared in their
order, and taken out in the reverse order. The clearance to walls applies to all six walls.
Pre-placed boxes stay empty, with the clearance around them; they block no item's way out.

Lengths that a plan claims may be wrong by :data:`TOLERANCE`. Two items whose overlap along a way
out is smaller than :data:`PASS`, sideways or in depth, pass each other.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from packing_env.reference.claims import RELATIVE, ItemClaim, PlanClaim, Violation, metres
from packing_env.reference.overlap import corners, is_wide
from packing_env.reference.raster import MARGIN
from packing_env.reference.solids import Solid, first_faces
from packing_env.reference.surfaces import (
    ALL_THE_WAY,
    Surface,
    are_near,
    cross,
    distances,
    inner_points,
    is_inside,
    pairs,
)

TOLERANCE = 1e-9
"""Metres; a distance may be shorter, and surfaces may cross, by at most this."""
PASS = 1e-8
"""Metres; also the depth below a surface of the points that are tested to be inside a solid."""


class _Placed:
    """A solid in its place; ``shells`` are points ``[S, 3]`` just inside each of its surfaces."""

    def __init__(self, points: np.ndarray, faces: np.ndarray, label: str) -> None:
        triangles = points[faces]
        self.label = label
        self.surface = Surface(triangles)
        self.low, self.high = self.surface.bounds
        self.shells = inner_points(triangles[first_faces(faces)], PASS)


class NestChecks:
    """The solids packed so far, and the checks of the next one.

    Args:
        plan: The plan to check; its geometry is ``"solids"``.
        notes: List that receives the claims that could not be checked.
    """

    def __init__(self, plan: PlanClaim, notes: list[str]) -> None:
        self.plan, self.notes = plan, notes
        self.clearance = float(plan.constraints.get("clearance", 0.0))
        self.walls = float(plan.constraints.get("wall_clearance", self.clearance))
        self.empty = []
        for x, y, z, dx, dy, dz in plan.constraints.get("preplaced", []):
            box = Solid.box((dx, dy, dz))
            self.empty.append(
                _Placed(box.vertices + np.array([x, y, z]), box.faces, "a pre-placed box")
            )
        self.packed: list[_Placed] = []
        self.height = 0.0
        self._next: _Placed | None = None

    def put(self, item: ItemClaim) -> None:
        """Add the item whose :meth:`violations` were computed last."""
        assert self._next is not None
        self.packed.append(self._next)
        self.height = max(self.height, float(self._next.high[2]))

    def violations(self, item: ItemClaim) -> Iterator[Violation]:
        """Yield the wrong claims about an item."""
        self._next = placed = _Placed(item.points, item.solid.faces, item.label)
        yield from self._inside(item, placed)
        yield from self._where_claimed(item, placed)
        bounds = float(np.prod(placed.high - placed.low))
        yield from item.wrong_volume(bounds, "bounds", self.notes)
        yield from self._apart(item, placed)
        if item.leaves is not None:
            yield from self._way_out(item, placed, item.leaves)

    def _inside(self, item: ItemClaim, placed: _Placed) -> Iterator[Violation]:
        """Check that the item is inside the container, and away from its six walls."""
        container = np.array(self.plan.container)
        room = np.minimum(placed.low, container - placed.high)
        axis = int(room.argmin())
        if room[axis] < -TOLERANCE:
            yield item.outside(axis, container[axis], placed.low[axis], placed.high[axis])
        elif room[axis] < self.walls - TOLERANCE:
            claimed = f"at least {metres(self.walls)} from the walls"
            found = f"{_short(float(room[axis]), self.walls)} along {'xyz'[axis]}"
            yield item.wrong("wall_clearance", claimed, found)

    def _where_claimed(self, item: ItemClaim, placed: _Placed) -> Iterator[Violation]:
        """Check that ``x``, ``y`` and ``z`` are the lower corner, up to a cell."""
        cell = self.plan.cell
        claimed = np.array([*item.corner, item.z / cell])
        off = np.abs(claimed - placed.low / cell) > 1.0 + MARGIN
        if off[:2].any():
            begins = metres(*placed.low[:2])
            yield item.wrong("x, y", f"cell {item.corner}", f"its lower corner at {begins}")
        if off[2]:
            yield item.wrong("z", metres(item.z), f"its lowest point at {metres(placed.low[2])}")
        if abs(item.support_ratio) > RELATIVE:
            claimed_ratio = f"{item.support_ratio:.6f}"
            yield item.wrong("support_ratio", claimed_ratio, "0, because nothing in a nest stands")

    def _apart(self, item: ItemClaim, placed: _Placed) -> Iterator[Violation]:
        """Check that no earlier item is inside the item, around it, or too near."""
        reach = max(self.clearance - TOLERANCE, TOLERANCE)
        nearest, least = "", np.inf
        for other in (*self.empty, *self.packed):
            if (placed.low > other.high + reach).any() or (other.low > placed.high + reach).any():
                continue
            where, distance = _meet(placed, other, reach)
            if where:
                found = f"{where} {other.label}"
                yield item.wrong("interpenetration", "not inside another", found)
            if distance < least:
                nearest, least = other.label, distance
        if least < self.clearance - TOLERANCE:
            claimed = f"at least {metres(self.clearance)} from other items"
            found = f"{_short(least, self.clearance)} from {nearest}"
            yield item.wrong("clearance", claimed, found)

    def _way_out(self, item: ItemClaim, placed: _Placed, direction: str) -> Iterator[Violation]:
        """Check that the item meets no earlier item when it moves out along an axis."""
        axis = "xyz".index(direction[1])
        own = placed.surface.turned(direction)
        sideways = np.array([-PASS, -PASS, -PASS])
        onwards = np.array([-PASS, -PASS, ALL_THE_WAY])
        wide = is_wide(own.triangles, PASS)
        for other in self.packed:
            # 1. Skip items that are beside its way or behind it.
            below, above = placed.low > other.high, other.low > placed.high
            behind = below if direction[0] == "+" else above
            if np.delete(below | above, axis).any() or behind[axis]:
                continue
            ahead = other.surface.turned(direction)

            # 2. Compare the depths of triangles that overlap, seen along the axis.
            wide_of_other = is_wide(ahead.triangles, PASS)
            for i, j in pairs(own, ahead, sideways, onwards):
                both = wide[i] & wide_of_other[j]
                i, j = i[both], j[both]
                _, gaps = corners(own.triangles[i], ahead.triangles[j], PASS)
                if gaps.min(initial=0.0) < -PASS:
                    way = f"a straight way out along {direction}"
                    yield item.wrong("leaves", way, f"{other.label} in its way")
                    break


def _short(distance: float, least: float) -> str:
    return f"{metres(distance)}, {1e6 * (least - distance):.4g} micrometres too near,"


def _meet(one: _Placed, two: _Placed, reach: float) -> tuple[str, float]:
    """Return how two solids interpenetrate ("" if not), and their distance if it is in reach.

    If no triangles cross, one solid may still be inside the other: wholly, or with a part next to a
    place where they touch. So points just inside each shell and each touching triangle are tested.
    """
    # 1. Compare the triangles of both surfaces.
    distance = np.inf
    touching: list[list[np.ndarray]] = [[], []]
    for i, j in pairs(one.surface, two.surface, np.full(3, reach), np.full(3, reach)):
        near = are_near(one.surface.triangles[i], two.surface.triangles[j], reach)
        i, j = i[near], j[near]
        if not len(i):
            continue
        first, second = one.surface.triangles[i], two.surface.triangles[j]
        crossing = np.nonzero(cross(first, second, TOLERANCE))[0]
        if len(crossing):
            meeting = first[crossing[0]], second[crossing[0]]
            low, high = (
                np.max([t.min(0) for t in meeting], 0),
                np.min([t.max(0) for t in meeting], 0),
            )
            return f"near ({metres(*(low + high) / 2)}) its surface crosses that of", 0.0
        gaps = distances(first, second)
        distance = min(distance, float(gaps.min()))
        touching[0].append(i[gaps <= TOLERANCE])
        touching[1].append(j[gaps <= TOLERANCE])

    # 2. Test whether points of one solid are inside the other.
    for own, other, numbers, words in (
        (one, two, touching[0], "it is inside"),
        (two, one, touching[1], "it is around"),
    ):
        some = np.unique(np.concatenate([*numbers, np.zeros(0, int)]))
        points = np.concatenate((own.shells, inner_points(own.surface.triangles[some], PASS)))
        points = points[((points > other.low) & (points < other.high)).all(1)]
        if is_inside(points, other.surface.triangles).any():
            return words, 0.0
    return "", distance
