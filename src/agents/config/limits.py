"""Limits of values: of the settings of a command, and of the arguments of a target."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from omegaconf import DictConfig, OmegaConf

from agents.config.folders import ConfigError, as_config_errors
from agents.config.outputs import check_output, check_path
from agents.nested import walk
from packing_env.values import Count, Option, Seed, Whole, declared, read


def _path(**options: Any) -> Any:
    return Annotated[str, Option(read=partial(check_output, **options))] | None


_INPUT = Annotated[str, Option(read=check_path)] | None
_PICTURE, _FOLDER = _path(ending=".png", in_run=True), _path(folder=True)
LIMITS: dict[str, Any] = {
    "seed": Seed,
    "run_dir": _FOLDER,
    "frames": _FOLDER,
    "out": _path(),
    "curve": _PICTURE,
    **dict.fromkeys(("plan", "resume", "warm_start.checkpoint"), _INPUT),
    "instance": Whole,
    "threads": Count,
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
            check_path(config.checkpoint, "checkpoint")
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
