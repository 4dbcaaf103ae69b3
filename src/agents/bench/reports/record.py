"""JSON file of a benchmark: results, and the hardware, versions and configuration behind them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from agents.bench.base import LeftOut, Row, Session
from agents.config.folders import ConfigError, config_folder
from agents.training import runs
from packing_env import files, kernels

FORMAT = 1
"""Version of the file format."""


class Record:
    """Results so far; every new one is also written to the file.

    Args:
        path: File to write; ``None`` writes none.
        origin: Hardware, versions and configuration, see :func:`origin_of`.
        session: Provides the further configurations.
    """

    def __init__(self, path: Path | None, origin: Mapping[str, Any], session: Session) -> None:
        self.path, self.origin, self.session = path, origin, session
        self.rows: list[Row] = []
        self.left_out: list[LeftOut] = []
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Time since the record was opened."""
        return time.perf_counter() - self._start

    def add(self, row: Row | LeftOut) -> None:
        """Keep a result and write it, so that an interrupted run leaves what it measured."""
        if isinstance(row, LeftOut):
            self.left_out.append(row)
        else:
            self.rows.append(row)
            self.write(complete=False)

    def write(self, *, complete: bool) -> None:
        """Write everything so far."""
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


def origin_of(session: Session) -> dict[str, Any]:
    """Return the command, hardware, versions, revision and configuration behind the numbers."""
    config, overrides = session.config, session.request.overrides
    what = [o.removeprefix("bench=") for o in overrides if o.startswith("bench=")][-1]
    given = [o for o in overrides if not o.startswith("bench=")]
    return {
        "packing_bench": FORMAT,
        "what": what,
        "command": ["packing", "bench", what, *given],
        "machine": runs.machine(config.device),
        "load_average": os.getloadavg(),  # before; other programs slow a wall clock down
        "versions": runs.versions(),
        "revision": revision(),
        "kernels": kernels.backend_for(session.clock.device.type),
        "configuration": OmegaConf.to_container(config, resolve=True),
    }


def revision() -> str | None:
    """Return the Git revision of the checkout, with a plus if it has changes; None without Git."""
    top = config_folder().parent
    if not (top / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty=+"]
    try:
        return subprocess.check_output(
            command, cwd=top, stderr=subprocess.DEVNULL, text=True
        ).strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def read(path: Path) -> dict[str, Any]:
    """Return the contents of a file written by ``packing bench``.

    Raises:
        ConfigError: The file cannot be read, was not written by ``packing bench``, or has another
            format.
    """
    try:
        report = files.parse_json(files.read_text(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not a JSON file: {error}") from error
    if not isinstance(report, dict) or "packing_bench" not in report:
        raise ConfigError(f"{path} was not written by packing bench")
    if report["packing_bench"] != FORMAT:
        raise ConfigError(
            f"{path} has format {report['packing_bench']}; this version reads {FORMAT}"
        )
    return report
