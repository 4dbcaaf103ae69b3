"""Losses compiled by torch's inductor for the CPU: updates find what they found, and learn from it.

The machine code is not optimised, which takes the compiler a fraction of the time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.agents.training.test_resume import trainer_of

from agents.training.capture import compile_losses
from packing_env import kernels
from packing_env.types import ParameterError

COMPILED = ("afterstate",)
COMPARED = ("loss", "grad_norm", "q", "actor_loss", "value")

needs_compiler = pytest.mark.skipif(
    not shutil.which("c++"), reason="torch.compile needs a C++ compiler, c++, on a CPU"
)


@pytest.fixture(autouse=True)
def _eager() -> Iterator[None]:
    kernels.set_backend("eager")
    yield
    kernels.set_backend(None)


@pytest.fixture
def quick_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A C++ compiler that does not optimise, and a cache of its own."""
    script = tmp_path / "c++"
    script.write_text(f'#!/bin/sh\nexec {shutil.which("c++")} "$@" -O0\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))


def updates(case: str, count: int, *, compiled: bool) -> list[dict[str, float]]:
    """Make updates; return what each reported."""
    trainer = trainer_of(case)
    if compiled:
        compile_losses(trainer.agent)
    honest, reports = trainer.agent.update, []

    def update(batch: Any) -> dict[str, torch.Tensor]:
        found = honest(batch)
        reports.append({name: float(found[name]) for name in COMPARED if name in found})
        return found

    trainer.agent.update = update
    torch.manual_seed(7)
    while len(reports) < count:
        trainer.step()
    return reports


@needs_compiler
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("quick_compiler")
@pytest.mark.parametrize("case", COMPILED)
def test_compiled_losses_are_the_losses(case: str) -> None:
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    compiler = {"cpp.cxx": (None, os.environ["CXX"]), "fallback_random": True}
    with torch._inductor.config.patch(compiler):
        expected = updates(case, 2, compiled=False)
        assert not counters["stats"]["unique_graphs"]
        found = updates(case, 2, compiled=True)
    assert counters["stats"]["unique_graphs"] > 0
    assert found[0] == pytest.approx(expected[0], rel=1e-3, abs=1e-5)
    assert found[1] == pytest.approx(expected[1], rel=2e-2, abs=1e-4)
    torch._dynamo.reset()


def test_a_missing_compiler_is_named_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ParameterError, match=r"needs a C\+\+ compiler.*'no-such-compiler'"):
        trainer_of("dqn", "trainer.compile=true")


@needs_compiler
@pytest.mark.parametrize("case", ["dqn", "ppo", "sac", "hierarchical"])
def test_an_agent_that_names_no_losses_is_refused(case: str) -> None:
    with pytest.raises(ParameterError, match=r"names none; list them in its attribute losses"):
        trainer_of(case, "trainer.compile=true")


def test_a_graph_of_a_compiled_update_is_refused() -> None:
    with pytest.raises(ParameterError, match="exclude each other"):
        trainer_of("dqn", "trainer.compile=true", "trainer.capture=true")
