"""Checks of settled poses: solids touch solids below, not inside them, at the claimed contacts.

The vertical distance of two triangles is smallest at a corner of their overlap, seen from above
(:mod:`.overlap`). Overlaps that are narrower than :data:`STRIP` of a cell are skipped, because an
item that only touches from the side carries nothing.

The tolerance is :data:`DEPTH`, or the rounding error of heights if that is larger.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from packing_env.reference.claims import ItemClaim, PlanClaim, Violation, metres
from packing_env.reference.overlap import corners, is_wide

TOUCH = 1e-4
"""Metres; part of the definition of a contact."""
DEPTH = 1e-6
"""Metres; settled solids may be inside of each other, or apart, by at most this."""
STRIP = 4e-6
"""Share of a cell."""
_ROWS = 256


class _Surface(NamedTuple):
    """Triangles ``[T, 3, 3]`` that are not vertical, with their bounds."""

    triangles: np.ndarray
    low: np.ndarray
    high: np.ndarray


class SettledChecks:
    """The solids of the items in their settled poses, and the checks of the next item.

    Args:
        plan: The plan to check.
    """

    def __init__(self, plan: PlanClaim) -> None:
        self.strip = STRIP * plan.cell
        self.tolerance = max(DEPTH, plan.slack)
        x, y, _ = plan.container
        self.below = [_level(-x, -y, 0.0, 3 * x, 3 * y)]
        for left, front, z, dx, dy, dz in plan.constraints.get("preplaced", []):
            self.below.append(_level(left, front, z + dz, dx, dy))
        self.top = 0.0
        self.any = any(item.contacts is not None or item.z_grid is not None for item in plan.items)

    def put(self, item: ItemClaim) -> None:
        """Add an item."""
        if self.any:
            self.below.append(_surface(item.points[item.solid.faces], self.strip))
            self.top = max(self.top, float(item.points[:, 2].max()))

    def violations(self, item: ItemClaim) -> Iterator[Violation]:
        """Yield the wrong claims about the settled pose of an item."""
        claims = (item.z_grid, item.gap, item.contacts, item.balanced)
        if all(claim is None for claim in claims):
            return
        if item.z_grid is None or item.gap is None or item.contacts is None:
            yield item.wrong("settled", "z_grid, gap, contacts and balanced", "not all of them")
            return
        if item.z > item.z_grid + self.tolerance:
            yield item.wrong("z", f"no higher than z_grid, {metres(item.z_grid)}", metres(item.z))
        points, gaps = self._touching(item)
        gap = float(gaps.min(initial=float(item.points[:, 2].min())))
        if gap < -self.tolerance:
            yield item.wrong("interpenetration", "not inside another", f"{metres(-gap)} deep")
        if gap > self.tolerance:
            what = f"{metres(gap)} above it" if len(gaps) else f"nothing within {metres(TOUCH)}"
            yield item.wrong("floating", "touching what is below", what)
        if abs(gap - item.gap) > self.tolerance:
            yield item.wrong("gap", metres(item.gap), metres(gap))
        yield from self._contacts(item, item.contacts, points[gaps <= TOUCH - self.tolerance])

    def _touching(self, item: ItemClaim) -> tuple[np.ndarray, np.ndarray]:
        """Return the corners ``[C, 3]`` of the item's overlaps with other items, and their gaps."""
        own = _surface(item.points[item.solid.faces], self.strip)
        points, gaps = [np.zeros((0, 3))], [np.zeros(0)]
        for other in self.below:
            for one, two in _near(own, other, self.strip):
                shared, distance = corners(one, two, self.strip)
                points.append(shared)
                gaps.append(distance)
        return np.concatenate(points), np.concatenate(gaps)

    def _contacts(
        self, item: ItemClaim, claimed: np.ndarray, touching: np.ndarray
    ) -> Iterator[Violation]:
        """Check that claimed contacts touch, that none lies outside their hull, and the balance."""
        own = _surface(item.points[item.solid.faces], self.strip)
        for point in claimed:
            off, away = _distance(point, [own]), _distance(point, self.below)
            if off > self.tolerance or away > TOUCH + self.tolerance:
                what = f"{metres(off)} off the item, {metres(away)} off what is below"
                yield item.wrong("contacts", f"({metres(*point)})", what)
                return
        outside = [p for p in touching[:, :2] if not _is_within(claimed[:, :2], p, self.tolerance)]
        if outside:
            where = f"({metres(*outside[0])}) touches as well"
            yield item.wrong("contacts", f"{len(claimed)} corners of their hull", where)
        above = (item.rotation @ item.solid.centre + item.translation)[:2]
        flat = claimed[:, :2]
        maybe = {_is_within(flat, above, slack) for slack in (-self.tolerance, self.tolerance)}
        if item.balanced not in maybe:  # nor a pose without claims
            verdict = "over" if True in maybe else "not over"
            where = f"its centre of mass is {verdict} its contacts"
            yield item.wrong("balanced", f"{item.balanced}", where)


