"""Medians of repeated calls: wall clock, the calling thread's CPU time, the process's."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Work = Callable[[], object]


class TooLongError(ValueError):
    """Repeats of a call would exceed the time limit of a measurement."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, once per repeat.

    Attributes:
        wall: Wall clock.
        thread: CPU time of the calling thread, which other programs disturb least.
        process: CPU time of all threads of the process.
        calls: Calls per repeat.
    """

    wall: list[float]
    thread: list[float]
    process: list[float]
    calls: int

    def seconds(self, device_type: str = "cpu") -> float:
        """Return the median of one call: CPU time on a CPU, wall clock elsewhere.

        With one thread it is the CPU time of this thread; with more, that of the process, because
        the others work while this one waits.
        """
        if device_type != "cpu":
            return statistics.median(self.wall)
        return statistics.median(self.thread if torch.get_num_threads() == 1 else self.process)

    def divided_by(self, parts: float) -> Timing:
        """Return the time of one of the equal parts of a call; a share below 1 scales it up."""
        clocks = (self.wall, self.thread, self.process)
        wall, thread, process = ([seconds / parts for seconds in clock] for clock in clocks)
        return Timing(wall, thread, process, self.calls)

    def values(self) -> dict[str, Any]:
        """Return medians and ranges in milliseconds."""
        found: dict[str, Any] = {}
        for name, seconds in (("wall", self.wall), ("thread_cpu", self.thread)):
            found[f"{name}_ms"] = 1e3 * statistics.median(seconds)
            found[f"{name}_range_ms"] = [1e3 * min(seconds), 1e3 * max(seconds)]
        found["process_cpu_ms"] = 1e3 * statistics.median(self.process)
        return found | {"repeats": len(self.wall), "calls_per_repeat": self.calls}


@dataclass(frozen=True)
class Clock:
    """Timer of repeated calls.

    Attributes:
        device: Device of the work; every repeat ends by waiting for it.
        repeats: Number of repeats; results are their median.
        warmup: Calls before the first repeat, besides the one that compiles.
        shortest: Smallest duration of a repeat in seconds; it makes as many calls as needed.
        longest: Largest duration of all repeats of one measurement in seconds.
        singles: Calls that are timed one by one for percentiles.
    """

    device: torch.device
    repeats: int = 5
    warmup: int = 2
    shortest: float = 0.05
    longest: float = 60.0
    singles: int = 100

    def synchronize(self) -> None:
        """Wait for the device, so that a clock includes its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def measure(self, work: Work) -> Timing:
        """Time a call.

        Raises:
            TooLongError: The repeats would take more than :attr:`longest`.
        """
        work()
        self.synchronize()
        start = time.perf_counter()
        for _ in range(max(1, self.warmup)):
            work()
        self.synchronize()
        once = (time.perf_counter() - start) / max(1, self.warmup)
        self.check(once)
        calls = max(1, math.ceil(self.shortest / max(once, 1e-9)))
        clocks = (time.perf_counter, time.thread_time, time.process_time)
        spent = []
        for _ in range(self.repeats):
            before = [clock() for clock in clocks]
            for _ in range(calls):
                work()
            self.synchronize()
            spent.append([clock() - then for clock, then in zip(clocks, before, strict=True)])
        wall, thread, process = (list(column) for column in zip(*spent, strict=True))
        return Timing(wall, thread, process, calls).divided_by(calls)

    def check(self, once: float) -> None:
        """Raise if repeats of a call that takes ``once`` seconds would take too long."""
        if once * self.repeats > self.longest:
            raise TooLongError(
                f"{self.repeats} calls of {once:.3g} s each are more than longest={self.longest:g}"
            )

    def latencies(self, work: Work, between: Work = lambda: None) -> dict[str, float]:
        """Return percentiles of single calls in milliseconds of wall clock, each waited for.

        Args:
            work: Call to time.
            between: Call before each of them, not timed.
        """
        spent = []
        for _ in range(self.singles):
            between()
            self.synchronize()
            start = time.perf_counter()
            work()
            self.synchronize()
            spent.append(1e3 * (time.perf_counter() - start))
        return percentiles(spent)


def percentiles(milliseconds: list[float]) -> dict[str, float]:
    """Return the 50th, 95th and 99th percentile, linear between samples."""
    values = torch.tensor(milliseconds, dtype=torch.float64)
    return {f"p{p}_ms": float(torch.quantile(values, p / 100)) for p in (50, 95, 99)}
