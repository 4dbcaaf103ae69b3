"""Loads of boxes that are all known in advance: valid, deterministic, and as full as possible."""

import itertools
import json
import math
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands import run_program
from tests.peak_memory import peak_bytes

from packing_env.plan import (
    BoxType,
    LoadedBox,
    LoadRules,
    load_boxes,
)
from packing_env.plan.loading.compiled import compiled
from packing_env.plan.loading.search import Search
from packing_env.plan.loading.strips import floor_strips
from packing_env.types import ParameterError

pytest.importorskip("numba")

Sides = tuple[int, int, int]


def check_load(container: Sides, types: list[BoxType], load: list[LoadedBox]) -> int:
    """Assert that boxes lie inside and apart, each at rest once lowered; return the volume."""
    sides = np.array([types[box.kind].orientations[box.orientation] for box in load])
    low = np.array([box.corner for box in load]).reshape(-1, 3)
    high = low + sides.reshape(-1, 3)
    assert (low >= 0).all()
    assert (high <= np.array(container)).all()
    for n in range(len(load)):
        over = ((low[:n, :2] < high[n, :2]) & (high[:n, :2] > low[n, :2])).all(1)
        assert low[n, 2] == high[:n, 2][over].max(initial=0), load[n]
    for kind, boxes in enumerate(types):
        assert sum(box.kind == kind for box in load) <= boxes.count
    return sum(math.prod(map(int, triple)) for triple in sides)


def turned(*sides: int) -> list[Sides]:
    return sorted(set(itertools.permutations(sides)))


def random_types(seed: int) -> list[BoxType]:
    """Return a few kinds of boxes; with odd seeds, any side may be vertical."""
    draw = random.Random(seed)
    types = []
    for _ in range(1 + seed % 5):
        sides = a, b, c = (draw.randint(3, 14), draw.randint(3, 14), draw.randint(3, 14))
        turned = set(itertools.permutations(sides)) if seed % 2 else {(a, b, c), (b, a, c)}
        types.append(BoxType(sorted(turned), draw.randint(1, 12)))
    return types


@pytest.mark.parametrize("seed", range(6))
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


