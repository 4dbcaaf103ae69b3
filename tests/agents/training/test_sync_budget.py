"""Every place where training reads from the device, and how often it may."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.agents.training.test_trainer import real_trainer
from tests.counting import CallSites

from agents.loggers.logging import NullLogger
from agents.loggers.meter import Meter
from agents.training.trainer import Trainer
from packing_env import PackingEnv

BUDGET = {
    "step": {},
    "log": {"agents/loggers/meter.py peek": 1, "agents/training/trainer.py _check_updates": 1},
    "end": {
        "agents/training/trainer.py _check_updates": 2,
        "agents/training/trainer.py check_finite": 1,
    },
    "save": {
        "agents/loggers/meter.py peek": 1,
        "agents/training/trainer.py _check_updates": 2,
        "agents/training/trainer.py check_finite": 1,
    },
}
"""Reads by function: in a decision with its update, in a log interval, when training ends and
before a checkpoint. All metrics of an interval are one read; the others are single flags."""


@pytest.fixture
def trainer(tiny: Callable[..., PackingEnv]) -> Trainer:
    made = real_trainer(tiny(4))
    made.every["log"], made.total = 32, made.frames + 4
    made.run(NullLogger(Path()))  # what was due is logged: intervals begin here
    return made


def reads_of(work: Callable[[], object]) -> Counter[str]:
    """Reads by file and function."""
    with CallSites() as sites:
        work()
    assert sites.total("operations")
    assert not sites.counts["copies"]
    found: Counter[str] = Counter()
    for site, count in sites.counts["reads"].items():
        place, function = site.split(" ")
        found[f"{place.partition(':')[0]} {function}"] += count
    return found


def times(budget: Mapping[str, int], count: int) -> Counter[str]:
    return Counter({site: count * each for site, each in budget.items()})


def test_a_step_has_no_budget(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    before = trainer.updates
    assert reads_of(lambda: [trainer.step() for _ in range(4)]) == times(BUDGET["step"], 4)
    assert trainer.updates > before
    add_all = Meter.add_all

    def reading(self: Meter, values: Any, where: Any = None, **more: Any) -> None:
        add_all(self, values, where, **more)
        where.sum().item()

    monkeypatch.setattr(Meter, "add_all", reading)
    assert reads_of(trainer.step)  # one more read anywhere is seen


def test_a_run_reads_once_per_interval(trainer: Trainer) -> None:
    """Of two intervals with their steps, updates and metrics, each has one; and the end."""
    trainer.total = trainer.frames + 2 * 32
    found = reads_of(lambda: trainer.run(NullLogger(Path())))
    assert found == times(BUDGET["log"], 2) + times(BUDGET["end"], 1)


def test_metrics_come_in_one_piece() -> None:
    meter = Meter()
    for index in range(40):
        meter.add(f"metric{index}", torch.full((3,), float(index)))
    found: dict[str, float] = {}
    assert reads_of(lambda: found.update(meter.read())) == {"agents/loggers/meter.py peek": 1}
    assert found == {f"metric{index}": index for index in range(40)}
