"""The search for the lowest placements against maps of all of them."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.tiny import catalogue, stream
from torch import Tensor

from packing_env import kernels
from packing_env.core import feasibility
from packing_env.core.lowest import LowestPlacement
from packing_env.items import Catalogue
from packing_env.types import PackingParams, State

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


def state_with(heights: Tensor, seed: int) -> State:
    """Return a state with these heights and random items; some rows have fewer than are visible."""
    generator = stream(seed)
    rows, num_items = len(heights), 8
    left = torch.tensor([(8, 1, 2, 0)[row % 4] for row in range(rows)])
    return {
        "heightmap": heights,
        "item_id": torch.randint(0, num_items, (rows, num_items), generator=generator),
        "queue": torch.arange(num_items).expand(rows, num_items),
        "num_items": torch.full((rows,), num_items),
        "items_packed": num_items - left,
    }


def both(items: Catalogue, params: PackingParams, state: State) -> Any:
    """Return the placements of the search and those of the maps."""
    tensors = items.tensors()
    search, maps = LowestPlacement(tensors, params), LowestPlacement(tensors, params)
    assert search.searches
    maps.searches = False
    return search.find(state), maps.find(state)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the search go through these rows completely, without a limit of steps."""
    monkeypatch.setattr("packing_env.kernels.search.PATIENCE", EVERYTHING)


@pytest.mark.parametrize("rule", kernels.SEARCHED_RULES)
@pytest.mark.parametrize(("window", "stride"), [(3, 4), (13, 1)])
def test_search_equals_maps(window: int, stride: int, rule: str) -> None:
    items = items_with(window)
    params = task(items, grid_step=stride, stability=rule, contact_tol=0.002)
    places = set()
    for seed in range(6):
        state = state_with(ground(20 * seed + window + stride), seed=20 * seed + stride)
        found, expected = both(items, params, state)
        assert torch.equal(found.index, expected.index)
        assert torch.equal(found.z, expected.z)
        assert (found.index < 0).any()
        places |= set(found.index.tolist())
    assert len(places) > 8


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
        found, expected = both(items, lower, state)
        assert torch.equal(found.index, expected.index)


def test_the_range_pct_goes_by_maps() -> None:
    items = items_with(9)
    params = task(items, candidate_range="pct", grid_step=2)
    assert not LowestPlacement(items.tensors(), params).searches


def test_rows_that_are_given_up_are_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    items = items_with(9)
    params = task(items, stability="com_hull", contact_tol=0.002)
    state = state_with(ground(8), seed=8)
    monkeypatch.setattr("packing_env.kernels.search.PATIENCE", 5)
    found, maps = both(items, params, state)
    assert torch.equal(found.index, maps.index)
    assert torch.equal(found.z, maps.z)
    given_up = found.examined[:, 2] > 0
    assert given_up.any()
    assert not given_up.all()
