"""Geometry ``"voxels"``: equality with the reference, its laws, and the errors of its options."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from tests.solids import catalogue_of, random_catalogue, voxel_env
from tests.tiny import play_beside_reference

from packing_env import make_env
from packing_env.core.orientation import decode_placement, visible_items
from packing_env.envs import Afterstates, PackingEnv
from packing_env.items import Catalogue
from packing_env.plan import packing_of, settle
from packing_env.plan.solids import solid_of
from packing_env.reference import voxels as reference
from packing_env.reference.voxel_episode import VoxelEpisode
from packing_env.testing import check_env
from packing_env.testing.episodes import begin_episode
from packing_env.types import ParameterError

CASES = [
    ((5, 4, 6), {}),
    ((6, 5, 4), {"num_visible": 2, "preview": 1, "item_order": "volume"}),
    ((4, 6, 5), {"removable": False, "illegal_action": "noop"}),
    ((5, 5, 5), {"num_visible": 2, "illegal_action": "project", "num_candidates": 7}),
    ((3, 7, 4), {"candidate_generator": "lowest_z", "candidate_fallback": False}),
]
REWARD = {"utilization": 1.0, "objective": 0.5, "item": 0.1, "height": 0.2}


def case_env(case: int, num_envs: int = 3) -> PackingEnv:
    grid, options = CASES[case]
    items = random_catalogue(case, grid)
    return voxel_env(items, num_envs, **{"num_candidates": 30, "reward": REWARD, **options})


# ------------------------------------------------------------------ equality with the reference


@pytest.mark.parametrize("case", range(len(CASES)))
def test_every_placement_and_reward_equals_the_reference(case: int) -> None:
    """20 steps per case; benchmarks/fuzz_engines.py plays more."""
    env = case_env(case, num_envs=2)
    assert play_beside_reference(env, 10, None, seed=case) > 0


@pytest.mark.parametrize("case", [0, 1, 3])
def test_the_list_is_that_of_the_plain_program(case: int) -> None:
    """All candidates, in order: lowest layer, then most contact, then index."""
    env = case_env(case)
    root = env.reset()
    known: dict[int, object] = {}
    episodes = [begin_episode(env, row, known) for row in range(3)]
    for _ in range(4):
        listed, root = env.state["candidate"], env.rand_action(root)
        for row, episode in enumerate(episodes):
            assert isinstance(episode, VoxelEpisode)
            if episode.done:
                continue
            expected = episode.closest(env.mode.num_orientations, env.params.num_candidates)
            place = decode_placement(listed[row], env.mode.num_orientations, env.params)
            parts = (place.slot, place.orientation, place.x, place.y, place.layer)
            count = int((listed[row] >= 0).sum())
            assert list(zip(*(p[:count].tolist() for p in parts), strict=True)) == expected
            episode.decide(expected[int(root["action"][row])], env.mode.num_orientations)
        root = env.step_mdp(env.step(root))


@pytest.mark.parametrize("case", [1, 4])
def test_candidates_say_how_much_of_their_surface_touches(case: int) -> None:
    """The feature before the last is the contact over the part's own faces; 0 in padding."""
    env = case_env(case)
    root = env.reset()
    root = env.step_mdp(env.step(env.rand_action(root)))
    place = decode_placement(env.state["candidate"], env.mode.num_orientations, env.params)
    visible, _ = visible_items(dict(env.state.items()), env.params.num_visible)
    seen = root["observation", "candidates"]
    for row in range(3):
        container = env.state["occupied"][row].numpy()
        for k in range(env.params.num_candidates):
            if env.state["candidate"][row, k] < 0:
                assert seen[row, k].eq(0).all()
                continue
            slot, orientation = int(place.slot[row, k]), int(place.orientation[row, k])
            part = env.catalogue.voxels[visible[row, slot], orientation].numpy()
            at = (int(place.x[row, k]), int(place.y[row, k]), int(place.layer[row, k]))
            alone = np.zeros((40, 40, 40), bool)
            alone[tuple(zip(*reference.solid(part, (9, 9, 9)), strict=True))] = True
            faces = sum(
                not alone[x + dx, y + dy, z + dz]
                for x, y, z in np.argwhere(alone).tolist()
                for dx, dy, dz in reference.DIRECTIONS
            )
            expected = np.float32(reference.contact(container, part, at)) / np.float32(faces)
            assert seen[row, k, -2] == pytest.approx(expected, rel=1e-6)


def test_afterstates_of_cuboids_as_voxels_are_the_heightmaps_after_the_step() -> None:
    items = Catalogue.from_cuboids(
        [(0.02, 0.03, 0.01), (0.01, 0.02, 0.02)], voxels=True, cell=0.01, container=(0.05,) * 3
    )
    env = voxel_env(items, 3, num_candidates=20)
    afterstates, root = Afterstates(env), env.reset()
    for _ in range(3):
        after = afterstates(root.clone())["afterstate"]
        root = env.rand_action(root)
        expected = after[torch.arange(3), root["action"]]
        root = env.step_mdp(env.step(root))
        seen = afterstates.heights(root["observation", "heightmap"])
        assert torch.equal(seen, expected)


def test_check_env_on_the_preset() -> None:
    check_env(make_env("nesting", 3, resolution=8, num_items=6, pool_size=8, num_candidates=16), 8)


# ------------------------------------------------------------------ laws


