"""Agents during training, for the benchmarks of training."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from agents.bench.base import Benchmark, Job, Rows, Session, at_least
from agents.config import build
from agents.config.checks import check_learns
from agents.training.rollout import DeviceCollector
from agents.training.trainer import Trainer


@dataclass(kw_only=True)
class Learning(Benchmark):
    """Benchmark of training, with a job for every agent on every preset.

    Args:
        agents: Options of the group ``agent``; ``None`` means that of the configuration.
        presets: Options of the group ``env``; ``None`` means that of the configuration.
        updates: Number of updates between two ends of a measurement.
    """

    agents: Sequence[str | None] | None
    presets: Sequence[str | None] | None
    updates: int

    def __post_init__(self) -> None:
        self.updates = at_least(1, "updates", self.updates)

    def jobs(self, session: Session) -> list[Job]:
        """Return a job per agent and preset."""
        made = []
        for agent, preset in product(self.agents or [None], self.presets or [None]):
            named = agent or str(session.config.agent["_target_"]).rpartition(".")[2].lower()
            case = {"agent": named, "preset": preset or session.config.env.task}
            made.append(Job(case, partial(self._of_variant, session, agent, preset, case)))
        return made

    def _of_variant(
        self, session: Session, agent: str | None, preset: str | None, case: dict[str, Any]
    ) -> Rows:
        config = session.variant(agent=agent, env=preset)
        check_learns(config)
        torch.manual_seed(int(config.seed))
        yield from self.rows(session, config, case | {"mode": config.env.action_mode})

    @abstractmethod
    def rows(self, session: Session, config: DictConfig, case: dict[str, Any]) -> Rows:
        """Measure one configuration."""


class Stopwatch:
    """Seconds spent in the parts of a loop; it waits for the device at both ends of each part.

    Args:
        synchronize: Function that waits for the device.

    Attributes:
        runs: True while it times; otherwise it only calls the work.
        seconds: Wall clock by part.
        thread_seconds: CPU time of this thread by part.
    """

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self.synchronize = synchronize
        self.runs = False
        self.seconds: dict[str, float] = defaultdict(float)
        self.thread_seconds: dict[str, float] = defaultdict(float)

    def run(self, part: str, work: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``work``, and add the time to a part."""
        if not self.runs:
            return work(*arguments)
        self.synchronize()
        start, start_thread = time.perf_counter(), time.thread_time()
        returned = work(*arguments)
        self.synchronize()
        self.seconds[part] += time.perf_counter() - start
        self.thread_seconds[part] += time.thread_time() - start_thread
        return returned


def build_trainer(config: DictConfig, watch: Stopwatch | None = None) -> Trainer:
    """Build the trainer of a configuration; ``watch`` times its environment and its policy."""
    env: Any = build.build_env(config)
    agent = build.build_agent(config, env)
    replay = build.build_replay(config, env, agent)
    policy = agent.policy
    if watch is not None:
        env.step_and_maybe_reset = partial(watch.run, "environment", env.step_and_maybe_reset)
        policy = partial(watch.run, "inference", policy)
    return instantiate(config.trainer)(agent, DeviceCollector(env, policy), replay)


def run_updates(trainer: Trainer, count: int) -> int:
    """Train until ``count`` more updates are done; return the number of steps."""
    until, steps = trainer.updates + count, 0
    while trainer.updates < until:
        trainer.step()
        steps += 1
    return steps
