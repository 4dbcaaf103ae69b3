"""Losses compiled by torch's inductor for the CPU: updates find what they found, and learn from it.

The machine code is not optimised, which takes the compiler a fraction of the time. Networks are
small, and compute in bfloat16 where an agent's does on a GPU.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.agents.training.test_resume import trainer_of
from torch import Tensor, nn

from agents.config.folders import groups
from agents.training.compilation import compile_losses
from agents.training.trainer import Trainer
from packing_env import kernels

SMALL_MAPS = ["network.channels=4", "network.depth=1", "network.precision=fp32"]
SMALL_CRITIC = ["network.channels=4", "network.width=8", "network.precision=fp32"]
FAMILIES = {
    "afterstate": ["agent.epochs=1"],
    "ppo": [
        *("agent.epochs=1", "agent.batch_size=120", "network.channels=4", "network.depth=1"),
        "network.precision=bf16",
    ],
    "dqn": SMALL_MAPS,
    "rainbow": SMALL_MAPS,
    "iqn": SMALL_MAPS,
    "ddpg": SMALL_CRITIC,
    "sac": SMALL_CRITIC,
    "ac_iqn": SMALL_CRITIC,
    "hierarchical": [],
}
MACHINE_CODE = ("afterstate",)
"""Compiled to machine code in every run; the others on request, a minute or two each."""
RELATIVES = ("ac_iqn", "dqn", "hierarchical", "iqn", "sac")
"""Traced on request; those in every run have the same parts."""
NOT_LEARNED = ("heuristic", "search")

needs_compiler = pytest.mark.skipif(
    not shutil.which("c++"), reason="torch.compile needs a C++ compiler, c++, on a CPU"
)


@pytest.fixture(autouse=True)
def _eager() -> Iterator[None]:
    kernels.set_backend("eager")
    yield
    kernels.set_backend(None)


@pytest.fixture(scope="module")
def quick_compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A C++ compiler that does not optimise, and a cache of its own; draws are those of torch."""
    folder = tmp_path_factory.mktemp("inductor")
    compiler = Path(shutil.which("c++")).resolve()
    script = folder / compiler.name  # headers are precompiled as its name, g++ or clang++, tells
    script.write_text(f'#!/bin/sh\nexec {compiler} "$@" -O0\n')
    script.chmod(0o755)
    config = {"cpp.cxx": (None, str(script)), "fallback_random": True, "compile_threads": 1}
    with pytest.MonkeyPatch.context() as patch, torch._inductor.config.patch(config):
        patch.setenv("CXX", str(script))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "cache"))
        yield


@pytest.fixture
def counters() -> Iterator[dict[str, int]]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield torch._dynamo.utils.counters
    torch._dynamo.reset()


def update(trainer: Trainer) -> tuple[dict[str, float], Tensor]:
    """Make one update; return what it reported, and the last gradient of the policy's weights."""
    honest, reports = trainer.agent.update, []

    def noted(batch: object) -> dict[str, Tensor]:
        reports.append(honest(batch))
        return reports[-1]

    trainer.agent.update = noted
    torch.manual_seed(7)
    while not reports:
        trainer.step()
    weights = trainer.agent.policy.parameters()
    gradient = torch.cat([w.grad.flatten() for w in weights if w.grad is not None])
    return {name: float(value) for name, value in reports[0].items()}, gradient


@needs_compiler
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("quick_compiler")
@pytest.mark.parametrize(
    "case",
    [c if c in MACHINE_CODE else pytest.param(c, marks=pytest.mark.slow) for c in FAMILIES],
)
def test_compiled_losses_are_the_losses(case: str, counters: dict) -> None:
    compare(case, counters)


@needs_compiler
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow) if case in RELATIVES else case
        for case in FAMILIES
        if case not in MACHINE_CODE
    ],
)
def test_traced_losses_are_the_losses(
    case: str, counters: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One graph forwards and one backwards, of which no machine code is made."""
    honest = torch.compile

    def traced(part: Any, **options: Any) -> Any:
        return honest(part, **{**options, "options": None, "backend": "aot_eager"})

    monkeypatch.setattr(torch, "compile", traced)
    compare(case, counters)


def compare(case: str, counters: dict) -> None:
    """Make an update with compiled losses, and the same one without."""
    expected, wanted = update(trainer_of(case, *FAMILIES[case]))
    assert not counters["stats"]["unique_graphs"]
    compiled = trainer_of(case, *FAMILIES[case])
    compile_losses(compiled.agent)
    found, gradient = update(compiled)
    assert counters["stats"]["unique_graphs"] > 0
    assert not counters["graph_break"]
    assert found["skipped"] == 0
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)
    assert wanted.abs().max() > 0
    assert (gradient - wanted).abs().max() <= 1e-3 * wanted.abs().max()


@needs_compiler
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("quick_compiler")
def test_the_gradient_of_a_maximum_in_bfloat16_is_finite(counters: dict) -> None:
    """Compiled without its options, no entry equals the maximum: 0 / 0."""
    weight = nn.Parameter(torch.linspace(-1, 1, 64).view(4, 16))

    def loss(inputs: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            hidden = inputs.bfloat16() + (inputs @ weight.T @ weight).relu()
            return (hidden * hidden.amax(1, keepdim=True)).float().square().mean()

    inputs = torch.randn(32, 16, generator=torch.Generator().manual_seed(0))
    (wanted,) = torch.autograd.grad(loss(inputs), weight)
    agent = SimpleNamespace(policy=nn.ParameterList([weight]), loss=loss, losses=("loss",))
    compile_losses(agent)
    (found,) = torch.autograd.grad(agent.loss(inputs), weight)
    assert counters["stats"]["unique_graphs"] == 1
    assert torch.isfinite(found).all()
    assert (found - wanted).abs().max() <= 0.02 * wanted.abs().max()


@pytest.mark.parametrize("agent", [a for a in groups()["agent"] if a not in NOT_LEARNED])
def test_every_learner_names_its_losses(agent: str) -> None:
    learner = trainer_of(agent).agent
    assert learner.losses
    for name in learner.losses:
        owner = learner
        for part in name.split("."):
            owner = getattr(owner, part)
        assert callable(owner)
