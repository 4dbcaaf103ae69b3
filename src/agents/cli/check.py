"""The subcommand ``check``: packing plans, and whether what they claim holds."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from packing_env.plan.check import Report

HOLDS, VIOLATED, UNREADABLE = 0, 1, 2
"""Exit codes; with several plans the largest."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = (
        "Derive every claim of packing plans again, with the reference program: inside, under the\n"
        "lid, apart, at the drop height, stable, supported as said. Exits 1 and names the first\n"
        "claim in packing order that does not hold; 2 for a plan that cannot be read."
    )
    parser.add_argument("plans", nargs="+", type=Path, metavar="PLAN", help="plans, as JSON")
    parser.add_argument("--json", action="store_true", help="print the reports as a JSON list")


def check(options: argparse.Namespace) -> int:
    """Check plans; the exit code is 1 if a claim does not hold, 2 if a plan cannot be read."""
    from packing_env.plan import PlanError, check_plan

    say = Console(soft_wrap=True, highlight=False, markup=False, emoji=False).print
    codes, told = [], []
    for path in options.plans:
        try:
            report = check_plan(path)
        except PlanError as error:
            codes.append(UNREADABLE)
            told.append({"plan": str(path), "error": str(error)})
            print(f"packing: {error}", file=sys.stderr)  # noqa: T201
            continue
        codes.append(HOLDS if report.holds else VIOLATED)
        told.append({"plan": str(path), **report.to_json()})
        if not options.json:
            say("\n".join(f"{path}: {line}" for line in _lines(report)))
    if options.json:
        say(json.dumps(told, indent=1))
    return max(codes)


def _lines(report: Report) -> list[str]:
    """A report in words."""
    lines = [f"NOT CHECKED: {what}" for what in report.not_checked]
    if report.violation is not None:
        return [*lines, f"REFUSED, {report.violation}"]
    count = f"{report.items} item{'s' if report.items != 1 else ''}"
    claimed = "" if report.not_checked else " as claimed"
    lines.append(
        f"holds: {count} inside, apart, at rest, stable and supported{claimed}; "
        f"utilization {report.utilization:.4f}, height {report.height:.4f} m"
    )
    return lines
