"""The subcommand ``pack``: pack an order of parts and write the plan."""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Column

from agents.cli.commands import CONSTRAINTS
from agents.config.folders import ConfigError
from agents.loggers.console import PlainConsole, number_column, plain_table
from packing_env import planner
from packing_env.files import reason
from packing_env.planner.orders import ORDER_SUFFIXES, read_entries
from packing_env.planner.tables import OrderError, split_sheet
from packing_env.values import UNITS, read_unit

if TYPE_CHECKING:
    from packing_env.planner import Plan

HOLDS, VIOLATED = 0, 1
"""Exit codes."""
_CONSTRAINTS = tuple(
    argument.names[0].removeprefix("--").replace("-", "_") for argument in CONSTRAINTS
)


def pack(options: argparse.Namespace) -> int:
    """Pack parts, write the files, check the plans; the exit code is 1 if a check fails."""
    _check(options)
    if sys.stderr.isatty():  # how full containers are, while the search goes on
        logging.getLogger("packing_env.planner").setLevel(logging.INFO)
    from packing_env.plan import PlanError, check_plan

    types = planner.read_containers(options.container)
    parts = planner.read_parts(
        options.parts,
        options.unit,
        default=types[0].unit,
        container=max((kind.size for kind in types), key=max),
    )
    plan = planner.pack(
        parts,
        types,
        options.seconds,
        unit=options.unit,
        cell=options.cell,
        containers=options.containers,
        stability=options.stability,
        seed=options.seed,
        **{name: value for name in _CONSTRAINTS if (value := getattr(options, name)) is not None},
    )
    console = PlainConsole()
    _print(console, plan, [part.label for part in parts])
    try:
        files = planner.save(plan, options.out)
    except OSError as error:
        raise ConfigError(f"--out {options.out} cannot be written: {reason(error)}") from error
    code = HOLDS
    for file, packing in zip(files, plan.containers, strict=False):
        size = " x ".join(f"{side / UNITS[plan.unit]:g}" for side in packing.container)
        name = f"{packing.name}, " if packing.name else ""
        try:
            report = check_plan(file)
            verdict = "checked" if report.holds else f"REFUSED, {report.violation}"
            height = f"height {report.height / UNITS[plan.unit]:.4g} {plan.unit}"
        except PlanError as error:
            report, verdict, height = None, f"not checked: {error}", ""
        code = max(code, HOLDS if report is None or report.holds else VIOLATED)
        console.say(
            f"{file.name}: {name}{size} {plan.unit}, {len(packing.items)} parts, "
            f"{100 * packing.utilization:.1f} %, {height}, {verdict}",
        )
    console.say(f"wrote {options.out}: {', '.join(file.name for file in files)}")
    return code


def _check(options: argparse.Namespace) -> None:
    """Check units, sizes and files before torch and numba, which take seconds, are imported."""
    if options.unit is not None:
        options.unit = read_unit("--unit", options.unit)
    logging.disable()  # the lines of log come when the order is read to be packed
    try:
        planner.read_containers(options.container)
        for word in options.parts:
            path, sheet = split_sheet(word)
            if re.fullmatch(r"x\d+", word, re.IGNORECASE):
                continue
            if not path.exists():
                raise OrderError(f"{Path(word)}: no such file; check the path")
            if path.suffix.lower() in ORDER_SUFFIXES and path.is_file():
                read_entries(path, sheet)
    finally:
        logging.disable(logging.NOTSET)


def _print(console: PlainConsole, plan: Plan, names: Sequence[str]) -> None:
    """Print a table in the order of names, and what there is to say of the whole plan."""
    from packing_env.planner.reasons import NO_ROOM

    packed = Counter(item.name for packing in plan.containers for item in packing.items)
    left = {part.name: part for part in plan.left}
    headings = Column("part", no_wrap=True, max_width=40), number_column("packed")
    table = plain_table(*headings, number_column("left"), Column("why", overflow="fold"))
    for name in dict.fromkeys([*names, *packed, *left]):
        if name not in packed and name not in left:
            continue
        rest = left.get(name)
        cells = (str(rest.quantity), rest.reason) if rest else ("", "")
        table.add_row(name, str(packed[name]), *cells)
    console.print(table)
    count = len(plan.containers)
    console.say(
        f"packed {plan.num_packed} of {plan.num_packed + plan.num_left} parts in {count} "
        f"container{'s' * (count != 1)}, utilization {100 * plan.utilization:.1f} %; "
        f"{plan.tried:,} packing{'s' * (plan.tried != 1)} compared in {plan.seconds:.0f} s",
    )
    if plan.bound and any(part.reason == NO_ROOM for part in plan.left):
        volume = sum(item.volume for packing in plan.containers for item in packing.items)
        console.say(
            f"no plan packs more than {100 * plan.bound / plan.capacity:.1f} %: this one is within "
            f"{100 * (1 - volume / plan.bound):.1f} % of that bound",
        )
    if any(item.handling.get("weight") for packing in plan.containers for item in packing.items):
        weights = [
            sum(item.handling.get("weight", 0.0) for item in packing.items)
            for packing in plan.containers
        ]
        console.say("weight " + ", ".join(f"{weight:,.6g} kg" for weight in weights))
