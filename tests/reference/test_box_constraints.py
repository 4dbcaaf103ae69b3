"""Constraints of orders of boxes: each rule kept and broken by hand, in arrays, and in plans.

A container of 10 x 10 x 10 units, one unit is 0.1 m.
"""

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.plan_files import checked, placed_box, refused

from packing_env.plan import Packing, PlacedItem, make_plan
from packing_env.reference import boxes
from packing_env.reference.box_constraints import broken, off_balance
from packing_env.reference.box_load import BoxCase, BoxLoad, Rules, occupied, units
from packing_env.reference.boxes import Box
from packing_env.reference.constraints import Handling
from packing_env.reference.pile import Pile
from packing_env.reference.stability import Rectangle, corners

UNIT = 0.1
SIDES = (10, 10, 10)
Item = tuple[Box, dict[str, Any]]


def placed(order: int, box: Box, handling: dict[str, Any], ratio: float) -> PlacedItem:
    entries = dict(handling)
    return placed_box(
        order,
        entries.pop("name", "item"),
        [UNIT * length for length in box[:3]],
        [UNIT * (box[3 + axis] - box[axis]) for axis in range(3)],
        cell=box[:2],
        support_ratio=ratio,
        handling=entries,
    )


def plan_of(rules: dict[str, Any], items: list[Item], **changes: Any) -> dict[str, Any]:
    """Return the JSON of a plan, with true support ratios."""
    pile = Rules.of(rules, UNIT).pile(len(items), SIDES)
    listed = []
    for order, (box, handling) in enumerate(items):
        meeting = pile.meet(box)
        ratio = meeting.touch.support / meeting.touch.area
        listed.append(placed(order, box, handling, ratio))
        pile.put(meeting)
    packing = Packing(
        container=(1.0, 1.0, 1.0),
        cell=UNIT,
        stability="none",
        contact_tol=0.0,
        items=tuple(listed),
        num_items=len(items),
        geometry="boxes",
        unit=UNIT,
        constraints=rules,
    )
    return make_plan(packing) | changes


def column(*heights: int) -> list[Box]:
    """Return boxes of 4 x 4 on top of each other."""
    tops = np.cumsum([0, *heights]).tolist()
    return [(0, 0, z0, 4, 4, z1) for z0, z1 in pairwise(tops)]


LOW, HIGH = column(2, 2)
LAST = (0, 0, 4, 4, 4, 5)
FAR = (6, 6, 0, 10, 10, 2)
PLATE = [0.0, 0.0, 0.3, 1.0, 1.0, 0.1]
"""A pre-placed plate, three units above the floor."""

