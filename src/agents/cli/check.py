"""The subcommand ``check``: verify the claims of packing plans."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from agents.config.folders import as_config_errors
from agents.loggers.console import PlainConsole
from agents.loggers.plain_text import printable
from packing_env.physics import PhysicsSettings, load_mujoco, read_settings, simulate
from packing_env.plan import PlanError, check_plan, load_plan

HOLDS, VIOLATED, UNREADABLE = 0, 1, 2
"""Exit codes; with several plans, the largest one is returned."""
_TALL = 2.0
"""Metres; heights from this value on are shown in metres."""


def check(options: argparse.Namespace) -> int:
    """Check plans; the exit code is 1 if a claim is wrong, 2 if a plan cannot be read.

    With ``--physics`` it is also 1 if an item moves in simulation.
    """
    console = PlainConsole()
    codes, reports = [], []
    settings = _settings(options)
    for path in options.plans:
        try:
            report = check_plan(path)
            moved, lines, simulated = _simulated(path, options, settings)
        except PlanError as error:
            codes.append(UNREADABLE)
            reports.append({"plan": str(path), "error": str(error)})
            print(f"packing: {printable(str(error))}", file=sys.stderr)
            continue
        codes.append(HOLDS if report.holds and not moved else VIOLATED)
        reports.append({"plan": str(path), **report.to_json(), **simulated})
        if not options.json:
            console.say("\n".join(f"{path}: {line}" for line in (*_lines(report), *lines)))
    if options.json:
        console.say(json.dumps(reports, indent=1))
    return max(codes)


def _settings(options: argparse.Namespace) -> PhysicsSettings | None:
    if not (options.physics or options.settings or options.html):
        return None
    with as_config_errors():
        load_mujoco()
        return read_settings(options.settings or True)


def _simulated(
    path: Path, options: argparse.Namespace, settings: PhysicsSettings | None
) -> tuple[bool, list[str], dict[str, Any]]:
    """Simulate a plan if requested; return if an item moved, the lines, and the JSON's entries."""
    if settings is None:
        return False, [], {}
    from agents.cli import physics

    packing = load_plan(path)
    report = simulate(packing, settings, path)
    lines = physics.describe(report)
    if options.html:
        page = options.html if len(options.plans) == 1 else options.html / f"{path.stem}.html"
        with as_config_errors():
            page.parent.mkdir(parents=True, exist_ok=True)
            physics.save_page(page, packing, report)
        lines.append(f"wrote {page}")
    return not report.stands, lines, {"physics": report.to_json()}


def _lines(report: Any) -> list[str]:
    lines = [f"NOT CHECKED: {claim}" for claim in report.not_checked]
    if report.violation is not None:
        return [*lines, f"REFUSED, {report.violation}"]
    count = f"{report.items} item{'s' if report.items != 1 else ''}"
    claimed = "" if report.not_checked else " as claimed"
    tall = report.height
    height = f"{1e3 * tall:.4g} mm" if tall < _TALL else f"{tall:.4g} m"
    lines.append(
        f"holds: {count} inside, apart, at rest, stable and supported{claimed}; "
        f"utilization {100 * report.utilization:.1f} %, height {height}"
    )
    if report.settled:
        lines.append(
            f"{report.settled} settled: their solids touch the solids below and enter none; the "
            f"centre of mass of {report.balanced} is over their contacts"
        )
    return lines
