"""Rounding of lengths: walls, lids and stacks of whole cells, in cells that are no float32."""

import numpy as np
import pytest
import torch
from tests.one_container import GEOMETRIES, env_of, may_put, put
from tests.tiny import tiny_env

from packing_env.core import feasibility
from packing_env.reference import maps
from packing_env.reference.claims import PlanClaim
from packing_env.types import lid

CELLS = (0.1, 0.01, 0.3, 1 / 3, 0.07)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_an_item_flush_with_the_far_wall_is_inside(geometry: str, cell: float) -> None:
    """``0.1 * 3 > 0.3``: rounding takes a row and a column of places away, or adds them.

    Extents of whole cells may be products or sums; both count as whole.
    """
    product, total = 3 * cell, cell + cell + cell
    env = env_of([(product, total, cell)], (7 * cell, 5 * cell, 4 * cell), cell, geometry=geometry)
    assert env.catalogue.size[0, 0].tolist() == [3, 3]
    assert PlanClaim((0.3, 0.7, 1.0), 0.1, "none", (), 0).grid == (3, 7)  # both are less
    assert may_put(env, 0, 4, 2)
    assert not may_put(env, 0, 5, 2)
    assert not may_put(env, 0, 4, 3)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_stack_up_to_the_lid_fits_and_one_cell_more_does_not(geometry: str, cell: float) -> None:
    """Heights add up over a stack: the last of ten must not be refused for a rounding error."""
    flat = (cell, cell, cell)
    env = env_of([flat] * 11, (2 * cell, cell, 10 * cell), cell, geometry=geometry)
    for _ in range(10):
        assert may_put(env, 0, 0, 0)
        state = put(env, 0, 0, 0)
    assert int(state["items_packed"]) == 10
    assert not may_put(env, 0, 0, 0)
    assert may_put(env, 0, 1, 0)
    tall = env_of([(cell, cell, 10 * cell), flat], (cell, cell, 10 * cell), cell, geometry=geometry)
    assert may_put(tall, 0, 0, 0)
    over = env_of([flat, (cell, cell, 11 * cell)], (cell, cell, 10 * cell), cell, geometry=geometry)
    put(over, 0, 0, 0)
    assert over.catalogue.never_feasible.tolist() == [False, True]
    assert bool(over.state["terminated"])


def spacing(height: float) -> float:
    """Metres between float32 numbers."""
    return float(np.spacing(np.float32(height)))


@pytest.mark.parametrize("cell", [0.3, 0.6, 0.7, 0.1, 1 / 3])
def test_sums_of_exact_stacks_are_below_the_lid(cell: float) -> None:
    """Above 16 m float32 numbers are further apart than 1e-6 m: 0.9 and 32.4 are more than 33.3.

    Stacks of two parts, in every seventh container up to 1000 m; one that is three spacings too
    high is above the lid.
    """
    for count in range(2, round(1000 / cell), 7):
        height, lower = count * cell, np.arange(1, count)
        total = (lower * cell).astype(np.float32) + ((count - lower) * cell).astype(np.float32)
        assert total.max() <= maps.lid(height), count
        assert float(maps.lid(height)) == lid(height), count
        if height > 16:
            assert (total > maps.lid(height - 3 * spacing(height))).all(), count


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize(("cell", "parts"), [(0.3, (3, 108)), (0.6, (4, 54)), (0.7, (2, 1422))])
def test_an_exact_stack_fits_at_any_height(
    geometry: str, cell: float, parts: tuple[int, int]
) -> None:
    height = sum(parts) * cell
    sides = [(cell, cell, part * cell) for part in parts]
    env = env_of(sides, (cell, cell, height), cell, geometry=geometry)
    put(env, 0, 0, 0)
    assert may_put(env, 0, 0, 0)
    assert int(put(env, 0, 0, 0)["items_packed"]) == 2
    if geometry == "maps":  # lengths of boxes are whole units
        lower = env_of(sides, (cell, cell, height - 4 * spacing(height)), cell)
        put(lower, 0, 0, 0)
        assert not may_put(lower, 0, 0, 0)


@pytest.mark.parametrize("cell", [1.0, *CELLS])
@pytest.mark.parametrize(
    ("geometry", "slab"), [*((geometry, 0.0) for geometry in GEOMETRIES), ("maps", 0.37)]
)
def test_stacks_of_one_height_are_level_however_they_are_made(
    geometry: str, slab: float, cell: float
) -> None:
    """In float32 ``0.1 + 0.6`` is more than ``0.7``: an item across both would float over one.

    They may stand on a pre-placed slab, whose height is no whole number of cells.
    """
    parts = [(2, 2, 1), (2, 2, 6), (2, 2, 7), (4, 2, 1)]
    before = [[0.0, 0.0, 0.0, 4 * cell, 2 * cell, slab * cell]]
    env = env_of(
        [tuple(side * cell for side in part) for part in parts],
        (4 * cell, 2 * cell, 10 * cell),
        cell,
        geometry=geometry,
        orientations="none",
        stability="area_corners",
        constraints={"preplaced": before} if slab else {},
    )
    for x in (0, 0, 2, 0):
        state = put(env, 0, x, 0)
    assert int(state["items_packed"]) == 4
    assert float(state["placement_support"][0, 3]) == 1.0
    assert len(state["heightmap"].unique()) == 1
    assert slab or state["heightmap"].unique().tolist() == [np.float32(8 * cell)]


def test_the_lid_is_closed_just_above_a_micrometre() -> None:
    """float32(z + peak) <= float32(H + 1e-6)."""
    env = tiny_env(1, stability="none")
    items = dict(env.catalogue.tensors())
    zero = torch.zeros(1, dtype=torch.int64)
    ground = torch.zeros(1, *env.params.grid)
    for above, legal in ((0.0, True), (0.9e-6, True), (3e-6, False)):
        items["peak"] = torch.full_like(items["peak"], env.params.height + above)
        item, there = zero[:, None], zero[:, None] == 0
        found = feasibility.placement_maps(ground, item, there, items, env.params)
        assert bool(found.legal[0, 0, 0, 0, 0]) is legal
