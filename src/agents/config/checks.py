"""What is checked of a composed configuration before anything is built."""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict

import packing_env
from packing_env.core.actions import MODES
from packing_env.tasks import PRESETS

_INTERNAL = ("_target_", "_partial_", "_convert_", "_recursive_", "_args_")
_REFERENCE = re.compile(r"\$\{\.*[A-Za-z_]\w*(\.\w+)*\}")
"""A string that is one interpolation, of a key: no resolver, nothing beside it."""


class ConfigError(ValueError):
    """The configuration is wrong; the message names the key and what would be right."""


def config_folder() -> Path:
    """Where the configuration is: inside the installed package, or at the top of the checkout."""
    package = Path(packing_env.__file__).resolve().parent
    for folder in (package / "conf", package.parents[1] / "conf"):
        if (folder / "train.yaml").is_file():
            return folder
    raise ConfigError(f"no configuration beside {package}; reinstall packing-env")


def close_names(name: str, known: Sequence[str]) -> str:
    """``", did you mean ...?"``, or nothing."""
    distinct = list(dict.fromkeys(known))
    near = difflib.get_close_matches(name, distinct, n=3, cutoff=0.6)
    if not near:
        last = name.rpartition(".")[2]
        near = [key for key in distinct if key.rpartition(".")[2] == last][:3]
    return f", did you mean {' or '.join(near)}?" if near else ""


def check_number(base: DictConfig, config: DictConfig, key: str) -> None:
    """A number in the file stays a number."""
    parent, _, last = key.rpartition(".")
    nodes = [OmegaConf.select(c, parent) if parent else c for c in (base, config)]
    if not all(isinstance(node, DictConfig) and last in node for node in nodes) or any(
        OmegaConf.is_missing(node, last) or OmegaConf.is_interpolation(node, last) for node in nodes
    ):
        return
    usual, given = (node[last] for node in nodes)
    number = isinstance(usual, (int, float))
    if number and isinstance(given, (str, DictConfig)):
        raise ConfigError(f"{key}={given!r} must be a number, as in {key}={usual}")
    if isinstance(usual, (ListConfig, DictConfig)) and isinstance(given, (int, float)):
        kind = "list" if isinstance(usual, ListConfig) else "mapping"
        raise ConfigError(f"{key}={given!r} must be a {kind}, as in {key}={usual}")


def targets(node: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every mapping that is built from a ``_target_``, with its dotted path.

    Mappings and lists are walked, as Hydra walks them; interpolations stay unresolved.
    """
    for inner_path, inner in walk(node, path):
        if isinstance(inner, Mapping) and "_target_" in inner:
            yield inner_path, inner


def walk(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in mappings and lists, containers included, as plain values with dotted paths."""
    if OmegaConf.is_config(node):
        node = OmegaConf.to_container(node, resolve=False)
    yield path, node
    entries: Iterable[tuple[Any, Any]] = ()
    if isinstance(node, Mapping):
        entries = node.items()
    elif isinstance(node, (list, tuple)):
        entries = enumerate(node)
    for key, inner in entries:
        yield from walk(inner, f"{path}.{key}" if path else str(key))


def check_saved(node: Any, section: str, known: Set[tuple[str, str]]) -> None:
    """Refuse what could run code in a section that a checkpoint brings.

    Args:
        node: The section, plain, interpolations unresolved.
        section: Its name.
        known: Dotted paths and the targets that may stand there.

    Raises:
        ConfigError: It names a target that is not known at that place, gives positional
            arguments, or has a string with an interpolation that is more than a key's name.
    """
    where = f"the checkpoint's {section}"
    if node is not None and not isinstance(node, Mapping):
        raise ConfigError(f"{where} is {node!r}, which is not a mapping")
    if node is not None and "_target_" not in node and any(path == section for path, _ in known):
        raise ConfigError(f"{where} has no _target_")
    for path, inner in walk(node, section):
        if isinstance(inner, str) and "${" in inner and not _REFERENCE.fullmatch(inner):
            raise ConfigError(f"{where} has {inner!r}, which is not data")
        if not isinstance(inner, Mapping):
            continue
        if "_args_" in inner:
            raise ConfigError(f"the checkpoint's {path} has _args_, which is not data")
        target = inner.get("_target_")
        if "_target_" in inner and (not isinstance(target, str) or (path, target) not in known):
            raise ConfigError(
                f"the checkpoint's {path} is made by {target!r}, which no configuration file names "
                f"there; if you trust it, choose it on the command line: {section}=NAME with "
                f"--config-dir DIR"
            )


def locate(node: Mapping[str, Any], path: str) -> Any:
    """What a node's ``_target_`` names."""
    module, _, name = str(node["_target_"]).rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{path}._target_={node['_target_']!r} cannot be imported: {error}"
        ) from error


def check_targets(config: DictConfig) -> None:
    """Every argument is one that the target takes."""
    for path, node in targets(config):
        taken = inspect.signature(locate(node, path)).parameters
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values()):
            continue
        known = [name for name, p in taken.items() if p.kind is not p.POSITIONAL_ONLY]
        for key in node:
            if key not in known and key not in _INTERNAL:
                raise ConfigError(
                    f"unknown key '{path}.{key}'{close_names(str(key), known)}; "
                    f"{node['_target_']} takes {', '.join(known)}"
                )


