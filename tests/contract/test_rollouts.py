"""Both ways to reset give the same rollouts, alone and inside TorchRL's transforms."""

from typing import Any

import pytest
import torch
from tests.tiny import differing, play, tiny_env
from torchrl.envs import (
    Compose,
    EnvBase,
    InitTracker,
    RewardSum,
    StepCounter,
    TransformedEnv,
)

from packing_env.types import AUTORESETS


def wrapped(autoreset: str, **task: Any) -> EnvBase:
    transforms = Compose(
        StepCounter(max_steps=3),
        RewardSum(in_keys=["reward"], out_keys=["reward_sum"]),
        InitTracker(),
    )
    return TransformedEnv(tiny_env(5, shell={"autoreset": autoreset}, **task), transforms)


def test_transforms_see_the_same_in_both_ways() -> None:
    """``is_init`` is left out: TorchRL 0.14 sets it from the last done key alone."""
    task = {"items": {"grid": (5, 5), "height": 0.05}}
    native, masked = (play(wrapped(a, **task), 20) for a in AUTORESETS)
    assert native["next", "truncated"].any()
    assert native["next", "terminated"].any()
    assert not differing(native, masked, skip=("is_init", ("next", "is_init")))


@pytest.mark.parametrize("autoreset", AUTORESETS)
def test_a_wrapper_may_cut_episodes_short(autoreset: str) -> None:
    steps = play(wrapped(autoreset, container=(0.08, 0.07, 0.5)), 12)
    count = steps["next", "step_count"].squeeze(-1)
    assert count.max() == 3
    assert torch.equal(steps["next", "truncated"].squeeze(-1), count == 3)
    packed = steps["next", "metrics", "items_packed"].squeeze(-1)
    assert torch.equal(packed.long(), count)  # each cut starts a new episode
    total = steps["next", "reward_sum"]
    torch.testing.assert_close(total, steps["next", "metrics", "utilization"], atol=1e-6, rtol=0)
    first = steps["observation", "heightmap"].flatten(2).amax(-1) == 0
    assert torch.equal(first, steps["step_count"].squeeze(-1) == 0)
    assert steps["next"].isfinite().all()


NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])])
def test_moving_an_environment_moves_everything(device: str) -> None:
    first = play(tiny_env(3), 6)
    env = tiny_env(3)
    env.reset()
    moved = env.to(device)
    held = [v for v in vars(moved).values() if isinstance(v, torch.Tensor)]
    held += [*moved.catalogue.tensors().values(), *moved.state.values(), moved.instances.item_id]
    assert {value.device.type for value in held} == {device}
    moved.set_seed(0, static_seed=True)
    assert not differing(first, play(moved, 6).cpu())