@pytest.mark.parametrize("seed", range(3))
def test_parts_are_disjoint_and_leave_in_reverse_order(seed: int) -> None:
    """The record of a finished episode is a packing without overlap, and nothing is interlocked."""
    items = random_catalogue(seed, (7, 6, 6), side=3)
    env = voxel_env(items, 4, num_items=12, num_candidates=200)
    root = env.reset()
    for _ in range(12):
        root = env.step_mdp(env.step(env.rand_action(root)))
    state, items = env.state, env.catalogue.tensors()
    layers = (state["placement_z"] / env.params.cell).round().long()
    for row in range(4):
        container = np.zeros((*env.params.grid, env.params.layers), bool)
        packed = int(state["items_packed"][row])
        assert packed > 3
        added = []
        for order in range(packed):
            position, orientation, x, y = state["placement"][row, order].tolist()
            part = items["voxels"][state["item_id"][row, position], orientation].numpy()
            place = (x, y, int(layers[row, order]))
            assert reference.is_free(container, part, place)
            added.append((part, place))
            container[tuple(zip(*reference.solid(part, place), strict=True))] = True
        assert np.array_equal(container, state["occupied"][row].numpy())
        tops = np.where(container, np.arange(1, container.shape[2] + 1), 0).max(2)
        assert np.array_equal((state["heightmap"][row] / 0.01).round().numpy(), tops)
        for part, place in reversed(added):
            container[tuple(zip(*reference.solid(part, place), strict=True))] = False
            assert any(
                reference.leaves_towards(container, part, place, d) for d in reference.DIRECTIONS
            )


def test_a_part_goes_under_an_overhang() -> None:
    """A heightmap has no room under a table; voxels have."""
    table = np.ones((3, 3, 3), bool)
    table[1, :, :2] = False
    env = voxel_env(catalogue_of([[table], [np.ones((1, 1, 1), bool)]], (3, 3, 3)), 1, num_items=2)
    env.reset()
    state = dict(env.state.items())
    state["item_id"] = torch.tensor([[0, 1]])
    state["num_items"] = torch.tensor([2])
    state, _ = env.engine.observe(state)
    step = env.engine.advance(state, {"action": torch.zeros(1, dtype=torch.int64)}, reset=False)
    places = decode_placement(step.state["candidate"][0], 1, env.params)
    listed = step.state["candidate"][0] >= 0
    layers = places.layer[listed].tolist()
    assert int(listed.sum()) == 6
    assert layers == [0, 0, 0, 1, 1, 1]
    assert places.x[listed].tolist() == [1] * 6
    # At each height, the middle touches fewer faces: it has a neighbour on two sides only.
    assert places.y[listed].tolist() == [0, 2, 1, 0, 2, 1]
    assert step.reward.item() == pytest.approx(21 / 27)


# ------------------------------------------------------------------ items


def test_voxels_of_shapes_enclose_their_maps(tmp_path) -> None:
    """Voxels of a shape fill its bounding box; they are saved, loaded and selected."""
    options = {"cell": 0.02, "container": (0.2, 0.2, 0.2), "use_cache": False}
    items = Catalogue.from_shapes(["cups"], voxels=True, **options)
    assert items.voxels is not None
    assert bool((items.voxels.sum((2, 3, 4))[items.orientation_mask] > 0).all())
    assert bool((items.voxels.sum((2, 3, 4)) * 0.02**3 >= items.volume[:, None])[:, 0].all())
    columns = items.voxels.any(4)
    assert torch.equal(columns, torch.isfinite(items.top))
    items.save(tmp_path / "cups.catalogue")
    loaded = Catalogue.load(tmp_path / "cups.catalogue").select([2, 0])
    assert torch.equal(loaded.voxels, items.voxels[[2, 0]])


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"action_mode": "placement"}, "action_mode"),
        ({"grid_step": 2}, "grid_step"),
        ({"observation": ("heightmap", "drop_height")}, "observation"),
        ({"observation": ("heightmap", "boxes")}, "boxes"),
        ({"num_spaces": 8}, "num_spaces"),
        ({"unit": 0.005}, "unit"),
        ({"candidate_range": "pct"}, "candidate_range"),
        ({"stability": "com_hull"}, "stability"),
        ({"stability_metric": "com_hull"}, "stability_metric"),
        ({"surest": ("com_hull_10",)}, "surest"),
        ({"candidate_generator": "corner_points"}, "corner_points"),
        ({"geometry": "maps", "stability": "none"}, "closest"),
        ({"geometry": "maps", "removable": False}, "removable"),
        ({"container": (0.05, 0.05, 0.055)}, "whole multiple"),
    ],
)
def test_options_that_voxels_do_not_have(options: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        voxel_env(random_catalogue(0, (5, 5, 5)), 1, **options).reset()


def test_items_without_voxels_are_refused() -> None:
    items = Catalogue.from_shapes(
        ["polycubes"], cell=0.02, container=(0.2, 0.2, 0.2), use_cache=False
    )
    with pytest.raises(ParameterError, match="voxels=True"):
        voxel_env(items, 1)


# ------------------------------------------------------------------ other parts of the package


def test_the_gymnasium_id_needs_no_options() -> None:
    env = gymnasium.make("packing_env:PackingNesting-v0", resolution=8, pool_size=4)
    _, info = env.reset(seed=0)
    assert info["action_mask"].any()


def test_plans_of_voxels_are_not_settled_and_lie_inside() -> None:
    """Powder holds the parts where they are; their solids lie within their voxels."""
    env = make_env("nesting", 1, resolution=8, num_items=6, pool_size=4, seed=1)
    root = env.reset()
    for _ in range(4):
        root = env.step_mdp(env.step(env.rand_action(root)))
    packing = packing_of(env)
    assert settle(packing) is packing
    for item in packing.items:
        points = solid_of(item, Path()).vertices @ item.rotation.T + item.translation
        assert bool((points >= -1e-6).all())
        assert bool((points <= 0.12 + 1e-6).all())
        assert float(points[:, 2].min()) >= item.z - 1e-6
