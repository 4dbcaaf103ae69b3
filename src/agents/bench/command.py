"""``packing bench``: run a benchmark of ``conf/bench/``, print its table, write its JSON file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from agents.bench.measure import Clock
from agents.bench.session import Session
from agents.config.folders import ConfigError, as_config_errors
from agents.config.keys import Request
from agents.loggers.console import PlainConsole
from packing_env.values import Count, read

_WIDTH = 120
"""Smallest number of columns of a table that is written to a file."""


def settings(words: Sequence[str]) -> list[str]:
    """Return ``WHAT [FILE ...] [KEY=VALUE ...]`` as settings; words without ``=`` are files."""
    what, *rest = words
    files = ["'" + word.replace("'", "\\'") + "'" for word in rest if "=" not in word]
    overrides = [word for word in rest if "=" in word]
    return [f"bench={what}", *([f"bench.files=[{','.join(files)}]"] if files else []), *overrides]


def run(config: DictConfig, request: Request) -> int:
    """Measure, print the table and write the file; return the exit code.

    Raises:
        ConfigError: A setting is invalid, or nothing could be measured.
    """
    console = PlainConsole(at_least=_WIDTH)
    with ExitStack() as stack, as_config_errors():
        # 1. Check the settings that all benchmarks share.
        benchmark = instantiate(config.bench, _partial_=True)
        clock, path = _clock(config), _results_file(config)
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(config.threads)  # threads of torch and the compiled kernels
        # 2. Measure.
        session = Session(config, request, clock, path, console)
        benchmark(session)
        # 3. Report.
        session.report()
        session.write(complete=True)
    if path is not None:
        console.say(f"wrote {path}")
    return 0


def _clock(config: DictConfig) -> Clock:
    read("threads", config.threads, Count)
    device = torch.device(config.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={config.device}: torch finds no GPU here; use device=cpu")
    return Clock(device, **config.clock)


def _results_file(config: DictConfig) -> Path | None:
    if config.out is None:
        return None
    path = Path(config.out)
    if path.is_dir():
        raise ConfigError(f"out={path} is a folder; name a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"out={path}: cannot write to {path.parent}")
    return path
