"""Candidate generators: hand-made boards, and equality with the plain program on random ones."""

import random

import numpy as np
import pytest
import torch
from tests.core.boards import SIZES, Board, proposed, random_boxes, scene, sizes_of
from tests.tiny import catalogue as irregular

from packing_env.core import candidates, feasibility
from packing_env.core.candidates import Scene
from packing_env.core.proposals import lattice, split
from packing_env.reference import proposals as reference
from packing_env.types import PackingParams

BOXES = pytest.mark.parametrize("geometry", ["maps", "boxes"])


def random_scene(seed: int, **params: object) -> tuple[list[Board], Scene]:
    """Boards filled to any degree, two visible items, the second of which may be missing."""
    draw = random.Random(seed)
    boards = [Board(random_boxes(10 * seed + row, draw.randint(0, 12))) for row in range(4)]
    items = [[draw.randrange(len(SIZES)), draw.choice([None, *range(len(SIZES))])] for _ in boards]
    return boards, scene(boards, items, **params)


def row_maps(found: Scene, row: int) -> tuple[np.ndarray, np.ndarray]:
    assert found.maps is not None
    return found.maps.z[row].numpy(), found.maps.legal[row].numpy()


# ------------------------------------------------------------------------ by hand


def test_a_drop_at_a_corner_it_does_not_fit_lands_higher() -> None:
    """OnlineBPH's trap: the space says 0, the item rests on the block beside it."""
    board = Board([(0, 0, 0, 3, 6, 2), (5, 0, 0, 7, 6, 4)])  # a gap of 2 between them
    here = scene([board], [[3]])  # 4 x 3 x 2
    index = candidates.GENERATORS["split_space_drops"](here).index
    z, legal = candidates.judge(here, index)
    first = reference.split_space_drops(board.spaces, sizes_of(here, 0))[0]
    assert board.spaces[0] == (3, 0, 0, 5, 6, 8)
    assert first == (0, 0, 3, 0)
    assert z[0, 0] == 4
    assert bool(legal[0, 0])


# ------------------------------------------------------------------- random boards


@BOXES
@pytest.mark.parametrize("seed", range(4))
def test_generators_from_boxes_equal_the_plain_program(seed: int, geometry: str) -> None:
    boards, here = random_scene(seed, geometry=geometry)
    for row, board in enumerate(boards):
        sizes = sizes_of(here, row)
        for name in ("split_spaces", "split_space_drops"):
            expected = getattr(reference, name)(board.spaces, sizes)
            assert proposed(name, here)[0][row] == expected


# ------------------------------------------------------------------------- capacity


@pytest.mark.parametrize("name", ["split_spaces", "split_space_drops"])
def test_proposals_beyond_the_capacity_are_counted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, here = random_scene(5, geometry="boxes")
    every, _ = proposed(name, here)
    monkeypatch.setattr(split, "MAX_PROPOSALS", 6)  # per visible item, of which there are two
    some, dropped = proposed(name, here)
    assert some == [row[:12] for row in every]
    assert dropped == [max(0, len(row) - 12) for row in every]
    assert sum(dropped) > 0


# ------------------------------------------------------------------ irregular items


def irregular_scene(seed: int, **params: object) -> Scene:
    """Items with holes, overhangs and cavities over random ground."""
    items = irregular(seed)
    task = PackingParams(
        container=items.container,
        cell=items.cell,
        num_items=6,
        num_visible=2,
        num_candidates=400,
        stability="none",
        **params,
    )
    generator = torch.Generator().manual_seed(seed)
    ground = torch.randint(0, 5, (3, *task.grid), generator=generator) * 0.01
    item_id = torch.randint(0, 6, (3, 2), generator=generator)
    there = torch.ones(3, 2, dtype=torch.bool)
    tensors = items.tensors()
    maps = feasibility.placement_maps(ground, item_id, there, tensors, task)
    return Scene({"heightmap": ground}, item_id, there, maps, tensors, task)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("step", [1, 2])
def test_lattice_generators_equal_the_plain_program(seed: int, step: int) -> None:
    here = irregular_scene(seed, grid_step=step)
    vertices, _ = proposed("level_set_vertices", here)
    corners, _ = proposed("corner_points", here)
    everything, _ = proposed("all_placements", here)
    assert everything[0] == reference.all_placements(row_maps(here, 0)[0].shape, step)
    for row in range(3):
        z, legal = row_maps(here, row)
        assert vertices[row] == reference.level_set_vertices(z, legal, 0.01, step)
        assert corners[row] == reference.corner_points(z, legal, step)
    assert any(vertices)


def ring() -> dict[str, torch.Tensor]:
    """A flat ring of 3 x 3 cells around a hole."""
    top, bottom = torch.full((1, 1, 3, 3), 0.01), torch.zeros(1, 1, 3, 3)
    top[..., 1, 1], bottom[..., 1, 1] = -torch.inf, torch.inf
    return {
        "top": top,
        "bottom": bottom,
        "size": torch.tensor([[[3, 3]]]),
        "cuboid": torch.zeros(1, 1, 0, dtype=torch.int32),
        "peak": torch.tensor([[0.01]]),
        "com": torch.tensor([[[96, 96]]]),
        "orientation_mask": torch.ones(1, 1, dtype=torch.bool),
    }


def test_a_ring_over_a_peg_is_a_vertex_at_the_floor() -> None:
    """The ring rests on the peg at most places; where its hole takes the peg, it goes down."""
    task = PackingParams(container=(0.08, 0.07, 0.1), cell=0.01, num_items=2, stability="none")
    ground = torch.zeros(1, 8, 7)
    ground[0, 4, 3] = 0.05
    there = torch.ones(1, 1, dtype=torch.bool)
    item_id = torch.zeros(1, 1, dtype=torch.int64)
    maps = feasibility.placement_maps(ground, item_id, there, ring(), task)
    here = Scene({"heightmap": ground}, item_id, there, maps, ring(), task)
    assert maps.z[0, 0, 0, 3, 2] == 0  # the hole is over the peg
    assert (maps.z[0, 0, 0, 2:5, 1:4] > 0).sum() == 8
    found, _ = proposed("level_set_vertices", here)
    expected = reference.level_set_vertices(maps.z[0].numpy(), maps.legal[0].numpy(), 0.01)
    assert found[0] == expected
    assert (0, 0, 3, 2) in found[0]
    # The corners of the square of places where the peg is in the way.
    assert {(2, 1), (4, 1), (2, 3), (4, 3)} <= {p[2:] for p in found[0]}
    assert (0, 0, 3, 1) not in found[0]  # on an edge of it, with level neighbours in x
    assert proposed("corner_points", here)[0][0][1] == (0, 0, 3, 2)


def test_levels_of_whole_cells_survive_rounding() -> None:
    """0.03 in float32 is less than 3 cells of 0.01."""
    z = torch.tensor([0.03, 0.0299, 0.07, 0.29]).view(1, 1, 1, 4, 1)
    maps = feasibility.Maps(z, torch.ones_like(z).bool())
    assert lattice.levels(maps, 0.01).flatten().tolist() == [3, 2, 7, 29]
