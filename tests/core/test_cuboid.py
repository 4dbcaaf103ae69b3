"""Cuboids on whole cells: the fast path has the bits of the general path and of the reference."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import cuboid_env, cuboids, play_beside_reference, stream, tiny_env
from torch import Tensor

from packing_env import kernels
from packing_env.core import feasibility
from packing_env.core.cuboids import cells as cuboid
from packing_env.items import Catalogue
from packing_env.kernels.cuboids import eager as cuboid_eager
from packing_env.types import PackingParams

RULES = kernels.CUBOID_RULES


@pytest.fixture(params=kernels.available_backends())
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    kernels.set_backend(request.param)
    yield request.param
    kernels.set_backend(None)


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


def fast(params: PackingParams, catalogue: Catalogue, rows: int, seed: int) -> tuple[Any, ...]:
    """``z`` and ``legal`` of random items on random ground, and what they were found from."""
    items = catalogue.tensors()
    assert cuboid.applies(items, params)
    generator = stream(seed + 1)
    shape = (rows, params.num_visible)
    item_id = torch.randint(len(catalogue), shape, generator=generator)
    there = torch.rand(shape, generator=generator) < 0.9
    arguments = (random_ground(params, rows, seed), item_id, there, items, params)
    return *cuboid.placement_maps(*arguments), arguments


def general(arguments: tuple[Any, ...], backend: str) -> tuple[Tensor, Tensor]:
    """The same from the general path, by its quickest backend: they are equal by other tests."""
    kernels.set_backend(None)
    found = feasibility.general_maps(*arguments)
    kernels.set_backend(backend)
    return found


def same_bits(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> bool:
    (z, legal), (expected_z, expected_legal) = found, expected
    assert z.is_contiguous()
    assert legal.is_contiguous()
    bits = torch.equal(z.view(torch.int32), expected_z.view(torch.int32))
    return bits and torch.equal(legal, expected_legal)


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
]
"""Square and oblong, odd and even lids, every step, items that cannot fit, other exact cells."""


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_equals_the_general_path(case: int, rule: str, backend: str) -> None:
    items, params = CASES[case]
    catalogue = cuboids(seed=case, **items)
    for seed, rows in enumerate((1, 7, 64, 150)):
        wanted = task(catalogue, stability=rule, **params)
        z, legal, arguments = fast(wanted, catalogue, rows, seed)
        assert same_bits((z, legal), general(arguments, backend))
        if rows > 7:
            assert legal.any()
            assert not legal.all()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("grid", [(24, 20), (2, 260), (260, 2), (60, 62)])
def test_wide_windows(grid: tuple[int, int], rule: str, backend: str) -> None:
    """Counts, edges and slopes that need wider integers than those of small windows."""
    x, y = grid
    extents = [[max(1, x - 2), y - 1, 2], [x // 2, y, 1], [x, max(1, y - 3), 3]]
    catalogue = Catalogue.from_cuboids(extents, cell=1.0, container=(x, y, 6), orientations="none")
    params = task(catalogue, stability=rule)
    for seed in range(2):
        z, legal, arguments = fast(params, catalogue, 9 if x < 60 else 1, seed)
        assert same_bits((z, legal), general(arguments, backend))


def test_every_width_of_integers_is_tried() -> None:
    kinds = [cuboid_eager.integers(window) for window in ((5, 5), (24, 20), (2, 260), (60, 62))]
    narrow, middle, wide = zip(
        (torch.uint8, torch.int16, torch.int32),
        (torch.int16, torch.int32, torch.int64),
        strict=True,
    )
    assert kinds == [narrow, middle, middle, wide]


@pytest.mark.parametrize("window", [(5, 5), (3, 9), (12, 7), (30, 30), (100, 3)])
def test_slopes_as_integers_keep_the_sign_of_a_sum(window: tuple[int, int]) -> None:
    """Of all pairs of slopes in a window, including steepest ones and those that cancel."""
    across, along = window
    scale, steepest = cuboid_eager.slope_scale(window)
    run, rise = np.meshgrid(np.arange(1, across + 1), np.arange(-along, along + 1))
    run, rise = run.ravel(), rise.ravel()
    kept = rise * ((2 * scale + run) // (2 * run))
    keep = np.unique(rise / run, return_index=True)[1][:: max(1, len(run) // 2000)]
    run, rise, kept = run[keep], rise[keep], kept[keep]
    exact = np.add.outer(rise, np.zeros_like(rise)) * run + rise * run[:, None]
    assert ((exact >= 0) == (np.add.outer(kept, kept) >= -along)).all()
    assert steepest > kept.max() + along


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("items", "params"),
    [
        ({"grid": (7, 6), "height": 8}, {"num_visible": 3}),
        ({"grid": (6, 8), "height": 7}, {"grid_step": 2, "candidate_range": "pct"}),
        ({"grid": (6, 6), "height": 254, "sides": (2, 60)}, {"candidate_range": "pct"}),
    ],
)
def test_episodes_equal_the_reference(
    items: dict[str, Any], params: dict[str, Any], rule: str, backend: str
) -> None:
    env = cuboid_env(3, items=items, stability=rule, **params)
    assert cuboid.applies(env.catalogue.tensors(), env.params)
    assert play_beside_reference(env, 12, mask_bits=60) > 0


def test_the_range_of_lower_corners_is_held_to_the_unrotated_item() -> None:
    extents = [[3, 1, 1]]
    catalogue = Catalogue.from_cuboids(extents, cell=1, container=(4, 4, 4), orientations="yaw")
    legal = {}
    for kind in ("container", "pct"):
        params = task(catalogue, stability="none", candidate_range=kind)
        arguments = torch.zeros(1, 4, 4), torch.zeros(1, 1, dtype=torch.int64)
        there = torch.ones(1, 1, dtype=torch.bool)
        maps = feasibility.placement_maps(*arguments, there, catalogue.tensors(), params)
        legal[kind] = maps.legal.sum((3, 4)).flatten().tolist()
    assert legal == {"container": [8, 8], "pct": [8, 4]}


def test_flush_with_every_wall_and_the_lid(backend: str) -> None:
    """Sides that are whole cells but for rounding reach exactly from wall to wall."""
    extents = [[0.75 + 1e-9, 2 - 1e-9, 0.5], [2.25 - 1e-10, 1.75 + 1e-10, 1.5]]
    catalogue = Catalogue.from_cuboids(
        extents, cell=0.25, container=(2.25, 2.0, 1.5), orientations="none"
    )
    params = task(catalogue, stability="none")
    items = catalogue.tensors()
    assert cuboid.applies(items, params)
    ground = torch.zeros(2, 9, 8)
    ground[1] = 1.0
    item_id = torch.tensor([[0, 1], [0, 1]])
    z, legal = cuboid.placement_maps(
        ground, item_id, torch.ones(2, 2, dtype=torch.bool), items, params
    )
    assert legal[0, 0, 0, :, 0].tolist() == [True] * 7 + [False] * 2
    assert legal[0, 1, 0].sum() == 2
    assert legal[1].sum((1, 2, 3)).tolist() == [7, 0]  # 1.0 + 0.5 is the lid, 1.0 + 1.5 is not
    assert z[1, 1, 0, 0, 0] == 1.0
    assert z.isinf().sum() == 2 * (72 - 7 + 72 - 2)


@pytest.mark.parametrize("height", [7, 8, 253, 254])
def test_nothing_outside_is_legal_under_any_lid(height: int, backend: str) -> None:
    """A mask or'ed onto a limit of odd height wraps around to "no limit"."""
    size = torch.zeros(70, 4, 3, dtype=torch.int32)
    size[:, 0] = torch.tensor([4, 4, 1])
    size[:, 1] = torch.tensor([2, 3, height])
    size[:, 2] = torch.tensor([1, 1, height + 1])
    ground = torch.full((70, 4, 4), float(height - 1))
    ground[0] = 0
    z, legal = kernels.cuboid_maps(ground, size, 1.0, height, (4, 4), "none")
    assert legal[0].sum((1, 2)).tolist() == [1, 6, 0, 0]
    assert legal[1:].sum((0, 2, 3)).tolist() == [69, 0, 0, 0]
    assert z[:, 3].isinf().all()
    assert z[1:, 0, 0, 0].eq(height - 1).all()
    assert z[1:, 2].eq(height - 1).all()  # too high everywhere, but inside


