"""``packing bench``: run a benchmark of ``conf/bench/``, print its table, write its JSON file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from rich.console import Console

from agents.bench.base import Benchmark, LeftOut, Session
from agents.bench.measure.timing import Clock
from agents.bench.reports.record import Record, origin_of
from agents.bench.reports.table import print_left_out, print_origin, print_table
from agents.config import build
from agents.config.compose import Request
from agents.config.folders import ConfigError
from agents.loggers.console import PlainConsole
from agents.loggers.progress import progress_of_jobs

_WIDTH = 120
_LEAST = {"repeats": 1, "warmup": 0, "shortest": 0, "longest": 0, "singles": 1}
"""Smallest allowed values of the clock's settings."""


def settings(words: Sequence[str]) -> list[str]:
    """Return ``WHAT [FILE ...] [KEY=VALUE ...]`` as settings; words without ``=`` are files."""
    what, *rest = words
    files = [word for word in rest if "=" not in word]
    quoted = ["'" + name.replace("'", "\\'") + "'" for name in files]
    given = [f"bench.files=[{','.join(quoted)}]"] if files else []
    return [f"bench={what}", *given, *(word for word in rest if "=" in word)]


def run(config: DictConfig, request: Request) -> int:
    """Measure, print the table and write the file; return the exit code.

    Raises:
        ConfigError: A setting is invalid, or nothing could be measured.
    """
    with build.as_config_errors():
        bench = instantiate(config.bench)
        clock = _clock(config)
        path = None if config.out is None else Path(config.out)
        if path is not None:  # before the measurement
            if path.is_dir():
                raise ConfigError(f"out={path} is a folder; name a file")
            path.parent.mkdir(parents=True, exist_ok=True)
            if not os.access(path.parent, os.W_OK):
                raise ConfigError(f"out={path}: {path.parent} cannot be written to")
    console = PlainConsole()
    if not console.is_terminal:
        console = PlainConsole(width=max(_WIDTH, console.width))
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(int(config.threads))  # of torch and the compiled kernels
        session = Session(config, request, clock)
        origin = origin_of(session)
        record = Record(path, origin, session)
        _measure(bench, record, console)
    if not record.rows:
        reasons = dict.fromkeys(row.reason for row in record.left_out)
        raise ConfigError(f"nothing could be measured: {'; '.join(reasons) or 'no case is left'}")
    print_table(console, record.rows, bench.columns)
    print_left_out(console, record.left_out)
    for note in session.notes:
        console.print(note, highlight=False, soft_wrap=True)
    if bench.measures:
        print_origin(console, origin, record.seconds)
    if path is not None:
        record.write(complete=True)
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    return 0


def _clock(config: DictConfig) -> Clock:
    """Build the clock of a configuration.

    Raises:
        ConfigError: A setting of the clock, ``threads`` or ``device`` is invalid.
    """
    options: dict[str, Any] = {}
    for key, least in _LEAST.items():
        value = config.clock[key]
        if isinstance(value, str) or not value >= least:
            raise ConfigError(f"clock.{key}={value} must be at least {least}")
        options[key] = type(getattr(Clock, key))(value)  # the type of its default value
    if not isinstance(config.threads, int) or config.threads < 1:
        raise ConfigError(f"threads={config.threads} must be at least 1")
    device = torch.device(config.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={config.device}: torch finds no GPU here; use device=cpu")
    return Clock(device, **options)


def _measure(bench: Benchmark, record: Record, console: Console) -> None:
    """Run every job; a job that raises is left out, with the error as its reason."""
    jobs = bench.jobs(record.session)
    with progress_of_jobs(console) as progress:
        bar = progress.add_task("", total=len(jobs))
        for job in jobs:
            progress.update(bar, description=job.title[:60])
            if not console.is_terminal:
                console.print(job.title, highlight=False, soft_wrap=True)
            try:
                with build.as_config_errors():
                    for row in job.work():
                        record.add(row)
            except ConfigError as error:
                record.add(LeftOut(job.case, str(error)))
            progress.advance(bar)
