"""The subcommand ``inspect``: what a run kept when training broke, done again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from agents.config import build
from agents.config import compose as composition
from agents.diagnostics import black_box
from agents.diagnostics.retrace import STAGES, Findings, replay_states, run_update
from agents.training import resume
from agents.training.checkpoint import Checkpoint, CheckpointError
from agents.training.evaluate import LINE
from packing_env.registration import ENVIRONMENT

FOUND, SOUND = 0, 1
"""Exit codes."""
_SHOWN = 4
"""Tensors of a stage that are listed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = (
        "Take the last decisions and the broken update of a run again, from what training wrote\n"
        "to RUN/black_box when its updates were no numbers any more, and name the first that is\n"
        "none. Tensors and JSON are read, never a pickle. Exits 1 if all are numbers this time."
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run, or its folder black_box")
    parser.add_argument("--device", help="where it is done again; default: as in the run")
    parser.add_argument(
        "--config-dir", action="append", default=[], type=Path, metavar="DIR",
        help="a folder of your own YAML files that the run was made with",
    )  # fmt: skip


def inspect(options: argparse.Namespace) -> int:
    """Print what is no number, and which is the first; the exit code is 1 if nothing is."""
    found = black_box.load(options.run)
    config = run_config(found, options.device, options.config_dir)
    if config.device != "cpu":
        found = black_box.load(options.run, config.device)
    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    console.print(f"{found.path}: {found.meta['error']}")
    if found.meta.get("environment") != ENVIRONMENT:
        console.print(f"made by environment {found.meta.get('environment')}, now {ENVIRONMENT}")
    findings = Findings()
    for line in retrace(config, found, findings):
        console.print(line)
    console.print(table(findings))
    console.print(verdict(findings))
    return FOUND if findings.culprit is not None else SOUND


def run_config(
    found: Checkpoint, device: str | None = None, folders: Sequence[Path] = ()
) -> DictConfig:
    """The run's configuration; what a file brings is data, as of a checkpoint.

    Raises:
        ConfigError: It names a target that no configuration file names there.
    """
    base = composition.compose("train", [], folders)
    config = resume.run_config(base, found.meta.get("config", {}), [], folders)
    if device is not None:
        config.device = device
    return config


def retrace(config: DictConfig, found: Checkpoint, findings: Findings) -> list[str]:
    """Do again what there is; what was done, in words.

    Raises:
        CheckpointError: It does not fit the environment or the agent of its configuration.
    """
    said = []
    with build.said_plainly():
        env = build.build_env(config)
        agent = build.build_agent(config, env)
    tape, update = found.state.get("environment"), found.state.get("update")
    try:
        if tape:
            differs = replay_states(env, tape, findings)
            same = "gave the recorded rewards, bit for bit"
            if differs is not None:
                same = f"gave the recorded rewards up to decision {differs}, which gave others"
            count = len(tape["decisions"])
            said.append(f"{count} decisions of {env.batch_size.numel()} rows {same}")
        if update:
            run_update(agent, update, findings)
            rows = " x ".join(map(str, update["batch_size"]))
            said.append(
                f"update {update['number']}, at {update['frames']:,} frames, was made again on its "
                f"batch of {rows}"
            )
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(
            f"{found.path}: does not fit agent {config.agent['_target_']} on this task "
            f"({type(error).__name__}: {reason})"
        ) from error
    return said


def table(findings: Findings) -> Table:
    """Every stage, and its first tensors that are not all numbers."""
    made = Table(box=LINE, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("stage", "tensor", "NaN", "infinite", "of", "first at"):
        right = heading in ("NaN", "infinite", "of")
        made.add_column(heading, justify="right" if right else "left", overflow="fold")
    for stage in STAGES:
        found = [each for each in findings.found if each.stage == stage]
        if not found:
            count = findings.looked_at[stage]
            told = f"{count:,} tensors, all numbers" if count else "nothing to look at"
            made.add_row(stage, told, "", "", "", "")
        for each in found[:_SHOWN]:
            place = str(list(each.first))
            counts = (f"{number:,}" for number in (each.nan, each.infinite, each.size))
            made.add_row(stage, each.name, *counts, place)
        if len(found) > _SHOWN:
            made.add_row(stage, f"and {len(found) - _SHOWN} more", "", "", "", "")
    return made


def verdict(findings: Findings) -> str:
    """The first of them in words."""
    first = findings.culprit
    if first is None:
        return (
            "everything is a number this time: what broke it was not in this process's rows and "
            "batch, or lasted only a moment"
        )
    kind = "NaN" if first.nan else "infinite"
    said = (
        f"the first that is no number: {first.stage}, {first.name}, {kind} at {list(first.first)}"
    )
    if findings.origin is None:
        return said
    found = "the first operation that made NaN of numbers (a later mask may hide it)"
    return f"{said}\n{found}: {findings.origin}"