def test_inputs_stay_as_they_are(backend: str) -> None:
    catalogue = cuboids()
    params = task(catalogue, stability="center_hull")
    ground = random_ground(params, 5, 0)
    item_id, there = torch.zeros(5, 1, dtype=torch.int64), torch.ones(5, 1, dtype=torch.bool)
    items = catalogue.tensors()
    tensors = [ground, item_id, there, *items.values()]
    before = [(t._version, t.clone()) for t in tensors]
    cuboid.placement_maps(ground, item_id, there, items, params)
    for tensor, (version, copy) in zip(tensors, before, strict=True):
        assert tensor._version == version
        assert torch.equal(tensor, copy)


def test_rows_do_not_depend_on_each_other(backend: str) -> None:
    catalogue = cuboids(num_items=12)
    params = task(catalogue, stability="com_hull", num_visible=2)
    items = catalogue.tensors()
    ground = random_ground(params, 130, 3)
    item_id = torch.randint(12, (130, 2), generator=stream(4))
    there = torch.ones(130, 2, dtype=torch.bool)
    z, legal = cuboid.placement_maps(ground, item_id, there, items, params)
    for row in (0, 63, 64, 129):
        one = slice(row, row + 1)
        alone = cuboid.placement_maps(ground[one], item_id[one], there[one], items, params)
        assert torch.equal(alone[0], z[one])
        assert torch.equal(alone[1], legal[one])


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


