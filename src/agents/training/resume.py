"""Two uses of a checkpoint: continue its run (some options may change), or load its policy."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agents import process_group
from agents.algorithms.base import Agent
from agents.config.build import build_agent
from agents.config.folders import ConfigError
from agents.config.keys import parse
from agents.config.saved import adopt
from agents.nested import leaves
from agents.policies.afterstate import AfterstatePolicy
from agents.process_group import processes
from agents.training import checkpoint
from agents.training.checkpoint import POLICY_ONLY, RANKS, Checkpoint, CheckpointError
from agents.training.fine_tuning import misfits
from agents.training.trainer import Trainer
from packing_env.envs import PackingEnv
from packing_env.registration import ENVIRONMENT

_LOGGER = logging.getLogger("agents.training.resume")
AUTO = "auto"
FREE = (
    "device", "run_dir", "name", "resume", "collector", "distributed", "logger", "evaluation",
    "checkpoint", "hydra",
)  # fmt: skip
"""Sections that do not affect learning (all collectors return the same transitions)."""
FREE_TRAINER = (
    "frames", "minutes", "log_every", "save_every", "save_minutes", "evaluate_every",
)  # fmt: skip
"""Options of the trainer that may change: the length, and the intervals of outputs."""


@dataclass(frozen=True)
class Resumed:
    """A run to continue: the merged configuration, the checkpoint, and the run's folder.

    ``rebuilt`` names the parts that do not continue; it is empty if all continue bit for bit.
    """

    config: DictConfig
    saved: Checkpoint
    folder: Path
    rebuilt: str = ""


def from_config(
    config: DictConfig,
    place: Path,
    overrides: Sequence[str],
    folders: Sequence[Path] = (),
) -> Resumed:
    """Load the run to continue, from the checkpoint that :func:`find` returned.

    If the run had another number of processes, each process continues from the state that all of
    them shared.

    Raises:
        CheckpointError: There is no intact checkpoint, or it belongs to another environment
            version.
        ConfigError: The command line requests another agent, task or setting than those of the run.
    """
    # 1. Check from the description alone whether the run can continue.
    meta = checkpoint.read_meta(place)
    if (environment := meta.get("environment")) != ENVIRONMENT:
        raise CheckpointError(
            f"{place}: saved with environment {environment!r}, but this program has "
            f"{ENVIRONMENT!r}, whose rules differ; packing eval checkpoint={place} plays its policy"
        )
    if meta.get(POLICY_ONLY):
        raise CheckpointError(
            f"{place}: holds only the policy; packing eval checkpoint={place} plays it, and "
            "without resume a new run starts"
        )
    ranks = meta.get(RANKS, 1)
    counts = isinstance(meta.get("frames"), int) and isinstance(ranks, int)
    if not counts or not isinstance(meta.get("versions"), dict):
        raise CheckpointError(f"{place}: its description lacks the frames or the versions")
    # 2. Take over its configuration, and load this process's state.
    merged = run_config(config, meta.get("config", {}), overrides, folders)
    rank = process_group.rank() if ranks == processes() else 0
    saved = checkpoint.load(place, device=merged.device, rank=rank)
    # 3. If the number of processes differs, keep only the state that all of them shared.
    rebuilt = ""
    if ranks != processes():
        waiting = saved.state.get("waiting")
        if isinstance(waiting, dict):
            waiting.pop("meter", None)
        for name in saved.state.keys() - {"agent", "counters", "waiting"}:
            del saved.state[name]
        rebuilt = (
            f"; {ranks} process{'es' * (ranks > 1)} saved it, but {processes()} continue: agent "
            "and counts continue, the rows start new episodes"
        )
    return Resumed(merged, saved, saved.path.parent.parent, rebuilt)


def find(name: str, run_dir: str | None) -> Path | None:
    """Return the checkpoint that ``resume`` names; None for ``auto`` if there is none.

    ``auto`` uses ``run_dir`` if it is given, otherwise the newest of all runs.
    """
    if name != AUTO:
        return checkpoint.find(name)
    # 1. Runs without a checkpoint are skipped; the run with the newest file is the latest.
    runs = [Path(run_dir)] if run_dir is not None else list(Path("runs").glob("*"))
    saves, damaged = [], []
    for run in runs:
        try:
            newest = checkpoint.find(run, warn=False)
        except CheckpointError as error:
            saved = list(run.glob(f"{checkpoint.FOLDER}/[0-9]*/{checkpoint.MANIFEST}"))
            if run_dir is not None and saved:
                raise  # all checkpoints are damaged, and the folder holds a run
            damaged += [(path.stat().st_mtime_ns, str(error)) for path in saved]
            continue
        saves.append(((newest / checkpoint.MANIFEST).stat().st_mtime_ns, run))
    # 2. Warn if a later run cannot be used.
    latest, newest_run = max(saves) if saves else (0, None)
    when, defect = max(damaged, default=(0, ""))
    if when > latest:
        _LOGGER.warning("%s; resume=auto passes over this run", defect)
    return checkpoint.find(newest_run) if newest_run else None


def run_config(
    config: DictConfig, saved: Mapping[str, Any], overrides: Sequence[str], folders: Sequence[Path]
) -> DictConfig:
    """Return the run's configuration, with those settings of the command line that may change.

    Raises a ConfigError if the command line changes any other setting.
    """
    # 1. Take settings that do not affect learning from the command line.
    parsed = parse(overrides)
    free = [o.input_line or "" for o in parsed if _is_free(o.key_or_group)]
    fixed = [o.key_or_group for o in parsed if not _is_free(o.key_or_group)]
    sections = [str(name) for name in config if name not in ("run_dir", "resume", "imports")]
    merged = adopt(config, saved, sections, free, folders)
    # 2. All other settings must be equal.
    differing = list(_differences(config, merged, fixed))
    if differing:
        raise ConfigError(
            f"resume={config.resume}: the run has {'; '.join(differing[:3])}; leave these out, or "
            f"start a new run (settings that may change: {', '.join(FREE[:-1])}; of the trainer "
            f"{', '.join(FREE_TRAINER)})"
        )
    return merged


def _is_free(key: str) -> bool:
    section, _, rest = key.partition(".")
    # It sets which observations samples hold, not what the agent learns from them.
    if key == "replay.rebuild":
        return True
    return section in FREE or (section == "trainer" and rest in FREE_TRAINER)


def _differences(config: DictConfig, run: DictConfig, keys: Sequence[str]) -> list[str]:
    # An experiment sets keys of all sections, so in this case everything is compared.
    requested, saved = (leaves(OmegaConf.to_container(c, resolve=True)) for c in (config, run))
    whole = any(key == "experiment" for key in keys)
    differing = []
    for name in sorted(requested.keys() | saved.keys()):
        concerned = whole or any(name == key or name.startswith(f"{key}.") for key in keys)
        if concerned and not _is_free(name) and requested.get(name) != saved.get(name):
            differing.append(f"{name}={saved.get(name)} and not {requested.get(name)}")
    return differing


def load_state(trainer: Trainer, saved: Checkpoint) -> None:
    """Load a checkpoint into a trainer, and free its state, because the replay is large.

    Raises:
        CheckpointError: The state does not fit the trainer.
    """
    try:
        # Any mismatch of keys, shapes or types means that a different trainer saved it.
        trainer.load_state_dict(saved.state)
    except (AttributeError, KeyError, IndexError, RuntimeError, TypeError, ValueError) as error:
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        raise CheckpointError(
            f"{saved.path}: does not fit this run ({type(error).__name__}: {reason})"
        ) from error
    # The replay's tensors were copied, so those of the checkpoint can be freed.
    saved.state.clear()


def load_policy(config: DictConfig, checkpoint: Checkpoint, env: PackingEnv) -> Any:
    """Build the trained policy of a checkpoint, for an environment of its task.

    It logs a warning if values of afterstates were learned with rewards other than the task's.

    Raises:
        CheckpointError: Its tensors do not fit the agent and the environment.
    """
    # 1. Load the weights into an agent that is built as in the run.
    agent = build_agent(config, env)
    if not isinstance(agent, Agent):
        raise CheckpointError(
            f"{checkpoint.path}: holds weights, but agent {config.agent['_target_']} has none; "
            "leave out agent=..., or leave out the checkpoint"
        )
    try:
        if checkpoint.meta.get(POLICY_ONLY):
            agent.policy.load_state_dict(checkpoint.state["agent"]["policy"])
        else:
            agent.load_state_dict(checkpoint.state["agent"])
    except (AttributeError, KeyError, RuntimeError, ValueError) as error:
        weights = checkpoint.state.get("agent", {}).get("policy")
        reason = misfits(agent.policy, weights) or str(error).partition("\n")[0]
        raise CheckpointError(
            f"{checkpoint.path}: does not fit agent {config.agent['_target_']} on this task "
            f"({reason}); packing train warm_start.checkpoint={checkpoint.path} trains it further "
            "on this task"
        ) from error
    # 2. Values estimate returns of the rewards with which they were learned.
    learned = checkpoint.meta.get("config", {}).get("reward")
    if isinstance(agent.policy, AfterstatePolicy) and learned not in (None, env.params.reward):
        _LOGGER.warning(
            "the values of %s were learned with the rewards %s, but the task has %s, so they "
            "choose badly among items; set the rewards of the run, as in reward=utilization",
            checkpoint.path,
            learned,
            env.params.reward,
        )
    return agent.policy
