"""The stability rules, each formula once, for every backend.

A formula is written with operators only (``&``, ``|``, comparisons, arithmetic), so that torch
evaluates it on tensors and numba compiles the same function for numbers
(:mod:`packing_env.kernels.compiled.stability_rules`). Only :mod:`packing_env.reference` contains
them a second time, as the specification. To add a rule to this package, write its formula, add it
to the end of :data:`RULES`, and write it in `reference`. A user's program adds one with
:func:`packing_env.core.stability.register`.

Every rule must be monotone: a stable placement stays stable if more cells support it, or if the
hull contains the rule's point.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

from packing_env.kernels.layout import SUBCELL
from packing_env.values import Option


class Support(NamedTuple):
    """Measurements of a placement that a formula reads: numbers if compiled, tensors in torch.

    Fields that the rule does not declare in its :class:`Rule` are arbitrary.

    Attributes:
        count: Cells of the footprint that support the item.
        limits: The rule's shares of the footprint in cells, rounded down (see :func:`limit`), so
            that ``count > limits[i]`` iff the share is exceeded. Compiled code always passes three.
        corners: Number of corner cells of the item's window at the rule's level, 0 to 4.
        touching: Bool, True if the highest corner cell supports the item.
        in_hull: True if the rule's point lies in its hull or on the boundary; see
            :func:`chords_hold`.
        area: Cells of the footprint; measured only for a rule with ``percents``. Write "at least
            half" as ``2 * count >= area``, and "more than a share" as ``count > limits[i]``.
    """

    count: Any = None
    limits: Any = None
    corners: Any = None
    touching: Any = None
    in_hull: Any = None
    area: Any = None


@dataclass(frozen=True)
class Rule:
    """One stability rule.

    Attributes:
        formula: Function from a :class:`Support` to True if the placement is stable.
        percents: Shares of the footprint with which the formula compares the count, ascending,
            three at most. A rule whose formula reads the count or the area must have at least one
            share.
        corners: Level at which corner cells are counted: the rest height ("rest"), the highest
            corner cell ("highest"), or None for a rule without corners.
        hull: Which point must lie in which hull: the centre of mass in the hull of the supporting
            cells' squares ("mass"), the centre of the item's window in the hull of the supporting
            cells' centres ("centres"), or None for a rule without a hull.
    """

    formula: Callable[[Support], Any]
    percents: tuple[Annotated[int, Option(at_least=0, at_most=100)], ...] = ()
    corners: Annotated[str, Option(choices=("rest", "highest"))] | None = None
    hull: Annotated[str, Option(choices=("mass", "centres"))] | None = None

    @property
    def measures(self) -> bool:
        """True for a rule that depends on the placement at all."""
        return bool(self.percents or self.corners or self.hull)


class Measurements(Protocol):
    """Placements that :func:`evaluate` checks; the methods measure them with tensors."""

    def areas(self) -> tuple[Any, Any]:
        """Return the counts of supporting cells, and of the cells of the footprints."""

    def corners(self, at_highest: bool) -> tuple[Any, Any]:
        """Return ``corners``, at the level of the highest corner or at rest, and ``touching``."""

    def in_hull(self, centres: bool) -> Any:
        """Return ``in_hull``, for the hull of the cells' centres or of their squares."""


def evaluate(rule: Rule, placements: Measurements) -> Any:
    """Return the result of a rule; only the measurements that it declares are made."""
    support = Support()
    if rule.percents:
        count, area = placements.areas()
        limits = tuple(limit(area, percent).to(count.dtype) for percent in rule.percents)
        support = support._replace(count=count, limits=limits, area=area.to(count.dtype))
    if rule.corners:
        corners, touching = placements.corners(rule.corners == "highest")
        support = support._replace(corners=corners, touching=touching)
    if rule.hull:
        support = support._replace(in_hull=placements.in_hull(rule.hull == "centres"))
    return rule.formula(support)


def limit(area: Any, percent: Any) -> Any:
    """Return the largest number of cells that does not exceed a share of an area."""
    return percent * area // 100


