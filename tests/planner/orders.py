"""Parts that tests of orders share: both ways to pack boxes, boxes, and checked plans."""

from collections.abc import Callable
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


def patiently(reached: Callable[[Plan], bool], run: Callable[[float], Plan]) -> Plan:
    """Return the plan of ``run(1.0)``, or one in more times the usual seconds, until it is reached.

    How far a search comes in its seconds depends on what else the machine does.
    """
    plan = run(1.0)
    for times in (4.0, 16.0):
        plan = plan if reached(plan) else run(times)
    return plan


def checked(plan: Plan, folder: Path) -> Plan:
    """Return a plan after checking that the reference can check and accepts every container."""
    for number, packing in enumerate(plan.containers):
        save_plan(folder / f"plan-{number}.json", packing)
        report = check_plan(folder / f"plan-{number}.json")
        assert report.holds, report.violation
        assert not report.not_checked
    return plan
