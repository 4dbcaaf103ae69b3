"""Composition of a command's configuration by Hydra, checked before anything is built.

:func:`agents.config.folders.config_folder` finds the YAML files; ``--config-dir`` adds a user's own
folders.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agents.config import checks
from agents.config.folders import ConfigError, as_config_errors, config_folder, groups
from agents.config.grids import grid_of
from agents.config.imports import imported
from agents.config.names import walk
from packing_env.names import close_names
from packing_env.types import PackingParams
from packing_env.values import check_choice, options

_LOGGER = logging.getLogger("agents.config")
HYDRA_VERSION = "1.3"
SET_BY_ENV = ("items", "generator", "reward")
"""Groups whose option depends on the option of ``env``."""

FROM_RUNS = ("eval", "play", "render")
"""Commands that get the agent from a run with ``checkpoint=RUN``."""


@dataclass(frozen=True)
class Request:
    """A parsed command line: subcommand, ``key=value`` arguments, folders of extra YAML files."""

    command: str
    overrides: list[str]
    folders: list[Path]


def compose(
    command: str, overrides: Sequence[str] = (), folders: Sequence[Path] = ()
) -> DictConfig:
    """Return the checked configuration of a command.

    Args:
        command: Name of a YAML file at the top of the configuration.
        overrides: ``key=value`` as Hydra accepts them, without sweeps.
        folders: Additional folders of YAML files.

    Raises:
        ConfigError: A key, a value, a group or a combination is invalid.
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
    _check_groups(parsed, folders)
    # 2. Compose, and check the values.
    own = [override for override in parsed if not is_for_agent_of_run(override, command, parsed)]
    lines = [override.input_line or "" for override in own]
    with _hydra():
        try:
            config = hydra_compose(command, [*lines, *search_path(folders)])
        except (HydraException, OmegaConfBaseException) as error:
            raise _explained(error, command, own, folders) from None
        _check_values(config, command, own, folders)
    replace_preset_values(config, {o.key_or_group for o in parsed})
    _note_process(config)
    return config


def _note_process(config: DictConfig) -> None:
    """Set what depends on this process: the device, and the packages that it imported."""
    if config.get("device") == "auto":
        config.device = usable_device()
    if "imports" in config:
        config.imports = imported()


def usable_device() -> str:
    """Return ``"cuda"`` if a GPU carries out an operation, else ``"cpu"``."""
    if not torch.cuda.is_available():
        return "cpu"
    try:
        # Reads from the device once, before anything is built.
        torch.zeros(1, device="cuda").add_(1).cpu()
    except RuntimeError as error:  # a driver that is too old, or a GPU that torch is not built for
        _LOGGER.warning("device=auto: cpu, because the GPU fails (%s)", error)
        return "cpu"
    return "cuda"


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


def _check_groups(parsed: Sequence[Override], folders: Sequence[Path]) -> None:
    known = groups(folders)
    for override in parsed:
        key = override.key_or_group
        names_options = isinstance(override.value(), str | list) or override.is_delete()
        if key in known and not names_options:
            raise ConfigError(
                f"{override.input_line}: {key} is a group; choose one of {', '.join(known[key])}"
            )


def expand(overrides: Sequence[str]) -> Iterator[list[str]]:
    """Yield the jobs of a sweep, as lists of overrides."""
    choices = [
        [f"{override.get_key_element()}={value}" for value in _values(override)]
        if override.is_sweep_override()
        else [override.input_line or ""]
        for override in parse(overrides)
    ]
    yield from (list(job) for job in itertools.product(*choices))


def _values(override: Override) -> Iterator[Any]:
    """Yield the values of a sweep, or the ends of an interval that a sweeper searches."""
    if override.is_interval_sweep():
        interval = override.value()
        assert isinstance(interval, IntervalSweep)
        yield from (interval.start, interval.end)
    else:
        yield from override.sweep_string_iterator()


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
    elif "=" not in text:
        hint = f", as in checkpoint={text} for a run"
    elif "(" in text:
        hint = f" with a list in brackets: '{text.replace('(', '[').replace(')', ']')}'"
    return f"cannot read {text!r}; write key=value{hint} ({reason})"


@contextmanager
def _hydra() -> Iterator[None]:
    """Initialize Hydra with our configuration; at the end, restore the caller's Hydra state."""
    # Plugins register their launchers only once, so the restored state must include these.
    Plugins.instance()
    before = Singleton.get_state()
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(config_folder()), "packing", version_base=HYDRA_VERSION):
            yield
    finally:
        GlobalHydra.instance().clear()
        Singleton.set_state(before)