@pytest.mark.parametrize("seed", range(3))
def test_fifty_pieces_of_a_cut_container_are_loaded(seed: int) -> None:
    draw, container = random.Random(seed), (120, 80, 100)
    pieces = [container]
    while len(pieces) < 50:  # cut the largest piece across its longest side
        largest = max(pieces, key=math.prod)
        pieces.remove(largest)
        axis = largest.index(max(largest))
        at = draw.randint(3 * largest[axis] // 10, largest[axis] // 2)
        for length in (at, largest[axis] - at):
            x, y, z = (length if a == axis else side for a, side in enumerate(largest))
            pieces.append((x, y, z))
    types = [BoxType(turned(*piece), 1) for piece in pieces]
    load = load_boxes(container, types, seconds=60, width=4)
    assert check_load(container, types, load) == math.prod(container)


def test_threads_do_not_change_a_load_of_given_width() -> None:
    container, types = (30, 20, 25), random_types(7)
    loads = [load_boxes(container, types, width=8, seconds=60, threads=n) for n in (1, 2, 3)]
    assert loads[0] == loads[1] == loads[2]


@pytest.mark.parametrize("stability", ["none", "com_hull"])
def test_the_first_load_is_completed_without_time(stability: str) -> None:
    types, rules = many_types(60, 6), LoadRules(stability)
    load = load_boxes((3000, 2352, 2393), types, seconds=1e-6, rules=rules)
    assert check_load((3000, 2352, 2393), types, load) > 0.8 * 3000 * 2352 * 2393


def test_a_first_load_of_many_different_boxes_is_complete() -> None:
    """The time is over at once; the boxes fill a tenth of the container."""
    draw = random.Random(0)
    sides = [[draw.randint(30, 350) for _ in range(3)] for _ in range(1000)]
    types = [BoxType(turned(*triple), 1) for triple in sides]
    load = load_boxes(FORTY_FOOT, types, seconds=1e-6, rules=LoadRules("com_hull"))
    check_load(FORTY_FOOT, types, load)
    assert len(load) == len(types)


def test_corners_refuse_only_what_is_not_allowed() -> None:
    """Interpreted kernels judge every refused block once more, against all boxes."""
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    program = (Path(__file__).parent / "interpreted_corners.py").read_text(encoding="utf-8")
    refused = json.loads(run_program(program, env=env).stdout)
    assert sum(refused.values()) > 10_000


def many_types(number: int, count: int, unit: int = 1) -> list[BoxType]:
    draw = random.Random(number)
    sides = [[unit * draw.randint(200, 700) + unit // 2 for _ in range(3)] for _ in range(number)]
    return [BoxType(turned(*triple), count) for triple in sides]


FORTY_FOOT = (12_032, 2_352, 2_393)
LARGE: dict[str, tuple[Sides, list[BoxType], float]] = {
    "cartons": (FORTY_FOOT, [BoxType(turned(600, 400, 300), 2000)], 0.85),
    "20 types of 200": (FORTY_FOOT, many_types(20, 200), 0.9),
    "200 types of 25": (FORTY_FOOT, many_types(200, 25), 0.9),
    # They have more empty cuboids than the first arrays of a search held.
    "2,000 types of one": (FORTY_FOOT, many_types(2000, 1), 0.9),
    "unit cubes": ((60, 60, 60), [BoxType([(1, 1, 1)], 60**3)], 1.0),
    "more than fit": ((10, 10, 10), [BoxType([(2, 2, 2)], 10**7)], 1.0),
    "micrometres": (
        (12_032_000, 2_352_000, 2_393_000),
        [BoxType(turned(600_000, 400_000, 300_000), 2000)],
        0.85,
    ),
    "odd micrometres": ((12_032_000, 2_352_000, 2_393_000), many_types(10, 200, 1001), 0.9),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_problems_keep_to_their_memory(name: str) -> None:
    container, types, share = LARGE[name]
    load_boxes((60, 50, 40), types, seconds=1e-6)  # compiles
    loads: list[list[LoadedBox]] = []
    peak = peak_bytes(lambda: loads.append(load_boxes(container, types, seconds=0.3, threads=1)))
    assert peak is None or peak < 1e9
    (load,) = loads
    if len(load) > 2000:
        assert {box.corner for box in load} == set(itertools.product(range(60), repeat=3))
    else:
        assert check_load(container, types, load) >= share * math.prod(container)


def test_lengths_beyond_int32_are_loaded_as_shorter_ones() -> None:
    types = [BoxType([(3 * 10**10, 2 * 10**10, 10**10)], 4), BoxType([(10**10 + 1, 7, 5)], 2)]
    container = (6 * 10**10 + 3, 4 * 10**10, 10**10 + 5)
    load = load_boxes(container, types, seconds=0.5)
    check_load(container, types, load)
    assert sorted(box.kind for box in load) == [0, 0, 0, 0, 1, 1]
    with pytest.raises(ParameterError, match="container"):
        load_boxes((2**61, 1, 1), types)
    # Areas of bases would not fit into int64.
    with pytest.raises(ParameterError, match="container"):
        load_boxes(container, types, rules=LoadRules(support=1.0))


def test_long_thin_loads_are_lowered() -> None:
    """Most of the container stays empty; its length is 500 times that of the load."""
    types = [BoxType([(7, 1, 1)], 10**5), BoxType([(13, 1, 1)], 10**5)]
    load = load_boxes((10**9, 1, 1), types, seconds=0.3)
    ends = sorted((box.corner[0], box.corner[0] + (7, 13)[box.kind]) for box in load)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(ends))
    assert len(load) > 10**5


def test_the_lowering_of_boxes_ends_at_once_when_it_is_halted() -> None:
    corners, sides = np.array([[0, 0, 9]]), np.ones((1, 3), np.int64)
    strips = floor_strips(corners[:, :2], sides[:, :2])
    compiled("blocks_numba").lower_boxes(corners, sides, strips, np.ones(1, np.int8))
    assert corners[0, 2] == 9


@pytest.mark.parametrize("counts", [(10**10,), (6 * 10**6, 6 * 10**6)])
def test_loads_of_too_many_boxes_to_list_are_refused(counts: tuple[int, ...]) -> None:
    types = [BoxType([(1, 1, 1 + k)], count) for k, count in enumerate(counts)]
    with pytest.raises(ParameterError, match="10,000,000"):
        load_boxes((2000, 2000, 2000), types)


def test_equal_types_share_blocks_and_keep_their_names() -> None:
    types = [BoxType([(2, 3, 4), (3, 2, 4)], 2), BoxType([(3, 2, 4), (2, 3, 4), (9, 9, 9)], 4)]
    load = load_boxes((6, 6, 4), types, width=4)
    assert check_load((6, 6, 4), types, load) == 6 * 6 * 4
    assert sorted(box.kind for box in load) == [0, 0, 1, 1, 1, 1]


def test_a_load_has_the_orientations_that_fit() -> None:
    """In units of the container, 5 // 4 equals 4 // 4."""
    load = load_boxes((4, 4, 4), [BoxType([(5, 2, 2), (4, 2, 2)], 4)], width=1)
    assert [box.orientation for box in load] == [1, 1, 1, 1]


@pytest.mark.parametrize("width", [0, 3, 8192])
def test_the_width_is_a_power_of_two(width: int) -> None:
    with pytest.raises(ParameterError, match="width"):
        load_boxes((4, 4, 4), [BoxType([(1, 1, 1)], 1)], width=width)


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_returns_the_best_load_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    types = [BoxType(kind.orientations, 40) for kind in random_types(9)]
    search, widths = Search._search, list[int]()

    def interrupted(loading: Search, width: int) -> bool:
        widths.append(width)
        if width == 4:
            signal.raise_signal(signal.SIGINT)
        return search(loading, width)

    monkeypatch.setattr(Search, "_search", interrupted)
    load = load_boxes((60, 50, 40), types, seconds=1000)
    assert widths.index(4) == len(widths) - 1
    assert check_load((60, 50, 40), types, load) > 0.8 * 60 * 50 * 40


def test_an_interrupt_before_the_first_load_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(search: Search, width: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load_boxes((4, 4, 4), [BoxType([(1, 1, 1)], 1)])


def test_a_box_that_fits_nowhere_stays_out(caplog: pytest.LogCaptureFixture) -> None:
    types = [BoxType([(9, 1, 1)], 3), BoxType([(2, 2, 2)], 1)]
    load = load_boxes((4, 4, 4), types, seconds=10)
    assert [box.kind for box in load] == [1]
    caplog.clear()
    assert load_boxes((4, 4, 4), types[:1], seconds=10) == []
    (record,) = caplog.records
    assert "(4, 4, 4)" in record.getMessage()


ONE = [BoxType([(1, 1, 1)], 1)]


@pytest.mark.parametrize(
    ("container", "types", "rules", "message"),
    [
        ((4, 0, 4), ONE, {}, "container"),
        ((4, 4, 4), [], {}, "types is empty"),
        ((4, 4, 4), [BoxType([], 1)], {}, "orientations"),
        ((4, 4, 4), [BoxType([(1, -1, 1)], 1)], {}, "orientations"),
        ((4, 4, 4), [BoxType((1, 1, 1), 1)], {}, "orientations"),
        ((4, 4, 4), [BoxType([(1, 1, 1)], 0)], {}, "count"),
        ((4, 4, 4), [BoxType([(1, 1, 1)], 1, weight=2.5)], {}, "weight"),
        ((4, 4, 4), [BoxType([(1, 1, 1)], 1, max_load=-1)], {}, "max_load"),
        ((4, 4, 4), [BoxType([(1, 1, 1)], 1, value=1), BoxType([(2, 1, 1)], 1)], {}, "value"),
        ((4, 4, 4), [(1, 1, 1)], {}, "BoxType"),
        ((4, 4, 4), ONE, {"stability": "comhull"}, "stability"),
        ((4, 4, 4), ONE, {"door": "front"}, "door"),
        ((4, 4, 4), ONE, {"support": 80}, "support"),
        ((4, 4, 4), ONE, {"fragile": "first"}, "fragile"),
    ],
)
def test_wrong_problems_are_refused(
    container: Sides, types: list[BoxType], rules: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        load_boxes(container, types, rules=LoadRules(**rules))


def test_types_and_orientations_may_be_iterators() -> None:
    types = (BoxType(iter([(1, 1, side), (side, 1, 1)]), 2) for side in (2, 3))
    assert len(load_boxes((4, 4, 4), types, seconds=0.1)) == 4


def test_boxes_that_carry_others_lie_flat_in_the_first_load() -> None:
    """Two columns of eight boxes touch as much as two layers, but have no room on top."""
    sides = [(60, 40, 30), (40, 60, 30)]
    types = [BoxType(sides, 8), BoxType(sides, 4, stackable=False)]
    load = load_boxes((120, 80, 120), types, seconds=1e-6, rules=LoadRules(no_stacking=True))
    assert len(load) == 12


def test_boxes_without_load_complete_the_wall_of_their_stop() -> None:
    """A search with one load at a time joins them to the wall of their stop, on top."""
    sides = [(6, 4, 4), (4, 6, 4), (4, 4, 6)]
    types = [
        BoxType(sides, number, group=stop, stackable=stackable)
        for stop in range(1, 6)
        for number, stackable in ((30, True), (6, False))
    ]
    rules = LoadRules(no_stacking=True, lifo=True, door="rear")
    load = load_boxes((30, 24, 24), types, seconds=60, width=1, rules=rules)
    assert check_load((30, 24, 24), types, load) == 30 * 24 * 24


def test_whole_support_bridges_level_tops() -> None:
    types = [BoxType([sides], 1) for sides in ((2, 4, 3), (4, 4, 3), (6, 4, 2))]
    load = load_boxes((6, 4, 5), types, seconds=60, rules=LoadRules(support=1.0))
    assert check_load((6, 4, 5), types, load) == 6 * 4 * 5


@pytest.mark.parametrize("seed", range(8))
def test_whole_support_of_each_base(seed: int) -> None:
    container, types = (30, 20, 25), random_types(seed)
    before = (((0, 0, 0, 9, 8, 7), (9, 3, 0, 15, 8, 7)), ())[seed // 4]
    rules = LoadRules(support=1.0, before=before)
    load = load_boxes(container, types, seconds=60, width=4, rules=rules)
    assert load
    heights = np.zeros(container[:2], np.int64)
    for x0, y0, _, x1, y1, top in before:
        heights[x0:x1, y0:y1] = top
    for box in load:
        x, y, z = box.corner
        length, width, height = types[box.kind].orientations[box.orientation]
        base = heights[x : x + length, y : y + width]
        assert base.shape == (length, width)
        assert (base == z).all(), box
        base += height
        assert z + height <= container[2]
