"""Construction of environments, agents and policies from their configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict
from tensordict.nn import TensorDictModuleBase

from agents.algorithms.base import Agent
from agents.config.checks import check_targets
from agents.config.compose import compose
from agents.config.folders import ConfigError, groups
from agents.config.imports import conf_folders
from agents.config.keys import check_name
from agents.replay.compact import further_keys, maps_read
from agents.shapes import with_shape_check
from packing_env.envs import PackingEnv
from packing_env.envs.checks import check_env, check_observed
from packing_env.names import close_names
from packing_env.values import ParameterError

_LOGGER = logging.getLogger(__name__)


def build_env(config: DictConfig, **changes: Any) -> PackingEnv:
    """Build the environment of ``config.env``, with some arguments changed."""
    env: PackingEnv = instantiate(config.env, _partial_=True)(**changes)
    return env


def build_held_out(
    config: DictConfig, like: PackingEnv | None = None, part: range | None = None
) -> PackingEnv:
    """Build the environment that ``config.evaluation`` plays, on held-out instances.

    Args:
        config: Configuration of a command.
        like: An environment of the same task. Its catalogue is used if the held-out instances have
            the same items.
        part: The instances that the environment plays; None means all of ``config.evaluation``.
    """
    options = config.evaluation
    instances = range(int(options.instances)) if part is None else part
    # Generators of boxes draw other items for other instances, and ``holdout`` reserves some items.
    items = OmegaConf.select(config, "env.items")
    drawn = items.get("source") == "cuboids" and not items.get("extents")
    shared: dict[str, Any] = {}
    if like is not None and not drawn and not items.get("holdout"):
        shared["items"] = like.catalogue
    return build_env(
        config,
        split="test",
        draw="sequential",
        num_envs=max(1, min(int(options.rows), len(instances))),
        row_offset=instances.start,
        seed=int(options.seed),
        pool_seed=int(options.seed),
        **shared,
    )


def build_agent(config: DictConfig, env: PackingEnv) -> Any:
    """Build ``config.agent``: an :class:`Agent`, or a policy that needs no training.

    Options that its network chose from the items are written into the configuration, so that the
    weights fit other items too.

    Raises:
        ConfigError: A class of the user lacks a method or attribute that an agent needs.
        ParameterError: The policy reads observations that the environment does not provide.
    """
    agent = instantiate(config.agent)(env=env)
    _check_parts(agent, config.agent["_target_"])
    if chosen := getattr(getattr(policy_of(agent), "value", None), "chosen", {}):
        with open_dict(config):
            config.network.update(chosen)
    read = [key[1] for key in policy_of(agent).in_keys if key[0] == "observation"]
    check_observed(env, read, "the policy")
    return agent


def _check_parts(agent: Any, name: str) -> None:
    """Raise a ConfigError unless a class of the user has the parts of an agent or of a policy."""
    parts = ("policy", "batch_size", "set_frames", "state_dict", "load_state_dict")
    missing = [part for part in parts if hasattr(agent, "update") and not hasattr(agent, part)]
    if missing:
        raise ConfigError(
            f"agent {name} has no {', '.join(missing)}; an agent has {', '.join(parts)} and update"
        )
    policy = policy_of(agent)
    if not hasattr(policy, "in_keys"):
        raise ConfigError(
            f"the policy of agent {name} is a {type(policy).__name__}, but must be a module on "
            "TensorDicts, such as TensorDictModule or agents.PolicyWrapper"
        )


def build_replay(config: DictConfig, env: PackingEnv, agent: Agent) -> Any:
    """Build ``config.replay``, with every entry of a state that the policy reads."""
    options: dict[str, Any] = {}
    if needed := further_keys(agent.policy, env):
        options["keep"] = needed
    if config.replay.get("rebuild") == "read":
        options["rebuild"] = maps_read(agent.policy, env)
    return instantiate(config.replay)(env, **options)


def build_trainer(
    config: DictConfig, collector: Callable[..., Any] | None = None, **changes: Any
) -> Any:
    """Build ``config.trainer`` with its environment, agent, collector and replay.

    Args:
        config: Configuration of a training.
        collector: Function of environment and policy; None means ``config.collector``.
        **changes: Arguments of the environment to change.
    """
    env = build_env(config, **changes)
    agent = build_agent(config, env)
    replay = build_replay(config, env, agent)
    source = (collector or instantiate(config.collector))(env, agent.policy)
    return instantiate(config.trainer)(agent, source, replay)


def policy_of(learner: Any) -> TensorDictModuleBase:
    """Return the policy of an agent; if it is a policy itself, return it."""
    policy: TensorDictModuleBase = learner.policy if isinstance(learner, Agent) else learner
    return policy


BASELINES = ("random_legal", "deepest_bottom_left")
"""Heuristics with which an agent is compared, unless others are named."""


def build_heuristics(
    names: str | Sequence[str] | None, env: PackingEnv
) -> dict[str, TensorDictModuleBase]:
    """Build heuristics by name: ``NAME``, or ``NAME/ITEM_ORDER``.

    ``None`` means :data:`BASELINES`, or no heuristic if the environment lacks observations that
    these read.
    """
    from agents import heuristics

    if names is None:
        try:
            return build_heuristics(BASELINES, env)
        except ParameterError as error:
            _LOGGER.warning("no baselines: %s", error)
            return {}
    policies = {}
    for name in [names] if isinstance(names, str) else names:
        rule, _, order = name.partition("/")
        policies[name] = heuristics.build(rule, env, item_order=order or None)
    return policies


def build_policy(
    agent: str,
    env: PackingEnv,
    /,
    *,
    network: str | None = None,
    config_dir: str | Path | None = None,
    **options: Any,
) -> TensorDictModuleBase:
    """Build an untrained policy by its agent's name.

    Args:
        agent: An option of the group ``agent``: ``"dqn"``, ``"heuristic"``, ...
        env: Determines the shapes.
        network: An option of the group ``network``; None means the agent's default. Candidates need
            ``"candidate_scores"`` or ``"candidate_actor_critic"``.
        config_dir: An additional folder of YAML files, which may define the agent. Folders ``conf``
            of packages that :func:`agents.import_packages` imported are searched as well.
        **options: Values of the agent's or of its network's configuration, such as
            ``epsilon_end=0.1`` or ``channels=32``.

    Raises:
        ConfigError: The agent or an option is unknown, or the agent does not support the
            environment's action mode.
    """
    check_env(env)
    folders = [*([] if config_dir is None else [Path(config_dir)]), *conf_folders()]
    known = groups(folders).get("agent", [])
    check_name("agent", agent, known)
    chosen = [f"agent={agent}", f"env.action_mode={env.params.action_mode}"]
    if network is not None:
        chosen.append(f"network={network}")
    config = compose("eval", chosen, folders)
    _set_options(config, options)
    return with_shape_check(policy_of(build_agent(config, env)), env)


def _set_options(config: DictConfig, options: Mapping[str, Any]) -> None:
    """Set each option in the section that has it: the agent's or its network's."""
    sections = ["agent", "network"] if "network" in config.agent else ["agent"]
    for name, value in options.items():
        owners = [s for s in sections if name in config[s] and not name.startswith("_")]
        if not owners:
            known = sorted(k for s in sections for k in config[s] if not str(k).startswith("_"))
            near = close_names(name, known)
            raise ConfigError(f"unknown option {name!r}{near}; known: {', '.join(known)}")
        with open_dict(config):
            config[owners[0]][name] = value
    check_targets(config)
