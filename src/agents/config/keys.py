"""Check of keys and choices with Hydra alone: without torch, an error appears at once.

:func:`agents.config.folders.config_folder` finds the YAML files; ``--config-dir`` adds a user's own
folders.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.errors import HydraException
from hydra.types import RunMode
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf
from omegaconf.basecontainer import BaseContainer
from omegaconf.errors import OmegaConfBaseException

from agents.config.folders import ConfigError, config_folder, groups
from agents.config.grids import grid_of
from agents.config.limits import check_command
from agents.nested import walk
from packing_env.names import close_names
from packing_env.values import ParameterError, check_choice

HYDRA_VERSION = "1.3"
_OF_APPLICATION: tuple[type, ...] = (GlobalHydra, HydraConfig, VersionBase, ConfigStore)
"""Singletons of Hydra that belong to the program that uses it."""
_SESSION = threading.RLock()
FROM_RUNS = ("eval", "play", "render")
"""Commands that get the agent from a run with ``checkpoint=RUN``."""


@dataclass(frozen=True)
class Request:
    """A parsed command line: subcommand, ``key=value`` arguments, folders of extra YAML files."""

    command: str
    overrides: list[str]
    folders: list[Path]


def composed(
    command: str, overrides: Sequence[str] = (), folders: Sequence[Path] = ()
) -> tuple[DictConfig, list[Override]]:
    """Return a command's configuration with valid keys, and the overrides that it contains.

    The arguments are those of :func:`agents.config.compose.compose`, which also checks values and
    combinations.

    Raises:
        ConfigError: A key, a choice, or the kind of a value (number, list, section) is invalid.
    """
    # 1. Check the command line alone.
    parsed = parse(overrides)
    if (grid := grid_of(overrides)) is not None:
        raise ConfigError(f"experiment={grid} is a sweep: add --multirun to run all its jobs")
    swept = [override.input_line for override in parsed if override.is_sweep_override()]
    if swept:
        raise ConfigError(f"{swept[0]} names several values: add --multirun to run them all")
    if any(override.key_or_group == "imports" for override in parsed):
        raise ConfigError("imports is set by the option --import MODULE, not by imports=...")
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"--config-dir {folder}: there is no such folder")
    known = groups(folders)
    for override in _choices(parsed, known):
        if not all(isinstance(name, str) for name in _names(override)):
            key = override.key_or_group
            raise ConfigError(
                f"{override.input_line}: {key} is a group; choose one of {', '.join(known[key])}"
            )
    # 2. Compose, and compare the values that were set with those in the files.
    own = [override for override in parsed if not is_for_agent_of_run(override, command, parsed)]
    lines = [override.input_line or "" for override in own]
    with hydra_session():
        try:
            config = hydra_compose(command, [*lines, *search_path(folders)])
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            raise _explained(error, command, own, folders) from None
        _check_added(config, command, own, folders)
        _check_kinds(config, command, own, folders)
    return config, own


def is_for_agent_of_run(override: Override, command: str, parsed: Sequence[Override]) -> bool:
    """Return whether an override sets an option of the agent in a checkpoint.

    Only the run's configuration has that agent, so :func:`agents.config.saved.adopt` sets the
    option.
    """
    set_keys = {other.key_or_group: other for other in parsed}
    return (
        command in FROM_RUNS
        and "checkpoint" in set_keys
        and set_keys["checkpoint"].value() is not None
        and "agent" not in set_keys
        and override.key_or_group.startswith("agent.")
        and not override.is_delete()
    )


def _choices(parsed: Sequence[Override], known: Collection[str]) -> list[Override]:
    """Return the overrides that choose an option of a group."""
    chosen = [override for override in parsed if override.key_or_group in known]
    return [each for each in chosen if not each.is_delete() and not each.is_sweep_override()]


def _names(override: Override) -> list[Any]:
    """Return the options that an override chooses; several only of experiments."""
    value: Any = override.value()
    return value if override.key_or_group == "experiment" and isinstance(value, list) else [value]


def parse(overrides: Sequence[str]) -> list[Override]:
    """Parse ``key=value`` arguments with Hydra's grammar.

    Raises:
        ConfigError: An argument does not have the form ``key=value``.
    """
    parser = OverridesParser.create()
    parsed = []
    for text in overrides:
        try:
            parsed += parser.parse_overrides([text])
        except HydraException as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(_unreadable(text, overrides, reason)) from None
    return parsed


def _unreadable(text: str, overrides: Sequence[str], reason: str) -> str:
    """Return why an argument is not a setting, and how to write what was probably meant."""
    position = list(overrides).index(text)
    following = [word for word in overrides[position + 1 : position + 3] if word != "="]
    hint = ""
    if text in ("resume", "checkpoint", "seed", "device", "out", *groups()) and following:
        hint = f", without spaces: {text}={following[0].removeprefix('=')}"
    elif text.endswith((".yaml", ".yml")):
        hint = ", or --config-dir FOLDER experiment=NAME for FOLDER/experiment/NAME.yaml"
    elif "=" not in text:
        hint = f", as in checkpoint={text} for a run"
    elif "(" in text:
        hint = f" with a list in brackets: '{text.replace('(', '[').replace(')', ']')}'"
    return f"cannot read {text!r}; write key=value{hint} ({reason})"


@contextmanager
def hydra_session() -> Iterator[None]:
    """Initialize Hydra with our configuration; at the end, restore the caller's Hydra state.

    Hydra's state is global, so one thread at a time has a session.
    """
    with (
        _SESSION,
        _own_state(),
        initialize_config_dir(str(config_folder()), "packing", version_base=HYDRA_VERSION),
    ):
        yield


@contextmanager
def _own_state() -> Iterator[None]:
    # Plugins register their launchers only once, so the caller's options must include these.
    Plugins.instance()
    options = ConfigStore.instance().repo
    before, resolvers = Singleton._instances, BaseContainer._resolvers
    # The session has its own application, version and registered options.
    Singleton._instances = {kind: of for kind, of in before.items() if kind not in _OF_APPLICATION}
    BaseContainer._resolvers = dict(resolvers)
    ConfigStore.instance().repo = _without_schemas(options)
    try:
        yield
    finally:
        Singleton._instances, BaseContainer._resolvers = before, resolvers


def _without_schemas(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return registered options without those that have the name of a file of ours.

    Hydra would take them as schemas of these files. TorchRL registers ``logger/csv``, for example.
    """
    ours = groups()
    return {
        group: {name: node for name, node in known.items() if name[:-5] not in ours[group]}
        if group in ours and isinstance(known, Mapping)
        else known
        for group, known in options.items()
    }


