"""The subcommand ``check``: verify the claims of packing plans."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from agents.loggers.console import PlainConsole
from agents.loggers.plain_text import printable
from packing_env.plan import PlanError, check_plan

HOLDS, VIOLATED, UNREADABLE = 0, 1, 2
"""Exit codes; with several plans the largest."""


def check(options: argparse.Namespace) -> int:
    """Check plans; the exit code is 1 if a claim does not hold, 2 if a plan cannot be read."""
    write = PlainConsole(soft_wrap=True, highlight=False).print
    codes, reports = [], []
    for path in options.plans:
        try:
            report = check_plan(path)
        except PlanError as error:
            codes.append(UNREADABLE)
            reports.append({"plan": str(path), "error": str(error)})
            print(f"packing: {printable(str(error))}", file=sys.stderr)
            continue
        codes.append(HOLDS if report.holds else VIOLATED)
        reports.append({"plan": str(path), **report.to_json()})
        if not options.json:
            write("\n".join(f"{path}: {line}" for line in _lines(report)))
    if options.json:
        write(json.dumps(reports, indent=1))
    return max(codes)


def _lines(report: Any) -> list[str]:
    """Return the lines that describe what ``check_plan`` returned."""
    lines = [f"NOT CHECKED: {claim}" for claim in report.not_checked]
    if report.violation is not None:
        return [*lines, f"REFUSED, {report.violation}"]
    count = f"{report.items} item{'s' if report.items != 1 else ''}"
    claimed = "" if report.not_checked else " as claimed"
    lines.append(
        f"holds: {count} inside, apart, at rest, stable and supported{claimed}; "
        f"utilization {report.utilization:.4f}, height {report.height:.4f} m"
    )
    return lines
