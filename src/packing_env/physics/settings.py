"""Settings of the simulation; ``settings.yaml`` next to this file has the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from packing_env import files
from packing_env.values import Option, ParameterError, Positive, Whole, check, check_names

_Number = Annotated[float, Option(at_least=0.0)]


@dataclass(frozen=True)
class PhysicsSettings:
    """Settings of a simulation; ``settings.yaml`` explains each of them.

    Containers are scaled to one size (:data:`packing_env.physics.world.SIZE`). This is possible
    because rigid bodies with Coulomb friction move alike at every scale, if times grow with the
    square root of lengths. Times and speeds refer to the scaled container.
    """

    friction: _Number
    rolling: _Number
    density: Positive
    walls: bool
    order: Annotated[str, Option(choices=("sequential", "released"))]
    moved_cells: Positive
    moved_degrees: Positive
    settle_speed: Positive
    settle_time: Positive
    item_time: Positive
    final_time: Positive
    lower_speed: Positive
    jolt: _Number
    clearance: _Number
    parts_error: _Number
    seed: Whole

    def __post_init__(self) -> None:
        check(self)


def read_settings(source: bool | str | Path | Mapping[str, Any] = True) -> PhysicsSettings:
    """Return the default settings with some changes.

    Args:
        source: True for the defaults; a YAML file or a mapping of changes.

    Raises:
        ParameterError: A key is unknown or a value invalid, or the file cannot be read.
    """
    if isinstance(source, bool):
        return _defaults()
    changes: Any = source
    if not isinstance(source, Mapping):
        try:
            changes = files.parse_yaml(files.read_text(source))
        except (OSError, ValueError) as error:
            raise ParameterError(f"{source}: cannot be read as YAML settings ({error})") from error
    if not isinstance(changes, Mapping):
        raise ParameterError(
            f"{source}: the settings of the simulation must be a mapping of names to values"
        )
    check_names("the simulation", changes, [field.name for field in fields(PhysicsSettings)])
    return replace(_defaults(), **changes)


@cache
def _defaults() -> PhysicsSettings:
    text = Path(__file__).with_name("settings.yaml").read_text(encoding="utf-8")
    return PhysicsSettings(**files.parse_yaml(text))
