"""The claims of a packing plan, each derived again: inside, under the lid, dropped, supported.

Nothing here comes from the program that made the plan. An item is its solid, moved by its rotation
and translation and rasterised where it stands (:mod:`packing_env.reference.raster`); it lies on a
heightmap of what was packed before. A plan of cuboids on an integer lattice is checked with exact
integers instead (:mod:`packing_env.reference.lattice`).

Tolerances: laterally :data:`~packing_env.reference.raster.MARGIN` of a cell; heights
:attr:`PlanClaim.slack`; at the lid 1e-6 m more, which the rules allow; ratios and volumes 1e-6.
Where there are only cuboids a cell supports or does not. On the surface of a mesh a gap that equals
the contact tolerance up to the rounding of heights may count or not: the stability and the support
ratio that are claimed must be true for one way of rounding. With a tolerance of 0 that is every
contact, so a ratio that is claimed too low is not noticed there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from packing_env.reference.claims import (
    RELATIVE,
    ItemClaim,
    PlanClaim,
    Report,
    Violation,
    metres,
)
from packing_env.reference.ground import Ground
from packing_env.reference.lattice import Lattice
from packing_env.reference.raster import MARGIN
from packing_env.reference.solids import matrix

MAX_CELLS = 1 << 26
"""Largest heightmap that is allocated."""


def check(plan: PlanClaim) -> Report:
    """Check the claims of a plan up to the first that does not hold."""
    notes: list[str] = []
    violation = next(_whole_plan(plan), None)
    if violation is not None:
        return Report(violation, 0, 0.0, 0.0)
    ground = Lattice(plan, notes) if plan.geometry == "boxes" else Ground(plan, notes)
    volume, count = 0.0, 0
    for number, item in enumerate(plan.items):
        violation = next(_item(number, item, ground), None)
        if violation is not None:
            break
        ground.put(item)
        volume, count = volume + item.volume, count + 1
    utilization = volume / math.prod(plan.container)
    if violation is None:
        violation = next(_sums(plan, utilization), None)
    return Report(violation, count, utilization, ground.height, tuple(dict.fromkeys(notes)))


# ------------------------------------------------------------------ the plan as a whole


def _whole_plan(plan: PlanClaim) -> Iterator[Violation]:
    """The container and its cells, the geometry, the tolerance."""
    yield from _grid(plan)
    yield from _geometry(plan)
    if plan.contact_tol < 0:
        yield _wrong("contact_tol", f"{plan.contact_tol} m", "a negative tolerance")


def _wrong(key: str, claimed: str, found: str) -> Violation:
    return Violation(None, key, key, claimed, found)


def _grid(plan: PlanClaim) -> Iterator[Violation]:
    """Positive lengths, whole cells, no more of them than fit into memory."""
    if not all(length > 0 for length in (*plan.container, plan.cell)):
        yield _wrong("container", f"{plan.container}, cell {plan.cell}", "lengths that are not > 0")
    across, along = (length / plan.cell for length in plan.container[:2])
    for axis, cells in (("X", across), ("Y", along)):
        if abs(cells - round(cells)) > MARGIN or round(cells) < 1:
            yield _wrong("cell", f"{axis} in whole cells of {plan.cell} m", f"{cells:.6f} cells")
    if plan.geometry == "maps" and across * along > MAX_CELLS:
        yield _wrong("cell", f"{plan.cell} m", f"{across * along:.0f} cells, too many to check")


def _geometry(plan: PlanClaim) -> Iterator[Violation]:
    """A known geometry, and a unit where it has one."""
    if plan.geometry == "boxes":
        unit = plan.cell if plan.unit is None else plan.unit
        steps = plan.cell / unit if unit > 0 else 0.0
        if abs(steps - round(steps)) > MARGIN or round(steps) < 1:
            yield _wrong("unit", f"{unit} m", f"cells of {plan.cell} m, no whole multiple of it")
    elif plan.geometry != "maps":
        yield _wrong("geometry", repr(plan.geometry), "neither 'maps' nor 'boxes'")
    elif plan.unit is not None:
        yield _wrong("unit", f"{plan.unit} m", "a geometry of maps, which has none")


def _sums(plan: PlanClaim, utilization: float) -> Iterator[Violation]:
    """What is claimed about all items together."""
    if plan.num_items < len(plan.items):
        yield Violation(
            None, "num_items", "num_items", f"{plan.num_items}", f"{len(plan.items)} packed items"
        )
    claimed = plan.utilization
    if claimed is not None and abs(claimed - utilization) > RELATIVE:
        yield Violation(None, "utilization", "utilization", f"{claimed:.6f}", f"{utilization:.6f}")


# ------------------------------------------------------------------ one item


def _item(number: int, item: ItemClaim, ground: Ground | Lattice) -> Iterator[Violation]:
    """What is wrong with an item, first things first."""
    yield from _pose(number, item)
    yield from ground.violations(item)


def _pose(number: int, item: ItemClaim) -> Iterator[Violation]:
    """Its number, its rotation, said once or twice, and that it has a size."""
    if item.order != number:
        yield item.wrong("order", f"{item.order}", f"place {number} in the list")
    turn = item.rotation
    defect = float(np.abs(turn @ turn.T - np.eye(3)).max())
    if defect > RELATIVE or np.linalg.det(turn) < 0:
        what = "a reflection" if defect <= RELATIVE else f"R R^T off the identity by {defect:.2g}"
        yield item.wrong("rotation", "a rotation matrix", what)
    if item.quaternion is not None:
        norm = float(np.linalg.norm(item.quaternion))
        if abs(norm - 1) > RELATIVE or np.abs(matrix(item.quaternion) - turn).max() > RELATIVE:
            yield item.wrong("quaternion", "the same rotation as the matrix", "another")
    extent = item.solid.extent
    if extent is not None and not all(side > 0 for side in extent):
        yield item.wrong("extent", metres(*extent), "sides that are not > 0")
