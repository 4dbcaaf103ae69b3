"""The same episodes again: by the same seed, row by row, and from every backend."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDictBase
from tests.laws.test_rows import same_play
from tests.tiny import cuboid_env, differing, play, stream, tiny_env

from packing_env import kernels
from packing_env.envs import PackingEnv

Make = Callable[..., PackingEnv]
KINDS: dict[str, tuple[Make, dict[str, Any]]] = {
    "irregular": (tiny_env, {"stability": "com_hull", "num_visible": 2}),
    "support": (tiny_env, {"stability": "area_corners", "illegal_action": "noop"}),
    "cuboids": (cuboid_env, {"stability": "center_hull", "num_visible": 2}),
    "candidates": (cuboid_env, {"action_mode": "candidate", "num_candidates": 8}),
}
STEPS = 7


def env_of(kind: str, num_envs: int, **changes: Any) -> PackingEnv:
    make, params = KINDS[kind]
    return make(num_envs, num_items=4, **changes, **params)


@pytest.fixture(params=kernels.available_backends())
def backend(request: pytest.FixtureRequest) -> Any:
    kernels.set_backend(request.param)
    yield request.param
    kernels.set_backend(None)


def played(env: PackingEnv) -> tuple[TensorDictBase, TensorDictBase]:
    """A rollout through several resets, and the state it ends in."""
    steps = play(env, STEPS, stream(3))
    assert steps["next", "done"].any()
    return steps, env.get_state()


@pytest.mark.parametrize("kind", KINDS)
def test_a_rollout_is_the_same_from_every_backend(kind: str, backend: str) -> None:
    assert kernels.backend_for("cpu") == backend
    found = played(env_of(kind, 3))
    kernels.set_backend("eager")
    for one, other in zip(found, played(env_of(kind, 3)), strict=True):
        assert differing(one, other) == []


@pytest.mark.parametrize("kind", ["irregular", pytest.param("cuboids", marks=pytest.mark.slow)])
def test_64_rows_are_64_environments(kind: str) -> None:
    """With recorded actions; instances are drawn by each row for itself."""
    batch_env = env_of(kind, 64)
    batch = play(batch_env, 5, stream())
    assert batch["next", "done"].any()
    alone_env = env_of(kind, 1, instances=batch_env.instances)
    drawn = set()
    for row in range(64):
        alone_env._rows = torch.tensor([row])  # as row_offset, which would be another environment
        alone_env.set_seed(0, static_seed=True)
        alone = play(alone_env, 5, actions=batch["action"][:, row : row + 1])
        same_play(batch[:, row], alone[:, 0])
        assert torch.equal(alone_env.state["item_id"][0], batch_env.state["item_id"][row])
        assert torch.equal(alone_env.state["heightmap"][0], batch_env.state["heightmap"][row])
        drawn.add(tuple(alone_env.state["item_id"][0].tolist()))
    assert len(drawn) > 8
