"""The options of a nest: constraints, rotations, and attributes of parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor

from packing_env.constraints import Constraints
from packing_env.items.rotations import rotation_set
from packing_env.planner.reading.constraints import read_options
from packing_env.planner.reading.containers import ContainerType
from packing_env.planner.reading.parts import Part
from packing_env.values import ParameterError, check_number

LEAST_YAW = 5.0
"""Smallest step of turns about z, degrees."""
_NEUTRAL = {"stackable": True}
"""Values of attributes that have no effect; for all other attributes they are False and 0."""


def read_rules(kind: ContainerType, constraints: dict[str, Any]) -> Constraints:
    """Return the constraints; refuse those that have no meaning without gravity."""
    known = ("clearance", "wall_clearance", "preplaced")
    others = [name for name in constraints if name not in known]
    if others:
        raise ParameterError(
            f"{', '.join(others)}: a nest supports only {', '.join(known)}; leave out the others"
        )
    if kind.deck or any(kind.overhang) or kind.cut or kind.weight_limit or kind.cost is not None:
        raise ParameterError(
            "the container of a nest states its size, name and number only; leave out deck, "
            "overhang, cut, weight_limit and cost"
        )
    rules = Constraints.read(read_options(constraints))
    x, y, height = (float(side) for side in kind.size)
    rules.check_container((x, y, height))
    if min(x, y, height) <= 2 * rules.walls:
        raise ParameterError(
            f"wall_clearance={rules.walls:g} m on both sides leaves no room in the container; give "
            f"less than {min(x, y, height) / 2:g} m, or a larger container"
        )
    return rules


def read_rotations(yaw: float | None) -> Float[Tensor, "R 3 3"]:
    """Return the rotations in which parts are tried."""
    if yaw is None:
        return rotation_set("pi/2")
    check_number("yaw", yaw, above=0.0)
    if abs(90.0 / yaw - round(90.0 / yaw)) > 1e-9:
        raise ParameterError(f"yaw={yaw:g} degrees must divide 90, as 45, 30 or 15 do")
    if yaw < LEAST_YAW:
        raise ParameterError(f"yaw={yaw:g} degrees must be at least {LEAST_YAW:g}")
    return rotation_set("pi/2", yaw_interval=math.radians(yaw))


def check_handling(order: Sequence[Part]) -> None:
    """Raise if a part has an attribute that a nest does not support; weights are ignored."""
    for part in order:
        for name, value in part.handling.items():
            if name != "weight" and value != _NEUTRAL.get(name, False):
                raise ParameterError(
                    f"{part.label}: {name}={value!r} is not supported in a nest; leave it out, or "
                    "use packing pack"
                )
