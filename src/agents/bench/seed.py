"""The protocol of an earlier packing trainer: one short episode, end to end."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, ClassVar

import torch
from tensordict import TensorDictBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.bench.base import Job, Row, Session
from agents.bench.gpu import GPUWatch
from agents.bench.timing import percentiles
from agents.config import build
from agents.config.checks import ConfigError

METRICS = ("utilization", "compactness", "pyramidality", "items_packed", "illegal_actions")


class Seed:
    """Build the task and the agent, then play so many decisions of one episode.

    ``elapsed_seconds`` has all of it, imports excluded: the first time, when catalogues and
    compiled kernels may have to be made, and the median of the repeats, which are whole too. An
    episode that ends before is played no further. ``success`` is the share of the decisions that
    put an item down.

    Args:
        steps: Decisions.
        explore: Whether the policy explores, as it does while it learns.
    """

    measures = True
    columns: ClassVar[Mapping[str, str]] = {
        "first_elapsed_seconds": "first s",
        "elapsed_seconds": "s",
        "build_seconds": "of it to build",
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

    def __init__(self, *, steps: int, explore: bool) -> None:
        self.steps, self.explore = int(steps), bool(explore)
        if self.steps < 1:
            raise ValueError(f"bench.steps={steps} must be at least 1")

    def jobs(self, session: Session) -> list[Job]:
        """One."""
        config = session.config
        case = {"preset": config.env.task, "agent": config.agent["_target_"].rpartition(".")[2]}
        return [Job("episodes", case, lambda: self._rows(session, case))]

    def _rows(self, session: Session, case: dict[str, Any]) -> Iterator[Row]:
        with GPUWatch(session.clock.device) as watch:
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
        yield Row(case, values | {"repeats": len(played)} | watch.values())

    @torch.no_grad()
    def _play(self, session: Session) -> dict[str, Any]:
        """Once, from nothing."""
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
        taken, ends = [], [built]
        kind = ExplorationType.RANDOM if self.explore else ExplorationType.DETERMINISTIC
        with set_exploration_type(kind):
            while len(taken) < self.steps and not (taken and bool(taken[-1]["next", "done"])):
                step, root = env.step_and_maybe_reset(policy(root))
                clock.synchronize()
                ends.append(time.perf_counter())
                taken.append(step)
        return {
            "elapsed_seconds": ends[-1] - start,
            "cpu_seconds": time.thread_time() - start_cpu,
            "build_seconds": built - start,
            "episode_seconds": ends[-1] - built,
            "step_ms": [1e3 * (b - a) for a, b in pairwise(ends)],
            **_outcome(taken),
        }


def _outcome(taken: list[TensorDictBase]) -> dict[str, float]:
    """What the episode came to."""
    metrics = taken[-1]["next", "metrics"]
    found = {name: float(metrics[name]) for name in METRICS}
    found["steps"] = len(taken)
    found["reward"] = sum(float(step["next", "reward"]) for step in taken)
    found["success"] = found["items_packed"] / len(taken)
    return found
