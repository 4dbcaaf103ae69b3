"""Measurements: timers, the origin of the numbers (hardware, versions), and the table.

``packing bench`` and the scripts in ``benchmarks/`` share this module.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from rich.console import Console
from rich.measure import Measurement

from agents.config.folders import config_folder
from agents.loggers.console import plain_table
from agents.training import runs
from packing_env import kernels
from packing_env.values import Count, Option, Whole, check

Work = Callable[[], object]
FORMAT = 1
"""Version of the file format of ``packing bench``."""
Seconds = Annotated[float, Option(at_least=0, unit="seconds")]


class TooLongError(ValueError):
    """Error: the repeats of a call would exceed the time limit of a measurement."""


class Row(NamedTuple):
    """One measurement.

    Attributes:
        case: Names and numbers that distinguish the measurement from the others.
        values: Results; each name ends with its unit.
    """

    case: dict[str, Any]
    values: dict[str, Any]


@dataclass(frozen=True)
class Clock:
    """Timer of repeated calls.

    Attributes:
        device: Device of the work; every repeat ends by waiting for it.
        repeats: Number of repeats; a result is the median of them.
        warmup: Calls before the first repeat, in addition to the call that compiles.
        shortest: Shortest duration of a repeat in seconds; a repeat makes as many calls as it needs
            to last that long.
        longest: Longest total duration of all repeats of one measurement in seconds.
        singles: Number of calls that are timed individually, for percentiles.

    Raises:
        ParameterError: A setting is too small.
    """

    device: torch.device
    repeats: Count = 5
    warmup: Whole = 2
    shortest: Seconds = 0.05
    longest: Seconds = 60.0
    singles: Count = 100

    def __post_init__(self) -> None:
        check(self, "clock.")

    def synchronize(self) -> None:
        """Wait for the device, so that a clock includes its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def check(self, once: float) -> None:
        """Raise if repeats of a call that takes ``once`` seconds would take too long."""
        if once * self.repeats > self.longest:
            raise TooLongError(
                f"{self.repeats} calls of {once:.3g} s each take more than longest={self.longest:g}"
            )

    def measure(self, work: Work, parts: float = 1.0) -> dict[str, Any]:
        """Return medians and ranges of the time of a call, in milliseconds.

        Args:
            work: The call to time.
            parts: Number of equal parts of the call, by which its time is divided. It is less than
                1 if the call is only a fraction of the work for which the time is reported.

        Returns:
            ``wall_ms`` and ``thread_cpu_ms`` with their ranges (the CPU time of the calling thread
            is disturbed least by other programs); ``process_cpu_ms`` of all threads; and the
            numbers of calls.

        Raises:
            TooLongError: The repeats would take more than :attr:`longest`.
        """
        # 1. Compile, warm up, and estimate the time of a call.
        work()
        self.synchronize()
        start = time.perf_counter()
        for _ in range(max(1, self.warmup)):
            work()
        self.synchronize()
        once = (time.perf_counter() - start) / max(1, self.warmup)
        self.check(once)
        # 2. Repeat as many calls as the shortest repeat needs.
        calls = max(1, math.ceil(self.shortest / max(once, 1e-9)))
        clocks = (time.perf_counter, time.thread_time, time.process_time)
        spent = []
        for _ in range(self.repeats):
            before = [clock() for clock in clocks]
            for _ in range(calls):
                work()
            self.synchronize()
            seconds = [clock() - then for clock, then in zip(clocks, before, strict=True)]
            spent.append([1e3 * one / calls / parts for one in seconds])
        # 3. Summarize.
        wall, thread, process = zip(*spent, strict=True)
        return {
            "wall_ms": statistics.median(wall),
            "wall_range_ms": [min(wall), max(wall)],
            "thread_cpu_ms": statistics.median(thread),
            "thread_cpu_range_ms": [min(thread), max(thread)],
            "process_cpu_ms": statistics.median(process),
            "repeats": self.repeats,
            "calls_per_repeat": calls,
        }

    def cost(self, values: Mapping[str, Any]) -> float:
        """Return the milliseconds to compare: CPU time on a CPU, wall time elsewhere.

        With several threads, it is the CPU time of the process, because other threads work while
        this thread waits.
        """
        if self.device.type != "cpu":
            return float(values["wall_ms"])
        alone = torch.get_num_threads() == 1
        return float(values["thread_cpu_ms" if alone else "process_cpu_ms"])

    def latencies(self, work: Work, between: Work = lambda: None) -> dict[str, float]:
        """Return percentiles of the wall-clock time of single calls in milliseconds.

        Args:
            work: Call to time.
            between: Call before each timed call; its time does not count.
        """
        milliseconds = []
        for _ in range(self.singles):
            between()
            self.synchronize()
            start = time.perf_counter()
            work()
            self.synchronize()
            milliseconds.append(1e3 * (time.perf_counter() - start))
        return percentiles(milliseconds)


def percentiles(milliseconds: Sequence[float]) -> dict[str, float]:
    """Return the 50th, 95th and 99th percentile, linear between samples."""
    values = torch.tensor(milliseconds, dtype=torch.float64)
    return {f"p{p}_ms": float(torch.quantile(values, p / 100)) for p in (50, 95, 99)}


def provenance(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Return the hardware, load, versions and revision of a measurement on a device."""
    return {
        "machine": runs.machine(device),
        "load_average": os.getloadavg(),  # other programs affect wall times
        "versions": runs.versions(),
        "revision": revision(),
        "kernels": kernels.backend_for(torch.device(device).type),
    }


def revision(checkout: Path | None = None) -> str | None:
    """Return the Git revision, with a plus if there are changes; ``None`` without Git.

    Args:
        checkout: Folder of a checkout; ``None`` means this one.
    """
    folder = checkout or config_folder().parent
    if not (folder / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty=+"]
    try:
        described = subprocess.check_output(command, cwd=folder, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.decode().strip()


def print_table(console: Console, rows: Sequence[Row], columns: Mapping[str, str]) -> None:
    """Print a line per measurement: its case, then its values.

    The title shows the entries that all cases share. If the table is wider than the console, each
    line names its values instead.
    """
    # 1. Entries that all cases share go into the title.
    first, *others = [row.case for row in rows]
    common = {k: v for k, v in first.items() if all(case.get(k) == v for case in others)}
    keys = dict.fromkeys(key for row in rows for key in row.case if key not in common)
    names = [name for name in columns if any(name in row.values for row in rows)]
    title = " ".join(f"{key}={_text(value)}" for key, value in common.items())
    # 2. Fill the table.
    table = plain_table(title=title)
    for key in keys:
        table.add_column(key, no_wrap=True)
    for name in names:
        table.add_column(columns[name], justify="right", no_wrap=True)
    for row in rows:
        cells = [*map(row.case.get, keys), *map(row.values.get, names)]
        table.add_row(*map(_text, cells))
    # 3. Print the table if it fits, otherwise a line for each measurement.
    if Measurement.get(console, console.options.update(max_width=1000), table).maximum <= (
        console.width
    ):
        console.print(table)
        return
    console.print(title, style="bold")
    for row in rows:
        case = " ".join(f"{key}={_text(row.case[key])}" for key in keys if key in row.case)
        values = [f"{columns[n]} {_text(row.values[n])}" for n in names if n in row.values]
        console.print(f"{case}: {', '.join(values)}")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, (int, float)):
        return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return " ".join(_text(inner) for inner in value)
    return str(value)
