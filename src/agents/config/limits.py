"""Limits of values: of the settings of a command, and of the arguments of a target."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from omegaconf import DictConfig, OmegaConf

from agents.config.folders import RUN_FILES, ConfigError, as_config_errors
from agents.nested import walk
from packing_env.files import reason
from packing_env.values import Count, Option, ParameterError, Seed, Whole, declared, read


def _place(value: Any, name: str, ending: str = "") -> str:
    """Return the name of a file or folder; raise unless it is text."""
    if not isinstance(value, str):
        write = f"{name}=./{value}{ending}"
        raise ParameterError(f"{name}={value} must be a path; for the name {value}, write {write}")
    if not value.strip():
        raise ParameterError(f"{name}={value!r} must be a path")
    return value


def check_output(
    value: Any, name: str, *, ending: str = "", folder: bool = False, in_run: bool = False
) -> str:
    """Return the path of an output; raise unless it can be written.

    Args:
        value: The path, of a file unless ``folder``.
        name: Name of the setting.
        ending: Ending that the file must have.
        folder: Whether a folder is written.
        in_run: Whether relative paths begin at the run's folder, which does not exist yet.
    """
    place = Path(_place(value, name, ending))
    if ending and place.suffix.lower() != ending:
        raise ParameterError(f"{name}={value} must be the name of a file that ends in {ending}")
    below = in_run and not place.is_absolute() and ".." not in place.parts
    for path in [place] if below else _in_runs(place.absolute()):
        if path.parts and path.parts[0].lower() in RUN_FILES and not folder:
            raise ParameterError(
                f"{name}={value} would overwrite {path.parts[0]} of a run; name another file"
            )
    if below:
        return str(value)
    try:
        if place.exists() and place.is_dir() != folder:
            kind = "file" if folder else "folder"
            raise ParameterError(f"{name}={value} is a {kind}; name another")
        places = (place.absolute(), *place.absolute().parents)
        nearest = next(path for path in places if path.exists())
    except OSError as error:
        raise ParameterError(f"{name}={value} cannot be written: {reason(error)}") from error
    usable = nearest.is_dir() or nearest == place.absolute()
    if not usable or not os.access(nearest, os.W_OK):
        raise ParameterError(f"{name}={value} cannot be written: you cannot write to {nearest}")
    return str(value)


def _in_runs(place: Path) -> list[Path]:
    """Return the path of a file relative to each run in whose folder it is."""
    runs = [folder for folder in place.parents if os.path.isfile(folder / RUN_FILES[0])]
    return [place.relative_to(folder) for folder in runs]


def _path(**options: Any) -> Any:
    return Annotated[str, Option(read=partial(check_output, **options))] | None


_INPUT = Annotated[str, Option(read=_place)] | None
_PICTURE, _FOLDER = _path(ending=".png", in_run=True), _path(folder=True)
LIMITS: dict[str, Any] = {
    "seed": Seed,
    "run_dir": _FOLDER,
    "frames": _FOLDER,
    "out": _path(),
    "curve": _PICTURE,
    **dict.fromkeys(("plan", "resume", "warm_start.checkpoint"), _INPUT),
    "instance": Whole,
    "size": Annotated[float, Option(at_least=16, at_most=8192)],
    "checkpoint.keep": Count | None,
    "evaluation.instances": Whole,
    "evaluation.rows": Count,
    "evaluation.seed": Seed,
    "evaluation.picture": _PICTURE,
    "evaluation.plan": _path(ending=".json", in_run=True),
}
"""Limits, for all commands, of the settings that are not arguments of a target."""


def check_command(config: DictConfig) -> None:
    """Raise a ConfigError for a setting of a command outside its limits."""
    for key, value in walk(config, lists=False):
        check_limits(config, key, value, LIMITS.get(key))
    if not isinstance(config.get("checkpoint"), (DictConfig, type(None))):
        with as_config_errors():
            _place(config.checkpoint, "checkpoint")
    curve, picture = (OmegaConf.select(config, key) for key in ("curve", "evaluation.picture"))
    if curve and picture and Path(curve) == Path(picture):
        raise ConfigError(f"evaluation.picture={picture} is also the curve; name another file")


def check_limits(config: DictConfig, key: str, value: Any, hint: Any) -> None:
    """Raise a ConfigError unless a value is within the limits of a type hint.

    1e6 becomes an integer where one is needed. Hints without an ``Option`` set no limits, and
    references to other values are not checked.
    """
    try:
        kinds, option = declared(hint)
    except TypeError:  # a user's annotation that cannot be hashed
        return
    if option == Option() or isinstance(value, Mapping) or "${" in str(value):
        return
    whole = isinstance(value, float) and value.is_integer() and int in kinds and float not in kinds
    with as_config_errors():
        read(key, int(value) if whole else value, hint)
    if whole:
        OmegaConf.update(config, key, int(value))