def chords_hold(upper: Any, lower: Any) -> Any:
    """Return whether a point lies in a hull or on its boundary, from the chords around the point.

    Seen from the point, corners to its left and corners to its right span a chord that passes above
    it iff their largest slopes ``dy / |dx|`` sum to at least 0. ``upper`` is this sum; ``lower`` is
    the same sum for the mirrored corners.
    """
    return (upper >= 0) & (lower >= 0)


def none(support: Support) -> Any:
    """Return True: every placement is stable."""
    return True


def area_corners(support: Support) -> Any:
    """Return True for more than 60 % support with four corners, 80 % with three, or 95 %.

    Zhao et al., AAAI 2021, as printed.
    """
    count, corners = support.count, support.corners
    over_60, over_80, over_95 = support.limits
    return (
        ((count > over_60) & (corners == 4))
        | ((count > over_80) & (corners >= 3))
        | (count > over_95)
    )


def area_corners_code(support: Support) -> Any:
    """Return True for three corners at the highest corner's level and enough support.

    Enough support means more than 95 %. If the highest corner supports, more than 85 % is enough,
    and with four corners more than 50 %. The source is Zhao et al., AAAI 2021, as in their program
    (Online-3D-BPP-DRL, ``check_box``).
    """
    count, corners = support.count, support.corners
    over_50, over_85, over_95 = support.limits
    enough = ((count > over_50) & (corners == 4)) | (count > over_85)
    return (corners >= 3) & ((count > over_95) | (support.touching & enough))


def center_hull(support: Support) -> Any:
    """Return True for more than half of the footprint, or a centre in the hull.

    Xiong et al., RA-L 2024 (GOPT).
    """
    return (support.count > support.limits[0]) | support.in_hull


def com_hull(support: Support) -> Any:
    """Return True for a centre of mass in the hull."""
    return support.in_hull


RULES: dict[str, Rule] = {
    "none": Rule(none),
    "area_corners": Rule(area_corners, percents=(60, 80, 95), corners="rest"),
    "area_corners_code": Rule(area_corners_code, percents=(50, 85, 95), corners="highest"),
    "center_hull": Rule(center_hull, percents=(50,), hull="centres"),
    "com_hull": Rule(com_hull, hull="mass"),
}
"""The rules by name; compiled code refers to them by their position."""

NAMES = list(RULES)
"""Names of the rules, in the order of their indices."""

MARGINS = {"com_hull_strict": 0, "com_hull_10": 10, "com_hull_20": 20}
"""Rules that keep the centre of mass inside the hull by a margin, in percent of the item's window.

They support only items on heightmaps. The margin is at least 1/64 cell. So a centre of mass on the
boundary is not accepted: the slightest push would topple the item.
"""

LADDER = ("com_hull", *MARGINS)
"""Rules about the centre of mass, in an order in which each rule implies those before it.

A hull is convex: if it contains the rectangle of a margin, it contains those of smaller margins and
the centre.
"""

MAP_RULES = [*NAMES, *MARGINS]
"""Names of all rules on heightmaps, in the order of their indices."""

OWN: dict[str, Rule] = {}
"""Rules that :func:`add` added."""


def add(name: str, rule: Rule) -> bool:
    """Add a user's rule, and return whether compiled code contains it.

    The kernels are built from the rules that exist when they are imported, which is when the first
    environment is built.
    """
    OWN[name] = rule
    if "packing_env.kernels.compiled.stability_rules" in sys.modules:
        return False
    RULES[name] = rule
    MAP_RULES.insert(len(NAMES), name)
    NAMES.append(name)
    return True


def fingerprint() -> str:
    """Return text that identifies the user's rules in compiled code; "" if there are none."""
    parts = []
    for name, rule in OWN.items():
        if RULES.get(name) is not rule:
            continue  # it was added too late
        code = rule.formula.__code__
        path = Path(code.co_filename)
        # The whole file, because a formula may call functions beside it.
        source = path.read_bytes() if path.is_file() else (code.co_code, code.co_consts)
        parts.append(f"{name} {rule.percents} {rule.corners} {rule.hull} {source!r}")
    return "\n".join(parts)


def margin(size: Any, percent: Any) -> Any:
    """Return a margin along a side of a window of ``size`` cells, in 1/64 cell."""
    share = SUBCELL * size * percent // 100
    return share + (share < 1)
