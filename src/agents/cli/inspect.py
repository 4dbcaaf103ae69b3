"""The subcommand ``inspect``: diagnose a run that produced NaN or Inf."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

from agents.config import build
from agents.config.compose import compose
from agents.diagnostics.black_box import FOLDER, KIND, STAGES, Findings, retrace
from agents.loggers.console import PlainConsole
from agents.training import checkpoint, resume
from agents.training.checkpoint import Checkpoint, CheckpointError
from packing_env.registration import ENVIRONMENT

FOUND, SOUND = 0, 1
"""Exit codes."""
_LISTED = 4
"""Tensors of a stage that are listed."""


def inspect(options: argparse.Namespace) -> int:
    """Print the non-finite tensors and the first of them; the exit code is 1 if there is none."""
    record = _load(options.run, "cpu")
    base = compose("train", [], options.config_dir)
    config = resume.run_config(base, record.meta.get("config", {}), [], options.config_dir)
    config.device = options.device or config.device
    if config.device != "cpu":
        record = _load(options.run, config.device)
    console = PlainConsole(soft_wrap=True, highlight=False)
    console.print(f"{record.path}: {record.meta.get('error', 'no error is noted')}")
    if record.meta.get("environment") != ENVIRONMENT:
        console.print(f"made by environment {record.meta.get('environment')}, now {ENVIRONMENT}")
    if not isinstance(update := record.state.get("update"), Mapping):
        console.print("training stopped before the first update")
        return SOUND
    with build.as_config_errors():
        agent = build.build_agent(config, build.build_env(config))
    try:
        findings = retrace(agent, update)
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(
            f"{record.path}: does not fit agent {config.agent['_target_']} on this task "
            f"({type(error).__name__}: {reason})"
        ) from error
    rows = " x ".join(map(str, update["batch_size"]))
    console.print(
        f"update {update.get('number')}, at {update['frames']:,} frames, was repeated on its batch "
        f"of {rows}"
    )
    console.print("\n".join(_lines(findings)))
    console.print(_verdict(findings, update.get("moved")))
    return SOUND if findings.first is None else FOUND


def _load(path: Path, device: str) -> Checkpoint:
    """Read the record in a run's folder, or in the folder itself.

    Raises:
        CheckpointError: There is none, or it is more than tensors and plain values.
    """
    folder = path / FOLDER if (path / FOLDER).is_dir() else path
    if not (folder / checkpoint.MANIFEST).is_file():
        raise CheckpointError(
            f"{path}: no black box there; training writes RUN/{FOLDER} when it stops for NaN or "
            f"Inf (trainer.black_box)"
        )
    return checkpoint.load(folder, device, kind=KIND)


def _lines(findings: Findings) -> Iterator[str]:
    """Yield a line for every stage without, and for every tensor with, non-finite values."""
    for stage in STAGES:
        found = [each for each in findings.found if each.stage == stage]
        if not found:
            count = findings.checked[stage]
            yield f"  {stage:<11} {f'{count:,} tensors, all finite' if count else 'not reached'}"
        for each in found[:_LISTED]:
            yield (
                f"  {stage:<11} {each.name}: {each.nan:,} NaN and {each.infinite:,} Inf of "
                f"{each.size:,}, first at {list(each.first)}"
            )
        if len(found) > _LISTED:
            yield f"  {stage:<11} and {len(found) - _LISTED} more"


def _verdict(findings: Findings, moved: Mapping[str, int] | None) -> str:
    """Name the first non-finite tensor, the operation that made it, and steps that came between."""
    between = _steps(moved)
    first = findings.first
    if first is None:
        cause = "the cause is not in this process, or was transient"
        return f"all tensors are finite this time: {between or cause}"
    kind = "NaN" if first.nan else "Inf"
    line = f"first non-finite tensor: {first.stage}, {first.name}, {kind} at {list(first.first)}"
    if findings.origin is not None:
        line += (
            f"\nfirst operation that made NaN from finite values (a later mask may hide it): "
            f"{findings.origin}"
        )
    return f"{line}\n{between}" if between else line


def _steps(moved: Mapping[str, int] | None) -> str:
    """Return why the recorded weights may not be those before the update, or "" if they are."""
    since = "the weights {} moved since the update began"
    if not moved:
        return f"{since.format('may have')}: steps of others than GatedAdam are not counted"
    taken = ", ".join(f"{name} ({count})" for name, count in moved.items() if count)
    return f"{since.format('have')}, by steps of {taken}" if taken else ""
