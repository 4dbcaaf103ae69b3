"""``packing bench``: runs what ``conf/bench/`` names, prints the table, writes the JSON file."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from agents.bench.base import Benchmark, LeftOut, Row, Session
from agents.bench.compare import FORMAT
from agents.bench.timing import Clock
from agents.config import build
from agents.config.checks import ConfigError, config_folder
from agents.training import runs
from agents.training.evaluate import LINE
from packing_env import kernels

if TYPE_CHECKING:
    from agents.cli.main import Request


_WIDTH = 120
_LEAST = {"repeats": 1, "warmup": 0, "shortest": 0, "longest": 0, "singles": 1}
"""Smallest values of the clock's settings."""


def settings(words: Sequence[str]) -> list[str]:
    """``WHAT [FILE ...] [KEY=VALUE ...]`` as settings: words without ``=`` after it are files."""
    what, *rest = words
    files = [word for word in rest if "=" not in word]
    quoted = ["'" + name.replace("'", "\\'") + "'" for name in files]
    given = [f"bench.files=[{','.join(quoted)}]"] if files else []
    return [f"bench={what}", *given, *(word for word in rest if "=" in word)]


def run(config: DictConfig, request: Request) -> int:
    """Measure, print, write."""
    with build.said_plainly():
        bench = instantiate(config.bench)
        clock = _clock(config)
        if config.out is not None:
            _check_writable(Path(config.out))
    console = Console(width=max(_WIDTH, Console().width))
    with _threads(int(config.threads)):
        session = Session(config, request, clock)
        origin = _origin(session)
        report = _Report(None if config.out is None else Path(config.out), origin, session)
        _measure(bench, report, console)
    if not report.rows:
        reasons = dict.fromkeys(row.reason for row in report.left_out)
        raise ConfigError(f"nothing could be measured: {'; '.join(reasons) or 'no case is left'}")
    console.print(table(report.rows, bench.columns))
    for reason, cases in _by_reason(report.left_out).items():
        console.print(f"left out: {'; '.join(cases)}: {reason}", highlight=False, style="dim")
    for note in session.notes:
        console.print(note, highlight=False, soft_wrap=True)
    if bench.measures:
        _say_origin(console, origin, report.seconds)
    if report.path is not None:
        report.write(complete=True)
        console.print(f"wrote {report.path}", highlight=False, soft_wrap=True)
    return 0


class _Report:
    """What was found so far, and the file that has it.

    Args:
        path: Of the file; ``None``: there is none.
        origin: What the numbers are made with.
        session: Has the configurations.
    """

    def __init__(self, path: Path | None, origin: Mapping[str, Any], session: Session) -> None:
        self.path, self.origin, self.session = path, origin, session
        self.rows: list[Row] = []
        self.left_out: list[LeftOut] = []
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.perf_counter() - self._start

    def add(self, row: Row | LeftOut) -> None:
        """Keep it, in the file too: a long run that is stopped leaves what it measured."""
        if isinstance(row, LeftOut):
            self.left_out.append(row)
        else:
            self.rows.append(row)
            self.write(complete=False)

    def write(self, *, complete: bool) -> None:
        """Everything so far."""
        if self.path is None:
            return
        found = {
            "complete": complete,
            "seconds": self.seconds,
            "configurations": self.session.configurations,
            "results": [vars(row) for row in self.rows],
            "left_out": [vars(row) for row in self.left_out],
        }
        runs.write_json(self.path, {**self.origin, **found})


