"""Speed of training: the environment, with inference, and with learning."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from omegaconf import DictConfig, OmegaConf

from agents.bench.base import Row, Rows, Session
from agents.bench.workloads.learner import Learning, Stopwatch, build_trainer, run_updates
from agents.training.trainer import Trainer

PARTS = ("environment", "inference", "learning")


@dataclass(kw_only=True)
class Train(Learning):
    """Time of a training run by part: environment, inference, and the rest, which is learning.

    It reports three rates, as Isaac Lab's benchmarks do: the environment alone, environment and
    inference, all three. A repeat runs from the end of one update to the end of another. The parts
    are timed in a loop that waits for the device between them; ``frames_per_second`` is measured in
    a loop that does not wait.

    Args:
        agents, presets: See :class:`Learning`.
        updates: Updates per repeat.
        frames: Smallest number of frames per repeat.
    """

    columns: ClassVar[Mapping[str, str]] = {
        "parameters": "parameters",
        "sampled_per_frame": "sampled/frame",
        "environment_us_per_frame": "env us",
        "inference_us_per_frame": "inference us",
        "learning_us_per_frame": "learning us",
        "environment_frames_per_second": "env frames/s",
        "inference_frames_per_second": "+inference",
        "frames_per_second": "+learning",
    }
    frames: int

    def rows(self, session: Session, config: DictConfig, case: dict[str, Any]) -> Rows:
        """Measure whole repeats and, in a second loop, their parts."""
        clock = session.clock
        watch = Stopwatch(clock.synchronize)
        trainer = build_trainer(config, watch)
        run_updates(trainer, max(1, clock.warmup))
        repeats: dict[str, list[float]] = defaultdict(list)
        for _ in range(clock.repeats):
            start = time.perf_counter()
            count = self._repeat(trainer)
            clock.synchronize()
            repeats["us_per_frame"].append(1e6 * (time.perf_counter() - start) / count)
            clock.check(time.perf_counter() - start)
            for part, spent in self._apart(trainer, watch).items():
                repeats[part].append(spent)
        found = _rates({name: statistics.median(numbers) for name, numbers in repeats.items()})
        found["repeats"] = clock.repeats
        found["us_per_frame_range"] = [min(repeats["us_per_frame"]), max(repeats["us_per_frame"])]
        rows = trainer.collector.env.batch_size.numel()
        yield Row(case | {"rows": rows}, found | work_per_frame(trainer, config))

    def _repeat(self, trainer: Trainer) -> int:
        """Train from update to update; return the number of frames."""
        before = trainer.frames
        while True:
            run_updates(trainer, self.updates)
            if trainer.frames - before >= int(self.frames):
                return trainer.frames - before

    def _apart(self, trainer: Trainer, watch: Stopwatch) -> dict[str, float]:
        """Return microseconds per frame of every part: wall clock and CPU time of the thread."""
        watch.seconds.clear()
        watch.thread_seconds.clear()
        watch.runs = True
        frames = watch.run("all", self._repeat, trainer)
        watch.runs = False
        found: dict[str, float] = {}
        clocks = {"us_per_frame": watch.seconds, "cpu_us_per_frame": watch.thread_seconds}
        for unit, spent in clocks.items():
            spent["learning"] = spent["all"] - (spent["environment"] + spent["inference"])
            found |= {f"{part}_{unit}": 1e6 * spent[part] / frames for part in PARTS}
        return found


def _rates(us: dict[str, float]) -> dict[str, Any]:
    """Return frames per second of one part, of two and of all."""
    environment = us["environment_us_per_frame"]
    acting = environment + us["inference_us_per_frame"]
    return us | {
        "environment_frames_per_second": 1e6 / environment,
        "inference_frames_per_second": 1e6 / acting,
        "frames_per_second": 1e6 / us["us_per_frame"],
        "environment_share": environment / (acting + us["learning_us_per_frame"]),
    }


def work_per_frame(trainer: Trainer, config: DictConfig) -> dict[str, Any]:
    """Return the parameters and the transitions learned per frame, the context of a rate."""
    agent = trainer.agent
    options = {name: OmegaConf.select(config, f"agent.{name}") for name in ("epochs", "batch_size")}
    found: dict[str, Any] = {name: v for name, v in options.items() if v is not None}
    found["parameters"] = sum(parameter.numel() for parameter in agent.policy.parameters())
    if trainer.on_policy:
        return found | {"sampled_per_frame": float(found["epochs"])}
    every = trainer.update_every
    per_frame = agent.batch_size / every if every else None
    return found | {"sampled_per_frame": per_frame, "update_every": every}
