"""Check of a plan file: it reads the solids from their sources and runs the reference program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from packing_env.plan.document import ITEM_KEYS, PLAN_KEYS, parse, read_json
from packing_env.plan.packing import Packing, PlacedItem
from packing_env.plan.solids import solid_of
from packing_env.reference.checker import check
from packing_env.reference.claims import ItemClaim, PlanClaim, Report

Claim = TypeVar("Claim", ItemClaim, PlanClaim)


def check_plan(path: str | Path) -> Report:
    """Check every claim of a plan with the reference program.

    The check shares only the reading of mesh files with the program that made the plan. The origin
    of an item (``instance``, ``item_id``, ``orientation``) is not a claim and is not checked.

    Args:
        path: The plan. The mesh files that it names are searched under their names, then in the
            folder of the plan.

    Returns:
        The report, with the first claim that is wrong, if any.

    Raises:
        PlanError: The file is not a plan, has another version, is incomplete, or names a solid that
            cannot be read.
    """
    document = read_json(path)
    packing = parse(path, document)
    with np.errstate(over="ignore", invalid="ignore"):  # overflows are reported as violations
        items = tuple(
            _claim(ItemClaim, item, solid=solid_of(item, Path(path)), corner=item.cell)
            for item in packing.items
        )
    report = check(_claim(PlanClaim, packing, items=items, utilization=packing.claimed))
    return replace(report, not_checked=(*report.not_checked, *_unknown_keys(document)))


def _claim(kind: type[Claim], source: Packing | PlacedItem, **others: Any) -> Claim:
    """Convert to a claim of the reference program; ``source`` provides the other fields."""
    same = {f.name: getattr(source, f.name) for f in fields(kind) if f.name not in others}
    return kind(**same, **others)


def _unknown_keys(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a note for every key of the plan that is not part of the format."""
    for key in document:
        if key not in PLAN_KEYS:
            yield f"the key {key!r}, which is unknown"
    for number, item in enumerate(document["items"]):
        for key in item:
            if key not in ITEM_KEYS:
                yield f"the key {key!r} of item {number}, which is unknown"
