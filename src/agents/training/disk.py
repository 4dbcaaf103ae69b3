"""The space that the checkpoints of a run need on disk."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.nested import named_tensors
from agents.training.trainer import Trainer
from packing_env.memory import human, num_bytes


def disk_use(trainer: Trainer, options: Mapping[str, Any], folder: Path) -> tuple[str, bool]:
    """Estimate the space of a run's checkpoints, with a full replay.

    Args:
        trainer: The training that is about to start.
        options: The section ``checkpoint`` of the configuration.
        folder: The run's folder.

    Returns:
        A line about it, and whether the disk has enough space.
    """
    # 1. One checkpoint: weights, targets, optimizers and, unless it is left out, the replay.
    each = num_bytes(named_tensors(trainer.state_dict(replay=False)).values())
    if options["replay"]:
        each += getattr(trainer.replay, "num_bytes", 0)
    # 2. All that are kept, and the one that is being written.
    every = trainer.every["save"]
    saves = 1 if every is None else math.ceil(trainer.total / every)
    kept, best = options["keep"], int(options["best"] is not None)
    most = saves if kept is None else min(saves, kept + best)
    needed, free = each * (most + 1), shutil.disk_usage(folder).free
    line = (
        f"checkpoints: up to {human(each)} each, {most} kept (checkpoint.keep={kept}), "
        f"{human(needed)} with one that is being written ({human(free)} free)"
    )
    if needed <= free:
        return line.replace("None", "null"), True
    return f"{line}: too little; lower checkpoint.keep, or set checkpoint.replay=false", False
