"""Check of a plan file: it reads the solids from their sources and runs the reference program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from packing_env.constraints import Constraints
from packing_env.kernels.stability_rules import OWN
from packing_env.plan.document import ITEM_KEYS, PLAN_KEYS, parse, read_json, refuse_others
from packing_env.plan.foreign import ForeignBox, ForeignLoad, Size, read_foreign
from packing_env.plan.packing import Packing, PlacedItem, PlanError
from packing_env.plan.solids import solid_of
from packing_env.reference import stability
from packing_env.reference.checker import check
from packing_env.reference.claims import (
    STABILITY_RULES,
    ItemClaim,
    PlanClaim,
    Report,
    lengths_in,
)
from packing_env.reference.solids import Solid
from packing_env.values import UNITS, read_unit

USUAL = "com_hull"
"""The stability rule that the report mentions if the user requests no rule."""
UP = {"z": (0, 1, 2), "y": (0, 2, 1), "x": (1, 2, 0)}
"""Axes of a file that are length, width and height, by the axis that points up."""
MAX_STEPS = 2**31
"""Largest length of a foreign plan, in the unit that divides all its lengths."""
Claim = TypeVar("Claim", ItemClaim, PlanClaim)


def check_plan(path: str | Path) -> Report:
    """Check every claim of a plan with the reference program.

    The check shares only the reading of mesh files with the program that made the plan. The origin
    of an item (``instance``, ``item_id``, ``orientation``) is not a claim and is not checked.

    Args:
        path: The plan. Its mesh files are searched in several folders
            (:func:`packing_env.plan.solids.find_source`).

    Returns:
        The report, with the first claim that is wrong, if any.

    Raises:
        PlanError: The file is not a plan, has another version, is incomplete, has an unknown key,
            or names a solid that cannot be read.
    """
    document = read_json(path)
    packing = parse(path, document)
    _check_keys(path, document)
    with np.errstate(over="ignore", invalid="ignore"):  # overflows are reported as violations
        items = tuple(
            _claim(ItemClaim, item, solid=solid_of(item, Path(path)), corner=item.cell, number=None)
            for item in packing.items
        )
    for name, rule in OWN.items():
        stability.RULES.setdefault(name, stability.by_formula(rule))
    return check(_claim(PlanClaim, packing, items=items, utilization=packing.claimed))


def _claim(kind: type[Claim], source: Packing | PlacedItem, **others: Any) -> Claim:
    """Convert to a claim of the reference program; ``source`` provides the other fields."""
    same = {f.name: getattr(source, f.name) for f in fields(kind) if f.name not in others}
    return kind(**same, **others)


def _check_keys(path: str | Path, document: Mapping[str, Any]) -> None:
    try:
        refuse_others(document, PLAN_KEYS, "the plan")
        for number, item in enumerate(document["items"]):
            refuse_others(item, ITEM_KEYS, f"item {number}")
    except ValueError as error:
        raise PlanError(f"{path}: {error}") from error


# ------------------------------------------------------------------ plans of other programs


@dataclass(frozen=True)
class ForeignOptions:
    """Values that the user states because a plan of another program may lack them.

    Attributes:
        unit: Unit of its lengths.
        container: Inner sides in metres.
        stability: Rule that every box must satisfy.
        up: The axis of the file that points up.
    """

    unit: str | None = None
    container: Size | None = None
    stability: str | None = None
    up: str = "z"


@dataclass(frozen=True)
class Judgement:
    """The report on one container of a plan of another program.

    Attributes:
        load: The container as it was read.
        report: The verdict. Messages have lengths in :attr:`unit`. ``height`` is in metres, or in
            lengths of the plan if the plan has no unit.
        unit: Unit of lengths; empty if neither the file nor the user states a unit.
        stability: The requested rule, or ``"none"``.
        unstable: The first box that the rule ``com_hull`` would refuse; ``None`` if there is no
            such box, or if a rule was requested.
    """

    load: ForeignLoad
    report: Report
    unit: str
    stability: str
    unstable: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the judgement as plain JSON types."""
        entries = {"program": self.load.program, "container": self.load.name, "unit": self.unit}
        return {**entries, "unstable": self.unstable, **self.report.to_json()}


