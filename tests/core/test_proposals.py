"""Candidate generators: hand-made boards, and equality with the plain program on random ones."""

import numpy as np
import pytest
import torch
from tests.one_container import env_of, put
from tests.tiny import catalogue as irregular
from tests.tiny import cuboid_env, play, stream

from packing_env.core import candidates, feasibility
from packing_env.core.candidates import Scene
from packing_env.core.orientation import decode_placement
from packing_env.core.proposals import lattice, split
from packing_env.reference import proposals as reference
from packing_env.testing.episodes import current_scene
from packing_env.types import PackingParams

OF_SPACES = ("split_spaces", "split_space_drops")
LISTS = {"action_mode": "candidate", "num_spaces": 64, "stability": "none"}


def proposed(name: str, scene: Scene) -> tuple[list[list[reference.Placement]], list[int]]:
    """Return a generator's proposals in each row, without empty slots, and the number dropped."""
    found = candidates.GENERATORS[name](scene)
    assert found.index.dtype == torch.int64
    place = decode_placement(found.index, scene.catalogue["peak"].shape[1], scene.params)
    fields = torch.stack([place.slot, place.orientation, place.x, place.y], -1)
    real = found.index >= 0
    rows = [
        [tuple(each) for each in row[there].tolist()]
        for row, there in zip(fields, real, strict=True)
    ]
    return rows, found.dropped.tolist()


def of_reference(name: str, scene: Scene, row: int) -> list[reference.Placement]:
    """Return the proposals of the plain program for the spaces and the cuboids of a row."""
    spaces = [tuple(space) for space in scene.state["spaces"][row].tolist() if any(space)]
    sides = scene.catalogue["cuboid"][scene.item_id[row]].tolist()
    sizes = [
        [tuple(size) if there and all(size) else None for size in turned]
        for turned, there in zip(sides, scene.there[row].tolist(), strict=True)
    ]
    return getattr(reference, name)(spaces, sizes)


def random_scene(seed: int, geometry: str = "boxes") -> Scene:
    """Rows after some steps of episodes; two items are visible, or only the last one."""
    items = {"orientations": "cuboid", "num_items": 6, "maps": geometry == "maps"}
    env = cuboid_env(8, seed=seed, items=items, num_items=8, num_visible=2, **LISTS)
    play(env, 4 + seed, stream(seed))
    return current_scene(env)


# ------------------------------------------------------------------------ by hand


def test_a_drop_at_a_corner_it_does_not_fit_lands_higher() -> None:
    """OnlineBPH's trap: the space says 0, the item rests on the block beside it."""
    sides = [(3.0, 6.0, 2.0), (2.0, 6.0, 4.0), (4.0, 3.0, 2.0)]
    env = env_of(sides, (7.0, 6.0, 8.0), orientations="none", **LISTS)
    for x in (0, 5):  # a gap of 2 between them
        put(env, 0, x, 0)
    here = current_scene(env)
    z, legal = candidates.judge(here, candidates.GENERATORS["split_space_drops"](here).index)
    assert here.state["spaces"][0, 0].tolist() == [3, 0, 0, 5, 6, 8]
    assert of_reference("split_space_drops", here, 0)[0] == (0, 0, 3, 0)
    assert z[0, 0] == 4
    assert bool(legal[0, 0])


# ------------------------------------------------------------------- random boards


@pytest.mark.parametrize("geometry", ["maps", "boxes"])
@pytest.mark.parametrize("seed", range(4))
def test_generators_from_boxes_equal_the_plain_program(seed: int, geometry: str) -> None:
    here = random_scene(seed, geometry)
    for name in OF_SPACES:
        found, _ = proposed(name, here)
        assert found == [of_reference(name, here, row) for row in range(8)]
        assert any(found)


# ------------------------------------------------------------------------- capacity


@pytest.mark.parametrize("name", OF_SPACES)
def test_proposals_beyond_the_capacity_are_counted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = random_scene(1)
    every, _ = proposed(name, here)
    monkeypatch.setattr(split, "MAX_PROPOSALS", 6)  # per visible item, of which there are two
    some, dropped = proposed(name, here)
    assert some == [row[:12] for row in every]
    assert dropped == [max(0, len(row) - 12) for row in every]
    assert sum(dropped) > 0


# ------------------------------------------------------------------ irregular items


def row_maps(found: Scene, row: int) -> tuple[np.ndarray, np.ndarray]:
    assert found.maps is not None
    return found.maps.z[row].numpy(), found.maps.legal[row].numpy()


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
