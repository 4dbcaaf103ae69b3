"""Check of every claim of a packing plan, such as inside, under the lid, dropped, supported.

It uses no code of the program that made the plan. On heightmaps, each item is rasterised in its
place and the episode is played again (:mod:`.map_checks`). A settled item is then also checked as a
solid (:mod:`.settled`). Cuboids on an integer lattice are checked in exact integers
(:mod:`.box_checks`; their constraints in :mod:`.box_constraints`). Parts of a nest are compared as
solids (:mod:`.nests`, which also states its tolerances).

The tolerances are: sideways, :data:`~.raster.MARGIN` of a cell; for heights,
:attr:`PlanClaim.slack`, and :func:`~.maps.lid_tolerance` more at the lid; for ratios and volumes,
1e-6. On the surface of a mesh, a gap may equal the contact tolerance up to the rounding of heights.
Such a gap may count as contact or not: stability and support ratio must be right for one way of
rounding. With a tolerance of 0 this concerns every contact, so the check cannot detect a ratio that
is claimed too low.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import chain

import numpy as np

from packing_env.reference import stability
from packing_env.reference.box_checks import BoxChecks
from packing_env.reference.claims import (
    RELATIVE,
    STABILITY_RULES,
    ItemClaim,
    PlanClaim,
    Report,
    Violation,
    metres,
)
from packing_env.reference.constraints import up_face
from packing_env.reference.map_checks import MapChecks
from packing_env.reference.nests import NestChecks
from packing_env.reference.raster import MARGIN
from packing_env.reference.settled import SettledChecks
from packing_env.reference.solids import matrix

MAX_CELLS = 1 << 26
"""Largest number of heightmap cells that are allocated."""
MAX_STEPS = 2.0**31
"""Pitches; larger lengths and distances are rejected."""
OF_BOXES = ("layers", "on_like", "like", "together")
"""Attributes of items that only geometry boxes supports."""
MAX_LENGTH = 1e9
"""Metres; heights are float32, and a longer container is refused."""


def check(plan: PlanClaim) -> Report:
    """Check the claims of a plan up to the first wrong claim."""
    with np.errstate(over="ignore", invalid="ignore"):  # overflows are reported as violations
        violation = next(_whole_plan(plan), None)
        if violation is not None:
            return Report(violation, 0, 0.0, 0.0)
        first, *others = (_items(plan, whole_cells) for whole_cells in _readings(plan))
    return next((report for report in (first, *others) if report.holds), first)


def _readings(plan: PlanClaim) -> Iterator[bool]:
    """Yield the possible values of ``whole_cells``; True means that tops are rounded.

    Tops are rounded if all items of the task are cuboids of whole cells. A plan lists only the
    packed items. If all of them are such cuboids, the items that were not packed decide, so both
    values are possible.
    """
    within = (item for item in plan.items if _is_near(item, plan))
    if plan.geometry == "maps" and all(item.is_of_whole_cells(plan.cell) for item in within):
        yield True
    yield False


def _items(plan: PlanClaim, whole_cells: bool) -> Report:
    notes: list[str] = []
    violation: Violation | None = None
    nest = plan.geometry == "solids"
    checks: MapChecks | BoxChecks | NestChecks
    if plan.geometry == "boxes":
        checks = BoxChecks(plan)
    else:
        checks = NestChecks(plan, notes) if nest else MapChecks(plan, notes, whole_cells)
    solids = SettledChecks(plan)
    volume, count = 0.0, 0

    # 1. Check each item: first its place on the maps, then its settled place.
    for number, item in enumerate(plan.items):
        on_grid = item.on_grid()
        violations = chain(_item(number, on_grid, plan, checks), solids.violations(item))
        violation = next(violations, None)
        if violation is not None:
            break
        checks.put(on_grid)
        solids.put(item)
        volume, count = volume + item.volume, count + 1

    # 2. Check the totals, and the constraints on the finished load.
    utilization = volume / plan.capacity
    if violation is None:
        at_the_end = checks.at_the_end() if isinstance(checks, BoxChecks) else ()
        violation = next(chain(_sums(plan, utilization), at_the_end), None)
    if plan.utilization is None:
        notes.append("utilization (the plan states none)")
    settled = [item for item in plan.items[:count] if item.z_grid is not None]
    return Report(
        violation=violation,
        items=count,
        utilization=utilization,
        height=solids.top if settled else checks.height,
        not_checked=tuple(dict.fromkeys(notes)),
        settled=len(settled),
        balanced=sum(item.balanced is True for item in settled),
        interlocked=sum(item.leaves is None for item in plan.items[:count]) if nest else None,
    )


# ------------------------------------------------------------------ the plan as a whole


def _whole_plan(plan: PlanClaim) -> Iterator[Violation]:
    yield from _lengths(plan)
    yield from _geometry(plan)
    yield from _grid(plan)
    yield from _rule(plan)
    yield from _of_other_geometries(plan)
    yield from _together(plan)


def _wrong(key: str, claimed: str, found: str) -> Violation:
    return Violation(None, key, key, claimed, found)


def _lengths(plan: PlanClaim) -> Iterator[Violation]:
    """Check that lengths are positive and not too large."""
    claimed = f"{plan.container}, cell {plan.cell}"
    lengths = (*plan.container, plan.cell)
    if not all(length > 0 for length in lengths):
        yield _wrong("container", claimed, "lengths that are not > 0")
    elif not plan.capacity > 0:
        yield _wrong("cut", f"{plan.constraints['cut']}", "nothing left of the container")
    if max(lengths) > MAX_LENGTH:
        yield _wrong("container", claimed, f"a length of more than {MAX_LENGTH:g} m")
    if plan.pitch > 0 and max(lengths) / plan.pitch > MAX_STEPS:
        steps = f"{MAX_STEPS:.0f} steps of {plan.pitch} m"
        yield _wrong("container", claimed, f"a length of more than {steps}")


def _rule(plan: PlanClaim) -> Iterator[Violation]:
    """Check that the stability rule is known and its tolerance valid."""
    known, own = STABILITY_RULES[plan.geometry], ""
    if plan.geometry == "maps":  # the user may have added some
        known = tuple(dict.fromkeys((*known, *stability.RULES)))
        own = "; register a rule of your own first (packing check --import MODULE)"
    if plan.stability not in known:
        reason = f"stability rule {plan.stability!r} is unknown; known: {', '.join(sorted(known))}"
        yield _wrong("stability", repr(plan.stability), reason + own)
    if plan.contact_tol < 0:
        yield _wrong("contact_tol", f"{plan.contact_tol} m", "a negative tolerance")
    if plan.geometry != "maps" and plan.contact_tol != 0:
        found = f"a geometry of {plan.geometry}, which needs 0 m"
        yield _wrong("contact_tol", f"{plan.contact_tol} m", found)


def _of_other_geometries(plan: PlanClaim) -> Iterator[Violation]:
    """Check that a plan does not claim constraints and attributes of other geometries."""
    # 1. Constraints that heightmaps or nests do not have.
    of_boxes = {"support": None, "door": "top", "together": None, "overhang": None, "cut": None}
    for name, value in plan.constraints.items():
        of_nests = name in ("clearance", "wall_clearance", "preplaced")
        if (plan.geometry == "maps" and value != of_boxes.get(name, value)) or (
            plan.geometry == "solids" and not of_nests
        ):
            yield _wrong(name, f"{value}", f"geometry {plan.geometry!r}, which does not support it")

    # 2. Attributes that only items of boxes, settled items or items of nests have.
    for item in plan.items:
        claims: dict[str, object] = {}
        if plan.geometry != "boxes":
            claims = {name: item.handling.get(name) or None for name in OF_BOXES}
        if plan.geometry == "solids":
            claims |= {"z_grid": item.z_grid, "gap": item.gap, "contacts": item.contacts}
        else:
            claims["leaves"] = item.leaves
        for name, claim in claims.items():
            if claim is not None and claim is not False:
                found = f"geometry {plan.geometry!r}, which does not support it"
                yield item.wrong(name, f"{claim}", found)


def _together(plan: PlanClaim) -> Iterator[Violation]:
    """Check that all items of a label are in the container, or none."""
    numbers = dict(plan.constraints.get("together", ()))
    packed = Counter(item.handling.get("together") for item in plan.items)
    for label in numbers.keys() | packed.keys() - {None}:
        if packed[label] not in (0, numbers.get(label, 0)):
            claimed = f"all {numbers.get(label, 0)} items of {label!r}, or none"
            yield _wrong("together", claimed, f"{packed[label]} of them")


def _grid(plan: PlanClaim) -> Iterator[Violation]:
    """Check that the container has whole cells, and few enough to allocate.

    On heightmaps, a strip narrower than a cell may remain at the far walls; no item may reach into
    it. A nest has no cells.
    """
    if plan.geometry == "solids":
        return
    for axis, cells, count in zip("XY", plan.floor, plan.grid, strict=True):
        if count < 1 or (plan.geometry != "maps" and cells != count):
            yield _wrong("cell", f"{axis} in whole cells of {plan.cell} m", f"{cells:.6f} cells")
    if plan.geometry == "maps" and math.prod(plan.grid) > MAX_CELLS:
        yield _wrong("cell", f"{plan.cell} m", f"{math.prod(plan.grid)} cells, too many to check")


def _geometry(plan: PlanClaim) -> Iterator[Violation]:
    """Check that the geometry is known, and that its unit divides the cell."""
    if plan.geometry == "boxes":
        unit = plan.pitch
        steps = plan.cell / unit if unit > 0 else 0.0
        if abs(steps - round(steps)) > MARGIN or round(steps) < 1:
            yield _wrong("unit", f"{unit} m", f"cells of {plan.cell} m, not a whole multiple of it")
    elif plan.geometry not in STABILITY_RULES:
        yield _wrong("geometry", repr(plan.geometry), "neither 'maps' nor 'boxes' nor 'solids'")
    elif plan.unit is not None:
        found = f"a geometry of {plan.geometry}, which has no unit"
        yield _wrong("unit", f"{plan.unit} m", found)


def _sums(plan: PlanClaim, utilization: float) -> Iterator[Violation]:
    if plan.num_items < len(plan.items):
        yield _wrong("num_items", f"{plan.num_items}", f"{len(plan.items)} packed items")
    claimed = plan.utilization
    if claimed is not None and abs(claimed - utilization) > RELATIVE:
        yield _wrong("utilization", f"{claimed:.6f}", f"{utilization:.6f}")


# ------------------------------------------------------------------ one item


def _item(
    number: int, item: ItemClaim, plan: PlanClaim, checks: MapChecks | BoxChecks | NestChecks
) -> Iterator[Violation]:
    """Check one item: its pose, then its distance from other items, then its place."""
    yield from _pose(number, item)
    yield from _face(item)
    if not _is_near(item, plan):
        farthest = float(np.abs(item.points).max())
        where = f"a corner {metres(farthest)} away" if farthest < math.inf else "an infinite place"
        yield item.wrong("outside", f"within {metres(*plan.container)}", where)
    yield from checks.violations(item)


def _face(item: ItemClaim) -> Iterator[Violation]:
    """Check that the item stands on an allowed face, and is turned only if it may be."""
    allowed = item.handling.get("faces")
    if allowed:
        face = up_face(item.rotation)
        if face not in allowed:
            yield item.wrong("faces", f"{' or '.join(allowed)} up", f"{face or 'an edge'} up")
    if not item.handling.get("turn", True) and item.rotation[0, 0] < 1.0 - RELATIVE:
        yield item.wrong("turn", "its +x face towards +x", "it is turned")


def _is_near(item: ItemClaim, plan: PlanClaim) -> bool:
    """Test if all vertices of an item are within :data:`MAX_STEPS` pitches."""
    return bool((np.abs(item.points) <= MAX_STEPS * plan.pitch).all())


def _pose(number: int, item: ItemClaim) -> Iterator[Violation]:
    """Check the order, the rotation as matrix and as quaternion, and that sides are positive."""
    if item.order != number:
        yield item.wrong("order", f"{item.order}", f"place {number} in the list")
    rotation = item.rotation
    defect = float(np.abs(rotation @ rotation.T - np.eye(3)).max())
    if not defect <= RELATIVE or np.linalg.det(rotation) < 0:
        what = "a reflection" if defect <= RELATIVE else f"R R^T off the identity by {defect:.2g}"
        yield item.wrong("rotation", "a rotation matrix", what)
    if item.quaternion is not None:
        defect = abs(float(np.linalg.norm(item.quaternion)) - 1)
        differs = np.abs(matrix(item.quaternion) - rotation).max() > RELATIVE
        if not defect <= RELATIVE or differs:
            yield item.wrong("quaternion", "the same rotation as the matrix", "another rotation")
    extent = item.solid.extent
    if extent is not None and not all(side > 0 for side in extent):
        yield item.wrong("extent", metres(*extent), "sides that are not > 0")
