"""Cuboids on whole cells: where they are, and the compiled search for their placements."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.engine.engines import needs_numba
from tests.tiny import cuboid_env, cuboids, stream
from torch import Tensor

from packing_env import kernels
from packing_env.core import feasibility
from packing_env.core.cuboids import cells as cuboid
from packing_env.core.orientation import visible_items
from packing_env.engine.operations import ON_CELLS
from packing_env.items import Catalogue
from packing_env.kernels.cuboids.slopes import integers, slope_scale
from packing_env.types import PackingParams

RULES = kernels.CUBOID_RULES


def task(catalogue: Catalogue, **params: Any) -> PackingParams:
    given = {"container": catalogue.container, "cell": catalogue.cell, "contact_tol": 0.0}
    return PackingParams(**{**given, **params})


def random_ground(params: PackingParams, rows: int, seed: int) -> Tensor:
    """Heights in metres: few levels in a row, so that much is level; some rows near the lid."""
    generator = stream(seed)
    highest = params.height_units
    base = torch.randint(0, highest + 1, (rows, 1, 1), generator=generator)
    base[: rows // 3] = 0
    spread = torch.randint(1, 4, (rows, 1, 1), generator=generator)
    rise = torch.randint(0, 12, (rows, *params.grid), generator=generator) % (spread + 1)
    flat = torch.rand(rows, *params.grid, generator=generator) < 0.5
    cells = (base + rise * flat).clamp(max=highest)
    return cells.float() * params.cell


CASES = [
    # items, task
    ({"grid": (10, 10), "height": 10, "sides": (1, 5), "num_items": 20}, {}),
    ({"grid": (7, 12), "height": 9, "sides": (1, 4)}, {"num_visible": 3, "grid_step": 2}),
    ({"grid": (12, 7), "height": 254, "sides": (1, 6)}, {"num_visible": 3}),
    ({"grid": (10, 10), "height": 253, "sides": (2, 5)}, {"grid_step": 2}),
    ({"grid": (9, 11), "height": 10, "sides": (1, 9), "orientations": "cuboid"}, {"grid_step": 3}),
    ({"grid": (5, 4), "height": 7, "sides": (1, 8)}, {"num_visible": 2}),
    ({"grid": (1, 6), "height": 5, "sides": (1, 3)}, {}),
    ({"grid": (8, 8), "height": 6, "sides": (1, 4), "pitch": 0.25}, {}),
    ({"grid": (8, 8), "height": 6, "sides": (1, 4), "pitch": 3.0}, {"grid_step": 8}),
    ({"grid": (24, 20), "height": 24, "sides": (10, 20)}, {}),
    ({"grid": (60, 62), "height": 64, "sides": (50, 60), "num_items": 2}, {}),
]
"""Square and oblong, odd and even lids, every step, items that cannot fit, other exact cells, and
windows whose counts and slopes need wider integers."""


PAIRS = [(case, RULES[(case + k) % len(RULES)]) for case in range(10) for k in range(2)]
"""Two rules for each case but the last: to compile a step for its wide integers takes seconds."""


@needs_numba
@pytest.mark.parametrize(("case", "rule"), [*PAIRS, (10, "center_hull")])
def test_the_compiled_search_equals_the_maps_on_any_ground(case: int, rule: str) -> None:
    """The step plays an action out of range, which leaves the ground unchanged."""
    items, params = CASES[case]
    rows = 70 if case < 10 else 3
    options = {"stability": rule, "illegal_action": "noop", "observation": ON_CELLS, **params}
    env = cuboid_env(rows, items=items, **options)
    engine = env.engine
    assert engine.ground == "whole cells"
    row = torch.arange(rows)
    state, _ = engine.begin(row, row, row * 0)
    state["heightmap"] = ground = random_ground(env.params, rows, case)
    visible = visible_items(state, env.params.num_visible)
    maps = feasibility.placement_maps(ground.clone(), *visible, engine.catalogue, env.params)
    legal = maps.legal.flatten(1)
    step = engine.advance(state, {"action": torch.full((rows,), -1)}, reset=False)
    found = step.observations.masks["action_mask"]
    assert torch.equal(found, legal | ~legal.any(1, keepdim=True))
    assert torch.equal(step.state["heightmap"], ground)


@pytest.mark.parametrize("window", [(5, 5), (3, 9), (12, 7), (30, 30), (100, 3)])
def test_slopes_as_integers_keep_the_sign_of_a_sum(window: tuple[int, int]) -> None:
    """All pairs of slopes in a window are tested, the steepest and those that cancel included."""
    across, along = window
    scale, steepest = slope_scale(window)
    run, rise = np.meshgrid(np.arange(1, across + 1), np.arange(-along, along + 1))
    run, rise = run.ravel(), rise.ravel()
    kept = rise * ((2 * scale + run) // (2 * run))
    keep = np.unique(rise / run, return_index=True)[1][:: max(1, len(run) // 2000)]
    run, rise, kept = run[keep], rise[keep], kept[keep]
    exact = np.add.outer(rise, np.zeros_like(rise)) * run + rise * run[:, None]
    assert ((exact >= 0) == (np.add.outer(kept, kept) >= -along)).all()
    assert steepest > kept.max() + along
    counts, slopes = map(np.iinfo, integers(window))
    assert across * along <= counts.max
    assert 2 * (along + 1) * steepest <= slopes.max  # a sum of two, without a run


@pytest.mark.parametrize(
    ("pitch", "height", "exact"),
    [
        (1.0, 254, True),
        (1.0, 255, False),
        (0.25, 100, True),
        (3.0, 40, True),
        (100.0, 10, True),
        (0.1, 10, False),
        (0.01, 10, False),
        (0.002, 50, False),
        (1 / 3, 10, False),
    ],
)
def test_where_heights_are_exact(pitch: float, height: int, exact: bool) -> None:
    catalogue = cuboids(pitch=pitch, height=height)
    params = task(catalogue)
    assert cuboid.applies(catalogue.tensors(), params) is exact
    cell = np.float32(params.cell)
    multiples = np.arange(height + 1, dtype=np.float32) * cell
    summed = np.cumsum(np.full(height, cell, np.float32), dtype=np.float32)
    if exact:
        assert (multiples[1:] == summed).all()
        assert (multiples.astype(np.float64) == np.arange(height + 1) * params.cell).all()
    elif height < 255:
        assert (multiples.astype(np.float64) != np.arange(height + 1) * params.cell).any()
