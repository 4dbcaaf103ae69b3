"""Checks of a plan's constraints: the rules of :mod:`packing_env.reference.constraints`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from packing_env.reference.claims import ItemClaim, PlanClaim, Violation
from packing_env.reference.constraints import (
    Case,
    Constraints,
    Handling,
    Load,
    broken,
    put,
    up_face,
)
from packing_env.reference.maps import FLOAT

KILOGRAMS = ("weight", "max_load")
"""Attributes that a plan gives in kilograms, and the rules read in milligrams."""


class ConstraintChecks:
    """The load of a plan's container.

    Args:
        plan: The plan; its ``constraints`` hold.
        grid: ``(X, Y)`` cells.
    """

    def __init__(self, plan: PlanClaim, grid: tuple[int, ...]) -> None:
        self.plan = plan
        rules = Constraints.of(dict(plan.constraints), plan.cell)
        self.load = Load(rules, np.full(grid, -1), floor=plan.floor)
        self._latest: Case | None = None

    def violations(
        self,
        item: ItemClaim,
        heightmap: np.ndarray,
        bottom: np.ndarray,
        corner: tuple[int, int],
        centres: list[tuple[int, int]],
        slack: float,
    ) -> Iterator[Violation]:
        """Yield the constraints that an item breaks.

        Args:
            item: The item.
            heightmap: ``[X, Y]`` before it.
            bottom: ``[U, V]`` its lower surface.
            corner: Lower corner of its window, cells.
            centres: Its centre of mass, 1/64 cell; several where rounding decides.
            slack: Metres by which rounding may have changed heights: what another rounding allows
                is allowed.
        """
        entries = {k: v for k, v in item.handling.items() if k != "faces"}
        entries |= {k: round(entries[k] * 1_000_000) for k in KILOGRAMS if k in entries}
        found: list[dict[str, str]] = []
        for rise, com in product(dict.fromkeys((slack, 0.0)), centres):
            rest = FLOAT(FLOAT(item.z) + FLOAT(rise))
            place = (bottom, com, *corner, rest, self.plan.contact_tol)
            case = Case(self.load, heightmap, Handling(**entries), *place)
            self._latest = self._latest if found else case
            found.append(broken(case))
        for rule, reason in found[0].items():
            if all(rule in others for others in found):
                yield item.wrong(rule, f"{rule}={self.plan.constraints.get(rule)}", reason)

    def put(self) -> None:
        """Add the item whose :meth:`violations` were computed last."""
        if self._latest is not None:
            put(self._latest)


def wrong_face(item: ItemClaim) -> Iterator[Violation]:
    """Yield a violation by an item that stands on a face that it may not stand on."""
    allowed = item.handling.get("faces")
    if allowed:
        face = up_face(item.rotation)
        if face not in allowed:
            yield item.wrong("faces", f"{' or '.join(allowed)} up", f"{face or 'an edge'} up")
