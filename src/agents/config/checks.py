"""Checks of a composed configuration, before anything is built."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Container, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from agents.config.folders import ConfigError, as_config_errors, config_folder
from agents.config.keys import check_name
from agents.config.limits import check_limits
from agents.nested import targets
from agents.options import option_hints
from packing_env.core import rewards, stability
from packing_env.core.actions import MODES
from packing_env.names import close_names
from packing_env.tasks import PRESETS
from packing_env.values import check_choice

_INTERNAL = ("_target_", "_partial_", "_convert_", "_recursive_", "_args_")


def locate(node: Mapping[str, Any], path: str) -> Any:
    """Import the object that a node's ``_target_`` names.

    Raises:
        ConfigError: There is no target, or it cannot be imported.
    """
    if "_target_" not in node:
        raise ConfigError(f"{path} has no _target_, the name of a class as in package.Class")
    module, _, name = str(node["_target_"]).rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{path}._target_={node['_target_']!r} cannot be imported: {error}"
        ) from error


def check_targets(config: DictConfig, limited: Container[str] | None = None) -> None:
    """Raise a ConfigError if a target refuses a key or a value, or a section lacks ``_partial_``.

    Args:
        config: The configuration.
        limited: Keys whose values must be within their limits; None means all. Values of runs of
            earlier versions may lie outside the limits.
    """
    # 1. These sections get further arguments when they are built: the environment, the agent, ...
    for section in ("agent", "network", "replay", "trainer", "collector"):
        node = OmegaConf.select(config, section)
        if node is not None and node.get("_partial_") is not True:
            raise ConfigError(
                f"{section} has no _partial_: true, which it needs because further arguments, such "
                "as env, are added when it is built"
            )
    agent = OmegaConf.select(config, "agent")
    if agent is not None and "env" not in (_argument_names(locate(agent, "agent")) or ["env"]):
        raise ConfigError(f"agent {agent['_target_']} has no argument env, the environment")
    # 2. Every target gets arguments that it accepts, within the limits of their annotations.
    for path, node in targets(config):
        target = locate(node, path)
        known, hints = _argument_names(target), option_hints(target)
        for key, value in node.items():
            if known is not None and key not in known and key not in _INTERNAL:
                raise ConfigError(
                    f"unknown key '{path}.{key}'{close_names(str(key), known)}; "
                    f"{node['_target_']} takes {', '.join(known)}"
                )
            if limited is None or f"{path}.{key}" in limited:
                check_limits(config, f"{path}.{key}", value, hints.get(key))


def _argument_names(target: Any) -> list[str] | None:
    """Return the arguments that a target accepts by name; None if it accepts any."""
    parameters = inspect.signature(target).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY]


def check_registered(config: DictConfig) -> None:
    """Raise a ConfigError for a stability rule or a reward term that is not registered."""
    for key in ("env.stability", "env.stability_metric"):
        if isinstance(name := OmegaConf.select(config, key), str):
            check_name(key, name, stability.RULES)
    terms = OmegaConf.select(config, "reward")
    for name in terms if isinstance(terms, DictConfig) else ():
        check_name("reward", name, rewards.TERMS)


def load(path: Path) -> DictConfig:
    """Read the YAML file of an option."""
    return DictConfig(OmegaConf.load(path))


def choose_mode(config: DictConfig, set_keys: Set[str]) -> None:
    """Choose the agent's first action mode if the agent does not support that of the preset.

    A mode that the command line sets has priority; ``set_keys`` are the keys that it sets.
    """
    preset = PRESETS.get(str(OmegaConf.select(config, "env.task")))
    mode = OmegaConf.select(config, "env.action_mode")
    if preset is None or "env.action_mode" in set_keys or mode != preset.params.action_mode:
        return
    fits = _modes(OmegaConf.select(config, "agent"), "agent")
    if fits is not None and mode not in fits and preset.params.geometry == "maps":
        config.env.action_mode = fits[0]


def choose_network(config: DictConfig, set_keys: Set[str], folders: Sequence[Path]) -> None:
    """Set the first network that fits, if none was chosen and the agent's default does not fit.

    ``set_keys`` are the keys that the command line sets.

    Raises:
        ConfigError: The command line sets a network, but the agent uses none.
    """
    chosen = any(key.partition(".")[0] == "network" for key in set_keys)
    # With a checkpoint, the settings apply to the agent of the run.
    agent = None if config.get("checkpoint") else OmegaConf.select(config, "agent")
    if chosen and agent is not None and "network" not in agent:
        raise ConfigError(f"agent {agent['_target_']} uses no network; leave out network=...")
    if not _has_network(config) or chosen:
        return
    if _network_fits(config.network, config):
        return
    if fitting := _networks_that_fit(config, folders):
        with open_dict(config):
            config.network = load(fitting[0])


def _has_network(config: DictConfig) -> bool:
    agent = OmegaConf.select(config, "agent")
    return agent is not None and "network" in agent and config.get("network") is not None


def _network_fits(node: Mapping[str, Any], config: DictConfig) -> bool:
    """Return whether a network supports the task's mode, and what the agent needs.

    A missing attribute (``action_modes``, ``role``; ``network_role``, ``network_arguments``) sets
    no condition.
    """
    modes, mode = _modes(node, "network"), OmegaConf.select(config, "env.action_mode")
    agent, network = locate(config.agent, "agent"), locate(node, "network")
    needs, role = getattr(agent, "network_role", None), getattr(network, "role", None)
    takes, passed = _argument_names(network), set(getattr(agent, "network_arguments", ()))
    if takes is not None and not passed <= set(takes):
        return False
    return (modes is None or mode in modes) and (needs is None or role in (None, needs))


def _networks_that_fit(config: DictConfig, folders: Sequence[Path]) -> list[Path]:
    return [path for path in files("network", folders) if _network_fits(load(path), config)]


def check_modes(config: DictConfig, folders: Sequence[Path]) -> None:
    """Raise a ConfigError unless the agent and its network support the task's action mode."""
    # 1. The mode exists, and the agent supports it.
    mode = OmegaConf.select(config, "env.action_mode")
    if mode is not None:
        with as_config_errors():
            check_choice("env.action_mode", mode, MODES)
    agent = OmegaConf.select(config, "agent")
    fits = _modes(agent, "agent")
    if mode is not None and fits is not None and mode not in fits:
        others = {f.stem: _modes(load(f), "agent") for f in files("agent", folders)}
        act = ", ".join(name for name, modes in others.items() if modes and mode in modes)
        raise ConfigError(
            f"agent {agent['_target_']} supports action_mode {' or '.join(fits)}, not {mode!r}; "
            f"set env.action_mode={fits[0]}, or agent= one of: {act or 'none yet'}"
        )
    # 2. The network fits, if any network does.
    if _has_network(config) and not _network_fits(config.network, config):
        fitting = [path.stem for path in _networks_that_fit(config, folders)]
        if fitting:
            raise ConfigError(
                f"network {config.network['_target_']} does not fit agent "
                f"{config.agent['_target_']} in action_mode={mode}; leave it out, or set network= "
                f"one of: {', '.join(fitting)}"
            )


