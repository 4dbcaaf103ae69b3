"""Plans written to a file, and the verdict of the checker."""

import json
from pathlib import Path
from typing import Any

from packing_env.plan import check_plan
from packing_env.reference.claims import Report, Violation


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
