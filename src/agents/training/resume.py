"""Going on from a checkpoint: which one, whether it is of this program, and what may change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agents.config import compose as composition
from agents.config.checks import ConfigError
from agents.training import checkpoint
from agents.training.checkpoint import Checkpoint, CheckpointError
from packing_env.registration import ENVIRONMENT

AUTO = "auto"
FREE = (
    "device", "run_dir", "name", "resume", "collector", "logger", "evaluation", "checkpoint",
    "hydra",
)  # fmt: skip
"""Sections that say nothing about what is learned; all collectors give the same transitions."""
FREE_TRAINER = (
    "frames", "minutes", "seconds", "log_every", "save_every", "save_minutes", "evaluate_every",
    "black_box",
)  # fmt: skip
"""How long, and how often something is written."""


@dataclass(frozen=True)
class Resumed:
    """A run to go on with.

    Attributes:
        config: The run's, with what the command line may change.
        found: The checkpoint.
        folder: The run's folder.
    """

    config: DictConfig
    found: Checkpoint
    folder: Path


def from_config(
    config: DictConfig, overrides: Sequence[str], folders: Sequence[Path] = ()
) -> Resumed | None:
    """What ``config.resume`` names; None where training begins anew.

    Raises:
        CheckpointError: There is no whole checkpoint there, or it is of another environment.
        ConfigError: The command line wants another agent, task or setting than the run's.
    """
    if config.resume is None:
        return None
    place = find(str(config.resume), config.run_dir)
    if place is None:
        return None
    _check_environment(place, checkpoint.read_meta(place))
    saved = checkpoint.read_meta(place).get("config", {})
    merged = run_config(config, saved, overrides, folders)
    found = checkpoint.load(place, device=merged.device)
    return Resumed(merged, found, found.path.parent.parent)


def find(asked: str, run_dir: str | None, parent: str | Path = "runs") -> Path | None:
    """The checkpoint that ``resume`` names; None for ``auto`` where there is none.

    ``auto`` looks into ``run_dir`` if it is given, and else through all runs for the newest.
    """
    if asked != AUTO:
        return checkpoint.find(asked)
    runs = [Path(run_dir)] if run_dir is not None else list(Path(parent).glob("*"))
    found = []
    for run in runs:
        try:
            newest = checkpoint.find(run)
        except CheckpointError:
            continue
        found.append(((newest / checkpoint.MANIFEST).stat().st_mtime_ns, newest))
    return max(found)[1] if found else None


def _check_environment(place: Path, meta: Mapping[str, Any]) -> None:
    """The environment decides as it did when the checkpoint was written."""
    made = meta.get("environment")
    if made != ENVIRONMENT:
        raise CheckpointError(
            f"{place}: of environment {made!r}, this program's is {ENVIRONMENT!r}: episodes would "
            f"go on by other rules; packing eval checkpoint={place} plays its policy"
        )


def run_config(
    config: DictConfig, saved: Mapping[str, Any], overrides: Sequence[str], folders: Sequence[Path]
) -> DictConfig:
    """The run's configuration, with the free settings of the command line."""
    parsed = composition.parse(overrides)
    free = [o.input_line or "" for o in parsed if _is_free(o.key_or_group)]
    fixed = [o.key_or_group for o in parsed if not _is_free(o.key_or_group)]
    sections = [name for name in saved if name in config and name not in ("run_dir", "resume")]
    plain = [name for name in sections if not isinstance(saved[name], Mapping)]
    given = {o.key_or_group for o in parsed}
    mappings = [name for name in sections if name not in plain]
    merged = composition.adopt(config, saved, mappings, free, folders)
    for name in plain:
        if name not in given or not _is_free(name):
            merged[name] = saved[name]
    differing = list(_differences(config, merged, fixed))
    if differing:
        raise ConfigError(
            f"resume={config.resume}: the run has {'; '.join(differing[:3])}; leave that out, or "
            f"begin a new run (what may change: {', '.join(FREE[:-1])} and of the trainer "
            f"{', '.join(FREE_TRAINER)})"
        )
    return merged


def _is_free(key: str) -> bool:
    section, _, rest = key.partition(".")
    if key == "replay.rebuild":  # what samples hold besides: nothing that is learned depends on it
        return True
    return section in FREE or (section == "trainer" and rest in FREE_TRAINER)


def _differences(config: DictConfig, run: DictConfig, keys: Sequence[str]) -> list[str]:
    """Settings that the command line asks for and the run does not have."""
    asked, had = flat(config), flat(run)
    whole = any(key == "experiment" for key in keys)
    found = []
    for name in sorted(asked.keys() | had.keys()):
        concerned = whole or any(name == key or name.startswith(f"{key}.") for key in keys)
        if concerned and not _is_free(name) and asked.get(name) != had.get(name):
            found.append(f"{name}={had.get(name)} and not {asked.get(name)}")
    return found


def flat(config: DictConfig) -> dict[str, Any]:
    """Dotted keys and values, resolved."""
    found: dict[str, Any] = {}

    def walk(node: Any, prefix: str) -> None:
        if isinstance(node, Mapping):
            for key, value in node.items():
                walk(value, f"{prefix}.{key}" if prefix else str(key))
        else:
            found[prefix] = node

    walk(OmegaConf.to_container(config, resolve=True), "")
    return found
