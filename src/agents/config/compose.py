"""Composition of a command's configuration, checked before anything is built."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Any

import torch
from hydra.core.override_parser.types import Glob, IntervalSweep, Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agents.config import checks
from agents.config.folders import ConfigError, as_config_errors, groups
from agents.config.imports import imported
from agents.config.keys import composed, first_lines, parse
from packing_env.envs.checks import known_device
from packing_env.types import PackingParams
from packing_env.values import options

_LOGGER = logging.getLogger("agents.config")
SET_BY_ENV = ("items", "generator", "reward")
"""Groups whose option depends on the option of ``env``."""


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
    return checked(*composed(command, overrides, folders), overrides, folders)


def checked(
    config: DictConfig,
    own: Sequence[Override],
    overrides: Sequence[str],
    folders: Sequence[Path] = (),
) -> DictConfig:
    """Check the values of a configuration whose keys are valid, and complete it.

    Args:
        config: Result of :func:`agents.config.keys.composed`; it is changed and returned.
        own: The overrides that ``config`` contains: the other result of ``composed``.
        overrides: All overrides, as for :func:`compose`.
        folders: As for :func:`compose`.

    Raises:
        ConfigError: A value or a combination is invalid.
    """
    set_keys = {override.key_or_group for override in parse(overrides)}
    # A value of env.GROUP would contradict the group's section, which evaluations of the run read.
    for group in SET_BY_ENV:
        if f"env.{group}" in set_keys:
            raise ConfigError(
                f"env.{group} follows the group {group}; set {group}=OPTION or {group}.KEY=VALUE"
            )
    _check_values(config, own, folders)
    replace_preset_values(config, set_keys)
    _note_process(config)
    return config


def _note_process(config: DictConfig) -> None:
    """Set what depends on this process: the device, and the packages that it imported."""
    if config.get("device") == "auto":
        config.device = usable_device()
    elif "device" in config:
        with as_config_errors():
            config.device = str(known_device(config.device))  # another machine may run the job
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


def named(overrides: Sequence[str], folders: Sequence[Path] = ()) -> list[str]:
    """Return overrides with ``GROUP=glob(...)`` replaced by the options; Hydra misses ``folders``.

    Raises:
        ConfigError: A pattern matches no option.
    """
    lines = []
    for override in parse(overrides):
        line, value = override.input_line or "", override.value()
        if isinstance(value, Glob):
            options = value.filter(groups(folders).get(override.key_or_group, []))
            if not options:
                raise ConfigError(f"{line} matches no option of a group")
            line = f"{override.get_key_element()}={','.join(options)}"
        lines.append(line)
    return lines


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
    value = override.value()
    if isinstance(value, IntervalSweep):
        yield from (value.start, value.end)
    else:
        yield from override.sweep_string_iterator()


# ---------------------------------------------------------------------- checks


def _check_values(
    config: DictConfig, overrides: Sequence[Override], folders: Sequence[Path]
) -> None:
    """Check that values are consistent, resolvable, and arguments of their targets."""
    # 1. Choose mode and network if they were not set, and check the combination.
    set_keys = {o.key_or_group for o in overrides}
    checks.choose_mode(config, set_keys)
    checks.choose_network(config, set_keys, folders)
    checks.check_modes(config, folders)
    checks.check_registered(config)
    if "trainer" in config:
        checks.check_learns(config)
    # 2. Resolve interpolations, and compare the keys with the arguments of the targets.
    try:
        OmegaConf.resolve(config.copy())
    except OmegaConfBaseException as error:
        raise ConfigError(first_lines(error)) from None
    checks.check_targets(config)


def replace_preset_values(config: DictConfig, set_keys: Set[str]) -> None:
    """Set preset values to null if a chosen setting replaces them; ``make_env`` then computes them.

    For example, ``env.resolution`` replaces the preset's ``cell``, unless ``cell`` is set too.
    """
    for name, option in options(PackingParams).items():
        other = option.goes_with
        chosen = f"env.{other}" in set_keys or other == "resolution"  # presets do not set it
        unset = (
            not other or f"env.{name}" in set_keys or not OmegaConf.select(config, f"env.{name}")
        )
        if chosen and not unset and OmegaConf.select(config, f"env.{other}") is not None:
            config.env[name] = None