def show_info(request: Request, what: str, *, sweeps: bool) -> None:
    """Print how Hydra composes a request, as ``--info`` of a Hydra application does."""
    lines = [override.input_line or "" for override in parse(request.overrides)]
    logging.getLogger().handlers.clear()  # Hydra adds its own, which prints to stdout
    with hydra_session():
        application = GlobalHydra.instance().hydra
        assert application is not None
        mode = RunMode.MULTIRUN if sweeps else RunMode.RUN
        overrides = [*lines, *search_path(request.folders)]
        try:
            application.show_info(what, request.command, overrides, run_mode=mode)
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            raise _explained(error, request.command, parse(lines), request.folders) from None


def search_path(folders: Sequence[Path]) -> list[str]:
    """Return the override that adds folders to Hydra's search path."""
    if not folders:
        return []
    return [f"hydra.searchpath=[{','.join(f'file://{folder.resolve()}' for folder in folders)}]"]


# ---------------------------------------------------------------------- error messages


def check_name(key: str, value: Any, known: Collection[str]) -> None:
    """Refuse a name that is neither ours nor registered by an imported package.

    Raises:
        ConfigError: The name is unknown. If no known name is similar, the message mentions
            ``--import``.
    """
    try:
        check_choice(key, value, known)
    except ParameterError as error:
        near = close_names(str(value), known)
        hint = "" if near else "; if your own package registers it, add --import PACKAGE"
        raise ConfigError(f"{error}{hint}") from None


def _explained(
    error: Exception, command: str, overrides: Sequence[Override], folders: Sequence[Path]
) -> ConfigError:
    """Return the reason for Hydra's error, as one paragraph."""
    # 1. An unknown option of a group, or a group of other commands.
    options = groups(folders)
    for override in _choices(overrides, options):
        for name in _names(override):
            check_name(override.key_or_group, name, options[override.key_or_group])
        if str(error).startswith(f"Could not override '{override.key_or_group}'"):
            text = "{}: packing {} does not read the group {!r}; leave it out"
            return ConfigError(text.format(override.input_line, command, override.key_or_group))
    # 2. An unknown key: compare it with the keys of the chosen groups, without the removed ones.
    of_groups = [each for each in overrides if each.key_or_group in options]
    lines = [each.input_line or "" for each in of_groups if not each.is_sweep_override()]
    try:
        base = hydra_compose(command, [*lines, *search_path(folders)])
    except (HydraException, OmegaConfBaseException):
        return ConfigError(first_lines(error))
    known = [key for key, _ in walk(base, lists=False) if key]
    for override in overrides:
        key = override.key_or_group
        if key in options or key in known or key.startswith("hydra") or override.is_add():
            continue
        public = [each for each in known if "._" not in each]  # not agent._target_
        near = close_names(key, [*public, *options])
        return ConfigError(
            f"unknown key {key!r}{near}{_siblings(key, known) or f'; see packing {command} --help'}"
        )
    return ConfigError(first_lines(error))


