"""Environments on a CUDA device: the rollouts of the CPU, no synchronization in a step."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.contract.presets import SMALL, small_preset
from tests.tiny import cuboid_env, differing, play, tiny_env

from packing_env import kernels
from packing_env.engine.operations import ON_CELLS
from packing_env.envs import PackingEnv
from packing_env.testing import KNOWN_RULES, check_env
from packing_env.types import DEFAULT_OBSERVATIONS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(params=kernels.available_backends("cuda"))
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return each CUDA backend in turn; environments on the CPU are built with eager kernels."""
    kernels.set_backend("eager")
    yield request.param
    kernels.set_backend(None)
    torch.cuda.set_sync_debug_mode("default")


def assert_same_rollouts(here: PackingEnv, there: PackingEnv, backend: str) -> None:
    rollouts = []
    for env, device, chosen in ((here, "cpu", "eager"), (there, "cuda", backend)):
        kernels.set_backend(chosen)  # an environment chooses its engine when it is moved
        env.to(device)
        env.set_seed(0, static_seed=True)
        rollouts.append(play(env, 20).cpu())
    assert rollouts[0]["next", "done"].any()
    assert not differing(*rollouts)


@pytest.mark.parametrize("stability", KNOWN_RULES)
def test_rollouts_under_every_rule(stability: str, backend: str) -> None:
    envs = [tiny_env(5, stability=stability, num_visible=2) for _ in range(2)]
    assert_same_rollouts(*envs, backend)
    check_env(envs[1], num_steps=5)


@pytest.mark.parametrize("preset", sorted(SMALL))
def test_rollouts_of_the_presets(preset: str, backend: str) -> None:
    assert_same_rollouts(small_preset(preset), small_preset(preset), backend)


@pytest.mark.parametrize("stability", kernels.CUBOID_RULES)
@pytest.mark.parametrize(
    ("make", "options"),
    [
        (cuboid_env, {"action_mode": "placement", "observation": ON_CELLS}),
        (cuboid_env, {"action_mode": "multi_head", "observation": ON_CELLS}),
        (tiny_env, {"num_visible": 1, "observation": DEFAULT_OBSERVATIONS}),
        (tiny_env, {"num_visible": 2, "observation": DEFAULT_OBSERVATIONS}),
    ],
)
def test_fused_steps(
    make: Callable[..., PackingEnv], options: dict[str, Any], stability: str, backend: str
) -> None:
    if backend != "triton":
        pytest.skip("the fused step is Triton's")
    envs = [make(65, stability=stability, **options) for _ in range(2)]
    assert_same_rollouts(*envs, backend)
    assert envs[1].engine.name == "fused"


def test_a_step_does_not_synchronize(backend: str) -> None:
    kernels.set_backend(backend)
    env = tiny_env(8, stability="com_hull", num_visible=2).to("cuda")
    root = env.reset()
    for step in range(20):
        if step == 5:
            torch.cuda.set_sync_debug_mode("error")
        root = env._step_and_maybe_reset(env.rand_action(root))[1]
