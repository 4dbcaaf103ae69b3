"""Speed of training: of the environment alone, with inference, and with learning."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from omegaconf import DictConfig

from agents.bench.measure import Clock
from agents.bench.session import Session
from agents.config import build
from agents.config.checks import check_learns
from agents.training.rollout import DeviceCollector
from agents.training.trainer import Trainer
from packing_env.values import Count

COLUMNS = {
    "parameters": "parameters",
    "sampled_per_frame": "sampled/frame",
    "environment_us_per_frame": "env us",
    "inference_us_per_frame": "inference us",
    "learning_us_per_frame": "learning us",
    "environment_frames_per_second": "env frames/s",
    "inference_frames_per_second": "+inference",
    "frames_per_second": "+learning",
}


def train(
    session: Session,
    agents: Sequence[str] | None,
    presets: Sequence[str] | None,
    updates: Count,
    frames: int,
) -> None:
    """Measure the parts of training: environment, inference, and the rest, which is learning.

    A repeat runs from the end of one update to the end of another. The times of the parts come from
    a loop that waits for the device between them; ``frames_per_second`` comes from a loop that does
    not wait.

    Args:
        session: The run.
        agents: Options of the group ``agent``; ``None`` means the configured one.
        presets: Options of the group ``env``; ``None`` means the configured one.
        updates: A repeat makes groups of this many updates until it has enough frames.
        frames: Smallest number of frames per repeat.

    Raises:
        ConfigError: The agent cannot be trained with these settings.
    """
    session.columns = COLUMNS
    own = session.config.agent["_target_"].rpartition(".")[2].lower()
    for agent, preset in product(agents or (None,), presets or (None,)):
        task = preset or session.config.env.task
        with session.case(agent=agent or own, preset=task) as case:
            # 1. Build the trainer, and let it compile and fill its replay.
            config = session.variant(agent=agent, env=preset)
            check_learns(config)
            torch.manual_seed(int(config.seed))
            watch = Stopwatch(session.clock.synchronize)
            trainer = build.build_trainer(config, partial(timed_collector, watch))
            case["mode"] = config.env.action_mode
            case["rows"] = trainer.collector.env.batch_size.numel()
            run_updates(trainer, max(1, session.clock.warmup))
            # 2. Measure.
            repeat = partial(_repeat, trainer, updates, int(frames))
            values = _rates(_microseconds(session.clock, watch, repeat))
            session.add(case, values | work_per_frame(trainer, config))


def _repeat(trainer: Trainer, updates: int, least: int) -> int:
    """Train from update to update; return the number of frames."""
    before = trainer.frames
    run_updates(trainer, updates)
    while trainer.frames - before < least:
        run_updates(trainer, updates)
    return trainer.frames - before


def _microseconds(
    clock: Clock, watch: Stopwatch, repeat: Callable[[], int]
) -> dict[str, list[float]]:
    """Return the time per frame of every repeat, in total and for each part."""
    us: dict[str, list[float]] = defaultdict(list)
    for _ in range(clock.repeats):
        # 1. The total, without waiting for the device between the parts.
        start = time.perf_counter()
        frames = repeat()
        clock.synchronize()
        seconds = time.perf_counter() - start
        clock.check(seconds)
        us["us_per_frame"].append(1e6 * seconds / frames)
        # 2. The parts.
        watch.seconds.clear()
        watch.runs = True
        frames = watch.run("all", repeat)
        watch.runs = False
        spent = {part: watch.seconds[part] for part in ("environment", "inference")}
        spent["learning"] = watch.seconds["all"] - sum(spent.values())
        for part, seconds in spent.items():
            us[f"{part}_us_per_frame"].append(1e6 * seconds / frames)
    return us


def _rates(us: Mapping[str, list[float]]) -> dict[str, Any]:
    """Return medians, and frames per second of the environment, with inference, and of all."""
    values: dict[str, Any] = {name: statistics.median(repeats) for name, repeats in us.items()}
    environment = values["environment_us_per_frame"]
    acting = environment + values["inference_us_per_frame"]
    return values | {
        "environment_frames_per_second": 1e6 / environment,
        "inference_frames_per_second": 1e6 / acting,
        "frames_per_second": 1e6 / values["us_per_frame"],
        "environment_share": environment / (acting + values["learning_us_per_frame"]),
        "us_per_frame_range": [min(us["us_per_frame"]), max(us["us_per_frame"])],
        "repeats": len(us["us_per_frame"]),
    }


class Stopwatch:
    """Stopwatch for the parts of a loop; it waits for the device at both ends of each part.

    Attributes:
        runs: True while the stopwatch measures; otherwise :meth:`run` only calls the work.
        seconds: Wall time by part.
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


def timed_collector(watch: Stopwatch, env: Any, policy: Any) -> DeviceCollector:
    """Build a collector; ``watch`` times the environment and the policy."""
    env.step_and_maybe_reset = partial(watch.run, "environment", env.step_and_maybe_reset)
    return DeviceCollector(env, partial(watch.run, "inference", policy))


def run_updates(trainer: Trainer, count: int) -> int:
    """Train until ``count`` more updates are done; return the number of steps."""
    until, steps = trainer.updates + count, 0
    while trainer.updates < until:
        trainer.step()
        steps += 1
    return steps


def work_per_frame(trainer: Trainer, config: DictConfig) -> dict[str, Any]:
    """Return the number of parameters, and the number of sampled transitions per frame."""
    agent = trainer.agent
    values = {"parameters": sum(weight.numel() for weight in agent.policy.parameters())}
    if trainer.on_policy:
        return values | {"sampled_per_frame": float(config.agent.epochs)}
    return values | {"sampled_per_frame": agent.batch_size / trainer.update_every}
