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
from packing_env.plan import (
    ForeignOptions,
    Judgement,
    PlanError,
    check_foreign,
    check_plan,
    load_plan,
)
from packing_env.planner.reading.lengths import exact_container
from packing_env.values import UNITS

HOLDS, VIOLATED, UNREADABLE = 0, 1, 2
"""Exit codes; with several plans, the largest one is returned."""


def check(options: argparse.Namespace) -> int:
    """Check plans; return 1 if a claim is wrong, and 2 if a plan cannot be read.

    With ``--physics``, also return 1 if an item moves in simulation.
    """
    console = PlainConsole()
    codes: list[int] = []
    reports: list[dict[str, Any]] = []
    settings = _settings(options)
    container = exact_container(options.container)[0] if options.container else None
    foreign = ForeignOptions(options.unit, container, options.stability, options.up or "z")
    for path in options.plans:
        try:
            judgements = check_foreign(path, foreign)
            if judgements is not None:
                codes.append(_foreign(path, judgements, options, reports))
                continue
            _refuse_foreign_options(path, options)
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
            verdict = _lines(report, load_plan(path).shown_unit)
            console.say("\n".join(f"{path}: {line}" for line in (*verdict, *lines)))
    if options.json:
        console.say(json.dumps(reports, indent=1))
    return max(codes)


def _foreign(
    path: Path,
    judgements: list[Judgement],
    options: argparse.Namespace,
    reports: list[dict[str, Any]],
) -> int:
    """Report on the containers of a plan of another program; return the exit code."""
    if options.physics or options.settings or options.html:
        raise PlanError(
            f"{path}: only plans of packing pack are simulated; leave out --physics, --settings "
            "and --html"
        )
    for judgement in judgements:
        reports.append({"plan": str(path), **judgement.to_json()})
        if not options.json:
            load, report = judgement.load, judgement.report
            start = f"{path}: {load.program}, {load.name}"
            limits = {**(load.rules or {}), "stability": judgement.stability}
            rules = [f"{key} {value}" for key, value in limits.items() if value != "none"]
            lines = _lines(report, judgement.unit, ", ".join(["at rest", *rules]))
            if load.note and not report.holds:
                lines.append(load.note)
            if judgement.unstable:
                lines.append(
                    f"stability is not judged; com_hull would refuse {judgement.unstable} items"
                )
            PlainConsole().say("\n".join(f"{start}: {line}" for line in lines))
    return HOLDS if all(judgement.report.holds for judgement in judgements) else VIOLATED


def _refuse_foreign_options(path: Path, options: argparse.Namespace) -> None:
    for name in ("unit", "container", "stability", "up"):
        if getattr(options, name) is not None:
            raise PlanError(f"{path}: a plan of packing pack states this; leave out --{name}")


def _settings(options: argparse.Namespace) -> PhysicsSettings | None:
    if not (options.physics or options.settings or options.html):
        return None
    with as_config_errors():
        load_mujoco()
        return read_settings(options.settings or True)


def _simulated(
    path: Path, options: argparse.Namespace, settings: PhysicsSettings | None
) -> tuple[bool, list[str], dict[str, Any]]:
    """Simulate a plan if requested; return whether an item moved, text lines, and JSON entries."""
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


def _lines(report: Any, unit: str, claims: str = "") -> list[str]:
    """Return the verdict; ``claims`` names the criteria for a plan of another program."""
    lines = [f"NOT CHECKED: {claim}" for claim in report.not_checked]
    if report.violation is not None:
        return [*lines, f"REFUSED, {report.violation}"]
    count = f"{report.items} item{'s' if report.items != 1 else ''}"
    own = "at rest, stable and supported" + ("" if report.not_checked else " as claimed")
    if report.interlocked is not None:
        own = "each free to leave as claimed"
    height = f"{report.height / UNITS.get(unit, 1.0):.7g} {unit}".rstrip()
    lines.append(
        f"holds: {count} inside, apart, {claims or own}; "
        f"utilization {100 * report.utilization:.1f} %, height {height}"
    )
    if report.interlocked:
        plural = "s" if report.interlocked != 1 else ""
        lines.append(f"interlocked: {report.interlocked} item{plural} without a straight way out")
    if report.settled:
        lines.append(
            f"{report.settled} settled: each touches the solids below it and enters none; "
            f"{report.balanced} of them have their centre of mass over their contacts"
        )
    return lines
