"""The reasons for left-over parts: the constraint at fault, or no room."""

import sys
import time
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pytest
from tests.planner.orders import BOTH, GRID, box, on, patiently

import packing_env as pe
from packing_env import kernels
from packing_env.constraints import Constraints
from packing_env.kernels import backends
from packing_env.planner import Part
from packing_env.planner.boxes.reasons import BoxReasons
from packing_env.planner.grid.reasons import Reasons
from packing_env.planner.reasons import CAUSES, NOT_TRIED, Causes, Load, OutOfTimeError


def cubes(quantity: int, **handling: Any) -> Part:
    return box("cube", 100, 100, 100, quantity=quantity, **handling)


PEG, PLATE = (40, 40, 40), (100, 100, 50)
CASES: dict[str, tuple[str, list[Part], dict[str, Any], dict[str, str]]] = {
    "room": ("100x100x200mm", [cubes(3)], {}, {"cube": "no room found"}),
    "room, with a limit that is not met": (
        "100x100x200mm",
        [cubes(3, weight=2.0)],
        {"weight_limit": 50.0},
        {"cube": "no room found"},
    ),
    "weight of all": (
        "300x100x100mm",
        [cubes(3, weight=2.0)],
        {"weight_limit": 5.0},
        {"cube": "weight_limit"},
    ),
    "weight of one": (
        "300x100x100mm",
        [cubes(1, weight=2.0), box("lid", 50, 50, 10, quantity=2, weight=0.5)],
        {"weight_limit": 1.0},
        {"cube": "too heavy for any container"},
    ),
    "weight of one, beside heavier loads": (
        "300x100x100mm",
        [cubes(3, weight=2.0), box("anvil", 50, 50, 50, weight=9.0)],
        {"weight_limit": 6.0},
        {"anvil": "too heavy for any container"},
    ),
    "weight, of a container without room": (
        "100x100x100mm",
        [cubes(2, weight=2.0), box("lid", 100, 100, 90, weight=9.0)],
        {"weight_limit": 5.0},
        {"cube": "no room found", "lid": "too heavy for any container"},
    ),
    "weight, of the container that could take more": (  # the other one is full
        "100x100x120mm",
        [
            box("slab", 100, 100, 60, weight=4.0),
            box("foam", 100, 100, 40, quantity=4, weight=1.0),
        ],
        {"containers": 2, "weight_limit": 4.0},
        {"foam": "weight_limit"},
    ),
    "load": ("100x100x200mm", [cubes(2, weight=2.0, max_load=1.0)], {}, {"cube": "max_load"}),
    "stacking": ("100x100x200mm", [cubes(2, stackable=False)], {}, {"cube": "no_stacking"}),
    "group": (
        "100x100x90mm",
        [box("peg", *PEG, group=2), box("plate", *PLATE, group=1)],
        {"stability": "com_hull"},
        {"peg": "lifo"},
    ),
    "fragile": (
        "100x100x90mm",
        [box("peg", *PEG), box("plate", *PLATE, fragile=True)],
        {"stability": "com_hull"},
        {"peg": "fragile"},
    ),
    "balance": (
        "200x100x100mm",
        [cubes(1, weight=20.0), box("foam", 100, 100, 90, weight=2.0)],
        {"balance": 0.1},
        {"foam": "balance"},
    ),
    "clearance": (
        "210x100x100mm",
        [cubes(2)],
        {"clearance": "20mm", "wall_clearance": 0.0},
        {"cube": "clearance"},
    ),
    "walls": (
        "150x150x150mm",
        [box("board", 140, 140, 100), box("peg", *PEG)],
        {"wall_clearance": "10mm"},
        {"board": "wall_clearance"},
    ),
    "preplaced": (
        "200x100x100mm",
        [cubes(2)],
        {"preplaced": ["10x10x10mm@0,0,0"]},
        {"cube": "preplaced"},
    ),
    "layers": ("100x100x300mm", [cubes(3, layers=2)], {}, {"cube": "layers"}),
    "like": (
        "100x100x200mm",
        [box("shy", 100, 100, 90, on_like=True), box("coy", 100, 100, 80, on_like=True)],
        {},
        {"coy": "on_like"},
    ),
    "support on a pre-placed box": (
        "100x100x100mm",
        [box("lid", 100, 100, 50), box("peg", 9, 9, 9)],
        {"support": 1.0, "preplaced": ["99x99x50mm@0,0,0"]},
        {"lid": "preplaced support"},
    ),
    "two together": (
        "100x100x200mm",
        [cubes(2, weight=2.0, max_load=1.0)],
        {"weight_limit": 3.0},
        {"cube": "max_load weight_limit"},
    ),
}


def test_every_constraint_has_words() -> None:
    assert CAUSES.keys() == {field.name for field in fields(Constraints)}


@pytest.mark.parametrize("name", CASES)
def test_the_constraint_that_is_the_cause_is_named(name: str) -> None:
    container, parts, options, expected = CASES[name]
    plan = pe.pack(parts, container, 1e-6, **{"stability": "none", **options})
    reasons = {part.name: part.reason for part in plan.left}
    assert reasons.keys() == expected.keys()
    for part, words in expected.items():
        assert all(word in reasons[part] for word in words.split()), reasons
        assert ("no room found" in reasons[part]) == (words == "no room found"), reasons


