"""The subcommand ``runs``: list the runs of a folder, tabulate a sweep, compare runs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.table import Column, Table

from agents.config.folders import ConfigError
from agents.estimate import Estimate
from agents.loggers.console import PlainConsole, number_column, plain_table
from agents.nested import leaves
from agents.training import runs as folders
from packing_env import files

_OF_EACH_RUN = ("run_dir", "name", "hydra", "resume")
"""Settings that usually differ between any two runs."""
_DEEPEST = 3
"""Number of folder levels in which runs are searched."""


@dataclass(frozen=True)
class Run:
    """A run's folder and the contents of its files; unreadable files are skipped."""

    folder: Path

    @cached_property
    def command(self) -> list[str]:
        """The command and its settings."""
        words = folders.read_json(self.folder / folders.DESCRIPTION).get("command")
        return [str(word) for word in words[1:]] if isinstance(words, list) else []

    @cached_property
    def results(self) -> Mapping[str, Any]:
        """Contents of ``results.json``."""
        return folders.read_json(self.folder / folders.RESULTS)

    @cached_property
    def settings(self) -> dict[str, str]:
        """The values of its configuration by dotted keys."""
        try:
            text = files.read_text(self.folder / "config.yaml")
            config = OmegaConf.to_container(OmegaConf.create(text))
        except (OSError, ValueError, OmegaConfBaseException):
            return {}
        return {
            key: str(value)
            for key, value in leaves(config).items()
            if key.partition(".")[0] not in _OF_EACH_RUN
        }

    @property
    def state(self) -> str:
        """The state of the run: done, stopped, running, or unfinished if there are no results."""
        if folders.is_locked(self.folder):
            return "running"
        if not self.results:
            return "unfinished"
        return "stopped" if self.results.get("interrupted") else "done"

    @property
    def frames(self) -> str:
        """Frames of its training."""
        frames = _part(self.results, "training").get("frames")
        return f"{frames:,}" if isinstance(frames, int) else ""

    @cached_property
    def policies(self) -> dict[str, Estimate]:
        """Held-out utilization of its policies; the agent's comes first."""
        utilizations = {}
        for name, policy in _part(self.results, "policies").items():
            summary = _part(policy, "summary", "utilization")
            mean, half_width = summary.get("mean"), summary.get("half_width")
            if isinstance(mean, float):
                infinite = float("inf") if half_width is None else half_width
                utilizations[str(name)] = Estimate(mean, infinite)
        return utilizations

    @property
    def score(self) -> float | None:
        """Mean utilization, the objective of sweepers: held-out, or else of the last training."""
        if self.policies:
            return next(iter(self.policies.values())).mean
        last = _part(self.results, "training", "last").get("utilization")
        return last if isinstance(last, float) else None

    @property
    def utilization(self) -> str:
        """Utilization of its first policy as text, marked ``(train)`` if measured in training."""
        if self.policies:
            return str(next(iter(self.policies.values())))
        return "" if self.score is None else f"{self.score:.3f} (train)"

    @property
    def baseline(self) -> str:
        """The best utilization among its other policies."""
        others = list(self.policies)[1:]
        best = max(others, key=lambda name: self.policies[name].mean, default="")
        return f"{self.policies[best]}\n{best}" if others else ""


def _part(content: Any, *keys: str) -> Mapping[str, Any]:
    """Return a nested mapping; it is empty if the entry is missing or not a mapping."""
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else {}


def find(place: Path) -> list[Run]:
    """Return the run of a folder, or the runs in it, oldest first.

    Raises:
        ConfigError: There is no run.
    """
    runs_there = list(runs_in(place, _DEEPEST))
    if not runs_there:
        raise ConfigError(f"{place}: no run is there; a run's folder has a {folders.DESCRIPTION}")
    return runs_there


def runs_in(place: Path, levels: int) -> Iterable[Run]:
    """Yield the run of a folder, or the runs in the folders below it, down to some levels."""
    if (place / folders.DESCRIPTION).is_file():
        yield Run(place)
    elif levels and place.is_dir():
        inner = [path for path in place.iterdir() if path.is_dir() and not path.is_symlink()]
        for path in sorted(inner, key=lambda path: (len(path.name), path.name)):
            yield from runs_in(path, levels - 1)


_SETTINGS = 5
"""Largest number of lines of settings per run in a table; a comparison of a few runs shows all."""
_COLUMNS = 2
"""Largest number of settings that get a column each; fewer if the table becomes too wide."""
_NO_COLUMN = (*_OF_EACH_RUN, "--import", "trainer.frames")
"""Settings that never get a column; the frames of a run have a column already."""
_SHORT = 8
"""Largest number of characters of a value in such a column."""
_NARROW = 21
"""Width of the column of names and settings: what the other columns leave of 80 characters."""
_ESTIMATE = len("0.625±0.089")
"""Width of an estimate, which is not broken."""