def _clock(config: DictConfig) -> Clock:
    """How things are timed, as the configuration says."""
    options = config.clock
    for key, least in _LEAST.items():
        if isinstance(options[key], str) or not options[key] >= least:
            raise ConfigError(f"clock.{key}={options[key]} must be at least {least}")
    if not isinstance(config.threads, int) or config.threads < 1:
        raise ConfigError(f"threads={config.threads} must be at least 1")
    device = torch.device(config.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={config.device}: torch finds no GPU here; use device=cpu")
    return Clock(
        device,
        int(options.repeats),
        int(options.warmup),
        float(options.shortest),
        float(options.longest),
        int(options.singles),
    )


def _check_writable(path: Path) -> None:
    """A path that cannot be written says so before the work."""
    if path.is_dir():
        raise ConfigError(f"out={path} is a folder; name a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"out={path}: {path.parent} cannot be written to")


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Inside, torch and the compiled kernels use so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _measure(bench: Benchmark, report: _Report, console: Console) -> None:
    """Every job's rows; one that the program refuses is left out, with what it said."""
    jobs = bench.jobs(report.session)
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(jobs))
        for job in jobs:
            progress.update(bar, description=job.name[:60])
            if not console.is_terminal:
                console.print(job.name, highlight=False, soft_wrap=True)
            try:
                with build.said_plainly():
                    for row in job.work():
                        report.add(row)
            except ConfigError as error:
                report.add(LeftOut(job.case, str(error)))
            progress.advance(bar)


# ---------------------------------------------------------------------- what is shown


def table(rows: Sequence[Row], columns: Mapping[str, str]) -> Table:
    """A line per measurement: what tells the cases apart, and the values of ``columns``.

    What all cases have in common stands above.
    """
    keys = list(dict.fromkeys(key for row in rows for key in row.case))
    common = {
        key: rows[0].case.get(key)
        for key in keys
        if all(row.case.get(key) == rows[0].case.get(key) for row in rows)
    }
    keys = [key for key in keys if key not in common]
    shown = [name for name in columns if any(name in row.values for row in rows)]
    title = " ".join(f"{key}={_text(value)}" for key, value in common.items())
    made = Table(title=title, title_justify="left", box=LINE, pad_edge=False, padding=(0, 1, 0, 0))
    for key in keys:
        made.add_column(key, no_wrap=True)
    for name in shown:
        made.add_column(columns[name], justify="right", no_wrap=True)
    for row in rows:
        cells = [_text(row.case.get(key)) for key in keys]
        made.add_row(*cells, *(_text(row.values.get(name)) for name in shown))
    return made


def _text(value: Any) -> str:
    """A number with four digits, or what it is."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, (int, float)):
        return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return " ".join(_text(inner) for inner in value)
    return str(value)


def _by_reason(left_out: Sequence[LeftOut]) -> dict[str, list[str]]:
    """The cases that each reason left out."""
    found: dict[str, list[str]] = {}
    for row in left_out:
        said = " ".join(str(value) for value in row.case.values() if value is not None)
        found.setdefault(row.reason, []).append(said)
    return found


def _say_origin(console: Console, origin: Mapping[str, Any], seconds: float) -> None:
    machine, versions = origin["machine"], origin["versions"]
    where = machine.get("gpu") or machine["processor"]
    console.print(
        f"{where}, {machine['torch_threads']} thread(s), torch {versions['torch']}, kernels "
        f"{origin['kernels']}, revision {origin['revision']}; {seconds:.0f} s",
        highlight=False,
        soft_wrap=True,
    )


# ---------------------------------------------------------------------- where numbers come from


def _origin(session: Session) -> dict[str, Any]:
    """What the numbers were made with; the hardware, versions, revision and configuration."""
    config = session.config
    chosen = [o for o in session.request.overrides if o.startswith("bench=")]
    given = [o for o in session.request.overrides if o not in chosen]
    what = chosen[-1].removeprefix("bench=")
    return {
        "packing_bench": FORMAT,
        "what": what,
        "command": ["packing", "bench", what, *given],
        "machine": runs.machine(config.device),
        "versions": runs.versions(),
        "revision": revision(),
        "kernels": kernels.backend_for(session.clock.device.type),
        "configuration": OmegaConf.to_container(config, resolve=True),
    }


def revision() -> str | None:
    """Git revision of the checkout, with a plus where it has changes; None where there is none."""
    top = config_folder().parent
    if not (top / ".git").exists():
        return None
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"],
            cwd=top,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()