KEPT_AND_BROKEN: dict[str, tuple[dict[str, Any], list[Item], list[Item]]] = {
    "no_stacking": (
        {"no_stacking": True},
        [(LOW, {}), (HIGH, {"stackable": False})],
        [(LOW, {"stackable": False}), (HIGH, {})],
    ),
    "max_load": (
        {"max_load": True},
        [(LOW, {"weight": 1.0, "max_load": 5.0}), (HIGH, {"weight": 2.0}), (LAST, {"weight": 3.0})],
        [
            (LOW, {"weight": 1.0, "max_load": 5.0}),
            (HIGH, {"weight": 2.0}),
            (LAST, {"weight": 3.000001}),
        ],
    ),
    "fragile last": (
        {"fragile": "last"},
        [(LOW, {}), (FAR, {"fragile": True})],
        [(LOW, {"fragile": True}), (FAR, {})],
    ),
    "fragile on top": (
        {"fragile": "top"},
        [(LOW, {"fragile": True}), (HIGH, {"fragile": True}), (FAR, {})],
        [(LOW, {"fragile": True}), (HIGH, {})],
    ),
    "lifo upwards": (
        {"lifo": True},
        [(LOW, {"group": 2}), (HIGH, {"group": 1})],
        [(LOW, {"group": 1}), (HIGH, {"group": 2})],
    ),
    "lifo through the rear": (
        {"lifo": True, "door": "rear"},
        [(LOW, {"group": 2}), ((4, 0, 0, 8, 4, 2), {"group": 1})],
        [(LOW, {"group": 1}), ((6, 0, 0, 8, 4, 2), {"group": 2})],
    ),
    "lifo through the rear, from under another": (
        {"lifo": True, "door": "rear"},
        [(LOW, {"group": 3}), (HIGH, {"group": 3}), (LAST, {"group": 2})],
        [(LOW, {"group": 2}), (HIGH, {"group": 2}), (LAST, {"group": 3})],
    ),
    "lifo through the side": (
        {"lifo": True, "door": "side"},
        [(LOW, {"group": 1}), ((4, 0, 0, 8, 4, 2), {"group": 2})],
        [(LOW, {"group": 1}), ((3, 6, 0, 8, 8, 2), {"group": 2})],
    ),
    "weight_limit": (
        {"weight_limit": 5.0},
        [(LOW, {"weight": 2.0}), (HIGH, {"weight": 3.0})],
        [(LOW, {"weight": 2.0}), (HIGH, {"weight": 3.000001})],
    ),
    "balance": (
        {"balance": 0.1},
        [(LOW, {"weight": 2.0}), (FAR, {"weight": 3.0})],
        [(LOW, {"weight": 2.0}), (FAR, {"weight": 5.0})],
    ),
    "clearance": (
        {"clearance": 0.15, "wall_clearance": 0.0},
        [(LOW, {}), (HIGH, {}), ((6, 0, 0, 8, 4, 2), {}), ((4, 6, 0, 6, 8, 2), {})],
        [(LOW, {}), (HIGH, {}), ((5, 0, 0, 8, 4, 2), {})],
    ),
    "clearance between other heights": (
        {"clearance": 0.2, "wall_clearance": 0.0, "preplaced": [[0.6, 0.0, 0.0, 0.4, 1.0, 0.2]]},
        [(LOW, {}), ((4, 0, 2, 10, 4, 4), {})],
        [(LOW, {}), (HIGH, {}), ((5, 0, 2, 10, 4, 4), {})],
    ),
    "clearance of pre-placed boxes": (
        {"clearance": 0.2, "wall_clearance": 0.0, "preplaced": [[0.6, 0.0, 0.0, 0.4, 1.0, 0.2]]},
        [(LOW, {})],
        [((1, 0, 0, 5, 4, 2), {})],
    ),
    "wall_clearance": (
        {"wall_clearance": 0.1},
        [((1, 1, 0, 9, 9, 2), {})],
        [((1, 1, 0, 10, 9, 2), {})],
    ),
    "floating beside a pre-placed box": (
        {"preplaced": [[0.0, 0.0, 0.0, 0.4, 0.4, 0.2]]},
        [(HIGH, {})],
        [((4, 0, 2, 8, 4, 4), {})],
    ),
    "path through a pre-placed box": (
        {"preplaced": [PLATE]},
        [((0, 0, 4, 4, 4, 6), {})],
        [(LOW, {})],
    ),
    "overlap with a pre-placed box": (
        {"preplaced": [PLATE]},
        [((0, 0, 4, 4, 4, 6), {})],
        [((0, 0, 2, 4, 4, 6), {})],
    ),
    "path through the rear": (
        {"door": "rear", "preplaced": [PLATE]},
        [(LOW, {}), ((4, 0, 0, 8, 4, 2), {})],
        [((6, 0, 0, 8, 4, 2), {}), (LOW, {})],
    ),
    "path through the side": (
        {"door": "side"},
        [((6, 0, 0, 8, 4, 2), {}), (LOW, {})],
        [((2, 5, 0, 8, 8, 2), {}), (LOW, {})],
    ),
    "floating": (
        {"door": "rear"},
        [(LOW, {}), (HIGH, {})],
        [(LOW, {}), ((0, 0, 3, 4, 4, 4), {})],
    ),
    "support": (
        {"support": 0.75},
        [(LOW, {}), ((1, 0, 2, 5, 4, 4), {})],
        [(LOW, {}), ((2, 0, 2, 6, 4, 4), {})],
    ),
    "layers": (
        {},
        [(LOW, {"layers": 3}), (HIGH, {}), (LAST, {"layers": 1})],
        [(LOW, {"layers": 2}), (HIGH, {}), (LAST, {})],
    ),
    "on_like": (
        {},
        [(LOW, {"name": "a"}), (HIGH, {"name": "a", "on_like": True}), (LAST, {"name": "b"})],
        [(LOW, {"name": "a"}), (HIGH, {"name": "b", "on_like": True})],
    ),
    "on_like of another name": (
        {},
        [(LOW, {"name": "a"}), (HIGH, {"name": "a#2", "on_like": True, "like": "a"})],
        [(LOW, {"name": "a", "like": "b"}), (HIGH, {"name": "a", "on_like": True})],
    ),
}
"""Rules, a plan that keeps them, and one that breaks the first word of the name."""


