"""``packing bench``: run a benchmark of ``conf/bench/``, print its table, write its JSON file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from agents.bench.measure import FORMAT, Clock, Row, print_table, provenance
from agents.config.compose import compose
from agents.config.folders import ConfigError, as_config_errors
from agents.config.keys import Request, parse
from agents.loggers.console import PlainConsole
from agents.training import runs
from packing_env.envs.checks import check_device

_WIDTH = 120
"""Smallest number of columns of a table that is written to a file."""


class Session:
    """Configuration, clock and results of one run of ``packing bench``.

    A benchmark is a function that ``conf/bench/<name>.yaml`` names. It sets ``columns``, measures
    each case inside :meth:`case`, and calls :meth:`add`, which writes the results file immediately.

    Attributes:
        columns: Values that the table shows, with their headings.
        notes: Lines printed below the table: the hardware and the versions.
        results: Measurements.
        left_out: Cases that were skipped, each with its ``reason``.
        head: Origin of the numbers; see :func:`agents.bench.measure.provenance`.
    """

    def __init__(
        self,
        config: DictConfig,
        request: Request,
        clock: Clock,
        path: Path | None,
        console: PlainConsole,
    ) -> None:
        self.config, self.request, self.clock = config, request, clock
        self.path, self.console = path, console
        self.columns: Mapping[str, str] = {}
        self.results: list[Row] = []
        self.left_out: list[dict[str, Any]] = []
        self._configurations: dict[str, Any] = {}
        self._start = time.perf_counter()
        # The head of the file records the hardware, versions and revision.
        benchmark = next(word for word in request.overrides if word.startswith("bench="))
        others = [word for word in request.overrides if word != benchmark]
        what = benchmark.removeprefix("bench=")
        self.head = provenance(clock.device) | {
            "packing_bench": FORMAT,
            "what": what,
            "command": ["packing", "bench", what, *others],
            "configuration": OmegaConf.to_container(config, resolve=True),
        }
        machine, torch_version = self.head["machine"], self.head["versions"]["torch"]
        self.notes = [
            f"{machine.get('gpu') or machine['processor']}, {machine['torch_threads']} thread(s), "
            f"torch {torch_version}, kernels {self.head['kernels']}, "
            f"revision {self.head['revision']}"
        ]

    def variant(self, **options: str | None) -> DictConfig:
        """Return the configuration with other options of some groups; ``None`` keeps the option."""
        words = [f"{group}={option}" for group, option in options.items() if option is not None]
        if not words:
            return self.config
        others = [
            override.input_line or ""
            for override in parse(self.request.overrides)
            if options.get(override.key_or_group) is None
        ]
        config = compose(self.request.command, [*others, *words], self.request.folders)
        self._configurations[" ".join(words)] = OmegaConf.to_container(config, resolve=True)
        return config

    @contextmanager
    def case(self, **case: Any) -> Iterator[dict[str, Any]]:
        """Show a case while it is measured; skip it if a setting makes the measurement impossible.

        Yields the case; the block may add entries to it.
        """
        title = " ".join(str(value) for value in case.values())
        try:
            with self.console.working(title, always=True), as_config_errors():
                yield case
        except ConfigError as error:
            self.leave_out(case, str(error))

    def add(self, case: dict[str, Any], values: dict[str, Any]) -> None:
        """Add a measurement, and write the file."""
        self.results.append(Row(case, values))
        self.write(complete=False)

    def leave_out(self, case: dict[str, Any], reason: str) -> None:
        """Record a case that is not measured."""
        self.left_out.append({"case": case, "reason": reason})

    def write(self, *, complete: bool) -> None:
        """Write the results so far; ``complete`` says that the run has ended."""
        if self.path is None:
            return
        results = {
            "complete": complete,
            "seconds": time.perf_counter() - self._start,
            "configurations": self._configurations,
            "results": [row._asdict() for row in self.results],
            "left_out": self.left_out,
        }
        runs.write_json(self.path, self.head | results)

    def report(self) -> None:
        """Print the table, the skipped cases with their reasons, and the notes.

        Raises:
            ConfigError: Nothing was measured.
        """
        by_reason: dict[str, list[str]] = {}
        for skipped in self.left_out:
            title = " ".join(str(value) for value in skipped["case"].values())
            by_reason.setdefault(skipped["reason"], []).append(title)
        if not self.results:
            reasons = "; ".join(by_reason) or "no case is left"
            raise ConfigError(f"nothing could be measured: {reasons}")
        print_table(self.console, self.results, self.columns)
        lines = [f"left out: {'; '.join(cases)}: {why}" for why, cases in by_reason.items()]
        for line in [*lines, *self.notes]:
            self.console.say(line)


# ---------------------------------------------------------------------- the command


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
        clock = Clock(check_device(config.device), **config.clock)
        path = None if config.out is None else Path(config.out)
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
