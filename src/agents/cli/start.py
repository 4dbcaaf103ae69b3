"""The start of a training run: its folder, its checkpoint, and the space that it needs."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from agents.config.keys import Request
from agents.nested import named_tensors
from agents.process_group import from_first
from agents.training import checkpoint, resume, runs
from agents.training.resume import Resumed
from agents.training.trainer import Trainer
from packing_env.folders import check_links
from packing_env.memory import human, num_bytes


def resumed_run(config: DictConfig, request: Request, locks: ExitStack) -> Resumed | None:
    """Load the run to continue, if ``resume`` names one, and lock its folder."""
    if config.resume is None:
        return None
    place = from_first(lambda: _source(config, locks))
    if not place:
        return None
    return resume.from_config(config, Path(place), request.overrides, request.folders)


def _source(config: DictConfig, locks: ExitStack) -> str:
    """Lock the run that ``resume`` names; return its checkpoint, or an empty text."""
    place = resume.find(str(config.resume), config.run_dir)
    if place is None:
        return ""
    run = place.parent.parent
    if _continues_in_place(config, run):
        locks.enter_context(runs.locked(run))
        check_links(run)
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
        check_links(folder)
    else:
        hint = ", or continue its run with resume=auto"
        folder = runs.new_folder(named, str(config.name), hint)
    locks.enter_context(runs.locked(folder))
    return folder


def start_line(place: str, resumed: Resumed | None) -> str:
    """Return a line that says from which state training starts."""
    if resumed is None:
        return f"resume={place}: no checkpoint was found, so training starts from nothing"
    refilled = "" if "replay" in resumed.saved.state else "; the replay was not saved and refills"
    frames = resumed.saved.meta["frames"]
    return (
        f"continuing from {resumed.saved.path}, after {frames:,} frames{resumed.rebuilt}{refilled}"
    )


def disk_use(trainer: Trainer, options: Mapping[str, Any], folder: Path) -> tuple[str, bool]:
    """Estimate the space of a run's checkpoints, with a full replay.

    Args:
        trainer: The training that is about to start.
        options: The section ``checkpoint`` of the configuration.
        folder: The run's folder.

    Returns:
        A line for the log, and whether the disk has enough space.
    """
    # 1. One checkpoint: weights, targets, optimizers and, unless it is left out, the replay.
    each = num_bytes(named_tensors(trainer.state_dict(replay=False)).values())
    if options["replay"]:
        each += getattr(trainer.replay, "num_bytes", 0)
    # 2. All checkpoints that are kept, and the one being written. With a metric of evaluations,
    #    each evaluation is followed by a save; the number of saves by the clock is unknown.
    keep, best = options["keep"], str(options["best"] or "")
    every = [trainer.every["save"]]
    if best.removeprefix("-").startswith("held_out/"):
        every.append(trainer.every["evaluate"])
    saves = max(1, sum(math.ceil(trainer.total / frames) for frames in every if frames))
    if keep is not None:
        most = keep + bool(best)
        saves = most if trainer.schedule.save_minutes else min(saves, most)
    needed, free = each * (saves + 1), shutil.disk_usage(folder).free
    line = (
        f"checkpoints: up to {human(each)} each, {saves} kept (checkpoint.keep={keep}), "
        f"{human(needed)} with one that is being written ({human(free)} free)"
    )
    if needed <= free:
        return line.replace("None", "null"), True
    return f"{line}: too little; lower checkpoint.keep, or set checkpoint.replay=false", False
