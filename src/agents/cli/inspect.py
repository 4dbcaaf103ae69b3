"""The subcommand ``inspect``: repeat the update of a run that produced NaN or Inf."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from agents.config import build
from agents.config.compose import compose
from agents.config.folders import as_config_errors
from agents.diagnostics.black_box import FOLDER, KIND, repeat
from agents.loggers.console import PlainConsole
from agents.training import checkpoint, resume
from agents.training.checkpoint import Checkpoint, CheckpointError
from packing_env.registration import ENVIRONMENT

FOUND, SOUND = 0, 1
"""Exit codes."""


def inspect(options: argparse.Namespace) -> int:
    """Print the non-finite tensors, and what made them; the exit code is 1 if there are none."""
    # 1. Read the record, and build the agent that made it.
    record = _load(options.run, "cpu")
    base = compose("train", [], options.config_dir)
    config = resume.run_config(base, record.meta.get("config", {}), [], options.config_dir)
    config.device = options.device or config.device
    if config.device != "cpu":
        record = _load(options.run, config.device)
    console = PlainConsole()
    console.say(f"{record.path}: {record.meta.get('error', 'no error is noted')}")
    if record.meta.get("environment") != ENVIRONMENT:
        console.say(f"made by environment {record.meta.get('environment')}, now {ENVIRONMENT}")
    if not isinstance(update := record.state.get("update"), Mapping):
        console.say("training stopped before the first update")
        return SOUND
    with as_config_errors():
        agent = build.build_agent(config, build.build_env(config))
    # 2. Repeat the update.
    try:
        broken, origin = repeat(agent, update)
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(
            f"{record.path}: does not fit agent {config.agent['_target_']} on this task "
            f"({type(error).__name__}: {reason})"
        ) from error
    # 3. Name the tensors that were not finite, and the operation that made the first NaN.
    rows = " x ".join(map(str, update["batch_size"]))
    console.say(
        f"update {update.get('number')}, at {update['frames']:,} frames, was repeated on its "
        f"batch of {rows}, with the weights from the end of training"
    )
    for each in broken:
        console.say(
            f"  {each.stage}, {each.name}: {each.nan:,} NaN and {each.infinite:,} Inf of "
            f"{each.size:,}, first at {list(each.first)}"
        )
    if origin is not None:
        console.say(
            f"first operation that made NaN from finite values (a later mask may hide it): {origin}"
        )
    if not broken:
        console.say("all tensors are finite this time")
        return SOUND
    console.say(f"first non-finite tensor: {broken[0].stage}, {broken[0].name}")
    return FOUND


def _load(path: Path, device: str) -> Checkpoint:
    """Read the record from a run's folder, or from the folder of the record itself.

    Raises:
        CheckpointError: There is no record, or it holds more than tensors and plain values.
    """
    folder = path / FOLDER if (path / FOLDER).is_dir() else path
    if not (folder / checkpoint.MANIFEST).is_file():
        raise CheckpointError(
            f"{path}: no black box there; training writes RUN/{FOLDER} when it stops for NaN or "
            f"Inf (trainer.black_box)"
        )
    return checkpoint.load(folder, device, kind=KIND)
