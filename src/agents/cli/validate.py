"""The subcommand ``validate``: run published protocols and compare with the published numbers.

:mod:`agents.cli.protocols` defines the protocols and the windows for our means.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from rich.table import Column, Table

from agents import heuristics
from agents.cli.protocols import Protocol, protocols
from agents.config.outputs import check_output
from agents.estimate import Estimate
from agents.loggers.console import PlainConsole, number_column, plain_table
from agents.training import runs
from agents.training.evaluate import evaluate
from packing_env import make_env

VERDICT = {True: "ok", False: "MISSED", None: ""}


@dataclass(frozen=True)
class Result:
    """Our measurement of one protocol and seed.

    Attributes:
        protocol: The protocol.
        seed: Seed of the instances.
        utilization: Mean, and half-width of the 95 % interval, as shares of 1.
        items: Mean number of items, and half-width of its 95 % interval.
        spread: Standard deviation of the utilization over instances.
        overflow: Number of proposals dropped for lack of capacity, summed over all episodes.
        seconds: Wall time.
    """

    protocol: Protocol
    seed: int
    utilization: Estimate
    items: Estimate
    spread: float
    overflow: int
    seconds: float

    def value(self, measure: str) -> float:
        """Return the measured value that a window checks."""
        return self.spread if measure == "spread" else getattr(self, measure).mean

    @property
    def passed(self) -> bool | None:
        """True if every window holds; None if there are no windows."""
        if not self.protocol.windows:
            return None
        holds = [window.holds(self.value(name)) for name, window in self.protocol.windows.items()]
        return all(holds) and self.overflow == 0


# ---------------------------------------------------------------------- measurements


def measure(protocol: Protocol, seed: int) -> Result:
    """Play all the protocol's instances at once, and measure the values that its windows check."""
    start = time.perf_counter()
    rows = protocol.instances
    env = make_env(
        protocol.task,
        num_envs=rows,
        seed=seed,
        pool_size=rows,
        draw="sequential",
        split="test",
        **protocol.options,
    )
    options: Any = {} if protocol.heuristic in heuristics.HEURISTICS else {"fallback": False}
    policy = heuristics.build(protocol.heuristic, env, **options)
    played = evaluate(env, policy, seed=seed)
    return Result(
        protocol,
        seed,
        played.estimate("utilization"),
        played.estimate("items_packed"),
        played.metrics["utilization"].std().item(),
        int(played.metrics["overflow"].sum()),
        time.perf_counter() - start,
    )


# ---------------------------------------------------------------------- tables


def table_of(results: Sequence[Result]) -> Table:
    """Tabulate our values next to the paper's."""
    numbers = map(number_column, ("seed", "utilization %", "paper", "accept"))
    cells = plain_table("", "setting: policy", *numbers, Column("", no_wrap=True))
    for result in results:
        protocol, ours = result.protocol, result.utilization
        window = protocol.windows.get("utilization")
        published = protocol.published.get("utilization")
        cells.add_row(
            protocol.name,
            f"{protocol.setting}: {protocol.heuristic}",
            str(result.seed),
            f"{100 * ours.mean:.1f}±{100 * ours.half_width:.1f}",
            f"{100 * published:.1f}" if published else "",
            f"{100 * window.centre:.1f}±{100 * window.half_width:.1f}" if window else "",
            VERDICT[result.passed],
        )
    return cells


# ---------------------------------------------------------------------- the command


def validate(options: argparse.Namespace) -> int:
    """Run the protocols and print the table; the exit code is 1 if a mean misses its window."""
    # 1. Check the options before the work begins.
    if options.json is not None:
        check_output(str(options.json), "--json")
    # 2. Play the protocols.
    start = time.perf_counter()
    work = list(product(range(options.seeds), protocols(options.full)))
    console = PlainConsole(at_least=120)
    results = []
    for number, (seed, protocol) in enumerate(work, 1):
        line = f"{protocol.name} {protocol.heuristic}: {protocol.setting} (seed {seed})"
        with console.working(f"[{number}/{len(work)}] {line}", always=True):
            results.append(measure(protocol, seed))
    seconds = time.perf_counter() - start
    # 3. Print the table and the verdict.
    console.print(table_of(results))
    machine, versions = runs.machine(), runs.versions()
    console.say(
        f"{machine['processor']}, {machine['torch_threads']} thread(s), torch {versions['torch']}"
    )
    misses = sum(one.passed is False for one in results)
    windows = f"{misses} WINDOWS WERE MISSED" if misses else "every window holds"
    console.say(f"{windows}; {seconds:.0f} s")
    # 4. Write the file.
    if options.json is not None:
        command = f"packing validate{' --full' if options.full else ''}"
        command += f" --seeds {options.seeds}" if options.seeds > 1 else ""
        report_file = {
            "command": command,
            "machine": machine,
            "versions": versions,
            "seconds": seconds,
            "windows_missed": misses,
            "results": [{**asdict(one), "passed": one.passed} for one in results],
        }
        runs.write_json(options.json, report_file)
        console.say(f"wrote {options.json}")
    return 1 if misses else 0
