"""Agents during training, for the benchmarks of training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from tensordict import TensorDictBase

from agents.algorithms.base import Agent
from agents.bench.base import Job, LeftOut, Row, Session
from agents.config import build
from agents.config.checks import check_learns
from agents.training.rollout import DeviceCollector
from agents.training.trainer import Trainer

Measure = Callable[[Session, DictConfig, dict[str, Any]], Iterator[Row | LeftOut]]


def learning_jobs(
    session: Session,
    agents: Sequence[str] | None,
    presets: Sequence[str] | None,
    measure: Measure,
) -> list[Job]:
    """Return a job for every agent on every preset; ``None`` means that of the configuration."""
    made = []
    every_agent: Sequence[str | None] = agents or [None]
    every_preset: Sequence[str | None] = presets or [None]
    for agent in every_agent:
        for preset in every_preset:
            named = agent or str(session.config.agent["_target_"]).rpartition(".")[2].lower()
            case = {"agent": named, "preset": preset or session.config.env.task}
            work = partial(_of_variant, session, agent, preset, case, measure)
            made.append(Job(f"{case['agent']} {case['preset']}", case, work))
    return made


def _of_variant(
    session: Session, agent: str | None, preset: str | None, case: dict[str, Any], measure: Measure
) -> Iterator[Row | LeftOut]:
    config = session.variant(agent=agent, env=preset)
    check_learns(config)
    torch.manual_seed(int(config.seed))
    yield from measure(session, config, case | {"mode": config.env.action_mode})


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
        self.seconds: dict[str, float] = {}
        self.thread_seconds: dict[str, float] = {}

    def run(self, part: str, work: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``work``, and add the time to a part."""
        if not self.runs:
            return work(*arguments)
        self.synchronize()
        start, start_thread = time.perf_counter(), time.thread_time()
        returned = work(*arguments)
        self.synchronize()
        spent, thread = time.perf_counter() - start, time.thread_time() - start_thread
        self.seconds[part] = self.seconds.get(part, 0.0) + spent
        self.thread_seconds[part] = self.thread_seconds.get(part, 0.0) + thread
        return returned


class TimedEnv:
    """Timed view of an environment, with the members that a :class:`DeviceCollector` uses."""

    def __init__(self, env: Any, watch: Stopwatch) -> None:
        self._env, self._watch = env, watch
        self.reset, self.get_state = env.reset, env.get_state
        self.batch_size, self.device = env.batch_size, env.device
        self.action_keys = env.action_keys

    def step_and_maybe_reset(
        self, tensordict: TensorDictBase
    ) -> tuple[TensorDictBase, TensorDictBase]:
        """Step and time it; see ``PackingEnv``."""
        return self._watch.run("environment", self._env.step_and_maybe_reset, tensordict)


def build_trainer(config: DictConfig, watch: Stopwatch | None = None) -> Trainer:
    """Build the trainer of a configuration; ``watch`` times its environment and its policy."""
    env = build.build_env(config)
    agent: Agent = build.build_agent(config, env)
    replay = build.build_replay(config, env, agent)
    stepped: Any = env
    policy: Any = agent.policy
    if watch is not None:
        stepped, policy = TimedEnv(env, watch), partial(watch.run, "inference", policy)
    return instantiate(config.trainer)(agent, DeviceCollector(stepped, policy), replay)


def run_updates(trainer: Trainer, count: int) -> int:
    """Train until ``count`` more updates are done; return the number of steps."""
    until, steps = trainer.updates + count, 0
    while trainer.updates < until:
        trainer.step()
        steps += 1
    return steps
