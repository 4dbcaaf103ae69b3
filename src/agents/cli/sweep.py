"""``--multirun``: Hydra runs every combination of the values on a command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from agents.cli.runs import Run, listing, runs_in
from agents.config import compose as composition
from agents.config import imports, keys
from agents.config.folders import ConfigError, config_folder
from agents.config.grids import expanded
from agents.config.keys import Request
from agents.loggers.console import PlainConsole
from agents.training.process import StoppedError
from packing_env import extras

EXTRAS = {
    f"hydra/{kind}={name}": (f"hydra_plugins.hydra_{package}", f"sweeps with hydra/{kind}={name}")
    for kind, name, package in (
        ("launcher", "joblib", "joblib_launcher"),
        ("launcher", "submitit_local", "submitit_launcher"),
        ("launcher", "submitit_slurm", "submitit_launcher"),
        ("launcher", "ray", "ray_launcher"),
        ("sweeper", "optuna", "optuna_sweeper"),
    )
}
"""Launchers and sweepers of other packages: the module that each needs, and words for the error."""
_RAY = "hydra.launcher.ray.init"
"""Key of the configuration with the arguments of ``ray.init``."""
_DIRECTION = "hydra.sweeper.direction"
_OURS = {"address": "local", "_node_ip_address": "127.0.0.1", "include_dashboard": False}
"""Options of a Ray cluster that a sweep starts. Anyone who can reach a cluster can run code on it,
so ours listens only on this machine. ``local`` never joins a running cluster, such as one that
another user has registered in Ray's folder.
"""


class JobError(RuntimeError):
    """A job of a sweep failed in another process, where its message was printed."""


class Table(Callback):
    """Table of the jobs at the end of a sweep; jobs that failed early are not in it."""

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Print the table; Hydra calls this in the process that started the sweep."""
        top = Path(config.hydra.sweep.dir)
        if jobs := list(runs_in(top, levels=1)):
            PlainConsole().print(listing(jobs, str(top)))


def _check(request: Request) -> int:
    for override in request.overrides:
        if override in EXTRAS:
            extras.check(*EXTRAS[override])
    parsed = keys.parse(request.overrides)
    intervals = [each.input_line for each in parsed if each.is_interval_sweep()]
    sweepers = [each.value() for each in parsed if each.key_or_group == "hydra/sweeper"]
    # Hydra's own sweeper has no intervals; a file of the user may choose another one.
    if intervals and (sweepers == ["basic"] or not (sweepers or request.folders)):
        raise ConfigError(f"{intervals[0]} needs hydra/sweeper=optuna; add it, or name values")
    for each in parsed:
        if each.key_or_group == "run_dir":
            raise ConfigError(
                f"{each.input_line}: every job of --multirun has a folder of its own; name the "
                "folder of the sweep, hydra.sweep.dir=..."
            )
        adds = each.is_add() or each.is_force_add()
        if not adds and keys.is_for_agent_of_run(each, request.command, parsed):
            raise ConfigError(
                f"{each.input_line}: the agent comes from the run; with --multirun write "
                f"+{each.input_line}"
            )
    jobs = list(composition.expand(request.overrides))
    for job in jobs:
        composition.compose(request.command, job, request.folders)
    return len(jobs)


def _plugin_options(overrides: Sequence[str]) -> Iterator[str]:
    """Yield overrides for plugins: Optuna maximizes, and a cluster of Ray is private to this user.

    Optuna's sweeper would minimize the utilization. Options on the command line have priority.
    """
    values = {each.key_or_group: each.value() for each in keys.parse(overrides)}
    address = values.get(f"{_RAY}.address", values.get(_RAY))
    if values.get("hydra/sweeper") == "optuna" and _DIRECTION not in values:
        yield f"{_DIRECTION}=maximize"
    named = address is not None or os.environ.get("RAY_ADDRESS")  # a running cluster
    if values.get("hydra/launcher") == "ray" and not named:
        yield from (f"++{_RAY}.{name}={value}" for name, value in _OURS.items())


def sweep(
    request: Request,
    run: Callable[[DictConfig, Request], int],
    guarded: Callable[[Callable[[], int]], int],
) -> int:
    """Check every combination, then run them all; return the exit code.

    The first job that fails or is stopped ends the sweep. ``guarded`` turns an error of a job into
    an exit code. Jobs run in this process, or where ``hydra/launcher`` starts them.
    """
    # 1. Check every job before the first one begins.
    overrides = composition.named(expanded(request.overrides, request.folders), request.folders)
    request = Request(request.command, overrides, request.folders)
    count = _check(request)
    # 2. Define a job; Hydra runs it here or elsewhere.
    codes: list[int] = []
    stopped: list[BaseException] = []
    here = os.getpid()

    def watched(config: DictConfig, job: Request) -> int:
        try:
            return run(config, job)
        except (StoppedError, KeyboardInterrupt) as error:
            stopped.append(error)
            raise

    def task(_: DictConfig) -> float:
        imports.import_packages()  # the job may run in another process
        overrides = list(HydraConfig.get().overrides.task)
        config = composition.compose(request.command, overrides, request.folders)
        config.run_dir = HydraConfig.get().runtime.output_dir
        job = Request(request.command, overrides, request.folders)
        codes.append(guarded(lambda: watched(config, job)))
        if (codes[-1] or stopped) and os.getpid() == here:
            raise SystemExit(codes[-1])
        if codes[-1]:
            raise JobError(f"{config.run_dir}: the job failed, with exit code {codes[-1]}")
        return Run(Path(config.run_dir)).score or 0.0

    # 3. Hydra reads the command line.
    before = sys.argv
    sys.argv = ["packing", "--multirun", *keys.search_path(request.folders)]
    sys.argv += [*request.overrides, *_plugin_options(overrides)]
    folder = str(config_folder())
    try:
        hydra.main(folder, request.command, version_base=keys.HYDRA_VERSION)(task)()
    except KeyboardInterrupt as stop:  # between two jobs
        stopped.append(stop)
    except SystemExit:
        if not (stopped or any(codes)):
            raise
    finally:
        sys.argv = before
    # 4. A stop does not count as a failure.
    if stopped:
        print(f"the sweep was stopped in job {len(codes)} of {count}")
        return 0
    return max(codes, default=0)
