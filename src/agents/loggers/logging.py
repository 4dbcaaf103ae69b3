"""Metrics on the device until they are read, and where they go then."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor

_NUMBERS, _TIMES = 2**18, 64
"""How many numbers a meter puts down before it sums them, and how often at most."""


class Meter:
    """Weighted means that stay on the device; :meth:`read` moves them all at once.

    Values are put down as they come, in one operation, and summed many at a time.
    """

    def __init__(self) -> None:
        # by the names that were counted together: their sums, and below these their counts
        self._sums: dict[tuple[str, ...], Tensor] = {}
        # by names, how many of them count only in places (None: all everywhere), and their shape
        self._waiting: dict[tuple[tuple[str, ...], int | None, torch.Size], list[Tensor]] = {}
        self._count = self._numbers = 0  # of what waits

    def add(self, name: str, value: Tensor, where: Tensor | None = None) -> None:
        """Count ``value`` (any shape) into the mean of ``name``, only ``where`` it is True."""
        self.add_all({name: value}, None if where is None else where.expand_as(value))

    def add_all(
        self,
        values: Mapping[str, Tensor],
        where: Tensor | None = None,
        *,
        everywhere: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Count several, best of one shape; those of ``everywhere`` whatever ``where`` is."""
        given = {**values, **(everywhere or {})}
        parts = [value.detach() for value in given.values()]
        if where is not None:
            parts.append(where)
        if len({part.shape for part in parts}) != 1:
            for name, value in given.items():
                self.add(name, value, where if name in values else None)
            return
        if len({torch.bool, *(part.dtype for part in parts)}) > 2:
            parts = [part.double() for part in parts]
        key = (tuple(given), None if where is None else len(values), parts[0].shape)
        together = torch.stack(parts)
        self._waiting.setdefault(key, []).append(together)
        self._count, self._numbers = self._count + 1, self._numbers + together.numel()
        if self._count >= _TIMES or self._numbers >= _NUMBERS:
            self._keep(self._totals())

    def _keep(self, sums: dict[tuple[str, ...], Tensor]) -> None:
        """Only these."""
        self._sums = sums
        self._waiting.clear()
        self._count = self._numbers = 0

    def _totals(self) -> dict[tuple[str, ...], Tensor]:
        """The sums with what waits, which goes on waiting."""
        totals = dict(self._sums)
        for (names, somewhere, _), waiting in self._waiting.items():
            found = torch.stack(waiting).double().view(len(waiting), len(waiting[0]), -1)
            counted = torch.ones_like(found, dtype=torch.bool)
            if somewhere is not None:
                counted[:, :somewhere] = found[:, -1:] != 0
            sums = torch.where(counted, found, 0.0).sum((0, 2))
            pairs = torch.stack((sums, counted.sum((0, 2)).double()))[:, : len(names)]
            totals[names] = totals[names] + pairs if names in totals else pairs
        return totals

    def read(self) -> dict[str, float]:
        """The means since the last call, NaN where nothing was counted; the one host read."""
        found = self.peek()
        self._keep({})
        return found

    def peek(self) -> dict[str, float]:
        """What :meth:`read` would return, which stays; a host read too."""
        sums = self._totals()
        if not sums:
            return {}
        totals: dict[str, tuple[float, float]] = {}
        pairs = torch.cat(list(sums.values()), 1).T.tolist()
        for name, (total, count) in zip(chain(*sums), pairs, strict=True):
            before = totals.get(name, (0.0, 0.0))
            totals[name] = before[0] + total, before[1] + count
        return {name: s / c if c else math.nan for name, (s, c) in totals.items()}

    def state_dict(self) -> dict[str, Any]:
        """What was counted since the last :meth:`read`, and what of it waits to be summed."""
        waiting = [
            {"names": list(names), "somewhere": somewhere, "values": torch.stack(values)}
            for (names, somewhere, _), values in self._waiting.items()
        ]
        sums = [{"names": list(names), "pairs": pairs} for names, pairs in self._sums.items()]
        return {"sums": sums, "waiting": waiting}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`; also of the pairs by name that it was before."""
        if isinstance(state.get("sums"), list):
            self._keep({tuple(part["names"]): part["pairs"] for part in state["sums"]})
        else:
            self._keep({(name,): pair.view(2, 1) for name, pair in state.items()})
            return
        for part in state["waiting"]:
            values = part["values"]
            key = (tuple(part["names"]), part["somewhere"], values.shape[2:])
            self._waiting[key] = list(values.unbind(0))
            self._count, self._numbers = self._count + len(values), self._numbers + values.numel()


class Logger(Protocol):
    """Takes one row of numbers per log interval."""

    def log(self, frames: int, values: Mapping[str, float]) -> None:
        """Write the values of the interval that ends at ``frames``."""
        ...

    def resume(self, frames: int) -> None:
        """Go on from a checkpoint: what was logged after ``frames`` did not happen."""
        ...

    def close(self) -> None:
        """Flush and close."""
        ...


class NullLogger:
    """Keeps nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def log(self, frames: int, values: Mapping[str, float]) -> None:
        """Nothing."""

    def resume(self, frames: int) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class CSVLogger:
    """``metrics.csv``: one line per log interval.

    A column that first appears later makes the file be written anew with it.

    Args:
        folder: Where the file goes.
    """

    def __init__(self, folder: Path) -> None:
        self.path = Path(folder) / "metrics.csv"
        self._columns: list[str] = []
        self._rows: list[dict[str, Any]] = []

    def log(self, frames: int, values: Mapping[str, float]) -> None:
        """Append a line."""
        row = {"frames": frames, **values}
        self._rows.append(row)
        new = [name for name in row if name not in self._columns]
        self._columns += new
        self._write(*(("w", self._rows) if new else ("a", [row])))

    def resume(self, frames: int) -> None:
        """Keep the file's lines up to ``frames``, and append to them."""
        if not self.path.is_file():
            return
        with self.path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            self._columns = list(reader.fieldnames or [])
            whole = [dict(row) for row in reader if _whole(row)]
        self._rows = [row for row in whole if int(row["frames"]) <= frames]
        self._write("w", self._rows)

    def _write(self, mode: str, rows: list[dict[str, Any]]) -> None:
        with self.path.open(mode, newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns, restval="")
            if mode == "w":
                writer.writeheader()
            writer.writerows(rows)

    def close(self) -> None:
        """Nothing: every line is on disk."""


def _whole(row: Mapping[str, str | None]) -> bool:
    """Whether a line has all its values; the last one of a killed run may not."""
    return None not in row.values() and (row["frames"] or "").isdigit()


class ProgressBar:
    """Frames, frames/s, return, utilization and loss on one line.

    Where the output is no terminal, a line every ten seconds instead.

    Args:
        console: Where to.
        frames: Frames to come.
        seconds: Wall-clock budget, if there is one.
    """

    shown = (("return", "return"), ("utilization", "util"), ("loss", "loss"))

    def __init__(self, console: Console, frames: int, seconds: float | None = None) -> None:
        self.console, self.frames, self.seconds = console, frames, seconds
        self._said = -math.inf
        self._unsaid = ""
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
                refresh_per_second=2,  # a drawing takes some milliseconds
            )
            self._task = self._bar.add_task("train", total=1.0, frames=0, numbers="")
            self._bar.start()

    def _share(self, frames: int, elapsed: float) -> float:
        return max(frames / self.frames, elapsed / self.seconds if self.seconds else 0.0)

    def advance(self, frames: int, elapsed: float) -> None:
        """Between logs: only what the host knows."""
        if self._bar is not None:
            self._bar.update(self._task, completed=self._share(frames, elapsed), frames=frames)

    def show(self, frames: int, elapsed: float, values: Mapping[str, float]) -> None:
        """After a log interval."""
        numbers = [f"{values.get('frames_per_second', 0.0):,.0f} frames/s"]
        for name, label in self.shown:
            value = values.get(name, math.nan)
            numbers.append(f"{label} {'-' if math.isnan(value) else f'{value:.4f}'}")
        text = "  ".join(numbers)
        if self._bar is not None:
            self._bar.update(
                self._task,
                completed=self._share(frames, elapsed),
                frames=frames,
                numbers=text,
            )
        share = min(1.0, self._share(frames, elapsed))
        self._unsaid = f"train {share:4.0%}  {frames:,} frames  {text}"
        if elapsed - self._said >= 10:
            self._said = elapsed
            self._say()

    def _say(self) -> None:
        if self._bar is None and self._unsaid:
            self.console.print(self._unsaid, highlight=False, soft_wrap=True)
        self._unsaid = ""

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._say()
        if self._bar is not None:
            self._bar.stop()
