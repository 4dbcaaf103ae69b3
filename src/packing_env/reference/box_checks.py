"""Exact checks of a plan's items as integer boxes, for cuboids on a lattice of units."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from packing_env.reference import boxes
from packing_env.reference.claims import RELATIVE, ItemClaim, PlanClaim, Violation, metres, number
from packing_env.reference.raster import MARGIN


class BoxChecks:
    """The boxes packed so far, and the checks of the next one.

    Args:
        plan: The plan to check; its geometry is ``"boxes"``.
    """

    def __init__(self, plan: PlanClaim) -> None:
        self.plan = plan
        self.unit = plan.pitch
        x, y, height = (length / self.unit for length in plan.container)
        self.container = round(x), round(y), math.floor(height + MARGIN)
        self.items: list[ItemClaim] = []
        self.boxes: list[boxes.Box] = []

    @property
    def height(self) -> float:
        """Highest point, metres."""
        return max([box[5] for box in self.boxes], default=0) * self.unit

    def put(self, item: ItemClaim) -> None:
        """Add an item that has passed the checks."""
        self.items.append(item)
        self.boxes.append(self._box(item))

    def violations(self, item: ItemClaim) -> Iterator[Violation]:
        """Yield the claims of an item that do not hold."""
        yield from self._whole_units(item)
        box = self._box(item)
        yield from self._inside(item, box)
        yield from self._at_rest(item, box)
        yield from self._where_claimed(item, box)
        rule, ratio = self.plan.stability, boxes.support_ratio(self.boxes, box)
        if not boxes.is_stable(rule, self.boxes, box):
            yield item.wrong("stability", f"stable by {rule}", f"not: {ratio:.1%} is supported")
        if abs(item.support_ratio - ratio) > RELATIVE:
            yield item.wrong("support_ratio", f"{item.support_ratio:.6f}", f"{ratio:.6f}")
        volume = math.prod(item.solid.extent or (0.0,))
        if abs(item.volume - volume) > RELATIVE * volume:
            yield item.wrong("volume", f"{item.volume:.6g} m^3", f"{volume:.6g} m^3")

    def _box(self, item: ItemClaim) -> boxes.Box:
        points = np.round(item.points / self.unit).astype(int)
        x0, y0, z0, x1, y1, z1 = (int(n) for n in (*points.min(0), *points.max(0)))
        return x0, y0, z0, x1, y1, z1

    def _whole_units(self, item: ItemClaim) -> Iterator[Violation]:
        """Check that the item is a cuboid parallel to the walls, with corners on the lattice."""
        if not item.is_upright_cuboid:
            yield item.wrong("geometry", "a cuboid parallel to the walls", "another solid")
        steps = item.points / self.unit
        off = float(np.abs(steps - np.round(steps)).max())
        if off > MARGIN + self.plan.slack / self.unit:
            claimed = f"corners at whole multiples of {self.unit} m"
            yield item.wrong("geometry", claimed, f"{off:.6f} units off")

    def _inside(self, item: ItemClaim, box: boxes.Box) -> Iterator[Violation]:
        for axis in (0, 1):
            if box[axis] < 0 or box[3 + axis] > self.container[axis]:
                yield item.wrong(
                    "outside",
                    f"{'xy'[axis]} within 0 .. {metres(self.plan.container[axis])}",
                    f"{number(box[axis] * self.unit)} .. {metres(box[3 + axis] * self.unit)}",
                )
        if box[2] < 0:
            yield item.wrong("outside", "above the floor", f"z = {metres(box[2] * self.unit)}")
        if box[5] > self.container[2]:
            lid, top = self.plan.container[2], box[5] * self.unit
            yield item.wrong("lid", f"below {metres(lid)}", f"its top at {metres(top)}")

    def _where_claimed(self, item: ItemClaim, box: boxes.Box) -> Iterator[Violation]:
        """Check that ``x``, ``y`` and ``z`` agree with the translation."""
        if item.corner != box[:2]:
            yield item.wrong("x, y", f"{item.corner} units", f"its corner at {box[:2]} units")
        if abs(item.z - box[2] * self.unit) > self.plan.slack + MARGIN * self.unit:
            yield item.wrong("z", metres(item.z), f"its base at {metres(box[2] * self.unit)}")

    def _at_rest(self, item: ItemClaim, box: boxes.Box) -> Iterator[Violation]:
        """Check that the box overlaps no other and rests on the highest top below its base."""
        for other, there in zip(self.items, self.boxes, strict=True):
            shared = [min(box[3 + a], there[3 + a]) - max(box[a], there[a]) for a in range(3)]
            if min(shared) > 0:
                yield item.overlaps(other, [length * self.unit for length in shared])
        size = box[3] - box[0], box[4] - box[1], box[5] - box[2]
        rest = boxes.drop(self.boxes, box[:2], size)[2]
        z, drop = metres(box[2] * self.unit), metres(rest * self.unit)
        if rest < box[2]:
            yield item.wrong("floating", f"at rest at z = {z}", f"z = {drop} when dropped there")
        if rest > box[2]:
            reason = f"something in the way, at {drop}"
            yield item.wrong("path", f"put down from above at z = {z}", reason)
