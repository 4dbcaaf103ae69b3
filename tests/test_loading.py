"""Loads of boxes that are all known: valid, deterministic, and as full as they can be."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path

import pytest

from packing_env import make_env
from packing_env.plan import BoxType, LoadedBox, check_plan, load_boxes, load_container, save_plan
from packing_env.types import ParameterError

pytest.importorskip("numba")

Sides = tuple[int, int, int]


def check_load(container: Sides, types: list[BoxType], load: list[LoadedBox]) -> int:
    """Assert that boxes lie inside and apart, each at rest once lowered; return the volume."""
    solids: list[tuple[Sides, Sides]] = []
    for box in load:
        sides = types[box.kind].orientations[box.orientation]
        low, high = box.corner, tuple(c + s for c, s in zip(box.corner, sides, strict=True))
        assert all(a >= 0 and b <= c for a, b, c in zip(low, high, container, strict=True)), box
        under = [
            top[2]
            for bottom, top in solids
            if all(bottom[a] < high[a] and top[a] > low[a] for a in (0, 1))
        ]
        assert low[2] == max(under, default=0), box
        solids.append((low, (high[0], high[1], high[2])))
    for kind, boxes in enumerate(types):
        assert sum(box.kind == kind for box in load) <= boxes.count
    return sum((b[0] - a[0]) * (b[1] - a[1]) * (b[2] - a[2]) for a, b in solids)


def random_types(seed: int) -> list[BoxType]:
    """A few kinds of boxes; with odd seeds every side may stand upright."""
    draw = random.Random(seed)
    types = []
    for _ in range(1 + seed % 5):
        sides = a, b, c = (draw.randint(3, 14), draw.randint(3, 14), draw.randint(3, 14))
        turned = set(itertools.permutations(sides)) if seed % 2 else {(a, b, c), (b, a, c)}
        types.append(BoxType(sorted(turned), draw.randint(1, 12)))
    return types


@pytest.mark.parametrize("seed", range(12))
def test_loads_are_valid_and_beat_the_first_of_them(seed: int) -> None:
    container = (30, 20, 25)
    types = random_types(seed)
    volumes = [
        check_load(container, types, load_boxes(container, types, width=width, seconds=60))
        for width in (1, 4)
    ]
    assert volumes[1] >= volumes[0] > 0


def test_all_boxes_of_a_cut_container_are_loaded() -> None:
    container = (12, 10, 9)
    types = [BoxType([(4, 5, 3), (5, 4, 3)], 10), BoxType([(4, 10, 9)], 1), BoxType([(3, 4, 5)], 2)]
    load = load_boxes(container, types[:2], seconds=60)
    assert check_load(container, types, load) == 10 * 60 + 360
    whole = [BoxType([(3, 5, 3)], 24)]
    assert check_load(container, whole, load_boxes(container, whole, seconds=60)) == 12 * 10 * 9


def test_threads_do_not_change_a_load_of_given_width() -> None:
    container, types = (30, 20, 25), random_types(7)
    loads = [load_boxes(container, types, width=8, seconds=60, threads=n) for n in (1, 2, 3)]
    assert loads[0] == loads[1] == loads[2]


def test_time_ends_a_search() -> None:
    start = time.monotonic()
    types = [BoxType(kind.orientations, 40) for kind in random_types(9)]
    assert load_boxes((60, 50, 40), types, seconds=0.2)
    assert time.monotonic() - start < 30


def test_a_box_that_fits_nowhere_stays_out() -> None:
    types = [BoxType([(9, 1, 1)], 3), BoxType([(2, 2, 2)], 1)]
    load = load_boxes((4, 4, 4), types, seconds=10)
    assert [box.kind for box in load] == [1]
    assert load_boxes((4, 4, 4), types[:1], seconds=10) == []


@pytest.mark.parametrize(
    ("container", "types", "message"),
    [
        ((4, 0, 4), [BoxType([(1, 1, 1)], 1)], "container"),
        ((4, 4, 4), [], "types is empty"),
        ((4, 4, 4), [BoxType([], 1)], "orientations is empty"),
        ((4, 4, 4), [BoxType([(1, -1, 1)], 1)], "orientations"),
        ((4, 4, 4), [BoxType([(1, 1, 1)], 0)], "count"),
    ],
)
def test_wrong_problems_are_refused(container: Sides, types: list[BoxType], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        load_boxes(container, types)


def test_the_plan_of_a_loaded_container_holds(tmp_path: Path) -> None:
    env = make_env("cuboid_continuous", num_envs=2, pool_size=2, num_items=12)
    env.reset()
    before = {key: value.clone() for key, value in env.state.items()}
    packing = load_container(env, row=1, width=8, seconds=60)
    assert len(packing.items) > 3
    save_plan(tmp_path / "plan.json", packing)
    report = check_plan(tmp_path / "plan.json")
    assert report.holds, report.violation
    assert all((env.state[key] == value).all() for key, value in before.items())


def test_loading_refuses_rules_that_it_does_not_keep() -> None:
    env = make_env("cuboid_online", num_envs=1)
    env.reset()
    with pytest.raises(ParameterError, match="geometry='boxes' and stability='none'"):
        load_container(env)