@pytest.mark.parametrize("case", KEPT_AND_BROKEN)
def test_a_plan_that_keeps_a_rule_holds_and_one_that_breaks_it_is_refused(
    case: str, tmp_path: Path
) -> None:
    rules, kept, wrong = KEPT_AND_BROKEN[case]
    report = checked(plan_of(rules, kept), tmp_path)
    assert report.holds, report.violation
    assert not report.not_checked
    item, claim = refused(plan_of(rules, wrong), tmp_path)
    assert claim == case.split()[0]
    assert item in (None, len(wrong) - 1)


@pytest.mark.parametrize(
    ("rules", "handling", "claim"),
    [
        ({"support": 0.5}, {}, "support"),
        ({"door": "rear"}, {}, "door"),
        ({"overhang": [0.2, 0.1]}, {}, "overhang"),
        ({"cut": [["-x-z", 0.4, 0.2]]}, {}, "cut"),
        ({}, {"layers": 2}, "layers"),
    ],
)
def test_plans_on_maps_do_not_have_them(
    rules: dict[str, Any], handling: dict[str, Any], claim: str, tmp_path: Path
) -> None:
    plan = plan_of(rules, [((4, 4, 0, 6, 6, 1), handling)], geometry="maps")
    plan.pop("unit")
    assert refused(plan, tmp_path)[1] == claim


# ------------------------------------------------------------------ boxes under others


def load_of(rules: dict[str, Any], items: list[tuple[Box, dict[str, Any]]]) -> list[dict[str, str]]:
    """Put items in, and return the rules that each item breaks."""
    held = Rules.of(rules, UNIT)
    pile = held.pile(len(items), SIDES)
    load, results = BoxLoad(held, SIDES, pile), []
    for box, entries in items:
        handling = Handling.of({k: v for k, v in entries.items() if k != "name"})
        case = BoxCase(load, entries.get("name", "item"), handling, pile.meet(box))
        results.append(broken(case))
        load.put(case)
    return results


ROOF = (2, 0, 2, 8, 4, 4)
BENEATH = (4, 0, 0, 6, 4, 2)


@pytest.mark.parametrize(
    ("rule", "rules", "posts", "roof", "beneath"),
    [
        ("no_stacking", {"no_stacking": True}, {}, {}, {"stackable": False}),
        ("max_load", {"max_load": True}, {}, {"weight": 2.0}, {"max_load": 1.0}),
        ("fragile", {"fragile": "top"}, {}, {}, {"fragile": True}),
        ("lifo", {"lifo": True}, {"group": 1}, {"group": 1}, {"group": 0}),
        ("layers", {}, {}, {}, {"layers": 1}),
        ("on_like", {}, {"name": "a"}, {"name": "a", "on_like": True}, {"name": "b"}),
    ],
)
def test_a_box_put_in_under_another_bears_it(
    rule: str,
    rules: dict[str, Any],
    posts: dict[str, Any],
    roof: dict[str, Any],
    beneath: dict[str, Any],
) -> None:
    hall = [((0, 0, 0, 3, 4, 2), posts), ((7, 0, 0, 10, 4, 2), posts), (ROOF, roof)]
    same = {"name": roof.get("name", "item"), "group": roof.get("group", 0)}
    door = {"door": "side"}
    assert not any(load_of(rules | door, [*hall, (BENEATH, same)]))
    results = load_of(rules | door, [*hall, (BENEATH, same | beneath)])
    assert [[*result] for result in results] == [[], [], [], [rule]]


