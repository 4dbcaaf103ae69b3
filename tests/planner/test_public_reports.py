"""Orders from public bug reports of other packing programs, each with the right result."""

from collections import Counter
from typing import Any

import pytest

import packing_env as pe
from packing_env.planner import Part, Plan

Box = tuple[str, int] | tuple[str, int, dict[str, Any]]
UP: dict[str, Any] = {"faces": ("+z",)}
BOXPACKER = "dvdoug/BoxPacker "
SKJOLBER = "skjolber/3d-bin-container-packing "

PACKED: dict[str, tuple[list[Box], str, int]] = {
    SKJOLBER + "2: 17 would overlap": ([("330x88x88", 17)], "320x490x290mm", 9),
    SKJOLBER + "157": (
        [("100x70x90", 1), ("80x75x90", 1), ("60x75x80", 1)],
        "145x147x145mm",
        3,
    ),
    SKJOLBER + "297: three would overlap": (
        [("213x187x180", 1), ("217x170x78", 1), ("129x102x71", 1)],
        "282x222x190mm",
        2,
    ),
    SKJOLBER + "574": ([("350x250x140", 3), ("350x230x130", 1)], "600x400x250mm", 4),
    BOXPACKER + "147": ([("90x200x200", 14, UP)], "250x1360x260mm", 14),
    BOXPACKER + "148": ([("6x12x20", 11), ("12x6x20", 1)], "25x36x21mm", 12),
    BOXPACKER + "150": ([("7.5x6x18.5", 28)], "35x42x21mm", 28),
    BOXPACKER + "205": ([("10x10x30", 7, {"stackable": False})], "30x20x100mm", 6),
    BOXPACKER + "244": (
        [
            ("850x95x1450", 21), ("1250x140x1650", 3), ("1100x60x1400", 1), ("850x60x1400", 1),
            ("1000x60x1400", 2),
        ],
        "2290x1520x1520mm",
        28,
    ),
    "olragon/binpackingjs 4": (
        [("210x80x46", 2), ("210x80x8", 1), ("220x110x20", 1)],
        "292x220x46mm",
        4,
    ),
    "latuconsinafr/3d-bin-packager 9": (
        [("24x17x4", 1), ("24x17x2", 1), ("24x17x2.6", 4)],
        "26.5x19.5x20mm",
        6,
    ),
}  # fmt: skip
"""Boxes in mm, a container, and the largest number of boxes that fit."""
CHOSEN: dict[str, tuple[list[Box], list[str], dict[str, Any], list[tuple[str, int]]]] = {
    SKJOLBER + "99": (
        [("299x299x99", 3), ("99x99x99", 1)],
        ["100x100x100mm,name=1", "200x200x200mm,name=2", "300x300x300mm,name=3"],
        {},
        [("1", 1), ("3", 3)],
    ),
    BOXPACKER + "155": (
        [("1x1x1", 7, {"weight": 1.0})],
        ["9x9x9mm,weight_limit=2kg,name=two", "9x9x9mm,weight_limit=5kg,name=five"],
        {},
        [("five", 5), ("two", 2)],
    ),
    BOXPACKER + "166": (
        [("10x10x10", 40, {"weight": 1.0})],
        ["60x60x10mm,name=pallet"],
        {"weight_limit": 18.0, "choose": "balanced"},
        [("pallet", 13), ("pallet", 13), ("pallet", 14)],
    ),
    BOXPACKER + "348": (
        [("4.5x2x3.5", 2), ("17.5x7x7", 1), ("15.5x7x7", 1)],
        [
            f"{s}mm,name={s}"
            for s in ("18x7x7", "24x9x9", "18x14x8", "36x24x12", "36x24x6", "8x8x4")
        ],
        {},
        [("18x14x8", 4)],
    ),
    "fontanf/packingsolver 13: bars with 4 mm between the pieces": (
        [("2408x1x1", 8)],
        ["6950x1x1mm,cost=6950,number=8,name=0", "7000x1x1mm,cost=3500,number=2,name=1"],
        {"choose": "cheapest", "clearance": "4mm", "wall_clearance": 0.0},
        [("0", 2), ("0", 2), ("1", 2), ("1", 2)],
    ),
}
"""Boxes in mm, containers, options, and the number of boxes in each container of the best set."""


def pack(boxes: list[Box], container: Any, **options: Any) -> Plan:
    parts = []
    for sides, quantity, *handling in boxes:
        a, b, c = map(float, sides.split("x"))
        given = dict(handling[0]) if handling else {}
        faces = given.pop("faces", ())
        parts.append(
            Part(sides=(a, b, c), unit="mm", quantity=quantity, faces=faces, handling=given)
        )
    return pe.pack(parts, container, 3.0, **options)


@pytest.mark.parametrize("report", PACKED)
def test_as_many_boxes_are_packed_as_fit(report: str) -> None:
    boxes, container, number = PACKED[report]
    plan = pack(boxes, container)
    assert plan.num_packed == number
    assert plan.num_packed + plan.num_left == sum(quantity for _, quantity, *_ in boxes)


@pytest.mark.parametrize("report", CHOSEN)
def test_the_best_containers_are_chosen(report: str) -> None:
    boxes, containers, options, expected = CHOSEN[report]
    plan = pack(boxes, containers, containers=10, **options)
    assert plan.num_left == 0
    assert Counter((each.name, len(each.items)) for each in plan.containers) == Counter(expected)
