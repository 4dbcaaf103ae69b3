"""Checks of settled poses: solids touch solids below, not inside them, at the claimed contacts.

The vertical distance of two triangles is smallest at a corner of their overlap, seen from above
(:mod:`.overlap`). Overlaps that are narrower than :data:`STRIP` of a cell are skipped, because an
item that only touches from the side carries nothing.

The tolerance is :data:`DEPTH`, or the rounding error of heights if that is larger.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from packing_env.reference.claims import ItemClaim, PlanClaim, Violation, metres
from packing_env.reference.overlap import corners, is_wide
from packing_env.reference.surfaces import ALL_THE_WAY, Surface, pairs, to_triangles

TOUCH = 1e-4
"""Metres; part of the definition of a contact."""
DEPTH = 1e-6
"""Metres; settled solids may be inside each other, or apart, by at most this."""
STRIP = 4e-6
"""Share of a cell."""


class SettledChecks:
    """The solids of the items in their settled poses, and the checks of the next item.

    Args:
        plan: The plan to check.
    """

    def __init__(self, plan: PlanClaim) -> None:
        self.strip = STRIP * plan.cell
        self.tolerance = max(DEPTH, plan.slack)
        # Compare only triangles that overlap, seen from above, and are at most TOUCH apart.
        self.reach_down = np.array([-self.strip, -self.strip, TOUCH])
        self.reach_up = np.array([-self.strip, -self.strip, ALL_THE_WAY])
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
            for i, j in pairs(own, other, self.reach_down, self.reach_up):
                shared, distance = corners(own.triangles[i], other.triangles[j], self.strip)
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
        touching = np.unique(touching[:, :2], axis=0)  # triangles share corners
        outside = [p for p in touching if not _is_within(claimed[:, :2], p, self.tolerance)]
        if outside:
            where = f"({metres(*outside[0])}) touches as well"
            yield item.wrong("contacts", f"{len(claimed)} corners of their hull", where)
        above = (item.rotation @ item.solid.centre + item.translation)[:2]
        flat = claimed[:, :2]
        maybe = {_is_within(flat, above, slack) for slack in (-self.tolerance, self.tolerance)}
        if item.balanced not in maybe:  # a missing claim is wrong, too
            verdict = "over" if True in maybe else "not over"
            where = f"its centre of mass is {verdict} its contacts"
            yield item.wrong("balanced", f"{item.balanced}", where)


def _level(x: float, y: float, z: float, dx: float, dy: float) -> Surface:
    rectangle = np.array([(x, y, z), (x + dx, y, z), (x, y + dy, z), (x + dx, y + dy, z)])
    return _surface(rectangle[[[0, 1, 3], [0, 3, 2]]], 0.0)


def _surface(triangles: np.ndarray, strip: float) -> Surface:
    """Return the triangles that are not vertical."""
    return Surface(triangles[is_wide(triangles, strip)])


def _distance(point: np.ndarray, surfaces: list[Surface]) -> float:
    """Return a point's distance from the nearest triangle close to it; inf if none is close."""
    least = np.inf
    for surface in surfaces:
        near = (surface.low <= point + 2 * TOUCH) & (surface.high >= point - 2 * TOUCH)
        here = surface.triangles[near.all(2).ravel()[: len(surface.triangles)]]
        if len(here):
            points = np.broadcast_to(point, (len(here), 1, 3))
            least = min(least, float(to_triangles(points, here).min()))
    return least


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
