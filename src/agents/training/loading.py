"""Trained runs and policies, loaded into a user's own program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from omegaconf import DictConfig
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase

from agents.algorithms.base import Agent
from agents.config.build import build_agent, build_env
from agents.config.compose import compose
from agents.config.imports import conf_folders
from agents.config.saved import adopt
from agents.shapes import with_shape_check
from agents.training import checkpoint, resume
from agents.training.checkpoint import CheckpointError
from packing_env.envs import PackingEnv
from packing_env.envs.checks import check_env

FROM_RUN = ("items", "generator", "reward", "network", "env", "agent")
"""Sections of a run's configuration that define its task and its agent."""


class Run(NamedTuple):
    """A trained agent with its task.

    Attributes:
        env: The environment that it was trained in, on the instances of training.
        policy: Its policy; greedy under ``ExplorationType.DETERMINISTIC``.
        config: Its configuration.
    """

    env: PackingEnv
    policy: TensorDictModuleBase
    config: DictConfig


def load_run(
    run: str | Path, overrides: str | Sequence[str] = (), *, device: torch.device | str = "cpu"
) -> Run:
    """Load a run: its environment, its trained policy and its configuration.

    Args:
        run: A run's folder, a checkpoint, or ``pretrained/NAME``.
        overrides: A setting as on the command line, such as ``"env.num_envs=1"``, or several.
        device: Device of the environment and the policy.

    Raises:
        CheckpointError: The folder is not a checkpoint, or is damaged.
        ConfigError: A setting is unknown, or the run needs a package that was not imported.
    """
    saved, folders = checkpoint.load(run, device), conf_folders()
    settings = [overrides] if isinstance(overrides, str) else overrides
    command = [*settings, f"checkpoint={run}", f"device={device}"]
    own = compose("eval", command, folders)
    config = adopt(own, saved.meta.get("config", {}), FROM_RUN, command, folders)
    env = build_env(config)
    return Run(env, with_shape_check(resume.load_policy(config, saved, env), env), config)


def load_policy(run: str | Path, env: PackingEnv) -> TensorDictModuleBase:
    """Load the policy of a run, for an environment of its task or a similar one.

    Args:
        run: See :func:`load_run`.
        env: The environment; its container and observations must be as in the run. Its items may
            differ only if the agent is ``afterstate``.

    Raises:
        CheckpointError: The weights do not fit the environment.
        ParameterError: ``env`` is not a TorchRL environment.
    """
    check_env(env)
    saved, folders = checkpoint.load(run, env.device), conf_folders()
    own = compose("eval", [f"env.action_mode={env.params.action_mode}"], folders)
    config = adopt(own, saved.meta.get("config", {}), ("network", "agent"), [], folders)
    return with_shape_check(resume.load_policy(config, saved, env), env)


def load_failed(
    run: str | Path, *, device: torch.device | str = "cpu"
) -> tuple[Agent, TensorDictBase]:
    """Load the agent of a run that produced NaN or Inf, and the batch of the failed update.

    ``agent.update(batch)`` repeats the update, with the weights at the end of the run. These equal
    the weights before the update if every later step was skipped
    (:class:`agents.algorithms.optimization.GatedAdam`).

    Args:
        run: The failed checkpoint: the folder ``RUN/checkpoints/failed-<frames>``.
        device: Device of the agent and of the batch.

    Raises:
        CheckpointError: The folder is not a checkpoint of a run that failed.
    """
    saved, folders = checkpoint.load(run, device), conf_folders()
    update = saved.state.get("failed_batch")
    if not update:
        raise CheckpointError(f"{saved.path}: no failed update; name RUN/checkpoints/failed-FRAMES")
    # 1. Build the agent as in the run, and load its state.
    command = [f"device={device}"]
    own = compose("train", command, folders)
    config = resume.run_config(own, saved.meta.get("config", {}), command, folders)
    agent = build_agent(config, build_env(config))
    agent.load_state_dict(saved.state["agent"])
    agent.set_frames(saved.meta["frames"])
    # 2. Restore the batch.
    batch = TensorDict(dict(update["entries"]), update["batch_size"], device=device)
    return agent, batch.unflatten_keys("/")
