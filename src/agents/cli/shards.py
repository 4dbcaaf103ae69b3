"""Evaluation on Ray workers: ``packing eval distributed=ray``.

Of each policy, the rounds of ``evaluation.rows`` instances are played apart; a round is the same
wherever it is played.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from tensordict.nn import TensorDictModuleBase

from agents.config import build
from agents.config.folders import ConfigError
from agents.training import checkpoint
from agents.training.evaluate import Evaluation, evaluate, joined
from agents.training.process import seed_everything
from agents.training.ray_tasks import play_all
from agents.training.ray_workers import RayWorkers
from agents.training.resume import load_policy
from packing_env.envs import PackingEnv


def workers_of(config: DictConfig) -> RayWorkers | None:
    """Return the workers of ``distributed=ray``; None: this process evaluates.

    Raises:
        ConfigError: ``distributed`` is something else.
        InstantiationException: Ray is missing, or a value of ``distributed`` is impossible.
    """
    if config.get("distributed") is None:
        return None
    made = instantiate(config.distributed)
    if not isinstance(made, RayWorkers):
        raise ConfigError(
            "packing eval plays in this process, or on the workers of distributed=ray; leave "
            "distributed=torchrun to packing train"
        )
    return made


def play(
    workers: RayWorkers,
    config: DictConfig,
    names: Sequence[str],
    rows: int,
    *,
    keep: int,
    should_stop: Callable[[], bool],
) -> Iterator[Evaluation]:
    """Yield the evaluations of policies, in the order of their names.

    Args:
        workers: Play the rounds, ``workers.num_workers`` at a time.
        config: Of the command; it is sent to the workers, which build environment and policy.
        names: Of the policies, as :func:`policy_of` knows them.
        rows: Instances of a round.
        keep: Number of terminal states to keep.
        should_stop: See :func:`agents.training.ray_tasks.play_all`.
    """
    content = OmegaConf.to_container(config, resolve=True)
    starts = range(0, int(config.evaluation.instances), rows)
    pieces = [(content, name, start, rows, keep) for name in names for start in starts]
    played = play_all(
        _play_round,
        pieces,
        num_workers=workers.num_workers,
        address=workers.address,
        num_gpus=float(torch.device(config.device).type == "cuda"),
        should_stop=should_stop,
    )
    parts: list[Evaluation] = []
    for part in played:
        parts.append(part)
        if len(parts) == len(starts):
            yield joined(parts, keep)
            parts = []


def _play_round(content: Any, name: str, start: int, rows: int, keep: int) -> Evaluation:
    """Play a round of a policy, in a worker."""
    config = OmegaConf.create(content)
    env = build.build_held_out(config, part=range(start, start + rows))
    count = min(rows, int(config.evaluation.instances) - start)
    return evaluate(env, policy_of(config, name, env), count, keep=keep, first_round=start // rows)


def policy_of(config: DictConfig, name: str, env: PackingEnv) -> TensorDictModuleBase:
    """Build a policy by its name: that of the agent, or of one of the heuristics."""
    if config.get("agent") is None or name != agent_name(config):
        return build.build_heuristics([name], env)[name]
    found = None
    if config.checkpoint is not None:
        found = checkpoint.load(config.checkpoint, device=config.device)
    return own_policy(config, found, env)[name]


def own_policy(
    config: DictConfig, found: checkpoint.Checkpoint | None, env: PackingEnv
) -> dict[str, TensorDictModuleBase]:
    """Build the policy of the checkpoint, or of ``agent=...``, by its name."""
    if found is not None:
        return {agent_name(config): load_policy(config, found, env)}
    if config.get("agent") is not None:
        seed_everything(int(config.seed))  # networks without a checkpoint are the same anywhere
        return {agent_name(config): build.policy_of(build.build_agent(config, env))}
    return {}


def agent_name(config: DictConfig) -> str:
    """Return a short name of the agent for tables."""
    name = config.agent.get("name")
    *_, package, made = str(config.agent["_target_"]).split(".")
    return str(name) if name else package if made == "build" else made.lower()
