"""Parts that tests of orders share: both ways to pack boxes, boxes, and checked plans."""

from pathlib import Path
from typing import Any

import pytest

from packing_env.plan import check_plan, save_plan
from packing_env.planner import Part, Plan

GRID = "center_hull"
"""A rule under which boxes are packed on a grid; under others, boxes alone are packed exactly."""
BOTH = pytest.mark.parametrize("stability", [GRID, "com_hull"], ids=["grid", "exact"])


def on(stability: str, cell: str = "10mm") -> dict[str, Any]:
    return {"stability": stability} | ({"cell": cell} if stability == GRID else {})


def box(name: str, *sides: Any, quantity: int = 1, **options: Any) -> Part:
    """Return boxes with sides in millimetres, and with poses and handling as given."""
    poses = {key: options.pop(key) for key in ("faces", "turn") if key in options}
    return Part(sides=sides, unit="mm", name=name, quantity=quantity, handling=options, **poses)


def checked(plan: Plan, folder: Path) -> Plan:
    """Return a plan after checking that the reference can check and accepts every container."""
    for number, packing in enumerate(plan.containers):
        save_plan(folder / f"plan-{number}.json", packing)
        report = check_plan(folder / f"plan-{number}.json")
        assert report.holds, report.violation
        assert not report.not_checked
    return plan
