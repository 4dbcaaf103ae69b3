"""Settings of the simulation; ``settings.yaml`` beside this file has the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from packing_env import files
from packing_env.names import close_names
from packing_env.types import ParameterError, check_integer, check_number

ORDERS = ("sequential", "released")
_ZERO = ("friction", "rolling", "jolt", "clearance", "parts_error")
"""Settings that may be 0."""


@dataclass(frozen=True)
class PhysicsSettings:
    """Settings of a simulation.

    Rigid bodies under gravity with Coulomb friction are alike at every scale if times grow with
    the root of lengths. Containers are therefore scaled to one size
    (:data:`packing_env.physics.world.SIZE`), and times and speeds are those of the scaled one.

    Attributes:
        friction: Coulomb's coefficient, between items, floor and walls.
        rolling: Lever arm of the resistance to rolling and to spinning, metres of the scaled
            container: by default none, so that round items roll on.
        density: kg/m^3 of all items.
        walls: Whether there are four walls around the container.
        order: ``"sequential"``, each item settled before the next, or ``"released"``, all at once.
        moved_cells: Displacement of the centre of mass above which an item has moved, cells.
        moved_degrees: Angle above which an item has moved, or toppled.
        settle_speed: Speed of points of an item below which it may be settled, m/s.
        settle_time: Time below that speed after which it is, seconds.
        item_time: Most seconds until the next item is placed.
        final_time: Seconds after the last item, or of a released pile.
        lower_speed: Speed at which an item is lowered, in its pose, until it touches something
            below; it is then let go at rest (sequential order), m/s.
        jolt: Largest random velocity of an item when it is released, m/s.
        clearance: Cells taken off the vertical sides of cuboids.
        parts_error: Share of a solid's volume by which its convex parts may differ.
        seed: Seed of the random velocities.
    """

    friction: float
    rolling: float
    density: float
    walls: bool
    order: Literal["sequential", "released"]
    moved_cells: float
    moved_degrees: float
    settle_speed: float
    settle_time: float
    item_time: float
    final_time: float
    lower_speed: float
    jolt: float
    clearance: float
    parts_error: float
    seed: int

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ParameterError(f"order={self.order!r} is unknown; choose one of {list(ORDERS)}")
        if not isinstance(self.walls, bool):
            raise ParameterError(f"walls={self.walls!r} must be true or false")
        check_integer("seed", self.seed, 0)
        for name in (f.name for f in fields(self) if f.name not in ("order", "walls", "seed")):
            value = check_number(name, getattr(self, name))
            if value < 0 or (value == 0 and name not in _ZERO):
                least = "0 or more" if name in _ZERO else "more than 0"
                raise ParameterError(f"{name}={value!r} must be {least}")


def read_settings(source: bool | str | Path | Mapping[str, Any] = True) -> PhysicsSettings:
    """Return the default settings with changes.

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
            changes = yaml.safe_load(files.read_text(source))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise ParameterError(f"{source}: cannot be read as YAML settings ({error})") from error
    if not isinstance(changes, Mapping):
        raise ParameterError(f"{source}: settings of the simulation are a mapping of names")
    known = [field.name for field in fields(PhysicsSettings)]
    for key in changes:
        if key not in known:
            raise ParameterError(
                f"{key!r} is no setting of the simulation{close_names(str(key), known)}; "
                f"known: {', '.join(known)}"
            )
    return replace(_defaults(), **changes)


@cache
def _defaults() -> PhysicsSettings:
    text = Path(__file__).with_name("settings.yaml").read_text(encoding="utf-8")
    return PhysicsSettings(**yaml.safe_load(text))
