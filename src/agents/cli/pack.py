"""The subcommands ``pack`` and ``nest``: pack an order of parts and write the plan."""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Column

from agents.cli.commands import CONSTRAINTS
from agents.config.folders import ConfigError
from agents.config.imports import imported
from agents.config.outputs import check_output
from agents.loggers.console import PlainConsole, number_column, plain_table
from packing_env import extras, planner
from packing_env.files import finished_first, read_bytes, reason, split_item
from packing_env.items.meshes.formats.gltf import check_glb
from packing_env.items.meshes.surface import named
from packing_env.planner.reading.columns import stated_columns
from packing_env.planner.reading.constraints import STABILITY, check_options
from packing_env.planner.reading.containers import check_costs, container_limit
from packing_env.planner.reading.orders import ORDER, ORDER_SUFFIXES, read_entries
from packing_env.planner.reading.tables import OrderError, split_count, split_sheet
from packing_env.values import UNITS, check_choice, check_number, read_unit

if TYPE_CHECKING:
    from packing_env.planner import Part, Plan

HOLDS, VIOLATED, UNREADABLE, INTERRUPTED = 0, 1, 2, 130
"""Exit codes; :mod:`.check` has the same."""
_MOST_ROWS = 100
"""Largest number of rows of the table; a longer one omits parts that are packed completely."""
_CONSTRAINTS = tuple(
    argument.names[0].removeprefix("--").replace("-", "_") for argument in CONSTRAINTS
)


def pack(options: argparse.Namespace) -> int:
    """Pack parts, write the files, check the plans; the exit code is 1 if a check fails."""
    if options.pdf:
        extras.check("matplotlib", "PDF files")
    check(options)
    own = {"choose": options.choose, "stability": options.stability}
    return _planned(options, planner.pack, ("packing_env.planner", "packing_env.plan.loading"), own)


def nest(options: argparse.Namespace) -> int:
    """Pack parts as a nest, write the files, check the plans; return 1 if a check fails."""
    extras.check("numba", "nests")
    check(options)
    from packing_env import nesting

    own = {"interlocking": options.allow_interlocking}
    own |= {"yaw": options.yaw, "lowest": options.lowest}
    return _planned(options, nesting.nest, ("packing_env.nesting",), own)


def _planned(
    options: argparse.Namespace,
    search: Callable[..., Plan],
    loggers: Iterable[str],
    own: Mapping[str, Any],
) -> int:
    """Search for a plan, print it, write its files and check them; ``own`` are further options."""
    from packing_env.planner.copies import complete_kits

    # 1. Search; on a terminal, log what is packed meanwhile.
    if sys.stderr.isatty():
        for name in loggers:
            logging.getLogger(name).setLevel(logging.INFO)
    types = planner.read_containers(options.container)
    unit, columns = types[0].unit, dict(options.columns)
    parts = planner.read_parts(options.parts, options.unit, default=unit, columns=columns)
    plan = search(
        planner.Fill(parts) if options.fill else parts,
        types,
        options.seconds,
        unit=options.unit,
        cell=options.cell,
        containers=options.containers,
        seed=options.seed,
        **constraints(options),
        **own,
    )
    # 2. Print what is packed, and write and check the files.
    console = PlainConsole()
    _print(console, plan, [part.label for part in parts])
    if plan.copies is not None:
        times = "1 copy" if plan.copies == 1 else f"{plan.copies:,} copies"
        console.say(f"filled with {times} of {_content(parts)}")
    else:
        for name, (complete, asked) in complete_kits(parts, plan).items():
            console.say(f"{name}: {complete} of {asked} kits complete")
    files: list[Path] = []
    try:
        with finished_first():
            files = _save(plan, options.out, getattr(options, "pdf", False))
        code = _check_files(console, plan, files)
    except KeyboardInterrupt:
        if not files:
            raise
        console.say("interrupted, so not all plans were checked; use packing check")
        code = INTERRUPTED
    console.say(f"wrote {options.out}: {', '.join(file.name for file in files)}")
    return code


def _save(plan: Plan, out: Path, pdf: bool) -> list[Path]:
    try:
        return planner.save(plan, out, pdf=pdf)
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written: {reason(error)}") from error


def _check_files(console: PlainConsole, plan: Plan, files: Sequence[Path]) -> int:
    """Check each container's plan and print its verdict; return the exit code."""
    from packing_env.plan import PlanError, check_plan

    code = HOLDS
    for file, packing in zip(files, plan.containers, strict=False):
        size = " x ".join(f"{side / UNITS[plan.unit]:g}" for side in packing.container)
        name = f"{packing.name}, " if packing.name else ""
        try:
            report = check_plan(file)
            verdict, result = "checked", HOLDS
            if not report.holds:
                verdict, result = f"REFUSED, {report.violation}", VIOLATED
            height = f"height {report.height / UNITS[plan.unit]:.4g} {plan.unit}"
        except PlanError as error:
            verdict, result, height = f"not checked: {error}", UNREADABLE, ""
        code = max(code, result)
        console.say(
            f"{file.name}: {name}{size} {plan.unit}, {_number_of_parts(len(packing.items))}, "
            f"{100 * packing.utilization:.1f} %, {height}, {verdict}",
        )
    return code


