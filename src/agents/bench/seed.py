"""Time of one short episode, end to end: the protocol of an earlier packing trainer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import torch
from tensordict import TensorDictBase

from agents.algorithms.hierarchical import Hierarchical
from agents.bench.base import Benchmark, Job, Row, Rows, Session, at_least
from agents.bench.measure.gpu import gpu_load
from agents.bench.measure.timing import percentiles
from agents.bench.workloads.learner import Stopwatch
from agents.config import build
from agents.config.folders import ConfigError
from agents.training.rollout import DeviceCollector

METRICS = ("utilization", "compactness", "pyramidality", "items_packed", "illegal_actions")
PARTS = {
    "environment": ("env", "step_and_maybe_reset"),
    "manager": ("agent.policy.manager", "forward"),
    "maps": ("agent.policy.maps", "forward"),
    "worker": ("agent.policy.worker", "forward"),
    "replay": ("replay", "extend"),
}
"""Parts of a decision, and the methods that carry them out."""
UPDATES = {"worker_update": "update_worker", "manager_update": "update_manager"}
"""Parts of an update, and the agent's methods; ``update`` is all of it."""


@dataclass(kw_only=True)
class Seed(Benchmark):
    """Time to build the task and the agent, to play ``steps`` decisions, and to learn from them.

    The manager picks an item, the worker its place, the environment carries it out, and the replay
    stores the transition. A case that learns then samples a batch from the replay, with
    replacement, and makes one update of the worker and one of the manager.

    ``elapsed_seconds`` includes everything but imports. It is reported for the first run, which may
    have to build catalogues and compile kernels, and as the median of the repeats, which also start
    from nothing. ``steps_per_second`` counts the decisions and the update, but not the building. An
    episode that ends earlier is not continued. ``success`` is the share of the decisions that
    placed an item.

    Args:
        steps: Number of decisions.
        learn: A case per entry: whether it learns.
        learn_repeats: Repeats of a case that learns, instead of ``clock.repeats``.
    """

    columns: ClassVar[Mapping[str, str]] = {
        "elapsed_seconds": "s",
        "steps": "steps",
        "steps_per_second": "steps/s",
        "p50_ms": "p50 ms",
        "p95_ms": "p95 ms",
        "p99_ms": "p99 ms",
        "environment_seconds": "env s",
        "manager_seconds": "manager s",
        "worker_seconds": "worker s",
        "update_seconds": "update s",
        "reward": "reward",
        "success": "success",
        "gpu_utilization_percent": "GPU %",
        "peak_allocated_mb": "GPU MB",
    }
    steps: int
    learn: Sequence[bool]
    learn_repeats: int

    def __post_init__(self) -> None:
        self.steps = at_least(1, "steps", self.steps)
        self.learn_repeats = at_least(1, "learn_repeats", self.learn_repeats)

    def jobs(self, session: Session) -> list[Job]:
        """Return a job per case."""
        task = session.config.env.task
        cases = [
            {"preset": task, "agent": "Hierarchical", "learns": learns} for learns in self.learn
        ]
        names = ("episodes", "episodes with an update")
        return [
            Job(case, partial(self._rows, session, case), names[case["learns"]]) for case in cases
        ]

    def _rows(self, session: Session, case: dict[str, Any]) -> Rows:
        learns = bool(case["learns"])
        repeats = self.learn_repeats if learns else session.clock.repeats
        with gpu_load(session.clock.device) as load:
            first = self._play(session, learns)
            played = [self._play(session, learns) for _ in range(repeats)]
        last = played[-1]
        values: dict[str, Any] = {
            name: statistics.median(one[name] for one in played)
            for name in last
            if name.endswith("_seconds")
        }
        values["first_elapsed_seconds"] = first["elapsed_seconds"]
        values["steps_per_second"] = last["steps"] / (
            values["elapsed_seconds"] - values["build_seconds"]
        )
        values |= percentiles([ms for one in played for ms in one["step_ms"]])
        values |= {name: last[name] for name in last if name not in values and name != "step_ms"}
        yield Row(case, values | {"repeats": len(played)} | load)

    def _play(self, session: Session, learns: bool) -> dict[str, Any]:
        """Build everything, play once and learn; return times and results."""
        config, clock = session.config, session.clock
        torch.manual_seed(int(config.seed))
        start, start_cpu = time.perf_counter(), time.thread_time()
        env: Any = build.build_env(config)
        if env.batch_size.numel() != 1:
            raise ConfigError("packing bench seed plays one container; leave env.num_envs=1")
        agent: Any = build.build_agent(config, env)
        if not isinstance(agent, Hierarchical) or agent.stage == 1:
            raise ConfigError(
                "packing bench seed times a manager that decides: agent=hierarchical with "
                "agent.stage1_frames=0"
            )
        replay = build.build_replay(config, env, agent)
        watch = Stopwatch(clock.synchronize)
        _time_parts(watch, {"env": env, "agent": agent, "replay": replay})
        collector = DeviceCollector(env, agent.policy)
        clock.synchronize()
        built = time.perf_counter()
        watch.runs = True
        taken: list[TensorDictBase] = []
        ends = [built]
        while len(taken) < self.steps and not (taken and bool(taken[-1]["next", "done"])):
            taken.append(collector.step())
            replay.extend(taken[-1])
            clock.synchronize()
            ends.append(time.perf_counter())
        found = _times(watch, PARTS)
        if learns:
            found |= _learn(watch, agent, replay)
        spent_cpu = time.thread_time() - start_cpu
        metrics = taken[-1]["next", "metrics"]
        found |= {name: float(metrics[name]) for name in METRICS}
        return found | {
            "elapsed_seconds": time.perf_counter() - start,
            "cpu_seconds": spent_cpu,
            "build_seconds": built - start,
            "episode_seconds": ends[-1] - built,
            "step_ms": [1e3 * (b - a) for a, b in pairwise(ends)],
            "steps": len(taken),
            "reward": sum(float(step["next", "reward"]) for step in taken),
            "success": found["items_packed"] / len(taken),
            "parameters": sum(weight.numel() for weight in agent.policy.parameters()),
            "batch_size": agent.batch_size,
        }


def _time_parts(watch: Stopwatch, owners: Mapping[str, Any]) -> None:
    """Time the methods of :data:`PARTS` and :data:`UPDATES`."""
    methods = {part: ("agent", name) for part, name in UPDATES.items()}
    for part, (path, name) in {**PARTS, **methods}.items():
        first, *rest = path.split(".")
        owner = owners[first]
        for attribute in rest:
            owner = getattr(owner, attribute)
        setattr(owner, name, partial(watch.run, part, getattr(owner, name)))


def _learn(watch: Stopwatch, agent: Hierarchical, replay: Any) -> dict[str, Any]:
    """Make one update of both levels; return its times and what it reported."""
    batch = replay.sample(agent.batch_size)
    told = watch.run("update", agent.update, batch)
    times = _times(watch, ("update", *UPDATES))
    return times | {name: float(told[name]) for name in ("loss", "manager_loss", "skipped")}


def _times(watch: Stopwatch, parts: Iterable[str]) -> dict[str, Any]:
    """Return wall-clock and CPU seconds of some parts."""
    clocks = {"seconds": watch.seconds, "cpu_seconds": watch.thread_seconds}
    return {f"{part}_{unit}": spent[part] for unit, spent in clocks.items() for part in parts}
