"""Launches of a decision on CUDA tensors without values: policy, collector and environment."""

from __future__ import annotations

import importlib.util

import pytest
from tests.tracing.fake_agents import do_without_a_gpu, training
from tests.tracing.fake_cuda import Launches, do_without_values, load_guard, needs_compiler
from tests.tracing.test_fake_cuda import STARTED

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="Triton is not installed"),
]
LAUNCHES = {
    ("dqn", "cuboid_online"): (26, 28),
    ("dqn", "irregular"): (48, 28),
    ("ppo", "cuboid_online"): (36, 30),
    ("ppo", "irregular"): (58, 30),
}
"""Most launches of policy, collector and fused step, and of writing a decision to the replay."""
SLOW = "irregular"
"""The preset whose decisions are counted on request; `test_fake_cuda.py` counts its steps."""


@pytest.fixture(scope="module", autouse=True)
def guard(tmp_path_factory: pytest.TempPathFactory) -> None:
    load_guard(tmp_path_factory.mktemp("guard"))


@pytest.fixture(autouse=True)
def _without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    do_without_values(monkeypatch)
    do_without_a_gpu(monkeypatch)


def launches(counted: Launches) -> int:
    """Return what the operations start, of which some start several kernels."""
    return sum(STARTED.get(name, 1) * times for name, times in counted.names.items())


@pytest.mark.parametrize(
    ("agent", "preset"),
    [pytest.param(*case, marks=pytest.mark.slow) if SLOW in case else case for case in LAUNCHES],
)
def test_a_decision_keeps_its_budget(agent: str, preset: str) -> None:
    with training(agent, env=preset) as trainer:
        for _ in range(2):  # the first step makes tables of constants
            trainer.collector.step()
        with Launches() as counted:
            transition = trainer.collector.step()
        trainer.replay.extend(transition)
        with Launches() as stored:
            trainer.replay.extend(transition)
    assert trainer.collector.env.engine.name == "fused"
    assert not counted.copies
    most, most_stored = LAUNCHES[agent, preset]
    assert 0 < launches(counted) <= most
    assert 0 < launches(stored) <= most_stored
