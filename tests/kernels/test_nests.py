"""The kernels of nests equal plain loops over voxels."""

import itertools

import numpy as np
import pytest

pytest.importorskip("numba")

from packing_env.kernels.nests.bits_numba import PADDING, STRIP, Filled, best_place, occupy
from packing_env.kernels.nests.obstacles_numba import find_obstacles
from packing_env.kernels.nests.overlaps_numba import (
    Nest,
    Shapes,
    measure,
    separate,
)
from packing_env.nesting.bits import Blocked, from_bits, to_bits, to_runs, words_for

WAYS = [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)]


def blob(random: np.random.Generator, *size: int) -> np.ndarray:
    """Return random voxels that touch all sides of their box."""
    voxels = random.random(size) < 0.3
    voxels[0, 0, 0] = voxels[-1, -1, -1] = True
    return voxels


def shapes_of(parts: list[np.ndarray], step: int = 1) -> Shapes:
    bits = [to_bits(part) for part in parts]
    starts = np.cumsum([0, *(each.size for each in bits)])
    table = [(s, *p.shape, b.shape[1]) for s, p, b in zip(starts, parts, bits, strict=False)]
    return Shapes(
        np.concatenate([each.reshape(-1) for each in bits]),
        np.array(table, np.int64),
        np.arange(len(parts), dtype=np.int64)[:, None],
        np.ones(len(parts), np.int64),
        np.array([step]),
        np.zeros((0, 0), np.int64),
        np.zeros((3, 0), np.uint8),
        np.ones(1),
    )


def nest_of(places: list[tuple[int, int, int]], container: tuple[int, int, int]) -> Nest:
    numbers = np.arange(len(places), dtype=np.int64)
    return Nest(
        numbers, numbers.copy(), np.array(places, np.int64), np.array(container), np.array([0])
    )


def voxels_of(part: np.ndarray, place: tuple[int, ...]) -> set[tuple[int, ...]]:
    return {tuple(int(n) for n in voxel) for voxel in np.argwhere(part) + place}


@pytest.mark.parametrize("height", [1, 63, 64, 65, 130])
def test_bits_hold_voxels(height: int) -> None:
    voxels = np.random.default_rng(height).random((3, 4, height)) < 0.5
    assert to_bits(voxels).shape == (3, words_for(height), 4)
    assert np.array_equal(from_bits(to_bits(voxels), height), voxels)
    drawn = np.zeros_like(voxels)
    for u, v, k, low, high in to_runs(voxels):
        assert low <= high <= low + 2**k
        assert not drawn[u, v, low : high + 2**k].any()
        drawn[u, v, low : high + 2**k] = True
    assert np.array_equal(drawn, voxels)


def filled_with(
    parts: list[tuple[np.ndarray, tuple[int, int, int]]], size: tuple[int, ...]
) -> Filled:
    X, Y, Z = size
    shape = X, words_for(Z) + PADDING, Y + STRIP
    filled = Filled(np.zeros((4, *shape), np.uint64), np.zeros((6, *shape), np.uint64))
    for part, place in parts:
        occupy(filled, to_bits(part), *place)
    return filled


@pytest.mark.parametrize("seed", range(9))
def test_a_filled_container_holds_what_is_drawn_out_and_what_lies_ahead(seed: int) -> None:
    random = np.random.default_rng(seed)
    size = (4, 5, int(random.integers(4, 140)))
    parts = []
    for _ in range(3):
        part = blob(random, *random.integers(1, 4, 2), int(random.integers(1, size[2])))
        x, y, z = (int(random.integers(n + 1)) for n in np.array(size) - part.shape)
        parts.append((part, (x, y, z)))
    filled = filled_with(parts, size)

    occupied = np.zeros(size, bool)
    for part, place in parts:
        occupied[tuple(np.array([*voxels_of(part, place)]).T)] = True
    Y, Z = size[1:]
    for k, drawn in enumerate(filled.drawn):
        expected = np.stack([occupied[:, :, z : z + 2**k].any(2) for z in range(Z)], 2)
        assert np.array_equal(from_bits(drawn[..., :Y], Z), expected)
        assert not drawn[:, words_for(Z) :].any()
        assert not drawn[..., Y:].any()
    for way, ahead in zip(WAYS, filled.ahead, strict=True):
        axis = int(np.abs(way).argmax())
        turned = np.flip(occupied, axis) if sum(way) > 0 else occupied
        expected = np.maximum.accumulate(turned, axis)
        expected = np.flip(expected, axis) if sum(way) > 0 else expected
        assert np.array_equal(from_bits(ahead[..., :Y], Z), expected)


