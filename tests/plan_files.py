"""Boxes in their places, plans written to a file, and the verdict of the checker."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from packing_env.plan import PlacedItem, check_plan
from packing_env.reference.claims import Report, Violation


def placed_box(
    order: int, name: str, corner: Sequence[float], sides: Sequence[float], **changes: Any
) -> PlacedItem:
    """Return a box that is not turned, with its lower corner in a place; lengths in metres."""
    values: dict[str, Any] = {
        "source": "cuboid",
        "unit": "m",
        "scale": 1.0,
        "extent": tuple(sides),
        "rotation": np.eye(3),
        "translation": np.array(corner, np.float64),
        "cell": (int(corner[0]), int(corner[1])),
        "z": float(corner[2]),
        "support_ratio": 1.0,
        "volume": float(np.prod(sides)),
        **changes,
    }
    return PlacedItem(order=order, name=name, orientation=0, item_id=0, **values)


def checked(plan: dict[str, Any], folder: Path) -> Report:
    path = folder / "plan.json"
    path.write_text(json.dumps(plan), encoding="utf-8")
    return check_plan(path)


def violation_of(plan: dict[str, Any], folder: Path) -> Violation:
    """Return the first violation of a plan, which must have one."""
    violation = checked(plan, folder).violation
    assert violation is not None, "the plan holds"
    return violation


def refused(plan: dict[str, Any], folder: Path) -> tuple[int | None, str]:
    """Return the item and the claim of the first violation."""
    violation = violation_of(plan, folder)
    return violation.item, violation.claim
