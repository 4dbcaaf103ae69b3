"""Pallets with overhang, and containers with an edge cut off: by hand, in plans.

The container is 10 x 10 x 10 units of 0.1 m. With an overhang of 2 units along x and 1 along y, the
deck reaches from (2, 1) to (8, 9).
"""

from pathlib import Path
from typing import Any

import pytest
from tests.plan_files import checked
from tests.reference.test_box_constraints import plan_of

from packing_env.reference.box_load import Cut, Rules, units
from packing_env.reference.boxes import Box

PALLET: dict[str, Any] = {"overhang": [0.2, 0.1]}


def claim(rules: dict[str, Any], boxes: list[Box], folder: Path, **changes: Any) -> str:
    """Return the claim that fails at the last box, or "" where the plan holds."""
    plan = plan_of(rules, [(box, {}) for box in boxes], **changes)
    violation = checked(plan, folder).violation
    if violation is None:
        return ""
    assert violation.item == len(boxes) - 1, violation
    return violation.claim


HALF = (0, 1, 0, 4, 5, 2)
"""Half of its base is over the deck."""
MORE = (0, 1, 0, 3, 5, 2)
"""Two thirds of it are not."""


@pytest.mark.parametrize(
    ("box", "rules", "stability", "broken"),
    [
        (HALF, {"support": 0.5}, "none", ""),
        (HALF, {"support": 0.51}, "none", "support"),
        (MORE, {"support": 0.5}, "none", "support"),
        (MORE, {"support": 0.33}, "none", ""),
        # The centre of mass: over the edge of the deck, inside of it by a margin, beyond it.
        (HALF, {}, "com_hull", ""),
        (HALF, {}, "com_hull_10", "stability"),
        ((0, 1, 0, 5, 5, 2), {}, "com_hull_10", ""),
        (MORE, {}, "com_hull", "stability"),
        (MORE, {}, "none", ""),
        # On both sides: all of the deck, and a corner.
        ((0, 0, 0, 10, 10, 1), {"support": 0.48}, "com_hull_20", ""),
        ((0, 0, 0, 10, 10, 1), {"support": 0.481}, "com_hull_20", "support"),
        ((0, 0, 0, 4, 2, 1), {}, "com_hull", ""),
        ((0, 0, 0, 4, 1, 1), {}, "none", "floating"),  # beside the deck
        ((0, 1, 0, 2, 5, 2), {}, "none", "floating"),
        ((-1, 1, 0, 4, 5, 2), {}, "none", "outside"),  # beyond the overhang
    ],
)
def test_only_the_deck_supports(
    box: Box, rules: dict[str, Any], stability: str, broken: str, tmp_path: Path
) -> None:
    assert claim(PALLET | rules, [box], tmp_path, stability=stability) == broken


def test_boxes_on_a_pallet_support_others(tmp_path: Path) -> None:
    """A box that reaches over the edge supports boxes there as well."""
    full = PALLET | {"support": 1.0}
    inside = (2, 1, 0, 8, 9, 2)
    assert claim(full, [inside, (2, 1, 2, 5, 5, 4)], tmp_path) == ""
    assert claim(full, [inside, (1, 1, 2, 5, 5, 4)], tmp_path) == "support"
    over = (0, 1, 0, 8, 9, 2)
    assert claim(PALLET | {"support": 0.75}, [over, (0, 1, 2, 5, 5, 4)], tmp_path) == ""
    before = PALLET | {"preplaced": [[0.0, 0.1, 0.0, 0.8, 0.8, 0.2]], "support": 1.0}
    assert claim(before, [(0, 1, 2, 5, 5, 4)], tmp_path) == ""
    assert claim(before, [(0, 0, 2, 5, 5, 4)], tmp_path) == "support"


def test_what_stands_beside_the_deck_falls_by_every_rule_of_piles(tmp_path: Path) -> None:
    for stability in ("stacking_tree", "equilibrium"):
        assert claim(PALLET, [MORE], tmp_path, stability=stability) == "stability"
        assert claim(PALLET, [(2, 1, 0, 6, 5, 2)], tmp_path, stability=stability) == ""


LOWER: dict[str, Any] = {"cut": [["-x-z", 0.4, 0.2]]}
"""From 4 units along the floor to 2 units up the wall at x = 0."""


