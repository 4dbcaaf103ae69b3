"""``--multirun``: every combination of a command line's values, run by Hydra."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from agents.cli.runs import Run, listing
from agents.config import compose as composition
from agents.config.compose import Request
from agents.config.folders import config_folder
from agents.loggers.console import PlainConsole
from agents.training.evaluate import StoppedError
from agents.training.runs import DESCRIPTION


def _tabulate(folders: list[Path]) -> None:
    """Print a table of the jobs, without those that failed before they began."""
    found = [Run(folder) for folder in folders if (folder / DESCRIPTION).is_file()]
    if found:
        PlainConsole(highlight=False).print(listing(found, str(folders[0].parent)))


def sweep(
    request: Request,
    run: Callable[[DictConfig, Request], int],
    guarded: Callable[[Callable[[], int]], int],
) -> int:
    """Run every combination, after each of them was checked; return the exit code.

    The first that fails, or is stopped, ends the sweep. ``guarded`` turns errors of a job into its
    exit code.
    """
    jobs = list(composition.expand(request.overrides))
    for job in jobs:
        composition.compose(request.command, job, request.folders)
    codes: list[int] = []
    stopped: list[BaseException] = []
    folders: list[Path] = []

    def watched(config: DictConfig, job: Request) -> int:
        try:
            return run(config, job)
        except (StoppedError, KeyboardInterrupt) as error:
            stopped.append(error)
            raise

    def task(config: DictConfig) -> None:
        overrides = list(HydraConfig.get().overrides.task)
        composition.finish(config, overrides)
        config.run_dir = HydraConfig.get().runtime.output_dir
        folders.append(Path(config.run_dir))
        job = Request(request.command, overrides, request.folders)
        codes.append(guarded(lambda: watched(config, job)))
        if codes[-1] or stopped:
            raise SystemExit(codes[-1])

    before = sys.argv  # Hydra reads the command line
    sys.argv = ["packing", "--multirun", *composition.search_path(request.folders)]
    sys.argv += request.overrides
    folder = str(config_folder())
    try:
        hydra.main(folder, request.command, version_base=composition.HYDRA_VERSION)(task)()
    except KeyboardInterrupt as stop:  # between two jobs
        stopped.append(stop)
    except SystemExit:
        if not (stopped or any(codes)):
            raise
    finally:
        sys.argv = before
    _tabulate(folders)
    if stopped:
        print(f"the sweep was stopped in job {len(codes)} of {len(jobs)}")
        return 0
    return max(codes, default=0)
