"""The constraints of an order: those that its parts ask for, and those that are options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from packing_env.constraints import Constraints
from packing_env.planner.reading.containers import ContainerType
from packing_env.planner.reading.lengths import read_box, read_length
from packing_env.planner.reading.parts import Part
from packing_env.values import ParameterError


def constraints_of(
    parts: Sequence[Part], types: Sequence[ContainerType], given: dict[str, Any]
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
    lengths = ("clearance", "wall_clearance")
    read: dict[str, Any] = {
        key: read_length(key, value) if key in lengths and isinstance(value, str) else value
        for key, value in given.items()
    }
    if "preplaced" in read:
        read["preplaced"] = [read_box(box) for box in read["preplaced"]]
    rules = Constraints.read(of_parts | read)
    lacking = [part.name for part in parts if "weight" not in part.handling]
    own = [kind.constraints(rules) for kind in types]
    if lacking and any("weight" in each.needs for each in own):
        names = [
            name
            for name in ("max_load", "weight_limit", "balance")
            if any(getattr(each, name) for each in own)
        ]
        raise ParameterError(
            f"{', '.join(names)}: no weight of {', '.join(lacking[:3])}; add the column weight, kg"
        )
    return rules


def _sets(parts: Sequence[Part]) -> list[tuple[str, int]]:
    """Return the labels of parts that stay together, each with the number of these parts."""
    numbers: Counter[str] = Counter()
    for part in parts:
        label = part.handling.get("together")
        if label is not None:
            numbers[label] += part.quantity
    return list(numbers.items())
