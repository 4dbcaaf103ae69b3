"""The constraints of an order: from the attributes of its parts, and from options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from packing_env.constraints import Constraints
from packing_env.planner.reading.containers import ContainerType
from packing_env.planner.reading.lengths import exact, exact_length, exact_lengths, metres
from packing_env.planner.reading.weights import read_share, read_weight
from packing_env.values import ParameterError

if TYPE_CHECKING:
    from packing_env.planner.reading.parts import Part


STABILITY = (
    "com_hull", "com_hull_strict", "com_hull_10", "com_hull_20", "center_hull", "area_corners",
    "area_corners_code", "equilibrium", "none", "stands",
)  # fmt: skip
"""Stability rules that an order may request; listed here, because their module imports torch."""
_TOUCHING = 1e-6
"""Metres by which boxes may overlap through rounding."""


def read_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return constraints as numbers; texts state units, as in ``5mm``, ``400kg`` or ``80%``.

    Raises:
        ParameterError: A value is wrong; the message names the option and a correct value.
    """
    readers: dict[str, Callable[[str, Any], float]] = {
        "clearance": _read_gap,
        "wall_clearance": _read_gap,
        "weight_limit": read_weight,
        "support": read_share,
        "balance": read_share,
    }
    read: dict[str, Any] = {
        key: readers[key](key, value) if key in readers and isinstance(value, str) else value
        for key, value in options.items()
    }
    if "preplaced" in read:
        boxes = read["preplaced"]
        several = [boxes] if isinstance(boxes, str) else boxes
        read["preplaced"] = [_read_box(box) for box in several]
    _check_apart(Constraints.read(read).preplaced)  # reading raises if a value is out of range
    return read


def _read_gap(name: str, length: Any) -> float:
    """Read a length that may be 0."""
    return float(exact_length(name, length))


def _read_box(box: Any) -> Any:
    """Read ``50x40x20mm@0,0,10``, sides and lower corner in one unit; return other types as is."""
    if not isinstance(box, str):
        return box
    size, _, corner = box.partition("@")
    sides, unit = exact_lengths("preplaced", size, 3, "50x40x20mm@0,0,10")
    try:
        x, y, z = (exact(place) * metres(unit) for place in corner.split(","))
    except ValueError:
        raise ParameterError(
            f"preplaced={box!r} must end with a lower corner, as in 50x40x20mm@0,0,10"
        ) from None
    return tuple(float(length) for length in (x, y, z, *sides))


def _check_apart(boxes: Sequence[Sequence[float]]) -> None:
    """Raise if pre-placed boxes ``(x, y, z, dx, dy, dz)`` overlap; the message names two boxes."""
    for one, other in combinations(boxes, 2):
        depths = [
            min(one[k] + one[3 + k], other[k] + other[3 + k]) - max(one[k], other[k])
            for k in range(3)
        ]
        if min(depths) > _TOUCHING:
            raise ParameterError(
                f"preplaced: the boxes {list(one)} and {list(other)} overlap; they are "
                "(x, y, z, dx, dy, dz) in metres"
            )


def check_options(
    types: Sequence[ContainerType], options: Mapping[str, Any], lacking: Sequence[str]
) -> None:
    """Raise if constraints are wrong, do not fit a container, or need weights that are missing.

    Args:
        types: The containers.
        options: Constraints, as texts or numbers.
        lacking: Names of parts without a weight.

    Raises:
        ParameterError: The message names the option and the remedy.
    """
    rules = Constraints.read(read_options(options))
    for kind in types:
        x, y, height = kind.room
        kind.constraints(rules).check_container((float(x), float(y), float(height)))
    check_weights(types, rules, lacking)


def constraints_of(
    parts: Sequence[Part], types: Sequence[ContainerType], options: Mapping[str, Any]
) -> Constraints:
    """Join the constraints of the parts with those of the call."""
    asked = {key for part in parts for key in part.handling}
    groups = {part.handling.get("group", 0) for part in parts}
    of_parts: dict[str, Any] = {
        "no_stacking": any(not part.handling.get("stackable", True) for part in parts),
        "max_load": "max_load" in asked,
        "fragile": "last" if any(part.handling.get("fragile") for part in parts) else None,
        "lifo": len(groups) > 1,
        "together": _sets(parts),
    }
    rules = Constraints.read(of_parts | read_options(options))
    check_weights(types, rules, [part.label for part in parts if "weight" not in part.handling])
    return rules


def check_weights(
    types: Sequence[ContainerType], rules: Constraints, lacking: Sequence[str]
) -> None:
    """Raise if a constraint needs weights that some parts lack.

    Args:
        types: The containers.
        rules: Constraints of the order.
        lacking: Names of the parts without a weight.

    Raises:
        ParameterError: The message names the constraints and the parts.
    """
    own = [kind.constraints(rules) for kind in types]
    if lacking and any("weight" in each.needs for each in own):
        names = [
            name
            for name in ("max_load", "weight_limit", "balance")
            if any(name in each.to_json() for each in own)
        ]
        raise ParameterError(
            f"{', '.join(names)}: the weight of {', '.join(lacking[:3])} is missing; add a column "
            "weight (kg)"
        )


def _sets(parts: Sequence[Part]) -> list[tuple[str, int]]:
    """Return the labels of parts that stay together, each with the number of these parts."""
    numbers: Counter[str] = Counter()
    for part in parts:
        label = part.handling.get("together")
        if label is not None:
            numbers[label] += part.quantity
    return list(numbers.items())