def _siblings(key: str, known: Sequence[str]) -> str:
    """Return a hint with the keys of the section to which a key belongs."""
    parent = key.rpartition(".")[0]
    names = [name.rpartition(".")[2] for name in known if name.rpartition(".")[0] == parent]
    names = [name for name in names if not name.startswith("_")]  # _target_ and the like
    if not parent or not names:
        return ""
    # The file of a class names all its arguments; only loggers pass further ones on.
    complete = f"{parent}._target_" in known and parent != "logger"
    more = "" if complete else f"; add another with +{key}=..."
    return f" ({parent} has {', '.join(names)}{more})"


def first_lines(error: Exception) -> str:
    """Return the first two lines of an error, as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2])


# ---------------------------------------------------------------------- checks


def _check_added(
    config: DictConfig, command: str, overrides: Sequence[Override], folders: Sequence[Path]
) -> None:
    """Refuse ``+key=value`` if no program reads the key.

    Groups pass their keys to a class or reader, which checks them. Keys that another value refers
    to, as in ``${key}``, are accepted.
    """
    added = [each for each in overrides if each.is_add() or each.is_force_add()]
    if not added:
        return
    # 1. Compose without added keys; other keys that are set may be parts of added ones.
    options = groups(folders)
    chosen = [each.input_line or "" for each in _choices(overrides, options) if each not in added]
    base = hydra_compose(command, [*chosen, *search_path(folders)])
    known = {key for key, _ in walk(base, lists=False)}
    # 2. Look each added key up.
    values = str(OmegaConf.to_container(config, resolve=False))
    for override in added:
        key = override.package or override.key_or_group
        root = key.split(".")[0]
        is_passed_on = root in base and (root in options or base[root] is None)
        is_global = root not in config  # hydra, and groups such as experiment
        is_referred_to = re.search(rf"\$\{{{re.escape(key)}[.\[}}]", values)
        if not (key in known or is_passed_on or is_global or is_referred_to):
            raise ConfigError(
                f"{override.input_line}: packing {command} does not read {key!r}; leave it out"
            )


def _check_kinds(
    config: DictConfig, command: str, overrides: Sequence[Override], folders: Sequence[Path]
) -> None:
    """Check that no value is missing, and that numbers, lists and sections keep their kind."""
    for key, value in walk(config, lists=False):
        if value == "???":
            raise ConfigError(f"{key} is not given; set {key}=...")
    check_command(config)
    known = groups(folders)
    chosen = _choices(overrides, known)
    if all(o in chosen or o.key_or_group.startswith("hydra") for o in overrides):
        return
    lines = [override.input_line or "" for override in chosen]
    if folders:  # a user's files may change, so this is not cached
        base = hydra_compose(command, [*lines, *search_path(folders)])
    else:
        base = _usual(command, *lines)
    values = dict(walk(config, lists=False))
    for key, usual in walk(base, lists=False):
        if isinstance(values.get(key.rpartition(".")[0]), Mapping):  # null sections have no keys
            check_kind(key, usual, values.get(key), known.get(key, ()))


@lru_cache(maxsize=64)
def _usual(command: str, *chosen: str) -> DictConfig:
    """Return a command's configuration with only the groups set; it is cached: do not change it."""
    return hydra_compose(command, list(chosen))


_MAY_BE_NULL = ("env.constraints", "env.handling")
"""Sections that may be null or left out."""


def check_kind(key: str, usual: Any, value: Any, options: Sequence[str] = ()) -> None:
    """Raise a ConfigError if a value is of another kind (number, list, section) than the usual one.

    Interpolations and missing values are accepted. ``options`` are those of the group ``key``.
    """
    if isinstance(value, str) and ("${" in value or value == "???"):
        return
    if isinstance(usual, bool) and not isinstance(value, (bool, type(None))):
        raise ConfigError(f"{key}={value!r} must be true or false")
    # A number may have null or a list as an alternative; its limits say so.
    if isinstance(usual, (int, float)) and isinstance(value, (str, Mapping)):
        raise ConfigError(f"{key}={value!r} must be a number, as in {key}={usual}")
    if isinstance(usual, list) and isinstance(value, (int, float)):
        raise ConfigError(f"{key}={value!r} must be a list, as in {key}={usual}")
    if not isinstance(usual, Mapping) or isinstance(value, Mapping):
        return
    if value is None and key in _MAY_BE_NULL:
        return
    names = [str(name) for name in usual if not str(name).startswith("_")]
    how = f"set {key}.{names[0]}=... ({', '.join(names)})" if names else "leave it out"
    if options:
        how = f"choose one of {', '.join(options)}"
    text = "null or left out" if value is None else repr(value)
    raise ConfigError(f"{key} is a section of settings and cannot be {text}; {how}")
