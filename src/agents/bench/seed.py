"""Time of one short episode, end to end: the protocol of an earlier packing trainer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from tensordict import TensorDictBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.bench.base import Benchmark, Job, Row, Rows, Session, at_least
from agents.bench.measure.gpu import gpu_load
from agents.bench.measure.timing import percentiles
from agents.config import build
from agents.config.folders import ConfigError

METRICS = ("utilization", "compactness", "pyramidality", "items_packed", "illegal_actions")


@dataclass(kw_only=True)
class Seed(Benchmark):
    """Time to build the task and the agent and to play ``steps`` decisions of one episode.

    ``elapsed_seconds`` includes everything but imports. It is reported for the first run, which may
    have to build catalogues and compile kernels, and as the median of the repeats, which also start
    from nothing. An episode that ends earlier is not continued. ``success`` is the share of the
    decisions that placed an item.

    Args:
        steps: Number of decisions.
        explore: True if the policy explores as it does in training.
    """

    columns: ClassVar[Mapping[str, str]] = {
        "first_elapsed_seconds": "first s",
        "elapsed_seconds": "s",
        "build_seconds": "build s",
        "cpu_seconds": "CPU s",
        "steps": "steps",
        "steps_per_second": "steps/s",
        "p50_ms": "p50 ms",
        "p95_ms": "p95 ms",
        "p99_ms": "p99 ms",
        "reward": "reward",
        "success": "success",
        "gpu_utilization_percent": "GPU %",
        "peak_allocated_mb": "GPU MB",
    }
    steps: int
    explore: bool

    def __post_init__(self) -> None:
        self.steps = at_least(1, "steps", self.steps)

    def jobs(self, session: Session) -> list[Job]:
        """Return one job, the episodes."""
        config = session.config
        case = {"preset": config.env.task, "agent": config.agent["_target_"].rpartition(".")[2]}
        return [Job(case, lambda: self._rows(session, case), "episodes")]

    def _rows(self, session: Session, case: dict[str, Any]) -> Rows:
        with gpu_load(session.clock.device) as load:
            first = self._play(session)
            played = [self._play(session) for _ in range(session.clock.repeats)]
        values: dict[str, Any] = {
            name: statistics.median(one[name] for one in played)
            for name in ("elapsed_seconds", "build_seconds", "episode_seconds", "cpu_seconds")
        }
        last = played[-1]
        values["first_elapsed_seconds"] = first["elapsed_seconds"]
        values["steps_per_second"] = last["steps"] / values["episode_seconds"]
        values |= percentiles([ms for one in played for ms in one["step_ms"]])
        values |= {name: last[name] for name in ("steps", "reward", "success", *METRICS)}
        yield Row(case, values | {"repeats": len(played)} | load)

    @torch.no_grad()
    def _play(self, session: Session) -> dict[str, Any]:
        """Build everything and play once; return times and results."""
        config, clock = session.config, session.clock
        torch.manual_seed(int(config.seed))
        start, start_cpu = time.perf_counter(), time.thread_time()
        env = build.build_env(config)
        if env.batch_size.numel() != 1:
            raise ConfigError("packing bench seed plays one container; leave env.num_envs=1")
        policy = build.policy_of(build.build_agent(config, env))
        root = env.reset()
        clock.synchronize()
        built = time.perf_counter()
        taken: list[TensorDictBase] = []
        ends = [built]
        kind = ExplorationType.RANDOM if self.explore else ExplorationType.DETERMINISTIC
        with set_exploration_type(kind):
            while len(taken) < self.steps and not (taken and bool(taken[-1]["next", "done"])):
                step, root = env.step_and_maybe_reset(policy(root))
                clock.synchronize()
                ends.append(time.perf_counter())
                taken.append(step)
        spent_cpu = time.thread_time() - start_cpu
        metrics = taken[-1]["next", "metrics"]
        found = {name: float(metrics[name]) for name in METRICS}
        return found | {
            "elapsed_seconds": ends[-1] - start,
            "cpu_seconds": spent_cpu,
            "build_seconds": built - start,
            "episode_seconds": ends[-1] - built,
            "step_ms": [1e3 * (b - a) for a, b in pairwise(ends)],
            "steps": len(taken),
            "reward": sum(float(step["next", "reward"]) for step in taken),
            "success": found["items_packed"] / len(taken),
        }
