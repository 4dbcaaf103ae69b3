"""The start of a training run, in a new folder or from a checkpoint."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from omegaconf import DictConfig

from agents.config.keys import Request
from agents.training import checkpoint, resume, runs
from agents.training.distributed import World
from agents.training.resume import Resumed


def resumed_run(
    config: DictConfig, request: Request, world: World, locks: ExitStack
) -> Resumed | None:
    """Load the run to continue, if ``resume`` names one, and lock its folder."""
    if config.resume is None:
        return None
    place = world.from_first(lambda: _source(config, locks))
    if not place:
        return None
    return resume.from_config(config, Path(place), request.overrides, request.folders, world)


def _source(config: DictConfig, locks: ExitStack) -> str:
    """Lock the run that ``resume`` names; return its checkpoint, or an empty text."""
    place = resume.find(str(config.resume), config.run_dir)
    if place is None:
        return ""
    run = place.parent.parent
    if _continues_in_place(config, run):
        locks.enter_context(runs.locked(run))
        runs.check_own(run)
    if config.resume == resume.AUTO:
        place = checkpoint.find(run)  # another process may have saved before the lock
    return str(place)


def _continues_in_place(config: DictConfig, run: Path) -> bool:
    return config.run_dir is None or Path(config.run_dir).resolve() == run.resolve()


def results_folder(config: DictConfig, resumed: Resumed | None, locks: ExitStack) -> Path:
    """Lock and return the folder for results: a new one, or that of the resumed run.

    With ``resume=auto``, a run that was killed before its first checkpoint starts again in the same
    folder.
    """
    if resumed is not None and _continues_in_place(config, resumed.folder):
        return resumed.folder
    named = Path(config.run_dir) if config.run_dir is not None else None
    if config.resume == resume.AUTO and named and runs.never_saved(named, checkpoint.FOLDER):
        folder = named
        runs.check_own(folder)
    else:
        folder = runs.new_folder(named, str(config.name))
    locks.enter_context(runs.locked(folder))
    return folder


def start_line(place: str, resumed: Resumed | None) -> str:
    """Return where training starts."""
    if resumed is None:
        return f"resume={place}: no checkpoint was found, so training starts from nothing"
    refilled = "" if "replay" in resumed.saved.state else "; its replay, not saved, is refilled"
    frames = resumed.saved.meta["frames"]
    return (
        f"continuing from {resumed.saved.path}, after {frames:,} frames{resumed.rebuilt}{refilled}"
    )
