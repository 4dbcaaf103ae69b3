"""Every place where training reads from the device, and how often it may."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agents.training.test_trainer import real_trainer
from tests.counting import CallSites

from agents.loggers.logging import NullLogger
from agents.training.trainer import Trainer
from packing_env import PackingEnv


@pytest.fixture
def trainer(tiny: Callable[..., PackingEnv]) -> Trainer:
    made = real_trainer(tiny(4))
    made.every["log"], made.total = 16, made.frames + 4
    made.run(NullLogger(Path()))  # what was due is logged: intervals begin here
    return made


def reads_of(work: Callable[[], object]) -> Counter[str]:
    """Return the number of reads by call site; no value is copied."""
    with CallSites() as sites:
        work()
    assert sites.total("operations")
    assert not sites.counts["copies"]
    return sites.counts["reads"]


def test_a_run_reads_twice_per_interval(trainer: Trainer) -> None:
    """A log reads all metrics at once, and one flag of skipped updates; the end reads three."""
    trainer.total = trainer.frames + 2 * 16
    assert reads_of(lambda: trainer.run(NullLogger(Path()))).total() == 2 * 2 + 3
