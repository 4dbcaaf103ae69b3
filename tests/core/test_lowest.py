"""The search for the lowest placements against maps of all of them."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.tiny import catalogue, cuboids, differing, state_of, stream, tiny_env
from torch import Tensor

from agents.heuristics import build
from packing_env import kernels
from packing_env.core import feasibility
from packing_env.core.lowest import ORDERS, LowestPlacement
from packing_env.items import Catalogue
from packing_env.plan import LowestPacker
from packing_env.types import PackingParams, ParameterError, State

GRID, HEIGHT, ROWS = (26, 22), 0.12, 6
EVERYTHING = 100_000


def items_with(window: int, seed: int = 0) -> Catalogue:
    return catalogue(seed, grid=GRID, height=HEIGHT, window=window, num_items=8)


def task(items: Catalogue, **params: Any) -> PackingParams:
    options = {"num_items": 8, "num_visible": 2, "stability": "none", **params}
    return PackingParams(container=items.container, cell=items.cell, **options)


def ground(seed: int, rows: int = ROWS) -> Tensor:
    """Terraces with many equal heights, slopes, and a row that is empty."""
    generator = stream(seed)
    heights = torch.zeros(rows, *GRID)
    for row in range(1, rows):
        for _ in range(3 * row):
            x, y, w, h = (int(torch.randint(0, 14, (), generator=generator)) for _ in range(4))
            level = 0.01 * int(torch.randint(0, 9, (), generator=generator))
            part = heights[row, x : x + w + 1, y : y + h + 1]
            part.copy_(part.clamp(min=level))
        if row % 2:
            heights[row] += 0.004 * torch.rand(GRID, generator=generator)
    return heights


def state_with(heights: Tensor, seed: int, num_items: int = 8) -> State:
    """These heights, random items to come, and in some rows fewer than may be seen."""
    generator = stream(seed)
    rows = len(heights)
    left = torch.tensor([(8, 1, 2, 0)[row % 4] for row in range(rows)])
    return {
        "heightmap": heights,
        "item_id": torch.randint(0, num_items, (rows, num_items), generator=generator),
        "queue": torch.arange(num_items).expand(rows, num_items),
        "num_items": torch.full((rows,), num_items),
        "items_packed": num_items - left,
    }


def both(items: Catalogue, params: PackingParams, order: str, state: State, count: int) -> Any:
    """What the search finds and what maps say."""
    tensors = items.tensors()
    search = LowestPlacement(tensors, params, order)
    maps = LowestPlacement(tensors, params, order, full_maps=True)
    assert search.searches
    assert not maps.searches
    return search.find(state, count), maps.find(state, count)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """These rows are searched to the end, however long that takes."""
    monkeypatch.setattr("packing_env.kernels.search.PATIENCE", EVERYTHING)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rule", kernels.SEARCHED_RULES)
@pytest.mark.parametrize("stride", [1, 4])
@pytest.mark.parametrize("window", [3, 13])
def test_search_equals_maps(window: int, stride: int, rule: str, order: str) -> None:
    items = items_with(window)
    params = task(items, grid_step=stride, stability=rule, contact_tol=0.002)
    state = state_with(ground(window + stride), seed=stride)
    for count in (1, 7, EVERYTHING):
        found, expected = both(items, params, order, state, count)
        assert torch.equal(found.index, expected.index)
        assert torch.equal(found.z, expected.z)
    num_legal = (expected.index >= 0).sum(1)
    assert (num_legal == 0).any()
    assert int(num_legal.max()) > (5 if rule == "com_hull_20" else 20)


@pytest.mark.parametrize("rule", kernels.SEARCHED_RULES)
def test_lid_decides_exactly(rule: str) -> None:
    """Items that end on the lid are legal, those a rounding above it are not."""
    items = items_with(9, seed=3)
    params = task(items, stability=rule, num_visible=1)
    state = state_with(ground(5), seed=5)
    first, there = state["item_id"][:, :1], torch.ones(ROWS, 1) > 0
    maps = feasibility.placement_maps(state["heightmap"], first, there, items.tensors(), params)
    z = maps.z
    peak = items.peak[state["item_id"][:, 0]][:, None, :, None, None]
    tops = (z + peak)[torch.isfinite(z)]
    for top in tops.unique()[:: max(1, len(tops.unique()) // 4)].tolist():
        lower = replace(params, container=(*params.container[:2], top - 1e-6))
        assert abs(lower.lid - top) < 1e-7
        found, expected = both(items, lower, "height", state, EVERYTHING)
        assert torch.equal(found.index, expected.index)


def test_fewer_corners_where_the_range_is_that_of_pct() -> None:
    items = items_with(9)
    params = task(items, candidate_range="pct", grid_step=2)
    state = state_with(ground(2), seed=2)
    found, expected = both(items, params, "score", state, EVERYTHING)
    assert torch.equal(found.index, expected.index)
    more, _ = both(items, task(items, grid_step=2), "score", state, EVERYTHING)
    assert (more.index >= 0).sum() > (found.index >= 0).sum()


def test_zeros_without_sign() -> None:
    items = items_with(9)
    state = state_with(ground(4), seed=4)
    state["heightmap"] = torch.where(state["heightmap"] == 0, -0.0, state["heightmap"])
    for order in ORDERS:
        found, expected = both(items, task(items), order, state, EVERYTHING)
        assert torch.equal(found.index, expected.index)
        assert torch.equal(found.z, expected.z)
        assert not torch.signbit(found.z).any()


def test_cuboids_that_have_maps_of_their_own() -> None:
    boxes = cuboids()
    params = PackingParams(
        container=boxes.container, cell=1.0, num_items=8, stability="center_hull", contact_tol=0.0
    )
    heights = torch.randint(0, 5, (ROWS, *params.grid), generator=stream()).float()
    state = state_with(heights, seed=1, num_items=6)
    found, expected = both(boxes, params, "score", state, EVERYTHING)
    assert torch.equal(found.index, expected.index)
    assert torch.equal(found.z, expected.z)


def test_few_placements_are_looked_at() -> None:
    items = items_with(13)
    state = state_with(ground(7), seed=7)
    found, maps = both(items, task(items), "score", state, 1)
    assert found.measured[0] == 1  # an empty container: the first placement is the lowest
    assert (found.judged <= 1).all()
    assert found.measured.sum() < 0.02 * maps.measured.sum()


def test_rows_that_are_given_up_are_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    items = items_with(9)
    params = task(items, stability="com_hull", contact_tol=0.002)
    state = state_with(ground(8), seed=8)
    monkeypatch.setattr("packing_env.kernels.search.PATIENCE", 5)
    found, maps = both(items, params, "height", state, 4)
    assert torch.equal(found.index, maps.index)
    assert torch.equal(found.z, maps.z)
    mapped = found.measured >= maps.measured
    assert mapped.any()
    assert not mapped.all()


@pytest.mark.parametrize("full_maps", [False, True])
@pytest.mark.parametrize("rule", ["none", "com_hull"])
@pytest.mark.parametrize("num_visible", [1, 3])
def test_packed_episodes_are_those_of_the_heuristic(
    rule: str, num_visible: int, full_maps: bool
) -> None:
    env = tiny_env(4, num_visible=num_visible, stability=rule, grid_step=2, num_items=9)
    policy, root = build("lowest_z", env), env.reset()
    start, unchanged = state_of(env), state_of(env)
    lowest = LowestPlacement(env.catalogue.tensors(), env.params, full_maps=full_maps)
    packed = LowestPacker(lowest)(start)
    assert not differing(start, unchanged)
    for _ in range(9):
        root = env.step_mdp(env.step(policy(root)))
    assert env.state["items_packed"].sum() > 12
    assert not differing(packed, state_of(env), skip=("legal",))  # the search keeps no map
    assert not differing(LowestPacker(lowest)(packed), packed)


@pytest.mark.parametrize("mode", ["hierarchical", "continuous"])
def test_heuristic_makes_no_maps_where_it_reads_the_state(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = tiny_env(4, action_mode=mode)
    root = env.reset()
    policy = build("lowest_z", env)
    monkeypatch.setattr(feasibility, "placement_maps", lambda *_: pytest.fail("a map was made"))
    assert set(policy(root).keys(True, True)) >= set(env.action_keys)


def test_path_is_named_and_maps_stand_in(caplog: pytest.LogCaptureFixture) -> None:
    items = items_with(5)
    tensors = items.tensors()
    caplog.set_level(logging.INFO, "packing_env.core")
    assert LowestPlacement(tensors, task(items)).searches
    assert not LowestPlacement(tensors, task(items, stability="area_corners")).searches
    kernels.set_backend("eager")
    try:
        without = LowestPlacement(tensors, task(items))
    finally:
        kernels.set_backend(None)
    assert not without.searches
    assert [record.message.partition("from ")[2] for record in caplog.records] == [
        "pooled bounds, without maps",
        "full maps",
        "full maps",
    ]
    state = state_with(ground(1), seed=1)
    placement = without(state)
    assert placement.valid.tolist() == [True, True, True, False] * (ROWS // 4) + [True, True]


def test_wrong_arguments_are_refused() -> None:
    items = items_with(5)
    with pytest.raises(ParameterError, match="order='best' is unknown"):
        LowestPlacement(items.tensors(), task(items), "best")
    search = LowestPlacement(items.tensors(), task(items))
    state = state_with(ground(1), seed=1)
    with pytest.raises(ValueError, match="heightmap should be"):
        search.find({**state, "heightmap": state["heightmap"].double()})
    with pytest.raises(ValueError, match="count at least 1"):
        search.find(state, 0)


def test_the_operation_is_one_to_compile_around() -> None:
    items = items_with(5)
    search = kernels.Search(GRID, 1, "com_hull", 0.1, 0.001)
    packed = kernels.search_items(items.tensors(), search)
    item_id, there = torch.zeros(ROWS, 1, dtype=torch.int64), torch.ones(ROWS, 1) > 0
    tensors = list(vars(packed).values())
    arguments = (ground(1), item_id, there, tensors, [3, 1, search.pooled, 4, 9], [0.1, 0.001])
    checks = ("test_schema", "test_faketensor")
    operator = torch.ops.packing_env.numba_lowest_placements
    torch.library.opcheck(operator, arguments, test_utils=checks)