def _level(x: float, y: float, z: float, dx: float, dy: float) -> _Surface:
    rectangle = np.array([(x, y, z), (x + dx, y, z), (x, y + dy, z), (x + dx, y + dy, z)])
    return _surface(rectangle[[[0, 1, 3], [0, 3, 2]]], 0.0)


def _surface(triangles: np.ndarray, strip: float) -> _Surface:
    wide = triangles[is_wide(triangles, strip)]
    return _Surface(wide, wide.min(1), wide.max(1))


def _near(own: _Surface, other: _Surface, strip: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pairs ``[P, 3, 3]`` whose bounds overlap from above and are a touch apart at most."""
    if len(own.low) == 0 or len(other.low) == 0:
        return
    # 1. The triangles of the item that are within the bounds of the other solid.
    low, high = other.low.min(0), other.high.max(0)
    inside = ((own.low[:, :2] < high[:2]) & (own.high[:, :2] > low[:2])).all(1)
    mine = np.nonzero(inside & (own.low[:, 2] <= high[2] + TOUCH))[0]
    for rows in np.split(mine, range(_ROWS, len(mine), _ROWS)):
        if len(rows) == 0:
            continue

        # 2. The triangles of the other solid that are within the bounds of a block of these.
        low, high = own.low[rows], own.high[rows]
        inside = ((other.low < high.max(0)) & (other.high > low.min(0)))[:, :2].all(1)
        theirs = np.nonzero(inside & (other.high[:, 2] >= low[:, 2].min() - TOUCH))[0]

        # 3. All pairs of both.
        meet = low[:, None, 2] - other.high[theirs, 2] <= TOUCH
        for axis in (0, 1):
            upper = np.minimum(high[:, None, axis], other.high[theirs, axis])
            meet &= upper - np.maximum(low[:, None, axis], other.low[theirs, axis]) > strip
        i, j = np.nonzero(meet)
        for part in range(0, len(i), 1 << 14):
            here = slice(part, part + (1 << 14))
            yield own.triangles[rows[i[here]]], other.triangles[theirs[j[here]]]


def _distance(point: np.ndarray, surfaces: list[_Surface]) -> float:
    """Return the distance from a point to the nearest triangle within a touch; inf without one."""
    least = np.inf
    for surface in surfaces:
        near = (surface.low <= point + 2 * TOUCH) & (surface.high >= point - 2 * TOUCH)
        here = near.all(1)
        if here.any():
            least = min(least, float(_to_triangles(point, surface.triangles[here]).min()))
    return least


def _to_triangles(point: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Return the distances ``[T]`` from a point to triangles ``[T, 3, 3]``.

    The nearest point of a triangle is the foot of the perpendicular or a point on a side.
    """
    along = np.roll(triangles, -1, 1) - triangles
    away = point - triangles
    normal = np.cross(along[:, 0], along[:, 1])
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    over = (np.einsum("tsi,ti->ts", np.cross(along, away), normal) >= 0).all(1)
    share = (away * along).sum(2) / np.maximum((along * along).sum(2), 1e-300)
    off = away - np.clip(share, 0.0, 1.0)[..., None] * along
    sides = np.linalg.norm(off, axis=2).min(1)
    return np.where(over, np.abs((away[:, 0] * normal).sum(1)), sides)


def _is_within(corners: np.ndarray, point: np.ndarray, slack: float) -> bool:
    """Test if a point lies in the hull of points ``[C, 2]``, enlarged by a tolerance.

    The point lies in it unless a line separates the two. It suffices to test lines parallel to a
    side of the hull, and lines normal to the direction from the nearest corner or side to the
    point.
    """
    if len(corners) == 0:
        return False
    away = corners - point
    sides = (away[:, None] - away[None]).reshape(-1, 2)
    normals = np.concatenate((np.stack((-sides[:, 1], sides[:, 0]), 1), away))
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    normals = normals[lengths[:, 0] > 0] / lengths[lengths[:, 0] > 0]
    if len(normals) == 0:
        return slack >= 0
    return bool(((normals @ away.T).min(1) <= slack).all())