@pytest.mark.parametrize(
    ("boxes", "rules", "broken"),
    [
        ([(4, 0, 0, 8, 4, 1)], LOWER, ""),
        ([(3, 0, 0, 8, 4, 1)], LOWER, "cut"),
        ([(4, 0, 0, 8, 4, 1), (2, 0, 1, 6, 4, 2)], LOWER, ""),  # its lower edge is in the plane
        ([(4, 0, 0, 8, 4, 1), (1, 0, 1, 6, 4, 2)], LOWER, "cut"),
        ([(4, 0, 0, 8, 4, 2), (0, 0, 2, 6, 4, 3)], LOWER, ""),
        # A clearance to walls counts along x.
        ([(4, 1, 0, 8, 4, 1)], LOWER | {"wall_clearance": 0.1}, "cut"),
        ([(5, 1, 0, 8, 4, 1)], LOWER | {"wall_clearance": 0.1}, ""),
        # The other sides, and two edges.
        ([(2, 0, 0, 6, 4, 1)], {"cut": [["+x-z", 0.4, 0.2]]}, ""),
        ([(3, 0, 0, 7, 4, 1)], {"cut": [["+x-z", 0.4, 0.2]]}, "cut"),
        ([(2, 0, 0, 6, 4, 1)], {"cut": [["+x-z", 0.4, 0.2], ["-x-z", 0.3, 0.3]]}, "cut"),
        ([(3, 0, 0, 6, 4, 1)], {"cut": [["+x-z", 0.4, 0.2], ["-x-z", 0.3, 0.3]]}, ""),
        ([(0, 0, 0, 4, 6, 4)], {"cut": [["+x+y", 1.0, 1.0]]}, ""),  # an upright edge
        ([(0, 0, 0, 4, 7, 4)], {"cut": [["+x+y", 1.0, 1.0]]}, "cut"),
        # An upper edge along x: above 8 units at y = 10, and from 6 units along y at the top.
        ([(0, 6, 0, 4, 10, 8)], {"cut": [["+y+z", 0.4, 0.2]], "door": "rear"}, ""),
        ([(0, 6, 0, 4, 10, 9)], {"cut": [["+y+z", 0.4, 0.2]], "door": "rear"}, "cut"),
        ([(0, 4, 0, 4, 8, 9)], {"cut": [["+y+z", 0.4, 0.2]], "door": "rear"}, ""),
        # It would come in through what is cut off.
        ([(0, 6, 0, 4, 10, 8)], {"cut": [["+y+z", 0.4, 0.2]]}, "cut"),
        ([(2, 0, 0, 6, 4, 1)], {"cut": [["+x-z", 0.4, 0.2]], "door": "rear"}, "cut"),
    ],
)
def test_nothing_reaches_beyond_a_cut(
    boxes: list[Box], rules: dict[str, Any], broken: str, tmp_path: Path
) -> None:
    assert claim(rules, boxes, tmp_path) == broken


def test_nothing_rests_on_the_plane_of_a_cut(tmp_path: Path) -> None:
    assert claim(LOWER, [(2, 0, 1, 6, 4, 2)], tmp_path) == "floating"


def test_a_plane_between_units_is_exact() -> None:
    """The plane runs from 0.1 to 0.2 m; units of 0.3 mm divide neither."""
    rules = Rules.of({"cut": [["-x-z", 0.1, 0.2]]}, 0.0003)
    (cut,) = rules.cuts
    assert cut == Cut(((0, False), (2, False)), (units(0.1, 0.0003), units(0.2, 0.0003)))
    container = (1000, 1000, 1000)
    assert cut.takes((333, 0, 0, 400, 10, 10), container, 0)
    assert not cut.takes((334, 0, 0, 400, 10, 10), container, 0)
    assert cut.takes((100, 0, 466, 400, 10, 480), container, 0)
    assert not cut.takes((100, 0, 467, 400, 10, 480), container, 0)


def test_a_unit_that_is_no_decimal_is_rounded(tmp_path: Path) -> None:
    """0.171 m are 1026 units of 1/6000 m, which a plan states as 0.00016666666666666666."""
    (cut,) = Rules.of({"cut": [["+y-z", 0.171, 0.156]]}, 1 / 6000).cuts
    assert cut.lengths == (1026, 936)
    assert not cut.takes((0, 0, 0, 10, 2000 - 1026, 10), (2000, 2000, 2000), 0)


def test_utilization_is_of_what_is_left_of_a_container(tmp_path: Path) -> None:
    """4 of 100 units^2 of the cross-section are cut off: 384 of 960 units^3 are filled."""
    box = (4, 0, 0, 8, 8, 6)
    plan = plan_of(LOWER, [(box, {})], container=[1.0, 1.0, 1.0])
    assert plan["utilization"] == pytest.approx(4 * 8 * 6 / 960)
    report = checked(plan, tmp_path)
    assert report.holds, report.violation
    assert report.utilization == pytest.approx(plan["utilization"])
