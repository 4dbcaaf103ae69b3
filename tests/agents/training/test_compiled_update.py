"""Updates compiled by torch's inductor for the CPU: they learn what the updates learn."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
import torch
from tests.agents.training.test_resume import trainer_of

from agents.training.trainer import Trainer
from packing_env import kernels
from packing_env.types import ParameterError

FAMILIES = ("ppo", "sac", "hierarchical", "afterstate")
"""A value-based agent is compiled in every run, one of each other family on request."""

needs_compiler = pytest.mark.skipif(
    not shutil.which("c++"), reason="torch.compile needs a C++ compiler, c++, on a CPU"
)


@pytest.fixture(autouse=True)
def _eager() -> Iterator[None]:
    kernels.set_backend("eager")
    yield
    kernels.set_backend(None)


def learned(case: str, compile_updates: bool) -> tuple[Trainer, dict[str, torch.Tensor]]:
    """Make two updates; return the policy's weights."""
    trainer = trainer_of(case, f"trainer.compile={str(compile_updates).lower()}")
    torch.manual_seed(7)
    while trainer.updates < 2:
        trainer.step()
    return trainer, dict(trainer.agent.policy.state_dict())


@needs_compiler
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "case", ["dqn", *(pytest.param(c, marks=pytest.mark.slow) for c in FAMILIES)]
)
def test_compiled_updates_learn_the_same(case: str) -> None:
    _, expected = learned(case, False)
    trainer, found = learned(case, True)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    assert trainer.compiled is not None
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-4, msg=name)


def test_a_missing_compiler_is_named_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ParameterError, match=r"needs a C\+\+ compiler.*'no-such-compiler'"):
        trainer_of("dqn", "trainer.compile=true")


def test_a_graph_of_a_compiled_update_is_refused() -> None:
    with pytest.raises(ParameterError, match="exclude each other"):
        trainer_of("dqn", "trainer.compile=true", "trainer.capture=true")
