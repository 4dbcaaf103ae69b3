"""Places for one more box in a finished load."""

from typing import Any

import numpy as np
import pytest

from packing_env.plan import BoxType, LoadedBox, LoadRules
from packing_env.plan.loading import places
from packing_env.plan.loading.places import add_boxes, fill_places, has_place
from packing_env.plan.loading.problem import Problem

pytest.importorskip("numba")
CUBE = [(10, 10, 10)]


def one_more(room: tuple[int, int, int], types: list[BoxType], load: Any, **rules: Any) -> bool:
    boxes = [LoadedBox(kind, 0, corner) for kind, corner in load]
    found = has_place(room, types, boxes, len(types) - 1, LoadRules(**rules))
    assert found is not None
    return found


def cuts(near: int, far: int) -> dict[str, Any]:
    """Return rules that cut both edges of the floor along y off."""
    return {"cuts": ((0, False, near, 2, False, 5), (0, True, far, 2, False, 5))}


def test_what_is_left_goes_where_it_has_a_place() -> None:
    problem = Problem((30, 10, 25), [BoxType(CUBE, 6), BoxType([(10, 10, 5)], 9)])
    load = fill_places(problem, np.array([[0, 0, 10, 0, 0]]))
    assert np.bincount(load[:, 0]).tolist() == [6, 3]
    assert np.unique(load[:, 2:], axis=0).shape == (9, 3)
    assert fill_places(problem, load).tolist() == load.tolist()


def test_a_search_that_is_given_up_looks_at_no_other_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of 20 kinds uses up the comparisons."""
    monkeypatch.setattr(places, "_COMPARISONS", 1)
    types = [BoxType([(10, 10, 10 + n)], 2) for n in range(20)]
    looked = []
    lengths = places.Places._lengths
    monkeypatch.setattr(
        places.Places, "_lengths", lambda *given: (looked.append(1), lengths(*given))[1]
    )
    problem = Problem((100, 100, 100), types)
    load = fill_places(problem, np.array([[kind, 0, 10 * kind % 100, 0, 0] for kind in range(10)]))
    assert len(load) == 10
    assert len(looked) == 1


def test_a_row_of_boxes_is_passed_box_by_box(monkeypatch: pytest.MonkeyPatch) -> None:
    """80 boxes fill the floor; a search that tries every coordinate compares 26,000 pairs."""
    widths = [10 + n for n in range(80)]
    types = [BoxType([(20, width, 50)], 1) for width in widths] + [BoxType([(15, 15, 15)], 1)]
    load = [LoadedBox(n, 0, (0, sum(widths[:n]), 0)) for n in range(80)]
    given = (20, sum(widths), 70), types, load, 80, LoadRules("com_hull")
    monkeypatch.setattr(places, "_COMPARISONS", 20_000)
    assert has_place(*given)
    # A search that was given up goes on with more seconds.
    monkeypatch.setattr(places, "_COMPARISONS", 2_000)
    assert has_place(*given) is None
    assert has_place(*given, 10.0)


@pytest.mark.parametrize(
    ("room", "load", "rules", "found"),
    [
        ((20, 10, 10), [(0, (0, 0, 0))], {}, True),
        ((19, 10, 10), [(0, (0, 0, 0))], {}, False),
        ((20, 10, 10), [(0, (5, 0, 0))], {}, False),
        ((25, 10, 10), [(0, (0, 0, 0))], {"gap": 5}, True),
        ((24, 10, 10), [(0, (0, 0, 0))], {"gap": 5}, False),
        ((22, 12, 10), [(0, (1, 1, 0))], {"walls": 1}, True),
        ((21, 12, 10), [(0, (1, 1, 0))], {"walls": 1}, False),
        ((10, 10, 20), [(0, (0, 0, 0))], {"headroom": 1}, False),
        ((20, 10, 10), [(0, (0, 0, 0))], {"before": ((15, 0, 0, 20, 10, 5),)}, False),
        # Behind the other box, by the door at the rear; from above it has a way in.
        ((20, 10, 10), [(0, (10, 0, 0))], {"door": "rear"}, False),
        ((20, 10, 10), [(0, (10, 0, 0))], {"door": "side"}, True),
        # In balance: the load may move as a whole.
        ((40, 10, 10), [(0, (15, 0, 0))], {"balance": 0.0}, True),
        ((40, 10, 10), [(0, (15, 0, 0))], {"weight_limit": 1}, False),
        # Between two edges of the floor that are cut off, as long as the box or shorter.
        ((40, 10, 10), [], cuts(10, 20), True),
        ((40, 10, 10), [], cuts(11, 20), False),
        ((31, 10, 10), [], cuts(9, 9), True),
    ],
)
def test_a_place_is_found_if_there_is_one(
    room: tuple[int, int, int], load: Any, rules: dict[str, Any], found: bool
) -> None:
    assert one_more(room, [BoxType(CUBE, 2, weight=1)], load, **rules) == found


@pytest.mark.parametrize(
    ("below", "box", "rules", "found"),
    [
        ({}, {}, {}, True),
        ({"stackable": False}, {}, {"no_stacking": True}, False),
        ({"max_load": 4}, {"weight": 5}, {"max_load": True}, False),
        ({"max_load": 5}, {"weight": 5}, {"max_load": True}, True),
        ({"fragile": True}, {}, {"fragile": "last"}, False),
        ({"fragile": True}, {"fragile": True}, {"fragile": "last"}, True),
        ({"group": 1}, {"group": 2}, {"lifo": True}, False),
        ({"group": 2}, {"group": 1}, {"lifo": True}, True),
        ({"layers": 1}, {}, {}, False),
        ({"name": "a"}, {"name": "b", "on_like": True}, {}, False),
        ({"name": "a"}, {"name": "a", "on_like": True}, {}, True),
    ],
)
def test_a_place_on_a_box_keeps_the_constraints(
    below: dict[str, Any], box: dict[str, Any], rules: dict[str, Any], found: bool
) -> None:
    types = [BoxType(CUBE, 1, **below), BoxType(CUBE, 1, **box)]
    assert one_more((10, 10, 20), types, [(0, (0, 0, 0))], **rules) == found


def test_equal_boxes_that_are_added_do_not_take_the_names_of_those_in_the_load() -> None:
    """Types of equal boxes are one kind for the search."""
    cube = [(10, 10, 10)]
    load = [LoadedBox(1, 0, (10 * n, 0, 0)) for n in range(3)]
    boxes = add_boxes((50, 10, 10), [BoxType(cube, 4), BoxType(cube, 3)], load, LoadRules())
    assert sorted(box.kind for box in boxes) == [0, 0, 1, 1, 1]