def check(options: argparse.Namespace) -> None:
    """Check units, sizes, options and files before the slow imports of torch and numba."""
    if options.unit is not None:
        options.unit = read_unit("--unit", options.unit)
    check_number("seconds", options.seconds, above=0.0)
    check_output(str(options.out), "--out", folder=True)
    if not imported():  # a user's package may register more rules
        check_choice("stability", getattr(options, "stability", "none"), STABILITY)
    logging.disable()  # reading the order again, for packing, repeats the log lines
    try:
        types = planner.read_containers(options.container)
        columns = stated_columns(dict(options.columns), ORDER)
        container_limit(types, options.containers)
        if getattr(options, "choose", None) == "cheapest":
            check_costs(types)
        asked, lacking = constraints(options), []
        for word in options.parts:
            entry, times = split_count(word)
            path, sheet = split_sheet(entry)
            if times is not None and not entry:
                continue
            if not split_item(path)[0].exists():
                raise OrderError(f"{Path(word)}: no such file; check the path")
            if path.suffix.lower() in ORDER_SUFFIXES and path.is_file():
                unit = options.unit or types[0].unit
                entries, _ = read_entries(path, sheet, columns, unit)
                if any("max_load" in entry.values for entry in entries):
                    asked["max_load"] = True
                lacking += [e.label for e in entries if "weight" not in e.values]
                _check_meshes(path.parent / e.values.get("file", "") for e in entries)
            else:
                _check_meshes([path, *path.rglob("*")])
        check_options(types, asked, lacking)
    finally:
        logging.disable(logging.NOTSET)


def _check_meshes(paths: Iterable[Path]) -> None:
    """Raise if a GLB file needs an extension that is not supported."""
    for path in paths:
        if path.suffix.lower() == ".glb" and path.is_file() and not path.name.startswith("._"):
            with named(path):
                check_glb(read_bytes(path))


def constraints(options: argparse.Namespace) -> dict[str, Any]:
    """Return the constraints that the command line states, as texts."""
    values = {name: getattr(options, name, None) for name in _CONSTRAINTS}
    return {name: value for name, value in values.items() if value is not None}


def _content(parts: Sequence[Part]) -> str:
    """Describe one copy of an order in words."""
    count = sum(part.quantity for part in parts)
    return parts[0].label if len(parts) == 1 else f"the order, {count} parts each"


def _number_of_parts(number: int) -> str:
    return f"{number} part{'s' * (number != 1)}"


def _print(console: PlainConsole, plan: Plan, names: Sequence[str]) -> None:
    """Print a table of parts in the order of ``names``, and remarks on the whole plan."""
    from packing_env.planner.reasons import NO_ROOM

    # 1. The table of parts; a long one has only the parts that are left over.
    packed = Counter(item.name for packing in plan.containers for item in packing.items)
    left = {part.name: part for part in plan.left}
    headings = Column("part", no_wrap=True, max_width=40), number_column("packed")
    table = plain_table(*headings, number_column("left"), Column("why", overflow="fold"))
    everything = dict.fromkeys([*names, *packed, *left])
    rows = [name for name in everything if name in packed or name in left]
    complete = [name for name in rows if name not in left] if len(rows) > _MOST_ROWS else []
    if complete:
        console.say(f"{len(complete):,} of {len(rows):,} kinds of parts are packed completely")
        rows = [name for name in rows if name in left]
    for name in rows:
        rest = left.get(name)
        cells = (str(rest.quantity), rest.reason) if rest else ("", "")
        table.add_row(name, str(packed[name]), *cells)
    if rows:
        console.print(table)
    # 2. The totals, and the bounds that the search proved.
    count, ordered = len(plan.containers), plan.num_packed + plan.num_left
    console.say(
        f"packed {plan.num_packed} of {_number_of_parts(ordered)} in {count} "
        f"container{'s' * (count != 1)}, utilization {100 * plan.utilization:.1f} %; "
        f"{plan.tried:,} packing{'s' * (plan.tried != 1)} compared in {plan.seconds:.0f} s",
    )
    if plan.cost is not None:
        known = plan.least_cost is not None
        bound = f"; no plan that packs all costs less than {plan.least_cost:g}" if known else ""
        console.say(f"cost {plan.cost:g}{bound}")
    if count > 1 and not plan.left and plan.least is not None:
        console.say(f"{count} containers; no plan needs fewer than {plan.least}")
    items = [item for packing in plan.containers for item in packing.items]
    value = sum(item.handling.get("value", 0.0) for item in items)
    if value:
        bound = f"; no plan packs a value of more than {plan.value_bound:,.6g}"
        console.say(f"value {value:,.6g}{bound if plan.left and plan.value_bound else ''}")
    elif plan.bound and any(part.reason == NO_ROOM for part in plan.left):
        gap = 100 * (1 - sum(item.volume for item in items) / plan.bound)
        near = f"is within {gap:.1f} % of" if gap > 1e-6 else "reaches"
        bound = f"{100 * plan.bound / plan.capacity:.1f} %"
        console.say(f"no plan packs more than {bound}: this one {near} that bound")
    # 3. The weight of each container.
    if any(item.handling.get("weight") for item in items):
        weights = [
            sum(item.handling.get("weight", 0.0) for item in packing.items)
            for packing in plan.containers
        ]
        unknown = sum("weight" not in item.handling for item in items)
        without = f"; not counted: {unknown:,} parts that state no weight" if unknown else ""
        console.say("weight " + ", ".join(f"{weight:,.6g} kg" for weight in weights) + without)