# ------------------------------------------------------------------ definitions in plain loops


def dropped(draw: np.random.Generator, packed: list[Box], side: int) -> Box:
    size = draw.integers(1, 5, 3).tolist()
    x, y = (int(draw.integers(0, side - length + 1)) for length in size[:2])
    return boxes.drop(packed, (x, y), (size[0], size[1], size[2]))


def base(box: Box) -> Rectangle:
    return box[0], box[1], box[3], box[4]


def overlap(box: Box, other: Box) -> bool:
    """Test if two boxes overlap, seen from above, with positive area."""
    (a, b, c, d), (e, f, g, h) = base(box), base(other)
    return max(a, e) < min(c, g) and max(b, f) < min(d, h)


def lies_on(box: Box, other: Box) -> bool:
    return other[5] == box[2] and overlap(box, other)


@pytest.mark.parametrize("rule", boxes.RULES)
def test_a_pile_agrees_with_the_definitions(rule: str) -> None:
    draw = np.random.default_rng(0)
    verdicts = set()
    for _ in range(4):
        packed: list[Box] = []
        pile = Pile(40)
        for _ in range(40):
            box = dropped(draw, packed, 9)
            meeting = pile.meet(box)
            assert meeting.drop_height == box[2]
            below = [i for i, other in enumerate(packed) if lies_on(box, other)]
            assert [contact.below for contact in meeting.contacts] == (below or [boxes.FLOOR])
            levels = [boxes.drop(packed, cell, (1, 1, 1))[2] for cell in corners(base(box))]
            assert meeting.touch.corner_levels == levels
            held = sum(
                any(overlap((x, y, 0, x + 1, y + 1, 1), packed[i]) for i in below)
                for x, y in product(range(box[0], box[3]), range(box[1], box[4]))
            )
            assert meeting.touch.support == (held if below else meeting.touch.area)
            stable = boxes.is_stable(rule, packed, box)
            assert pile.is_stable(rule, meeting) == stable
            shifted = (*box[:2], box[2] - 1, *box[3:5], box[5] - 1)
            shared = [
                overlap(shifted, other) and other[2] < shifted[5] and shifted[2] < other[5]
                for other in packed
            ]
            assert pile.meet(shifted).overlapping.tolist() == shared
            verdicts.add(stable)
            if stable:
                packed.append(box)
                pile.put(meeting)
                assert pile.box(len(packed) - 1) == box
    assert verdicts == ({True} if rule == "none" else {True, False})


def rests_on(items: list[Item]) -> list[set[int]]:
    """Return what each box rests on, directly or through others, by the definition."""
    everything = range(len(items))
    direct = [{j for j in everything if lies_on(items[i][0], items[j][0])} for i in everything]
    for i in sorted(everything, key=lambda i: items[i][0][2]):
        direct[i] = direct[i].union(*(direct[j] for j in direct[i]))
    return direct


