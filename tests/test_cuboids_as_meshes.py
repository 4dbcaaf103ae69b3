"""Cuboids sent as mesh files play the same episodes as cuboids sent as extents.

The pipeline reads, welds, checks and rasterises the files, and knows nothing of cuboids; the
protocol is V1 of the validation (RS-125, two yaws, centre hull, heightmap minimization, corners as
in the published program). `benchmarks/cuboids_as_meshes.py` does the same with 500 episodes.
"""

import dataclasses
from pathlib import Path

import pytest
import torch
from tests.tiny import differing, state_of

from agents import heuristics
from packing_env import make_env
from packing_env.envs import PackingEnv
from packing_env.items import Catalogue

trimesh = pytest.importorskip("trimesh")

V1 = {"candidate_range": "pct", "stability": "center_hull", "pool_size": 20, "split": "test"}
EPISODES = 20
LONGEST = 60


@pytest.fixture(scope="module")
def by_extents() -> PackingEnv:
    return make_env("cuboid_online", num_envs=EPISODES, draw="sequential", seed=0, **V1)


@pytest.fixture(scope="module")
def meshes(by_extents: PackingEnv, tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    """The 125 boxes as STL files, centred on the origin of their frames."""
    folder = tmp_path_factory.mktemp("boxes")
    for number, extent in enumerate(by_extents.catalogue.extent.tolist()):
        trimesh.creation.box(extent).export(folder / f"{number:03d}.stl")
    return from_folder(folder, by_extents)


def from_folder(folder: Path, like: PackingEnv) -> Catalogue:
    return Catalogue.from_meshes(
        folder,
        cell=like.params.cell,
        container=like.params.container,
        orientations="yaw",
        use_cache=False,
    )


def test_their_maps_are_equal(by_extents: PackingEnv, meshes: Catalogue) -> None:
    expected, found = by_extents.catalogue.tensors(), meshes.tensors()
    assert len(meshes) == 125
    assert not differing(expected, found, skip=("rotation", "offset", "volume"))
    torch.testing.assert_close(found["volume"], expected["volume"], rtol=1e-12, atol=0)
    assert meshes.cuboid.shape == (125, 2, 3)
    assert meshes.volume_reliable.all()
    real = meshes.orientation_mask
    assert torch.equal(meshes.rotation[real], by_extents.catalogue.rotation[real])


@pytest.mark.parametrize("known_to_be_cuboids", [True, False])
def test_their_episodes_are_equal(
    by_extents: PackingEnv, meshes: Catalogue, known_to_be_cuboids: bool
) -> None:
    """Episodes are equal item by item, also if the catalogue does not mark its items as cuboids."""
    if not known_to_be_cuboids:
        meshes = dataclasses.replace(meshes, cuboid=meshes.cuboid[..., :0])
    by_meshes = PackingEnv(
        by_extents.params,
        meshes,
        by_extents.instances,
        num_envs=EPISODES,
        seed=0,
        draw="sequential",
    )
    by_extents.set_seed(0, static_seed=True)
    roots, policies = [], []
    for env in (by_extents, by_meshes):
        roots.append(env.reset())
        policies.append(heuristics.build("heightmap_minimization", env))
    for _ in range(LONGEST):
        steps = [
            env.step(policy(root))
            for env, policy, root in zip((by_extents, by_meshes), policies, roots, strict=True)
        ]
        assert torch.equal(*(step["action"] for step in steps))
        for key in ("reward", "done", "terminated", "action_mask"):
            assert torch.equal(*(step["next", key] for step in steps)), key
        before, after = state_of(by_extents), state_of(by_meshes)
        assert not differing(before, after, skip=("task", "volume", "reward_sum"))
        roots = [by_extents.step_mdp(step) for step in steps]
    assert roots[0]["done"].all()
    assert 15 < before["items_packed"].double().mean() < 30
