"""Traps of rasters and of rounding, whose they are and what comes of them; see `test_traps.py`."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from tests.one_container import GEOMETRIES, env_of, may_put, put
from tests.test_traps import tetrahedron

from packing_env import kernels
from packing_env.core import stability
from packing_env.items import mesh_from_arrays, rasterize
from packing_env.reference import maps
from packing_env.types import lid

INF = torch.inf


# ---------------------------------------------------------------------- holes in maps


def test_a_solid_has_no_holes_however_fine_the_cells() -> None:
    """IrregularPacking_DRL samples surfaces every 3 mm onto pixels of 1.3 to 2 mm.

    Pixels between samples stay empty, and items sink into each other there.
    """
    corners = np.array(list(itertools.product((0.0, 0.04), (0.0, 0.03), (0.0, 0.02))))
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = np.array([[q[0], q[i], q[i + 1]] for q in quads for i in (1, 2)])
    block = rasterize(mesh_from_arrays(corners, faces), torch.eye(3).double(), 0.0005)
    assert block.footprint.shape == (80, 60)
    assert block.footprint.all()
    assert (block.top == np.float32(0.02)).all()
    assert (block.bottom == 0).all()
    wedge = rasterize(tetrahedron(), torch.eye(3).double(), 0.0005)
    for lines in (wedge.footprint, wedge.footprint.T):
        for line in lines:
            inside = line.nonzero().flatten()
            assert len(inside) == inside[-1] - inside[0] + 1  # convex: no gap in any line


RING = torch.tensor([[0.0, 0.0, 0.0], [0.0, INF, 0.0], [0.0, 0.0, 0.0]])
POLE = torch.zeros(4, 4)
POLE[1, 1] = 5.0


def test_cells_outside_the_footprint_never_bind() -> None:
    """With 0 for "no item here", a ring stops on top of the pole that fits through its hole.

    Nor may the empty part of a padded window be stopped by the wall.
    """
    z = kernels.drop_height(POLE[None], RING[None, None])[0, 0]
    assert z[0, 0] == 0.0
    assert kernels.drop_height(POLE[None], RING.nan_to_num(posinf=0.0)[None, None])[0, 0, 0, 0] == 5
    padded = torch.full((1, 1, 5, 5), INF)
    padded[0, 0, :3, :3] = RING
    again = kernels.drop_height(POLE[None], padded)[0, 0]
    assert torch.equal(again, z)
    assert z.isfinite().nonzero().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_a_hole_in_the_ground_is_bridged_and_carries_nothing() -> None:
    """Rest height and support come from the rim; a hole is no support and does not swallow."""
    ground = torch.full((1, 3, 3), 2.0)
    ground[0, 1, 1] = 0.0
    flat = torch.zeros(1, 1, 3, 3)
    z = kernels.drop_height(ground, flat)
    assert z[0, 0, 0, 0] == 2.0
    assert kernels.support_count(ground, flat, z, 0.0).flatten()[0] == 8
    legal = kernels.com_hull(ground, flat, z, torch.tensor([[[96, 96]]]), 0.0)
    assert bool(legal[0, 0, 0, 0])
    through = kernels.support_count(POLE[None], RING[None, None], torch.zeros(1, 1, 4, 4), 0.0)
    assert through.flatten()[0] == 8


def test_a_ring_stands_by_every_rule() -> None:
    """Its centre is over the hole, its corners and its whole footprint are supported."""
    ground = torch.zeros(1, 3, 3)
    contact = stability.Contact(
        ground,
        RING[None, None],
        kernels.drop_height(ground, RING[None, None]),
        torch.tensor([[[96, 96]]]),
        0.0,
        1,
        torch.tensor([[[3, 3]]]),
    )
    for rule in ("none", "com_hull", "center_hull", "area_corners", "area_corners_code"):
        assert bool(stability.judge_maps(rule, contact)[0, 0, 0, 0]), rule


# ---------------------------------------------------------------------- floating point


CELLS = (0.1, 0.01, 0.3, 1 / 3, 0.07)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_an_item_flush_with_the_far_wall_is_inside(geometry: str, cell: float) -> None:
    """``0.1 * 3 > 0.3``: rounding takes a row and a column of places away, or adds them.

    Extents of whole cells are computed as products and as sums; both are whole.
    """
    product, total = 3 * cell, cell + cell + cell
    env = env_of([(product, total, cell)], (7 * cell, 5 * cell, 4 * cell), cell, geometry=geometry)
    assert env.catalogue.size[0, 0].tolist() == [3, 3]
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

    Every stack of two parts, in containers up to 1000 m; one that is three spacings too high is
    above the lid.
    """
    for count in range(2, round(1000 / cell)):
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


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_stacks_of_one_height_are_level_however_they_are_made(geometry: str, cell: float) -> None:
    """In float32 ``0.1 + 0.6`` is more than ``0.7``: an item across both would float over one."""
    parts = [(2, 2, 1), (2, 2, 6), (2, 2, 7), (4, 2, 1)]
    env = env_of(
        [tuple(side * cell for side in part) for part in parts],
        (4 * cell, 2 * cell, 10 * cell),
        cell,
        geometry=geometry,
        orientations="none",
        stability="area_corners",
    )
    for x in (0, 0, 2, 0):
        state = put(env, 0, x, 0)
    assert int(state["items_packed"]) == 4
    assert float(state["placement_support"][0, 3]) == 1.0
    assert state["heightmap"].unique().tolist() == [np.float32(8 * cell)]