def test_loads_and_layers_agree_with_the_definition() -> None:
    draw = np.random.default_rng(1)
    packed: list[Box] = []
    items: list[Item] = []
    for _ in range(60):
        packed.append(dropped(draw, packed, 9))
        weight, most = int(draw.integers(0, 9)), int(draw.integers(1, 8))
        items.append((packed[-1], {"weight": weight, "max_load": 40.0, "layers": most}))
    draw.shuffle(items)  # boxes appear under others as well
    results = load_of({"max_load": True, "door": "rear"}, items)
    for count, result in enumerate(results, 1):
        shown = items[:count]
        below = rests_on(shown)
        borne = [
            sum(shown[i][1]["weight"] for i in range(count) if j in below[i]) for j in range(count)
        ]
        # Only the weight on the new item and on those below it changes.
        changed = [borne[-1], *(borne[j] for j in below[-1])]
        assert ("max_load" in result) == (max(changed) > 40)
        levels = [1] * count
        for j in sorted(range(count), key=lambda j: -shown[j][0][2]):
            levels[j] += max([levels[i] for i in range(count) if j in below[i]], default=0)
        broken_before = any("layers" in earlier for earlier in results[: count - 1])
        stacks = any(levels[j] > shown[j][1]["layers"] for j in range(count))
        assert stacks == ("layers" in result or broken_before)


@pytest.mark.parametrize("door", ["top", "rear", "side"])
def test_unloading_and_clearance_agree_with_the_definition(door: str) -> None:
    draw = np.random.default_rng(5)
    verdicts = set()
    for gap in (1, 2, 3) * 4:
        packed: list[Box] = []
        items: list[Item] = []
        for _ in range(14):
            packed.append(dropped(draw, packed, 9))
            items.append((packed[-1], {"group": int(draw.integers(0, 3))}))
        if door != "top":
            draw.shuffle(items)
        rules = {"lifo": True, "clearance": gap * UNIT, "wall_clearance": 0.0, "door": door}
        for new, result in enumerate(load_of(rules, items)):
            shown = items[: new + 1]
            below = rests_on(shown)
            kept = {"lifo": True, "clearance": True}
            for i, j in [*((i, new) for i in range(new)), *((new, i) for i in range(new))]:
                (one, first), (two, last) = shown[i], shown[j]
                end = {"rear": 3, "side": 4, "top": 5}[door]
                swept = [99 if axis == end else length for axis, length in enumerate(one)]
                blocks = all(swept[a] < two[3 + a] and two[a] < swept[3 + a] for a in range(3))
                if first["group"] < last["group"] and (blocks or (door != "top" and i in below[j])):
                    kept["lifo"] = False
                apart = [max(one[a] - two[3 + a], two[a] - one[3 + a]) for a in range(3)]
                if apart[2] < 0 and max(apart[:2]) < gap:
                    kept["clearance"] = False
            assert {name for name, holds in kept.items() if not holds} == {*result}
            verdicts |= {*result}
    assert verdicts == {"lifo", "clearance"}


def test_lengths_are_exact() -> None:
    assert units(0.3, 0.1) == 3
    assert occupied((0.1, 0.15, 0.0, 0.2, 0.1, 0.30000000001), 0.1) == (1, 1, 0, 3, 3, 3)
    assert Rules.of({"clearance": 0.2000000001}, 0.1).clearance == 2
    assert Rules.of({"clearance": 0.201}, 0.1).walls == 3


def test_an_empty_load_is_balanced() -> None:
    rules = Rules.of({"balance": 0.0}, UNIT)
    assert not off_balance(BoxLoad(rules, SIDES, Pile(0)))


# ------------------------------------------------------------------ many boxes


def test_a_load_of_many_boxes_is_checked(tmp_path: Path) -> None:
    rules = {
        **{"max_load": True, "lifo": True, "weight_limit": 1e4, "balance": 0.5, "support": 1.0},
        **{"door": "rear", "fragile": "top", "no_stacking": True},
    }
    places = [(x, y, z) for x in range(10) for y in range(15) for z in range(10)]
    handling = {"weight": 1.0, "max_load": 9.0, "layers": 10, "group": 1}
    items: list[Item] = [((x, y, z, x + 1, y + 1, z + 1), handling) for x, y, z in places]
    plan = plan_of(rules, items, container=[1.0, 1.5, 1.0], utilization=1.0)
    report = checked(plan, tmp_path)
    assert report.holds, report.violation
    assert report.items == 1500
