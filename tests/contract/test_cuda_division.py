"""CUDA's division by a number, emulated on the CPU: it must change nothing in a rollout.

On CUDA, torch multiplies by the reciprocal of a divisor that is a Python number.
"""

from typing import Any

import numpy as np
import pytest
import torch
from tests.contract.presets import SMALL, modes, small_preset
from tests.tiny import cuboid_env, differing, play, play_by_the_rules
from torch.utils._python_dispatch import TorchDispatchMode

from agents import heuristics
from packing_env import kernels
from packing_env.envs import PackingEnv

CASES = [(preset, modes(preset)[i % len(modes(preset))]) for i, preset in enumerate(SMALL)]
"""Each preset and each mode."""


class CudaDivision(TorchDispatchMode):
    """A mode in which tensors are divided by numbers as on CUDA."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name != "aten::div" or isinstance(args[1], torch.Tensor) or kwargs:
            return func(*args, **(kwargs or {}))
        dtype = args[0].dtype if args[0].is_floating_point() else torch.get_default_dtype()
        one = np.ones((), str(dtype).removeprefix("torch."))
        return args[0].to(dtype) * float(one / one.dtype.type(args[1]))


@pytest.fixture(autouse=True)
def _rule_by_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    play_by_the_rules(monkeypatch)
    kernels.set_backend("eager")


def assert_same(env: PackingEnv, steps: int) -> None:
    """Compare a rollout with one under CUDA's division."""
    env.set_seed(0, static_seed=True)
    plain = play(env, steps)
    env.set_seed(0, static_seed=True)
    with CudaDivision():
        emulated = play(env, steps)
    assert differing(plain, emulated) == []


def test_the_emulation_rounds_twice() -> None:
    heights = torch.arange(255.0)
    with CudaDivision():
        wrong = (heights * 41 / 41).to(torch.uint8)
        right = kernels.divide(heights * 41, 41).to(torch.uint8)
    assert torch.equal(right, heights.to(torch.uint8))
    assert not torch.equal(wrong, right)


@pytest.mark.parametrize(("preset", "mode"), CASES)
def test_presets(preset: str, mode: str) -> None:
    assert_same(small_preset(preset, action_mode=mode), 4)


@pytest.mark.parametrize("cell", [41.0, 55.0])
def test_cells_whose_heights_would_be_one_too_low(cell: float) -> None:
    options = {"stability": "center_hull", "num_visible": 2, "action_mode": "placement"}
    assert_same(cuboid_env(8, items={"pitch": cell}, **options), 8)


@pytest.mark.parametrize("name", ["heightmap_minimization", "deepest_bottom_left", "lowest_z"])
def test_heuristics(name: str) -> None:
    env = small_preset("irregular", 8)
    policy = heuristics.build(name, env)
    for _ in range(3):
        root = env.rand_step(env.reset())["next"]
        plain = policy(root.clone())["action"]
        with CudaDivision():
            assert torch.equal(policy(root.clone())["action"], plain)
