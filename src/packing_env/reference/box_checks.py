"""Exact checks of a plan's items as integer boxes, for cuboids on a lattice of units."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from packing_env.reference import boxes
from packing_env.reference.box_constraints import broken, off_balance
from packing_env.reference.box_load import BoxCase, BoxLoad, Rules, way
from packing_env.reference.claims import RELATIVE, ItemClaim, PlanClaim, Violation, metres
from packing_env.reference.constraints import Handling
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
        self.rules = Rules.of(plan.constraints, self.unit)
        self.pile = self.rules.pile(len(plan.items), self.container)
        self.load = BoxLoad(self.rules, self.container, self.pile)
        self._case: BoxCase | None = None

    @property
    def height(self) -> float:
        """Highest point, metres."""
        return self.pile.height * self.unit

    def put(self, item: ItemClaim) -> None:
        """Add the item whose :meth:`violations` were computed last."""
        assert self._case is not None
        self.load.put(self._case)

    def violations(self, item: ItemClaim) -> Iterator[Violation]:
        """Yield the wrong claims of an item."""
        # 1. Check its place.
        yield from self._whole_units(item)
        box = self._box(item)
        yield from self._inside(item, box)
        meeting = self.pile.meet(box)
        yield from self._at_rest(item, meeting)
        yield from self._where_claimed(item, box)

        # 2. Check its support.
        rule, ratio = self.plan.stability, meeting.touch.support_ratio
        if not self.pile.is_stable(rule, meeting):
            yield item.wrong("stability", f"stable by {rule}", f"not: {ratio:.1%} is supported")
        if abs(item.support_ratio - ratio) > RELATIVE:
            yield item.wrong("support_ratio", f"{item.support_ratio:.6f}", f"{ratio:.6f}")

        # 3. Check claims that do not depend on its place, and the constraints.
        volume = math.prod((item.points.max(0) - item.points.min(0)).tolist())
        if abs(item.volume - volume) > RELATIVE * volume:
            yield item.wrong("volume", f"{item.volume:.6g} m^3", f"{volume:.6g} m^3")
        self._case = BoxCase(self.load, item.name, Handling.of(item.handling), meeting)
        for name, reason in broken(self._case).items():
            limit = self.plan.constraints.get(name, item.handling.get(name))
            yield item.wrong(name, name if limit is None else f"{name}={limit}", reason)

    def at_the_end(self) -> Iterator[Violation]:
        """Yield the constraints that the finished load breaks."""
        reason = off_balance(self.load)
        if reason:
            share = self.plan.constraints["balance"]
            yield Violation(None, "balance", "balance", f"balance={share}", reason)

    def _box(self, item: ItemClaim) -> boxes.Box:
        points = np.round(item.points / self.unit).astype(int)
        x0, y0, z0, x1, y1, z1 = (int(n) for n in (*points.min(0), *points.max(0)))
        return x0, y0, z0, x1, y1, z1

    def _whole_units(self, item: ItemClaim) -> Iterator[Violation]:
        """Check that the item is a cuboid parallel to the walls, with corners on the lattice."""
        if not (item.is_upright and item.solid.is_cuboid):
            yield item.wrong("geometry", "a cuboid parallel to the walls", "another solid")
        steps = np.array([item.points.min(0), item.points.max(0)]) / self.unit
        off = float(np.abs(steps - np.round(steps)).max())
        if off > MARGIN + self.plan.slack / self.unit:
            claimed = f"corners at whole multiples of {self.unit} m"
            yield item.wrong("geometry", claimed, f"{off:.6f} units off")

    def _inside(self, item: ItemClaim, box: boxes.Box) -> Iterator[Violation]:
        for axis in (0, 1):
            if box[axis] < 0 or box[3 + axis] > self.container[axis]:
                low, high = box[axis] * self.unit, box[3 + axis] * self.unit
                yield item.outside(axis, self.plan.container[axis], low, high)
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

    def _at_rest(self, item: ItemClaim, meeting: boxes.Meeting) -> Iterator[Violation]:
        """Check that the box is at rest, overlaps no other box, and has a free way in."""
        # 1. Look for boxes in its place and in its way.
        for row in np.nonzero(meeting.overlapping)[0].tolist():
            shared = [length * self.unit for length in meeting.shared[:, row].tolist()]
            yield self._overlap(item, row, shared)
        box, z = meeting.box, metres(meeting.box[2] * self.unit)
        if self.rules.door == "top":
            rest = meeting.drop_height
            drop = metres(rest * self.unit)
            if rest < box[2]:
                reason = f"z = {drop} when dropped there" if rest >= 0 else "no deck under its base"
                yield item.wrong("floating", f"at rest at z = {z}", reason)
            if rest > box[2]:
                reason = f"something in the way, at {drop}"
                yield item.wrong("path", f"put down from above at z = {z}", reason)
            return
        swept = self.pile.meet(way(box, self.rules.door, self.container)).overlapping
        for row in np.nonzero(swept)[0].tolist():
            reason = f"{self._name(row)} in the way"
            yield item.wrong("path", f"a straight way in by the {self.rules.door}", reason)

        # 2. Look for boxes under its base.
        if (box[2] > 0 or not self.pile.floor) and not meeting.supporting.any():
            yield item.wrong("floating", f"at rest at z = {z}", "nothing under its base")

    def _overlap(self, item: ItemClaim, row: int, shared: list[float]) -> Violation:
        return item.wrong(
            "overlap", "no overlap", f"{metres(*shared)} shared with {self._name(row)}"
        )

    def _name(self, row: int) -> str:
        index = row - self.pile.num_fixed
        if index < 0:
            return "a pre-placed box"
        return self.plan.items[index].label