def test_sums_of_inexact_heights_are_left_to_the_general_path() -> None:
    """Two stacks of the same cells of 0.1 differ in height, so a count of cells is not enough."""
    one, two, four, five = (np.float32(cells * 0.1) for cells in (1, 2, 4, 5))
    assert (one + one) + five != (one + two) + four
    catalogue = cuboids(pitch=0.1)
    assert not cuboid.applies(catalogue.tensors(), task(catalogue))


@pytest.mark.parametrize(
    "params",
    [{"contact_tol": None}, {"contact_tol": 0.5}, {"container": (7.0, 6.0, 8.0 - 2e-6)}],
)
def test_what_else_is_left_to_the_general_path(params: dict[str, Any]) -> None:
    """Contact that is not exact; a lid just below a whole cell (still the lower cell's)."""
    catalogue = cuboids()
    expected = "container" in params
    assert cuboid.applies(catalogue.tensors(), task(catalogue, **params)) is expected


def test_items_of_any_shape_are_left_to_the_general_path() -> None:
    env = tiny_env(2, contact_tol=0.0)
    assert not cuboid.applies(env.catalogue.tensors(), env.params)


def test_an_environment_names_its_path(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="packing_env.engine"):
        cuboid_env(1)
        tiny_env(1)
    first, second = [r.getMessage() for r in caplog.records if "engine: " in r.getMessage()]
    assert "placements from whole cells" in first
    assert "placements from height maps" in second


def test_wrong_arguments_are_refused() -> None:
    ground, size = torch.zeros(2, 4, 5), torch.ones(2, 1, 3, dtype=torch.int32)
    arguments = (1.0, 9, (1, 1), "none")
    with pytest.raises(TypeError, match="size should be"):
        kernels.cuboid_maps(ground, size.long(), *arguments)
    with pytest.raises(TypeError, match="heightmap should be"):
        kernels.cuboid_maps(ground.double(), size, *arguments)
    with pytest.raises(ValueError, match="same B"):
        kernels.cuboid_maps(ground[:1], size, *arguments)
    with pytest.raises(ValueError, match="1 to 254 cells"):
        kernels.cuboid_maps(ground, size, 1.0, 255, (1, 1), "none")
    with pytest.raises(ValueError, match="unknown rule 'stacking_tree'"):
        kernels.cuboid_maps(ground, size, 1.0, 9, (1, 1), "stacking_tree")
    with pytest.raises(ValueError, match="at least 1, not 0"):
        kernels.cuboid_maps(ground, size, *arguments, stride=0)