def search_path(folders: Sequence[Path]) -> list[str]:
    """Return the override that adds folders to Hydra's search path."""
    if not folders:
        return []
    return [f"hydra.searchpath=[{','.join(f'file://{folder.resolve()}' for folder in folders)}]"]


# ---------------------------------------------------------------------- error messages


def _explained(
    error: Exception, command: str, overrides: Sequence[Override], folders: Sequence[Path]
) -> ConfigError:
    """Return the reason for Hydra's error, as one paragraph."""
    # 1. An unknown option of a group.
    options = groups(folders)
    chosen = []
    for override in overrides:
        key, value = override.key_or_group, override.value()
        if key not in options:
            continue
        if value not in (*options[key], None, "null"):
            with as_config_errors():
                check_choice(key, value, options[key])
        chosen.append(override.input_line or "")
    # 2. An unknown key: compare it with the keys of the chosen groups.
    try:
        base = hydra_compose(command, [*chosen, *search_path(folders)])
    except (HydraException, OmegaConfBaseException):
        return ConfigError(_first_lines(error))
    known = [key for key, _ in walk(base, lists=False) if key]
    for override in overrides:
        key = override.key_or_group
        if key in options or key in known or key.startswith("hydra") or override.is_add():
            continue
        near = close_names(key, [*known, *options])
        return ConfigError(
            f"unknown key {key!r}{near}{_siblings(key, known) or f'; see packing {command} --help'}"
        )
    return ConfigError(_first_lines(error))


def _siblings(key: str, known: Sequence[str]) -> str:
    """Return a hint with the keys of the section to which a key belongs."""
    parent = key.rpartition(".")[0]
    names = [name.rpartition(".")[2] for name in known if name.rpartition(".")[0] == parent]
    names = [name for name in names if not name.startswith("_")]  # _target_ and the like
    if not parent or not names:
        return ""
    return f" ({parent} has {', '.join(names)}; add another with +{key}=...)"


def _first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2])


# ---------------------------------------------------------------------- checks


def _check_values(
    config: DictConfig, command: str, overrides: Sequence[Override], folders: Sequence[Path]
) -> None:
    """Check that values are present, consistent, resolvable, and arguments of their targets."""
    # 1. No value is missing.
    for key, value in walk(config, lists=False):
        if value == "???":
            raise ConfigError(f"{key} is not given; set {key}=...")
    # 2. Compare the values that were set with those in the files.
    known = groups(folders)
    chosen = [o for o in overrides if o.key_or_group in known]
    numbers = [
        override.key_or_group
        for override in overrides
        if override not in chosen
        and not override.key_or_group.startswith("hydra")
        and not override.is_delete()
    ]
    if numbers:
        lines = [override.input_line or "" for override in chosen]
        if folders:  # their files may change
            base = hydra_compose(command, [*lines, *search_path(folders)])
        else:
            base = _usual(command, *lines)
        for key in numbers:
            checks.check_number(base, config, key)
    # 3. Choose mode and network if they were not set, and check the combination.
    set_keys = {o.key_or_group for o in overrides}
    checks.check_limits(config)
    checks.choose_mode(config, set_keys)
    checks.choose_network(config, set_keys, folders)
    checks.check_modes(config, folders)
    if "trainer" in config:
        checks.check_learns(config)
    try:
        OmegaConf.resolve(config.copy())
    except OmegaConfBaseException as error:
        raise ConfigError(_first_lines(error)) from None
    checks.check_targets(config)


@lru_cache(maxsize=64)
def _usual(command: str, *chosen: str) -> DictConfig:
    """Return a command's configuration with only the groups set; do not change the argument."""
    return hydra_compose(command, list(chosen))


def finish(config: DictConfig, overrides: Sequence[str]) -> None:
    """Complete a configuration that Hydra itself composed for a job, as :func:`compose` does."""
    set_keys = {override.key_or_group for override in parse(overrides)}
    replace_preset_values(config, set_keys)
    checks.choose_mode(config, set_keys)
    checks.choose_network(config, set_keys, ())
    _note_process(config)


def replace_preset_values(config: DictConfig, set_keys: Set[str]) -> None:
    """Drop preset values that a chosen setting replaces; :func:`packing_env.make_env` sets them.

    For example, ``env.resolution`` replaces the preset's ``cell``, unless ``cell`` is set too.
    """
    for name, option in options(PackingParams).items():
        other = option.goes_with
        chosen = f"env.{other}" in set_keys or other == "resolution"  # no preset has this name
        unset = (
            not other or f"env.{name}" in set_keys or not OmegaConf.select(config, f"env.{name}")
        )
        if chosen and not unset and OmegaConf.select(config, f"env.{other}") is not None:
            config.env[name] = None