def check_learns(config: DictConfig) -> None:
    """Raise a ConfigError unless trainer and replay provide what the agent learns from."""
    # 1. There is something to train.
    agent = locate(config.agent, "agent")
    if not callable(getattr(agent, "update", None)):
        raise ConfigError(
            f"agent {config.agent['_target_']} does not learn; packing eval compares policies "
            "that need no training"
        )
    # 2. ``checkpoint.best`` names a metric that is measured.
    best = str(OmegaConf.select(config, "checkpoint.best") or "").removeprefix("-")
    if best.startswith("held_out/") and not config.trainer.get("evaluate_every"):
        raise ConfigError(
            f"checkpoint.best={best} is a metric of evaluations, but none is made; set "
            f"trainer.evaluate_every=FRAMES"
        )
    # 3. Trainer and replay support such an agent.
    on_policy = getattr(agent, "on_policy", False)
    for section in ("trainer", "replay"):
        if getattr(locate(config[section], section), "on_policy", False) != on_policy:
            kind = "rollouts of its current policy" if on_policy else "a replay"
            fits = "on_policy replay=rollout" if on_policy else "default replay=uniform"
            raise ConfigError(
                f"agent {config.agent['_target_']} learns from {kind}, which {section} "
                f"{config[section]['_target_']} does not support; set trainer={fits}"
            )


def _modes(node: Mapping[str, Any] | None, path: str) -> tuple[str, ...] | None:
    """Return ``action_modes`` of a target; None if it does not have this attribute."""
    if node is None or "_target_" not in node:
        return None
    modes: tuple[str, ...] | None = getattr(locate(node, path), "action_modes", None)
    return modes


def files(group: str, folders: Sequence[Path]) -> list[Path]:
    """Return the files of a group: its options."""
    return [f for top in (config_folder(), *folders) for f in sorted(top.glob(f"{group}/*.yaml"))]
