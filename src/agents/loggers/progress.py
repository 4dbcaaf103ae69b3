"""The progress line of a training run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

_WIDE = 110
"""Number of columns in which all values and a long bar fit."""


class ProgressBar:
    """Frames, speed, utilization, loss and the time left on one line; the return if there is room.

    Without a terminal, a line is printed every ten seconds.

    Args:
        console: The output; a line fits its width if it has at least 80 columns.
        frames: Frames of the whole run.
        seconds: Wall-clock budget; None means no budget.
    """

    def __init__(self, console: Console, frames: int, seconds: float | None = None) -> None:
        self.console, self.frames, self.seconds = console, frames, seconds
        self._printed_at = -math.inf
        self._waiting = ""
        self._bar: Progress | None = None
        self._wide = not console.is_terminal or console.width >= _WIDE
        self._columns = (("return", "return"),) * self._wide
        self._columns += (("utilization", "util"), ("loss", "loss"))
        if console.is_terminal:
            self._bar = Progress(
                BarColumn(bar_width=24 if self._wide else 6),
                TextColumn("{task.percentage:3.0f}%"),
                TextColumn("{task.fields[frames]:>9,} frames"),
                TextColumn("{task.fields[numbers]}"),
                *([TimeElapsedColumn()] if self._wide else []),
                TextColumn("{task.fields[left]}"),
                console=console,
                refresh_per_second=2,  # drawing takes some milliseconds
            )
            self._task = self._bar.add_task("train", total=1.0, frames=0, numbers="", left="")
            self._bar.start()

    def _share(self, frames: int, elapsed: float) -> float:
        return max(frames / self.frames, elapsed / self.seconds if self.seconds else 0.0)

    def advance(self, frames: int, elapsed: float, **fields: Any) -> None:
        """Show the frames and ``fields`` in the line; nothing is read from the device."""
        if self._bar is not None:
            share = self._share(frames, elapsed)
            fields |= {"frames": frames, "left": time_left(share, elapsed)}
            self._bar.update(self._task, completed=share, **fields)

    def show(self, frames: int, elapsed: float, values: Mapping[str, float]) -> None:
        """Show the values of a log interval."""
        speed = f"{values.get('frames_per_second', 0.0):,.0f}"
        numbers = [f"{speed} frames/s" if self._wide else f"{speed}/s"]
        for name, label in self._columns:
            value = values.get(name, math.nan)
            numbers.append(f"{label} {_short(value)}")
        text = "  ".join(numbers)
        self.advance(frames, elapsed, numbers=text)
        share = min(1.0, self._share(frames, elapsed))
        left = time_left(share, elapsed)
        self._waiting = f"train {share:4.0%}  {left}  {frames:,} frames  {text}"
        if elapsed - self._printed_at >= 10:
            self._printed_at = elapsed
            self._print()

    def _print(self) -> None:
        if self._bar is None and self._waiting:
            self.console.print(self._waiting, highlight=False, soft_wrap=True)
        self._waiting = ""

    def close(self) -> None:
        """Keep the last state on the screen."""
        self._print()
        if self._bar is not None:
            self._bar.stop()


def time_left(share: float, elapsed: float) -> str:
    """Return the time until the end at the mean speed so far, as in ``1:05:30 left``."""
    if not 0 < share < 1:
        return "0:00:00 left" if share else "-:--:-- left"
    return f"{timedelta(seconds=round(elapsed * (1 - share) / share))} left"


def _short(value: float) -> str:
    """Return a number in about seven characters, or ``-`` for NaN."""
    if math.isnan(value):
        return "-"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:.3g}"
