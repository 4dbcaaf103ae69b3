"""Steps on CUDA tensors without values: devices, host reads, launches, memory."""

import logging
from functools import cache
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tests.contract.presets import SMALL, modes, small_preset
from tests.engine.engines import needs_triton
from tests.tracing.fake_cuda import (
    Launches,
    do_without_values,
    fake_cuda,
    needs_compiler,
    on_cuda,
)

from packing_env import kernels
from packing_env.engine import fused
from packing_env.kernels import drop
from packing_env.tasks import make_env

pytestmark = needs_compiler
MODES = {preset: [m for m in modes(preset) if m != "multi_head"] for preset in SMALL}
CASES = [(preset, listed[i % len(listed)]) for i, (preset, listed) in enumerate(MODES.items())]
"""Each preset once, and each mode but ``multi_head``: its spec reads its sizes when it moves."""


@pytest.fixture(autouse=True)
def _without_values(guard: None, monkeypatch: pytest.MonkeyPatch) -> None:
    do_without_values(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


def test_a_mixture_of_devices_is_an_error() -> None:
    with fake_cuda():
        here, there = torch.ones(3), torch.ones(3, device="cuda:0")
        with pytest.raises(RuntimeError, match="devices"):
            here + there
        chosen = there[torch.zeros(2, dtype=torch.int64, device="cuda:0")]
    assert chosen.device.type == "cuda"


def test_views_launch_nothing() -> None:
    with fake_cuda(), Launches() as counted:
        base = torch.zeros(1000, device="cuda:0")
        base[:5].add_(1)
        (base.view(10, 100) + 1).sum()
    assert counted.count == 4


@pytest.mark.parametrize(("preset", "mode"), CASES)
def test_steps_stay_on_the_device(preset: str, mode: str) -> None:
    """No operation mixes devices, nothing is copied, and no value is read."""
    env = small_preset(preset, action_mode=mode, engine="rules")
    with fake_cuda():
        env = on_cuda(env)
        root = env.rand_action(env.reset())
        with Launches() as counted:
            step, root = env.step_and_maybe_reset(root)
    assert not counted.copies, counted.copies
    devices = {x.device.type for each in (step, root) for x in each.values(True, True)}
    assert devices == {"cuda"}
    assert counted.count > 0


@pytest.mark.parametrize("mode", ["placement", "hierarchical"])
def test_an_episode_goes_on_after_a_move(mode: str) -> None:
    """Its masks move, too: a reset of some rows shows those of the others."""
    env = small_preset("cuboid_online", action_mode=mode, engine="rules")
    env.reset()
    with fake_cuda():
        env = on_cuda(env)
        rows = torch.zeros(*env.batch_size, 1, dtype=torch.bool, device="cuda:0")
        root = env._reset(TensorDict({"_reset": rows}, env.batch_size))
    assert {x.device.type for x in root.values(True, True)} == {"cuda"}


ENGINES = [
    ("cuboid_online", "rules"),
    ("irregular", "rules"),
    pytest.param("cuboid_online", "fused", marks=needs_triton),
    pytest.param("irregular", "fused", marks=needs_triton),
]


@cache
def launches(preset: str, engine: str, num_envs: int) -> int:
    """Count a step in action mode ``placement``, with all of the preset's observations."""
    env = make_env(preset, num_envs, pool_size=64, action_mode="placement")
    env._engine_name = engine
    with fake_cuda():
        env = on_cuda(env)
        root = env.rand_action(env.reset())
        with Launches() as counted:
            env.step_and_maybe_reset(root)
    assert env.engine.name == engine
    assert not counted.copies
    return counted.count


@pytest.mark.parametrize(("preset", "engine"), ENGINES)
def test_launches_do_not_grow_with_the_batch(preset: str, engine: str) -> None:
    assert launches(preset, engine, 64) == launches(preset, engine, 256)


@needs_triton
@pytest.mark.parametrize("preset", ["cuboid_online", "irregular"])
def test_a_fused_step_launches_a_fraction_of_the_rules(preset: str) -> None:
    assert 5 * launches(preset, "fused", 64) < launches(preset, "rules", 64)


def fails(*arguments: Any, **options: Any) -> None:
    raise kernels.KernelError("Triton 3 cannot compile judge_kernel")


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the kernels of steps and of rest heights fail to compile."""
    for name in ("advance_fused", "observe_fused"):
        monkeypatch.setattr(fused, name, fails)
    monkeypatch.setitem(drop._DROP_HEIGHT, "triton", fails)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(
    ("preset", "mode"),
    [("cuboid_online", "placement"), ("irregular", "placement"), ("irregular", "candidate")],
)
def test_without_a_kernel_the_rules_step(
    preset: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One log line per process says why, and no environment tries the kernel again."""
    rule = {"stability": "none", "stability_metric": "none", "surest": ()}
    env = small_preset(preset, action_mode=mode, **rule)
    caplog.set_level(logging.WARNING, "packing_env")
    with fake_cuda():
        for _ in range(2):
            env = on_cuda(env)
        env.step_and_maybe_reset(env.rand_action(env.reset()))
    assert env.engine.name == "rules"
    assert kernels.backend_for("cuda") == "eager"
    (record,) = caplog.records
    assert "Triton 3 cannot compile judge_kernel" in record.getMessage()
