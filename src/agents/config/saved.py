"""Saved configurations of runs: they are data, and may name known targets only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from agents.config import checks
from agents.config.compose import SET_BY_ENV, replace_preset_values
from agents.config.folders import ConfigError, config_folder, groups
from agents.config.imports import check_imported
from agents.config.keys import check_kind, parse
from agents.nested import targets, walk
from packing_env.names import close_names

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PACKAGE = re.compile(r"^#\s*@package\s+(\S+)", re.MULTILINE)
_REFERENCE = re.compile(r"\$\{\.*[A-Za-z_]\w*(\.\w+)*\}")
"""A string that is a single interpolation of a key, without a resolver or other text."""
_INSIDE = ("evaluation.picture", "evaluation.plan", "curve")
"""Options that name files in the run's folder."""
_ELSEWHERE = re.compile(r"(^|_)(dir|directory|folder|out|output|log|uri|url|address|host)$")
"""Options whose values are places outside the run's folder; a run must not set them."""


def adopt(
    config: DictConfig,
    saved: Mapping[str, Any],
    sections: Sequence[str],
    overrides: Sequence[str],
    folders: Sequence[Path] = (),
) -> DictConfig:
    """Return a command's configuration with sections of a run; the command line has priority.

    A run's configuration is data. It may name a target only if the command itself, or a file of the
    configuration, names the same target at the same key. It may not use resolvers.

    Args:
        config: The command's configuration.
        saved: The run's configuration, with unresolved interpolations.
        sections: Names of the sections to take over.
        overrides: The command line.
        folders: Additional folders, as in ``--config-dir``.

    Raises:
        ConfigError: The run holds something other than data, or names a target or a place that is
            not allowed.
    """
    if not isinstance(saved, Mapping):
        raise ConfigError("the checkpoint's configuration is not a mapping")
    packages = saved.get("imports", [])
    names = packages if isinstance(packages, (list, ListConfig)) else [packages]
    if not all(isinstance(name, str) and name.isprintable() for name in names):
        raise ConfigError(f"the checkpoint has imports={_short(packages)}, not names of packages")
    check_imported(names, "the run of this checkpoint")
    # 1. Keep the sections that the command line chooses.
    parsed = parse(overrides)
    set_keys = {override.key_or_group for override in parsed}
    chosen = set_keys | (set(SET_BY_ENV) if "env" in set_keys else set())
    try:
        adopted = [name for name in sections if name in saved and name not in chosen]
        merged = _with_sections(config, saved, adopted, folders)
        # 2. Apply the command line's settings inside the run's sections.
        with open_dict(merged):
            for override in parsed:
                key = override.key_or_group
                if key.partition(".")[0] in sections and "." in key:
                    adds = override.is_add() or override.is_force_add()
                    _check_known(key, merged, config, adds=adds)
                    usual = dict(walk(merged, lists=False)).get(key)
                    OmegaConf.update(merged, key, override.value())
                    check_kind(key, usual, override.value())
                    if override.value() == "???":
                        raise ConfigError(f"{key} is not given; set {key}=...")
        # 3. Check the whole configuration.
        replace_preset_values(merged, set_keys)
        OmegaConf.resolve(merged.copy())
        _check_places(merged, config, folders)
    except (OmegaConfBaseException, RecursionError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ConfigError(f"the checkpoint's configuration cannot be read: {reason}") from None
    checks.check_targets(merged, limited=set_keys)
    checks.check_modes(merged, folders)
    return merged


def _check_known(key: str, merged: DictConfig, own: DictConfig, *, adds: bool) -> None:
    """Raise a ConfigError unless the run, or the command itself, has this option."""
    parent, _, last = key.rpartition(".")
    section = OmegaConf.select(merged, parent)
    if isinstance(section, ListConfig):
        return
    if not isinstance(section, DictConfig):
        raise ConfigError(f"unknown key {key!r}; the run has no such section")
    usual = OmegaConf.select(own, parent)
    if last in section or (isinstance(usual, DictConfig) and last in usual) or adds:
        return
    names = [str(name) for name in section if not str(name).startswith("_")]
    raise ConfigError(
        f"unknown key {key!r}{close_names(last, names)}; {parent} of the run has "
        f"{', '.join(names)} (add another with +{key}=...)"
    )


def _with_sections(
    config: DictConfig, saved: Mapping[str, Any], names: Sequence[str], folders: Sequence[Path]
) -> DictConfig:
    """Check some sections of a run, and return the configuration with them."""
    own = {(place, node["_target_"]) for place, node in targets(config)}
    known = known_targets(tuple(folders)) | own
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    options = groups(folders)
    merged = config.copy()
    with open_dict(merged):
        for name in names:
            part, usual = saved[name], plain.get(name)
            if part == usual:
                continue
            if isinstance(usual, Mapping) or (part is not None and name in options):
                check_mapping(part, name, known)
            else:
                _check_plain(part, name)
            merged[name] = part
            check_kind(name, usual, part)
    return merged


def check_mapping(node: Any, section: str, known: Set[tuple[str, str]]) -> None:
    """Refuse anything that could run code in a section from a checkpoint.

    ``known`` holds pairs of a dotted path and a target that is allowed there. Other targets,
    positional arguments, and interpolations that contain more than the name of a key are refused.
    """
    where = f"the checkpoint's {section}"
    if not isinstance(node, Mapping):
        raise ConfigError(f"{where} is {_short(node)}, which is not a mapping")
    # A file of the user's may have a target where ours have none, as in the group generator.
    if "_target_" not in node and any(path == section for path, _ in known_targets()):
        raise ConfigError(f"{where} has no _target_")
    for path, inner in walk(node, section):
        if isinstance(inner, str) and "${" in inner and not _REFERENCE.fullmatch(inner):
            raise ConfigError(f"{where} has {_short(inner)}, which is not data")
        if not isinstance(inner, Mapping):
            continue
        if "_args_" in inner:
            raise ConfigError(f"the checkpoint's {path} has _args_, which is not data")
        target = inner.get("_target_")
        if "_target_" in inner and (not isinstance(target, str) or (path, target) not in known):
            raise ConfigError(
                f"the checkpoint's {path} is made by {_short(target)}, which no configuration file "
                f"names there; if you trust it, choose it on the command line: {section}=NAME with "
                f"--config-dir DIR"
            )


def _check_plain(value: Any, key: str) -> None:
    """Raise a ConfigError unless a value is a number, a bool, null or plain text."""
    text = isinstance(value, str) and "${" not in value and value.isprintable() and value != "???"
    if not text and not isinstance(value, (bool, int, float, type(None))):
        raise ConfigError(
            f"the checkpoint's {key} is {_short(value)}, which is not plain text or a number; set "
            f"{key}=... on the command line"
        )


def _check_places(merged: DictConfig, config: DictConfig, folders: Sequence[Path]) -> None:
    own, run = (dict(walk(OmegaConf.to_container(c, resolve=True))) for c in (config, merged))
    loggers = {
        f"logger.{key!s}" for path in checks.files("logger", folders) for key in checks.load(path)
    }
    for key, value in run.items():
        if value is None or (key in own and value == own[key]):
            continue
        # The name of the key determines whether its value is a place; list indices are ignored.
        names = [name for name in key.split(".") if not name.isdigit()]
        outside = bool(names) and _ELSEWHERE.search(names[-1]) is not None
        if names[:1] == ["logger"] and len(names) > 1:  # services read all options of a logger
            outside = outside or key not in loggers
        if key in _INSIDE:
            path = PurePath(str(value))
            outside = path.is_absolute() or ".." in path.parts or not isinstance(value, str)
            outside = outside or not value.isprintable()
        if outside:
            raise ConfigError(
                f"the checkpoint's {key} is {_short(value)}, outside the run's folder; if you "
                f"trust it, set ++{key}=... on the command line"
            )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:76]} ..."


def known_targets(folders: tuple[Path, ...] = ()) -> frozenset[tuple[str, str]]:
    """Return every ``_target_`` in the configuration's files, with its dotted path."""
    return frozenset().union(*map(_targets_of, (config_folder(), *folders)))


@cache
def _targets_of(folder: Path) -> frozenset[tuple[str, str]]:
    # OmegaConf's own reader takes ten times as long: a second in every command that reads a run.
    return frozenset(
        (place, node["_target_"])
        for path in folder.rglob("*.yaml")
        for place, node in targets(_plain(path), _package(path, folder))
    )


def _plain(path: Path) -> Any:
    with path.open(encoding="utf-8") as file:  # so that an error names the file
        return yaml.load(file, Loader=_LOADER)


def _package(path: Path, folder: Path) -> str:
    """Return the section of a file in Hydra: the name of its folder, or its ``# @package``."""
    group = path.parent.relative_to(folder)
    match = _PACKAGE.search(path.read_text(encoding="utf-8"))
    package = match[1] if match else "_group_"
    return {"_global_": "", "_group_": ".".join(group.parts)}.get(package, package)