def test_room_that_a_clearance_takes_is_found_by_loading_again() -> None:
    """Eight cubes with gaps of 20 mm leave no place; ten fit without."""
    options = {"clearance": "20mm", "wall_clearance": 0.0}
    plan = pe.pack([cubes(10)], "1000x100x100mm", 0.2, **options)
    assert [(part.quantity, part.reason.split(":")[0]) for part in plan.left] == [(2, "clearance")]


def test_on_a_grid_other_parts_keep_their_places_while_a_constraint_is_lifted() -> None:
    """Packed again, the peg would come first, and the plate would have no place."""
    order = [box("peg", *PEG), box("plate", *PLATE, fragile=True)]
    plan = patiently(
        lambda plan: [part.name for part in plan.left] == ["peg"],
        lambda times: pe.pack(order, "100x100x90mm", times, **on(GRID)),
    )
    assert [(part.name, part.reason.split(":")[0]) for part in plan.left] == [("peg", "fragile")]


def test_a_limit_of_a_container_that_may_still_be_used_is_named() -> None:
    sizes = ["10x10x10cm,number=1,cost=1", "10x10x20cm,cost=2,weight_limit=0.5kg"]
    plan = pe.pack([cubes(2, weight=1.0)], sizes, 2, containers=3, choose="cheapest")
    assert plan.num_packed == 1
    assert "weight_limit" in plan.left[0].reason


@BOTH
def test_a_place_that_opens_late_is_used(stability: str) -> None:
    """Alone the lid would be off the middle; with the brick below it the load is balanced.

    On a grid the balance is demanded after every placement; in exact orders, at the end.
    """
    lid = box("lid", 100, 100, 50, weight=1.0, faces=("+z",))
    brick = box("brick", 90, 100, 50, weight=9.0, faces=("+z",))
    plan = pe.pack([lid, brick], "210x100x100mm", 1e-6, balance=0.02, **on(stability))
    names = [item.name for item in plan.containers[0].items]
    assert (names if stability == GRID else sorted(names)) == ["brick", "lid"]


@pytest.mark.parametrize(
    ("sides", "faces", "reason"),
    [
        ((240, 180, 40), (), "smaller cell"),
        ((230, 100, 90), ("+z",), "smaller cell"),
        ((180, 100, 90), ("+z",), ""),
        ((100, 90, 180), ("+z",), "face"),
        ((250, 180, 40), (), "fits in no orientation"),
    ],
)
def test_a_part_that_fits_in_no_pose(
    sides: tuple[float, float, float], faces: tuple[str, ...], reason: str
) -> None:
    """Cells of 50 mm cover 200 x 150 mm of the floor."""
    order = [box("part", *sides, faces=faces), box("peg", *PEG)]
    plan = pe.pack(order, "240x180x100mm", 1e-6, cell="50mm", stability=GRID)
    assert [reason in each.reason for each in plan.left] == [True] * bool(reason)
    plan = pe.pack(order, "240x180x100mm", 1e-6)
    words = reason if reason != "smaller cell" else ""
    assert [words in each.reason for each in plan.left] == [True] * bool(words)


COARSE = {"cell": "50mm", "stability": GRID}


@pytest.mark.parametrize(
    ("board", "options", "words"),
    [
        (box("board", 240, 180, 90), COARSE, r"240 x 180 x 100 mm.*board"),
        (box("board", 250, 180, 90), COARSE, r"240 x 180 x 100 mm.*board"),
        (box("board", 250, 180, 90), {}, r"240 x 180 x 100 mm.*board"),
        (box("board", 170, 235, 50, turn=False), {}, "only turned about z"),
        (box("board", 170, 235, 50, faces=("+x",)), {}, "not allowed"),
        (box("board", 170, 235, 50), {"clearance": "6mm"}, "clearance"),
    ],
)
def test_an_order_of_which_nothing_fits_states_the_size_and_the_reason(
    board: Part, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(pe.items.CatalogueError, match=words):
        pe.pack([board], "240x180x100mm", 1.0, **options)


def test_causes_that_there_was_no_time_to_find_are_not_made_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def at_once(*given: Any) -> Reasons:
        return Reasons(*given[:-1], -1.0)

    def boxes_at_once(*given: Any) -> BoxReasons:
        return BoxReasons(*given[:-1], -1.0)

    module = sys.modules[pe.pack.__module__]
    monkeypatch.setattr(module, "Reasons", at_once)
    monkeypatch.setattr(module, "BoxReasons", boxes_at_once)
    parts = [cubes(2, weight=2.0, max_load=1.0)]
    for stability in ("none", GRID):
        plan = pe.pack(parts, "100x100x200mm", seconds=0.2, **on(stability))
        assert [(left.quantity, left.reason) for left in plan.left] == [(1, NOT_TRIED)]


def test_kernels_that_are_compiled_take_no_time_from_the_reasons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    causes = Causes(60.0, 1)
    for name in ("perf_counter", "monotonic"):
        now = getattr(time, name)
        monkeypatch.setattr(time, name, lambda now=now: now() + 3600.0)
    monkeypatch.setattr(backends, "_COMPILING", [3600.0 + kernels.compile_seconds()])
    causes.check_time()
    causes.begin_share()
    assert 0.0 < causes.share <= 60.0


def test_a_part_with_a_place_that_was_found_too_late_has_no_other_reason() -> None:
    class Spacious(Load):
        names = ("lifo", "weight_limit")

        def has_place(self, part: int, lifted: Sequence[str] = ()) -> bool:
            return True

        def takes_more(self, part: int, lifted: Sequence[str]) -> bool:
            return False

    with pytest.raises(OutOfTimeError):
        Causes(5.0, 1).text(0, [Spacious()])