def listing(
    listed: Sequence[Run], title: str = "", place: Path | None = None, most: int = _COLUMNS
) -> Table:
    """Tabulate runs: the settings that not all of them share, and their results.

    Names of runs are relative to ``place``; without it they are the names of their folders. At most
    ``most`` settings get a column each.
    """
    # 1. Settings that all runs share are left out; short ones that differ get a column.
    commands = [run.command[1:] for run in listed]
    shared = set.intersection(*map(set, commands)) if len(commands) > 1 else set()
    labels = [_label(run.folder, place) for run in listed]
    columns = _differing(commands, shared)[:most] if len(commands) > 1 else []
    last = [key.rpartition(".")[2] for key in columns]
    titles = [k if last.count(k) == 1 else key for k, key in zip(last, columns, strict=True)]
    table = plain_table(
        Column("run", overflow="fold", width=_NARROW + 2),  # with the indentation
        *map(number_column, titles),
        number_column("frames"),
        number_column("utilization"),
        Column("best baseline", overflow="fold", width=_ESTIMATE),
        Column("state", no_wrap=True),
        title=title or None,
    )
    # 2. One row per run; if the table is too wide, try again with fewer columns.
    for run, words, name in zip(listed, commands, labels, strict=True):
        own = [word for word in words if word not in shared and _key(word) not in columns]
        values = {_key(word): word.partition("=")[2] for word in words}
        if len(own) > _SETTINGS:
            own[_SETTINGS - 1 :] = [f"and {len(own) - _SETTINGS + 1} more"]
        table.add_row(
            _narrow(name, own),
            *(values.get(key, run.settings.get(key, "")) for key in columns),
            run.frames,
            run.utilization,
            run.baseline,
            run.state,
        )
    console = PlainConsole()
    unlimited = console.options.update(width=1_000)
    too_wide = console.measure(table, options=unlimited).minimum > console.width
    return listing(listed, title, place, len(columns) - 1) if columns and too_wide else table


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")


def _differing(commands: Sequence[Sequence[str]], shared: Set[str]) -> list[str]:
    long: set[str] = set()
    keys: dict[str, None] = {}
    for word in [word for words in commands for word in words if word not in shared]:
        keys[_key(word)] = None
        if "=" not in word or len(word.partition("=")[2]) > _SHORT:
            long.add(_key(word))
    return [key for key in keys if key not in long and key not in _NO_COLUMN]


def _label(folder: Path, place: Path | None) -> str:
    inside = place is not None and place in folder.parents
    return folder.relative_to(place).as_posix() if place and inside else folder.name


def _narrow(name: str, words: Sequence[str]) -> str:
    """Return a name with its settings below; long lines are broken before a word or a value."""
    if len(name) > _NARROW:
        name = re.sub(r"-(?=[a-z])|/", lambda match: f"{match[0]}\n  ", name, count=1)
    broken = [w if len(w) <= _NARROW else w.replace("=", "=\n    ", 1) for w in words]
    return "\n  ".join([name, *broken])


def comparison(compared: Sequence[Run]) -> Table:
    """Tabulate a few runs side by side: settings that differ, and the results."""
    table = plain_table(Column("", overflow="fold", min_width=12))
    for run in compared:
        table.add_column(run.folder.name, overflow="fold", min_width=8)
    # 1. The settings that differ.
    keys = sorted({key for run in compared for key in run.settings})
    for key in keys:
        values = [run.settings.get(key, "") for run in compared]
        if len(set(values)) > 1:
            table.add_row(key, *values)
    # 2. The results, with every heuristic that was played in any of the runs.
    for name in ("state", "frames", "utilization"):
        table.add_row(name, *(str(getattr(run, name)) for run in compared))
    heuristics = dict.fromkeys(name for run in compared for name in list(run.policies)[1:])
    for name in heuristics:
        table.add_row(name, *(str(run.policies.get(name, "")) for run in compared))
    return table


def runs(options: argparse.Namespace) -> int:
    """List the runs of folders, or compare runs."""
    console = PlainConsole()
    alone = [Run(place) for place in options.places if (place / folders.DESCRIPTION).is_file()]
    if len(alone) > 1 and len(alone) == len(options.places):
        console.print(comparison(alone))
        return 0
    for place in options.places or [Path("runs")]:
        console.print(listing(find(place), str(place), place))
    return 0
