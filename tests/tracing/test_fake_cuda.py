"""Steps on CUDA tensors without values: devices, host reads, launches, memory."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.contract.presets import SMALL, modes, small_preset
from tests.tracing.fake_cuda import (
    Launches,
    do_without_values,
    fake_cuda,
    load_guard,
    needs_compiler,
    on_cuda,
)

from packing_env import kernels
from packing_env.engine import fused
from packing_env.kernels import drop
from packing_env.tasks import make_env
from packing_env.types import ParameterError

pytestmark = needs_compiler
needs_triton = pytest.mark.skipif(
    not importlib.util.find_spec("triton"), reason="Triton is not installed"
)
CASES = [(preset, mode) for preset in SMALL for mode in modes(preset) if mode != "multi_head"]
"""Not ``multi_head``, whose spec reads its sizes when it is moved to a device."""


@pytest.fixture(scope="module", autouse=True)
def guard(tmp_path_factory: pytest.TempPathFactory) -> None:
    load_guard(tmp_path_factory.mktemp("guard"))


@pytest.fixture(autouse=True)
def _without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    do_without_values(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


def test_a_mixture_of_devices_is_an_error() -> None:
    with fake_cuda():
        here, there = torch.ones(3), torch.ones(3, device="cuda:0")
        with pytest.raises(RuntimeError, match="devices"):
            here + there
        chosen = there[torch.zeros(2, dtype=torch.int64, device="cuda:0")]
    assert chosen.device.type == "cuda"


def test_launches_and_memory_are_counted() -> None:
    with fake_cuda(), Launches() as counted:
        base = torch.zeros(1000, device="cuda:0")
        base[:5].add_(1)
        sums = [(base.view(10, 100) + 1).sum() for _ in range(3)]
    assert counted.count == 8
    assert len(sums) == 3
    assert 8000 <= counted.peak < 8100


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


ENGINES = [
    ("cuboid_online", "rules"),
    ("irregular", "rules"),
    pytest.param("cuboid_online", "fused", marks=needs_triton),
    pytest.param("irregular", "fused", marks=needs_triton),
]


@pytest.mark.parametrize(("preset", "engine"), ENGINES)
def test_launches_do_not_grow_with_the_batch(preset: str, engine: str) -> None:
    """Of a step in action mode ``placement``, with all of the preset's observations."""
    launches = set()
    for num_envs in (64, 256):
        env = make_env(preset, num_envs, pool_size=64, action_mode="placement")
        env._engine_name = engine
        with fake_cuda():
            env = on_cuda(env)
            root = env.rand_action(env.reset())
            with Launches() as counted:
                env.step_and_maybe_reset(root)
        assert env.engine.name == engine
        assert not counted.copies
        launches.add(counted.count)
    assert len(launches) == 1


@needs_triton
@pytest.mark.parametrize("preset", ["cuboid_online", "irregular"])
def test_a_fused_step_launches_a_fraction_of_the_rules(preset: str) -> None:
    counts = []
    for engine in ("fused", "rules"):
        env = make_env(preset, 64, pool_size=64, action_mode="placement")
        env._engine_name = engine
        with fake_cuda():
            env = on_cuda(env)
            root = env.rand_action(env.reset())
            with Launches() as counted:
                env.step_and_maybe_reset(root)
        counts.append(counted.count)
    assert 5 * counts[0] < counts[1]


MEMORY = {
    "cuboid_online": ({"action_mode": "placement"}, 0.1),
    "irregular_paper": (
        {"action_mode": "hierarchical", "observation": ("heightmap", "item_id")},
        10.0,
    ),
}
"""Options, and GB of all that a step by the rules makes, at 1,024 rows."""


@pytest.mark.parametrize("preset", MEMORY)
def test_a_step_of_real_size_keeps_its_memory(preset: str) -> None:
    options, gigabytes = MEMORY[preset]
    env = make_env(preset, 1024, engine="rules", pool_size=64, **options)
    with fake_cuda():
        env = on_cuda(env)
        root = env.rand_action(env.reset())
        with Launches() as counted:
            env.step_and_maybe_reset(root)
    assert counted.peak <= 1e9 * gigabytes


@needs_triton
@pytest.mark.parametrize(("preset", "gigabytes"), [("cuboid_online", 0.1), ("irregular", 0.5)])
def test_a_fused_step_needs_little_beside_its_roots(preset: str, gigabytes: float) -> None:
    """In action mode ``placement``, with all of the preset's observations, at 1,024 rows."""
    env = make_env(preset, 1024, pool_size=64, action_mode="placement")
    with fake_cuda():
        env = on_cuda(env)
        root = env.rand_action(env.reset())
        with Launches() as counted:
            step, following = env.step_and_maybe_reset(root)
        made = {x.untyped_storage()._cdata: x.untyped_storage().nbytes()
                for each in (step["next"], following) for x in each.values(True, True)}  # fmt: skip
    assert env.engine.name == "fused"
    assert counted.peak <= sum(made.values()) + 1e9 * gigabytes


def fails(*arguments: Any, **options: Any) -> None:
    raise kernels.KernelError("Triton 3 cannot compile judge_kernel")


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No kernel of a step and none of rest heights compiles."""
    for name in ("advance_fused", "observe_fused"):
        monkeypatch.setattr(fused, name, fails)
    monkeypatch.setitem(drop._DROP_HEIGHT, "triton", fails)
    yield
    kernels.set_backend(None)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(
    ("preset", "mode"),
    [("cuboid_online", "placement"), ("irregular", "placement"), ("irregular", "candidate")],
)
def test_without_a_kernel_the_rules_step(
    preset: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One line says why, of all environments of a process; nothing asks for the kernel again."""
    env = small_preset(preset, action_mode=mode)
    caplog.set_level(logging.WARNING, "packing_env")
    with fake_cuda():
        for _ in range(2):
            env = on_cuda(env)
        env.step_and_maybe_reset(env.rand_action(env.reset()))
    assert env.engine.name == "rules"
    assert kernels.backend_for("cuda") == "eager"
    (record,) = caplog.records
    assert "Triton 3 cannot compile judge_kernel" in record.getMessage()


@pytest.mark.usefixtures("uncompiled")
def test_without_a_kernel_an_engine_by_name_is_refused() -> None:
    env = small_preset("cuboid_online", action_mode="placement")
    env._engine_name = "fused"
    with fake_cuda(), pytest.raises(ParameterError, match=r"engine='fused'.*eager on cuda"):
        on_cuda(env)
