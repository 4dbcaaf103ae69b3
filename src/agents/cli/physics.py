"""Output of the simulations of ``check`` and ``eval``: tables, lines and HTML pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from agents.estimate import Estimate
from agents.loggers.console import PlainConsole, number_column, plain_table
from agents.training.evaluate import Evaluation
from agents.training.process import StoppedError
from agents.training.runs import write_json
from packing_env.envs import PackingEnv
from packing_env.physics import PhysicsReport, PhysicsSettings, simulate
from packing_env.plan import Packing, settle

COLUMNS = (("utilization", 3), ("utilization_kept", 3), ("collapsed", 2), ("moved", 3))
"""Columns of :func:`physics_table` with their decimals; "moved" is a share of the placed items."""


def describe(report: PhysicsReport) -> list[str]:
    """Return the lines of ``packing check`` about a simulation."""
    settings = report.settings
    how = f"{settings.order}, friction {settings.friction:g}"
    how += ", walls" if settings.walls else ", no walls"
    counts = ", ".join(f"{report.count(what)} {what}" for what in ("moved", "toppled", "fallen"))
    verdict = "stands" if report.stands else "DOES NOT STAND"
    lines = [
        f"{verdict} in simulation ({how}): {counts} of {len(report.items)} items placed; "
        f"utilization {report.utilization:.4f}, kept {report.utilization_kept:.4f}"
    ]
    if report.first_failure is not None:
        lines.append(f"the first item to fail was number {report.first_failure + 1}")
    lines += [
        f"item {item.order} ({item.name}) moved {item.shift:.4f} m and turned {item.degrees:.0f} "
        f"degrees{', toppled' if item.toppled else ''}{', fell' if item.fallen else ''}"
        for item in report.items
        if item.moved
    ]
    if report.parts_error > settings.parts_error:
        lines.append(
            f"note: the volume of an item's convex parts differs from the item's volume by "
            f"{100 * report.parts_error:.0f} %, more than parts_error={settings.parts_error:g}"
        )
    return lines


def save_page(path: Path, packing: Packing, report: PhysicsReport) -> None:
    """Write an HTML page that shows the plan next to the items where they came to rest."""
    from packing_env.render import save_html

    save_html(path, [packing, report.settled], title="The plan, and where its items came to rest")


def save_all(
    folder: Path, reports: Mapping[str, list[PhysicsReport]], packing: Packing, policy: str
) -> list[Path]:
    """Write ``physics.json``, and a page of a policy's first packing; return their paths."""
    written = [folder / "physics.json", folder / "physics.html"]
    write_json(written[0], to_json(reports))
    save_page(written[1], settle(packing), reports[policy][0])
    return written


def simulate_all(
    evaluations: Mapping[str, Evaluation],
    env: PackingEnv,
    settings: PhysicsSettings,
    console: PlainConsole,
    should_stop: Callable[[], bool],
) -> dict[str, list[PhysicsReport]]:
    """Simulate the packings that evaluations stored, and print a table.

    Raises:
        StoppedError: ``should_stop`` returned True.
    """
    reports: dict[str, list[PhysicsReport]] = {}
    for name, evaluation in evaluations.items():
        packings = evaluation.packings(env)
        reports[name] = []
        with console.working(f"simulating {len(packings)} packings of {name}"):
            for packing in packings:
                if should_stop():
                    raise StoppedError("the simulation was stopped")
                reports[name].append(simulate(settle(packing), settings))
    console.print(physics_table(reports, settings))
    return reports


def estimates(reports: list[PhysicsReport]) -> dict[str, Estimate]:
    """Return the means of :data:`COLUMNS` with their intervals."""
    values = {
        "utilization": [r.utilization for r in reports],
        "utilization_kept": [r.utilization_kept for r in reports],
        "collapsed": [float(not r.stands) for r in reports],
        "moved": [r.count("moved") / max(1, len(r.items)) for r in reports],
    }
    return {
        name: Estimate.of(torch.tensor(column, dtype=torch.float64))
        for name, column in values.items()
    }


def physics_table(reports: Mapping[str, list[PhysicsReport]], settings: PhysicsSettings) -> Table:
    """Tabulate the simulations of each policy."""
    walls = "walls" if settings.walls else "no walls"
    title = f"simulated in MuJoCo: {settings.order}, {walls}, friction {settings.friction:g}"
    headings = ("utilization", "kept", "collapsed\npiles", "items\nmoved")
    grid = plain_table("policy", *map(number_column, headings), title=title)
    for name, simulated in reports.items():
        means = estimates(simulated)
        grid.add_row(name, *(means[column].text(decimals) for column, decimals in COLUMNS))
    return grid


def to_json(reports: Mapping[str, list[PhysicsReport]]) -> dict[str, Any]:
    """Return the simulations as JSON: means and intervals, and each packing's report."""
    return {
        name: {
            "summary": {key: vars(value) for key, value in estimates(simulated).items()},
            "packings": [report.to_json() for report in simulated],
        }
        for name, simulated in reports.items()
    }