@pytest.mark.parametrize(("weights", "added"), [((1.0, 0.3, 0.1), 50), ((0.1, 0.3, 1.0), 8)])
def test_only_strips_with_better_places_are_computed(
    weights: tuple[float, float, float], added: int
) -> None:
    """Many different parts fill a container in a time that does not depend on its free room."""
    container, cube = np.array([50, 4 * STRIP, 192]), np.ones((3, 3, 3), bool)
    filled = filled_with([(np.ones((added, 3, 3), bool), (0, 0, 0))], tuple(container))
    blocked, size = Blocked(container - cube.shape, np.array(cube.shape)), np.array(cube.shape)
    result = np.full(4, np.inf)
    best_place(
        filled, to_bits(cube), to_runs(cube), size, container, np.array(weights), False, False,
        blocked.places, blocked.stale, np.full(1, np.inf), result,
    )  # fmt: skip
    assert result[0] < np.inf
    assert blocked.stale[:, 1:].all()
    assert blocked.stale[:, :, 1:].all()


@pytest.mark.parametrize(("locked", "loose"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("seed", range(12))
def test_the_best_place_is_free_touches_and_has_a_way_out(
    seed: int, locked: bool, loose: bool
) -> None:
    random = np.random.default_rng(100 + seed)
    container = tuple(int(n) for n in random.integers(4, 8, 3))
    container = (*container[:2], container[2] + 60 * (seed % 3 == 0))
    container = (container[0], container[1] + 14 * (seed % 4 == 0), container[2])
    # 1. A search among some voxels, one after a part was added to them.
    occupied = random.random(container) < 0.12
    part = blob(random, *random.integers(1, 4, 3))
    added = blob(random, *random.integers(1, 4, 3))
    weights = random.random(3)
    size, room = np.array(part.shape), np.array(container) - part.shape
    filled = filled_with([(occupied, (0, 0, 0))], container)
    blocked = Blocked(room, size)

    def search(best: float) -> np.ndarray:
        result = np.full(4, np.inf)
        best_place(
            filled, to_bits(part), to_runs(part), size, np.array(container), weights, locked,
            loose, blocked.places, blocked.stale, np.array([best]), result,
        )  # fmt: skip
        return result

    search(float(weights @ np.array(container)) / 3)  # looks at some of the places
    x, y, z = (int(random.integers(n + 1)) for n in np.array(container) - added.shape)
    occupy(filled, to_bits(added), x, y, z)
    blocked.expire((x, y, z), np.array(added.shape))
    for u, v, w in voxels_of(added, (x, y, z)):
        occupied[u, v, w] = True
    result = search(np.inf)
    again = search(float(result[0]))  # another part has the same score
    assert np.array_equal(again, result)
    assert search(float(result[0]) - 1e-9)[0] == np.inf

    # 2. The same by plain loops.
    taken = voxels_of(occupied, (0, 0, 0))

    def free(place: np.ndarray) -> bool:
        return not voxels_of(part, tuple(place)) & taken

    def touches(place: np.ndarray) -> bool:
        back = [place - step for step in np.eye(3, dtype=int)]
        return (any if loose else all)((to < 0).any() or not free(to) for to in back)

    def leaves(place: np.ndarray) -> bool:
        return any(
            all(free(place + np.array(way) * n) for n in range(1, max(container) + max(size)))
            for way in WAYS
        )

    scores = [
        float(weights @ (np.array(place) + size / 2))
        for place in itertools.product(*(range(n + 1) for n in room))
        if free(np.array(place)) and touches(np.array(place))
        and (locked or leaves(np.array(place)))
    ]  # fmt: skip
    assert np.isfinite(result[0]) == bool(scores)
    if scores:
        assert result[0] == pytest.approx(min(scores))
        assert free(result[1:].astype(int))


@pytest.mark.parametrize("seed", range(8))
def test_overlaps_and_obstacles_equal_loops(seed: int) -> None:
    random = np.random.default_rng(seed)
    tall = 70 if seed % 2 else 6
    parts = [blob(random, *random.integers(1, 6, 2), int(random.integers(1, tall))) for _ in "abcd"]
    places = [tuple(int(n) for n in random.integers(0, (5, 5, tall))) for _ in parts]
    shapes, nest = shapes_of(parts), nest_of(places, (20, 20, 200))
    overlap = np.zeros((4, 4))
    measure(shapes, nest, overlap)
    obstacle = np.zeros((6, 4, 4), bool)
    find_obstacles(shapes, nest, obstacle)
    voxels = [voxels_of(*each) for each in zip(parts, places, strict=True)]
    for i, j in itertools.permutations(range(4), 2):
        mine, theirs = voxels[i], voxels[j]
        assert overlap[i, j] == len(mine & theirs)
        if mine & theirs:
            continue  # ways out are asked of parts that do not overlap
        for way, step in enumerate(WAYS):
            # Parts lie within 10 voxels along x and y, and within twice the tallest along z.
            farthest = 2 * tall if step[2] else 10
            swept = any(
                (x + n * step[0], y + n * step[1], z + n * step[2]) in theirs
                for x, y, z in mine for n in range(farthest)
            )  # fmt: skip
            assert obstacle[way, i, j] == swept, (way, i, j)


def take_apart(
    shapes: Shapes,
    nest: Nest,
    draws: tuple[int, int] = (20, 20),
    rounds: int = 50,
    little: int = 0,
    seed: int = 0,
) -> bool:
    """Return True if `separate` finds places without overlap; its overlaps must be the measured."""
    number = len(nest.place)
    overlap, again = np.zeros((2, number, number))
    weights, halt = np.ones((number, number)), np.zeros(1, np.int8)
    measure(shapes, nest, overlap)
    apart = separate(shapes, nest, overlap, weights, np.array(draws), rounds, little, seed, halt)
    measure(shapes, nest, again)
    assert np.array_equal(overlap, again)
    assert (again.sum() == 0) == apart
    assert (nest.place >= 0).all()
    assert (nest.place + shapes.table[nest.shape, 1:4] <= nest.container).all()
    return apart


@pytest.mark.parametrize("step", [1, 2, 5])
def test_separate_takes_parts_apart_or_gives_up(step: int) -> None:
    shapes = shapes_of([np.ones((2, 2, 2), bool)] * 4, step)
    for container, fits in (((4, 4, 2), True), ((4, 3, 2), False)):
        assert take_apart(shapes, nest_of([(0, 0, 0)] * 4, container), seed=3) == fits


def test_fixed_pieces_stay_and_seeds_repeat() -> None:
    shapes, outcomes = shapes_of([np.ones((3, 3, 3), bool)] * 3), []
    for _ in range(2):
        nest = nest_of([(0, 0, 0), (1, 1, 0), (2, 2, 0)], (6, 6, 3))._replace(fixed=np.array([1]))
        assert take_apart(shapes, nest, seed=7)
        assert nest.place[0].tolist() == [0, 0, 0]
        outcomes.append(nest.place.tolist())
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("seed", range(4))
def test_parts_are_not_turned_above_a_low_lid(seed: int) -> None:
    shapes = shapes_of([np.ones((1, 1, 8), bool), np.ones((8, 1, 1), bool)])
    shapes = shapes._replace(options=np.array([[0, 1]]), number=np.array([2]))
    nest = nest_of([(0, 0, 0)] * 6, (8, 8, 2))
    nest = nest._replace(part=np.zeros(6, np.int64), shape=np.ones(6, np.int64))
    assert take_apart(shapes, nest, (8, 8), seed=seed)


def test_separate_goes_on_for_longer_where_little_overlaps() -> None:
    shapes = shapes_of([np.ones((2, 2, 2), bool)] * 4)
    none, some = (
        sum(
            take_apart(shapes, nest_of([(0, 0, 0)] * 4, (4, 4, 2)), (1, 0), 2, little, seed)
            for seed in range(20)
        )
        for little in (0, 1000)
    )
    assert none < some
