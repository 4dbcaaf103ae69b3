"""The subcommand ``nest``: nest parts in three dimensions and write the plan."""

from __future__ import annotations

import argparse
import logging
import sys

from agents.cli.pack import check, constraints, finish, read_order
from packing_env import extras, planner


def nest(options: argparse.Namespace) -> int:
    """Pack parts as a nest, write the files, check the plans; return 1 if a check fails."""
    extras.check("numba", "nests")
    check(options)
    if sys.stderr.isatty():  # log what is nested during the search
        logging.getLogger("packing_env.nesting").setLevel(logging.INFO)
    from packing_env import nesting

    types, parts = read_order(options)
    plan = nesting.nest(
        planner.Fill(parts) if options.fill else parts,
        types,
        options.seconds,
        unit=options.unit,
        cell=options.cell,
        containers=options.containers,
        yaw=options.yaw,
        lowest=options.lowest,
        interlocking=options.allow_interlocking,
        seed=options.seed,
        **constraints(options),
    )
    return finish(plan, parts, options)
