"""The subcommand ``validate``: run published protocols and compare with the published numbers.

:mod:`agents.cli.protocols` defines the protocols and the windows for our means.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from rich.table import Column, Table

from agents import heuristics
from agents.cli.protocols import DISCRIMINATING, STRICTER, Protocol, ordering_protocols, protocols
from agents.loggers.console import PlainConsole, number_column, plain_table
from agents.loggers.progress import progress_of_jobs
from agents.training import runs
from agents.training.evaluate import Estimate, Evaluation, evaluate, paired_difference
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


@dataclass(frozen=True)
class Ordering:
    """V5: paired differences between stability rules on the same instances.

    Attributes:
        heuristic: The policy.
        seed: Seed of the instances.
        instances: N.
        lower: Rule that should pack less.
        higher: Rule that should pack more.
        difference: ``higher - lower`` in utilization, 95 % interval.
        judged: Whether the difference is expected.
    """

    heuristic: str
    seed: int
    instances: int
    lower: str
    higher: str
    difference: Estimate
    judged: bool

    @property
    def passed(self) -> bool | None:
        """True if the interval lies above 0; None if no difference is expected."""
        if not self.judged:
            return None
        return self.difference.mean - self.difference.half_width > 0


# ---------------------------------------------------------------------- measurements


def measure(protocol: Protocol, seed: int) -> tuple[Result, Evaluation]:
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
    result = Result(
        protocol,
        seed,
        played.estimate("utilization"),
        played.estimate("items_packed"),
        played.metrics["utilization"].std().item(),
        int(played.metrics["overflow"].sum()),
        time.perf_counter() - start,
    )
    return result, played


def pieces(seeds: Iterable[int], full: bool = False) -> list[tuple[Protocol, int]]:
    """Return every protocol with every seed of its instances."""
    work: list[tuple[Protocol, int]] = []
    for seed in seeds:
        work += [(protocol, seed) for protocol in protocols(full)]
        for heuristic in DISCRIMINATING:
            work += [(one, seed) for one in ordering_protocols(heuristic, full).values()]
    return work


def run(
    work: Sequence[tuple[Protocol, int]], report: Callable[[str], None] = lambda line: None
) -> tuple[list[Result], list[Ordering]]:
    """Play protocols; return our measurements, and the differences of V5.

    Args:
        work: See :func:`pieces`.
        report: Function that receives a line of text before each protocol.
    """
    results: list[Result] = []
    evaluations: list[Evaluation] = []
    for protocol, seed in work:
        report(f"{protocol.name} {protocol.heuristic}: {protocol.setting} (seed {seed})")
        result, played = measure(protocol, seed)
        results.append(result)
        evaluations.append(played)
    return results, _orderings(results, evaluations)


def _orderings(results: Sequence[Result], played: Sequence[Evaluation]) -> list[Ordering]:
    groups: dict[tuple[int, str], dict[str, Evaluation]] = {}
    for result, evaluation in zip(results, played, strict=True):
        protocol = result.protocol
        if protocol.name == "V5":
            rule = protocol.options["stability"]
            groups.setdefault((result.seed, protocol.heuristic), {})[rule] = evaluation
    orderings: list[Ordering] = []
    for (seed, heuristic), by_rule in groups.items():
        # The rules are in order, the strictest first.
        for lower, higher in combinations(by_rule, 2):
            orderings.append(
                Ordering(
                    heuristic,
                    seed,
                    instances=len(by_rule[lower]),
                    lower=lower,
                    higher=higher,
                    difference=paired_difference(by_rule[higher], by_rule[lower]),
                    judged=(lower, higher) in STRICTER,
                )
            )
    return orderings


# ---------------------------------------------------------------------- tables


def tables(results: Sequence[Result], orderings: Sequence[Ordering]) -> list[Table]:
    """Tabulate our values next to the paper's, and the paired differences of V5."""
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
    numbers = map(number_column, ("seed", "points"))
    pairs = plain_table("V5: paired differences of utilization", *numbers, "")
    for pair in orderings:
        difference = pair.difference
        pairs.add_row(
            f"{pair.heuristic}: {pair.higher} - {pair.lower}",
            str(pair.seed),
            f"{100 * difference.mean:+.2f}±{100 * difference.half_width:.2f}",
            VERDICT[pair.passed],
        )
    return [cells, pairs]


# ---------------------------------------------------------------------- the command


def validate(options: argparse.Namespace) -> int:
    """Run the protocols and print the tables; the exit code is 1 if a published window is missed.

    V5 has no published cell: if an ordering is not confirmed, this is printed, but does not count
    as a miss.
    """
    # 1. Check the options before the work begins.
    if options.json is not None:
        try:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.touch()
        except OSError as error:
            raise runs.RunFolderError(f"{options.json} cannot be written: {error}") from error
    # 2. Play the protocols.
    start = time.perf_counter()
    work = pieces(range(options.seeds), options.full)
    console = PlainConsole(at_least=120)
    with progress_of_jobs(console) as progress:
        bar = progress.add_task("", total=len(work))

        def report(line: str) -> None:
            progress.update(bar, description=line[:60], advance=1)
            if not console.is_terminal:
                console.say(line)

        results, orderings = run(work, report)
    seconds = time.perf_counter() - start
    # 3. Print the tables and the verdict.
    for table in tables(results, orderings):
        console.print(table)
    machine, versions = runs.machine(), runs.versions()
    console.say(
        f"{machine['processor']}, {machine['torch_threads']} thread(s), torch {versions['torch']}"
    )
    misses = sum(one.passed is False for one in results)
    windows = f"{misses} WINDOWS WERE MISSED" if misses else "every window holds"
    judged = [pair.passed for pair in orderings if pair.judged]
    console.say(
        f"{windows}; V5 shows {sum(map(bool, judged))} of the {len(judged)} orderings that it "
        f"expects (no published cell: the exit code leaves them out); {seconds:.0f} s"
    )
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
            "orderings": [{**asdict(one), "passed": one.passed} for one in orderings],
        }
        runs.write_json(options.json, report_file)
        console.say(f"wrote {options.json}")
    return 1 if misses else 0
