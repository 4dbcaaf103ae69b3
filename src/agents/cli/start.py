"""The start of a training run, in a new folder or from a checkpoint."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from omegaconf import DictConfig

from agents.config.folders import ConfigError
from agents.config.keys import Request
from agents.training import checkpoint, resume, runs
from agents.training.distributed import World, restarted
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
    """Return whether results go into the folder of the resumed run."""
    return config.run_dir is None or Path(config.run_dir).resolve() == run.resolve()


def check_restarts(config: DictConfig) -> None:
    """Check that processes that ``torchrun`` restarts would find their newest checkpoint.

    Raises:
        ConfigError: The folder of the run is unknown, or holds checkpoints of an earlier start.
    """
    place = None if config.resume in (None, resume.AUTO) else Path(config.resume)
    if place is None and config.run_dir is None:
        raise ConfigError(
            "torchrun --max-restarts needs run_dir=FOLDER, where the restarted processes find "
            "their checkpoint"
        )
    one = place is not None and (place / checkpoint.MANIFEST).is_file()
    if place is not None and one and _continues_in_place(config, place.parent.parent):
        raise ConfigError(
            "torchrun --max-restarts continues from the newest checkpoint of a run; together "
            f"with resume={place} it needs run_dir=FOLDER, a new folder"
        )


def resume_newest(config: DictConfig) -> None:
    """Let processes that ``torchrun`` restarted continue from their newest checkpoint.

    Without one they start as before: from scratch, or from the run that ``resume`` names.
    """
    saved = config.run_dir is not None and resume.find(resume.AUTO, config.run_dir) is not None
    if config.resume is None or saved:
        config.resume = resume.AUTO


def results_folder(config: DictConfig, resumed: Resumed | None, locks: ExitStack) -> Path:
    """Lock and return the folder for results: a new one, or that of the resumed run.

    A run that was killed before its first checkpoint starts again in the same folder, with
    ``resume=auto`` or when ``torchrun`` restarts it.
    """
    if resumed is not None and _continues_in_place(config, resumed.folder):
        return resumed.folder
    named = Path(config.run_dir) if config.run_dir is not None else None
    again = config.resume == resume.AUTO or restarted()
    if again and named and runs.never_saved(named, checkpoint.FOLDER):
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
    refilled = "" if "replay" in resumed.saved.state else "; it has no replay, which is refilled"
    frames = resumed.saved.meta["frames"]
    return (
        f"continuing from {resumed.saved.path}, after {frames:,} frames{resumed.rebuilt}{refilled}"
    )
