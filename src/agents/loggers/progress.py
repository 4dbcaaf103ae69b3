"""The progress line of a training run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class ProgressBar:
    """Frames, frames/s, return, utilization and loss on one line.

    If the output is not a terminal, it prints a line every ten seconds instead.

    Args:
        console: The output.
        frames: Frames of the whole run.
        seconds: Wall-clock budget; None: none.
    """

    columns = (("return", "return"), ("utilization", "util"), ("loss", "loss"))

    def __init__(self, console: Console, frames: int, seconds: float | None = None) -> None:
        self.console, self.frames, self.seconds = console, frames, seconds
        self._printed_at = -math.inf
        self._waiting = ""
        self._bar: Progress | None = None
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("[bold]train"),
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:3.0f}%"),
                TextColumn("{task.fields[frames]:>9,} frames"),
                TextColumn("{task.fields[numbers]}"),
                TimeElapsedColumn(),
                console=console,
                refresh_per_second=2,  # drawing takes some milliseconds
            )
            self._task = self._bar.add_task("train", total=1.0, frames=0, numbers="")
            self._bar.start()

    def _share(self, frames: int, elapsed: float) -> float:
        return max(frames / self.frames, elapsed / self.seconds if self.seconds else 0.0)

    def advance(self, frames: int, elapsed: float, **fields: Any) -> None:
        """Show the frames, and ``fields`` of the line; reads nothing from the device."""
        if self._bar is not None:
            share = self._share(frames, elapsed)
            self._bar.update(self._task, completed=share, frames=frames, **fields)

    def show(self, frames: int, elapsed: float, values: Mapping[str, float]) -> None:
        """Show the values of a log interval."""
        numbers = [f"{values.get('frames_per_second', 0.0):,.0f} frames/s"]
        for name, label in self.columns:
            value = values.get(name, math.nan)
            numbers.append(f"{label} {'-' if math.isnan(value) else f'{value:.4f}'}")
        text = "  ".join(numbers)
        self.advance(frames, elapsed, numbers=text)
        share = min(1.0, self._share(frames, elapsed))
        self._waiting = f"train {share:4.0%}  {frames:,} frames  {text}"
        if elapsed - self._printed_at >= 10:
            self._printed_at = elapsed
            self._print()

    def _print(self) -> None:
        if self._bar is None and self._waiting:
            self.console.print(self._waiting, highlight=False, soft_wrap=True)
        self._waiting = ""

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._print()
        if self._bar is not None:
            self._bar.stop()