def check_foreign(
    path: str | Path, options: ForeignOptions | None = None
) -> list[Judgement] | None:
    """Check that the boxes of another program's plan can be loaded.

    Each box must be inside the container, overlap no other box, and stand on the floor or on boxes.
    Lengths are compared exactly as they are written; only the rounding errors of binary numbers are
    removed. If the list is not in the order of loading, boxes are judged from the lowest to the
    highest.

    Args:
        path: The plan; see :mod:`.foreign` for its formats.
        options: Values that the file does not state.

    Returns:
        A judgement for each container, or ``None`` for a plan of :func:`save_plan`, which
        :func:`check_plan` checks.

    Raises:
        PlanError: The plan cannot be read, or a value is missing; the message names the remedy.
    """
    loads = read_foreign(Path(path))
    if loads is None:
        return None
    try:
        return [_judge(load, options or ForeignOptions()) for load in loads]
    except ValueError as error:
        raise PlanError(f"{path}: {error}") from error


def _judge(load: ForeignLoad, options: ForeignOptions) -> Judgement:
    # 1. Combine the values of the file with those of the user.
    unit, size = _unit(load, options), load.size
    metres = UNITS[unit] if unit else 1.0
    if size is None:
        if options.container is None:
            raise PlanError(f"{load.program} states no container; give it: --container LxWxHmm")
        x, y, z = (side / Fraction(str(metres)) for side in options.container)
        size = x, y, z
    elif options.container is not None:
        raise PlanError("the plan states its container; leave out --container")
    rule = options.stability or str((load.rules or {}).get("stability", "none"))
    if rule not in STABILITY_RULES["boxes"]:
        known = ", ".join(sorted(STABILITY_RULES["boxes"]))
        raise PlanError(f"stability={rule!r} is unknown; known are {known}")

    # 2. Judge the plan; without a rule, also find the first box that the usual rule refuses.
    with lengths_in(unit, metres):
        claim = _foreign_claim(load, size, metres, options.up)
        report = check(replace(claim, stability=rule))
        usual = check(replace(claim, stability=USUAL)) if report.holds and rule == "none" else None
    unstable = usual.violation if usual else None
    return Judgement(load, report, unit, rule, str(unstable) if unstable else None)


def _unit(load: ForeignLoad, options: ForeignOptions) -> str:
    if load.unit is not None and options.unit is not None:
        raise PlanError(f"the plan states its unit ({load.unit}); leave out --unit")
    unit = load.unit or options.unit
    return "" if unit is None else read_unit("unit", str(unit))


def _foreign_claim(load: ForeignLoad, size: Size, metres: float, up: str) -> PlanClaim:
    """Convert a container to claims in whole multiples of a length that divides all lengths."""
    # 1. Find that length.
    axes = UP[up]
    lengths = [*size, *(length for box in load.boxes for length in (*box.position, *box.size))]
    parts = math.lcm(*(length.denominator for length in lengths))
    if max(map(abs, lengths)) * parts > MAX_STEPS:
        raise PlanError(
            f"lengths of {load.name} have too many digits to be compared exactly; round them in "
            f"the file, so that the longest is at most {MAX_STEPS} times the finest decimal"
        )
    pitch = metres / parts

    # 2. Convert the boxes, from the lowest to the highest unless they are in the order of loading.
    boxes = list(enumerate(load.boxes))
    if not load.ordered:
        boxes.sort(key=lambda entry: entry[1].position[axes[2]])
    items = []
    for order, (number, box) in enumerate(boxes):
        corner = [int(box.position[axis] * parts) for axis in axes]
        sides = [int(box.size[axis] * parts) * pitch for axis in axes]
        items.append(_foreign_item(order, number, box, corner, sides, pitch))

    # 3. Convert the container and the rules of the file.
    x, y, z = (int(size[axis] * parts) * pitch for axis in axes)
    rules = {key: float(value) for key, value in (load.rules or {}).items() if key != "stability"}
    if "weight_limit" in rules and any(box.weight is None for box in load.boxes):
        raise PlanError("weight_limit needs the weight of each box; add it, or leave out the limit")
    return PlanClaim(
        container=(x, y, z),
        cell=pitch,
        stability="none",
        items=tuple(items),
        num_items=len(items),
        utilization=sum(item.volume for item in items) / (x * y * z) if x * y * z else 0.0,
        geometry="boxes",
        unit=pitch,
        constraints=Constraints.read(rules, "rules").to_json(),
    )


def _foreign_item(
    order: int, number: int, box: ForeignBox, corner: list[int], sides: list[float], pitch: float
) -> ItemClaim:
    dx, dy, dz = sides
    return ItemClaim(
        order=order,
        number=number,
        name=box.name,
        solid=Solid.box((dx, dy, dz)),
        rotation=np.eye(3),
        translation=np.array(corner) * pitch,
        corner=(corner[0], corner[1]),
        z=corner[2] * pitch,
        support_ratio=math.nan,
        volume=dx * dy * dz,
        handling={} if box.weight is None else {"weight": float(box.weight)},
    )