def choose_mode(config: DictConfig, given: Set[str]) -> None:
    """Where nobody chose an action mode, and the preset's own does not fit, the agent's first one.

    Args:
        config: Of a command; its ``env.action_mode`` may change.
        given: Keys that the command line sets.
    """
    preset = PRESETS.get(str(OmegaConf.select(config, "env.task")))
    mode = OmegaConf.select(config, "env.action_mode")
    if preset is None or "env.action_mode" in given or mode != preset.params.action_mode:
        return
    fits = _modes(OmegaConf.select(config, "agent"), "agent")
    if fits is not None and mode not in fits and preset.params.geometry == "maps":
        config.env.action_mode = fits[0]


def choose_network(config: DictConfig, given: Set[str], folders: Sequence[Path]) -> None:
    """Where nobody chose a network, and the agent's own does not fit, the first one that does.

    Args:
        config: Of a command; its ``network`` may change.
        given: Keys that the command line sets.
        folders: Further folders of YAML files.
    """
    if not _has_network(config) or any(key.partition(".")[0] == "network" for key in given):
        return
    fitting = _networks_that_fit(config, folders)
    if fitting and not _network_fits(config.network, config):
        with open_dict(config):
            config.network = OmegaConf.load(fitting[0])


def _has_network(config: DictConfig) -> bool:
    """Whether the agent takes one, and there is one."""
    agent = OmegaConf.select(config, "agent")
    return agent is not None and "network" in agent and config.get("network") is not None


def _network_fits(node: Mapping[str, Any], config: DictConfig) -> bool:
    """Whether a network acts in the task's mode, and is what the agent needs.

    A network without ``action_modes``, or without ``role``, says nothing against it; nor does an
    agent without ``network_role``.
    """
    modes, mode = _modes(node, "network"), OmegaConf.select(config, "env.action_mode")
    needs = getattr(locate(config.agent, "agent"), "network_role", None)
    role = getattr(locate(node, "network"), "role", None)
    return (modes is None or mode in modes) and (needs is None or role in (None, needs))


def _networks_that_fit(config: DictConfig, folders: Sequence[Path]) -> list[Path]:
    """Files of the group ``network``."""
    files = (path for f in (config_folder(), *folders) for path in sorted(f.glob("network/*.yaml")))
    return [path for path in files if _network_fits(DictConfig(OmegaConf.load(path)), config)]


def check_modes(config: DictConfig, folders: Sequence[Path]) -> None:
    """The agent, and its network if it has one, act in the environment's action mode."""
    mode = OmegaConf.select(config, "env.action_mode")
    if mode is not None and mode not in MODES:
        raise ConfigError(
            f"env.action_mode={mode!r} is unknown{close_names(mode, sorted(MODES))}; choose "
            f"one of {', '.join(sorted(MODES))}"
        )
    agent = OmegaConf.select(config, "agent")
    fits = _modes(agent, "agent")
    if mode is not None and fits is not None and mode not in fits:
        known = _modes_of_group("agent", folders).items()
        others = ", ".join(name for name, modes in known if mode in modes)
        raise ConfigError(
            f"agent {agent['_target_']} acts in action_mode {' or '.join(fits)}, not {mode!r}; "
            f"set env.action_mode={fits[0]}, or agent= one of: {others or 'none yet'}"
        )
    if _has_network(config) and not _network_fits(config.network, config):
        fitting = [path.stem for path in _networks_that_fit(config, folders)]
        if fitting:
            raise ConfigError(
                f"network {config.network['_target_']} does not fit agent "
                f"{config.agent['_target_']} in action_mode={mode}; leave it out, or set network= "
                f"one of: {', '.join(fitting)}"
            )


def check_learns(config: DictConfig) -> None:
    """What is to be trained can learn, the way that the trainer and the replay are made for."""
    agent = locate(config.agent, "agent")
    if not callable(getattr(agent, "update", None)):
        raise ConfigError(
            f"agent {config.agent['_target_']} does not learn; packing eval compares policies that "
            f"need no training"
        )
    best = str(OmegaConf.select(config, "checkpoint.best") or "").removeprefix("-")
    if best.startswith("held_out/") and not config.trainer.get("evaluate_every"):
        raise ConfigError(
            f"checkpoint.best={best} is a metric of evaluations, and there are none; set "
            f"trainer.evaluate_every=FRAMES"
        )
    on_policy = getattr(agent, "on_policy", False)
    for section in ("trainer", "replay"):
        if getattr(locate(config[section], section), "on_policy", False) != on_policy:
            kind = "its present policy's rollouts" if on_policy else "a replay"
            fits = "on_policy replay=rollout" if on_policy else "default replay=uniform"
            raise ConfigError(
                f"agent {config.agent['_target_']} learns from {kind}, which "
                f"{section} {config[section]['_target_']} does not serve; set trainer={fits}"
            )


def _modes(node: Mapping[str, Any] | None, path: str) -> tuple[str, ...] | None:
    """``action_modes`` of a target; None where it says nothing."""
    if node is None or "_target_" not in node:
        return None
    return getattr(locate(node, path), "action_modes", None)


def _modes_of_group(group: str, folders: Sequence[Path]) -> dict[str, tuple[str, ...]]:
    """What each option of a group says of its action modes."""
    found = {}
    for folder in (config_folder(), *folders):
        for path in sorted((folder / group).glob("*.yaml")):
            modes = _modes(DictConfig(OmegaConf.load(path)), group)
            if modes is not None:
                found[path.stem] = modes
    return found
