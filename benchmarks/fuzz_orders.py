"""Fuzzing of orders: the reference judges every plan, and every reason for a left-over part.

    python benchmarks/fuzz_orders.py [--count 10000] [--seed 0] [--minutes 14] [--resume]

Each order has random parts, quantities, handling, containers, constraints and a stability rule
(:mod:`random_orders`). Some orders are kits, are packed as often as they fit, or have meshes. Each
order is packed, saved, and checked by the reference program. Then the reference program tries to
add one more of each left-over part to the finished loads (:mod:`left_overs`,
:mod:`left_overs_on_grid`), and to containers that the order may still use. These statements must be
true:

- No place satisfies all constraints; otherwise the planner should have used this place.
- If the reason names constraints, the part has a place without them, or a search without them packs
  more.
- "No room found": the part has no free place even without constraints.
- "Fits in no orientation", "too heavy" and similar reasons are true by arithmetic.
- "together": a box has a place alone, but no container has room for the rest of its set.

Orders with a refused plan or a wrong reason are printed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from provenance import provenance, write_json
from random_orders import Order, draw_order
from verified_reasons import packed, reasons_of

from packing_env.plan import check_plan, save_plan
from packing_env.planner import Plan


def check(plan: Plan, order: Order, folder: Path) -> str:
    """Return the first error of a plan, or ""."""
    count = Counter(_base(item.name) for packing in plan.containers for item in packing.items)
    left = Counter[str]()
    for rest in plan.left:
        left[_base(rest.name)] += rest.quantity
    quantities = Counter[str]()
    for part in order["parts"]:
        quantities[_base(part.label)] += part.quantity
    if plan.copies is not None:
        alone = len(order["parts"]) == 1
        quantities = Counter({k: plan.copies * (1 if alone else n) for k, n in quantities.items()})
    for name, number in quantities.items():
        if count[name] + left[name] != number:
            return f"{name}: {count[name]} packed and {left[name]} left of {number}"
    for number, packing in enumerate(plan.containers):
        file = folder / f"plan-{number}.json"
        save_plan(file, packing)
        report = check_plan(file)
        if not report.holds:
            return f"container {number}: {report.violation}"
        if report.not_checked:
            return f"container {number}: not checked: {report.not_checked}"
    return ""


def _base(name: str) -> str:
    """Return a name without the numbers of its copies."""
    return re.sub(r"(#\d+)+$", "", name)


def run(args: argparse.Namespace, totals: Counter[str], wrong: list[str], folder: Path) -> None:
    """Pack and check orders until the count or the time is reached; add the errors to ``wrong``."""
    started = time.perf_counter()
    before = totals["seconds"]
    while totals["orders"] < args.count and time.perf_counter() - started < args.minutes * 60:
        number = totals["tried"]
        totals["tried"] += 1
        order = draw_order(np.random.default_rng([args.seed, number]), folder)
        error = judge(order, args.seconds, totals, folder)
        totals["seconds"] = before + int(time.perf_counter() - started)
        if error:
            print(f"WRONG, order {number}: {error}\n{order}", flush=True)
            wrong.append(f"order {number}: {error}")
        if number % 200 == 199:
            print(number + 1, f"{time.perf_counter() - started:.0f} s", flush=True)
            write(args, totals, wrong)


def judge(order: Order, seconds: float, totals: Counter[str], folder: Path) -> str:
    """Pack and check an order; return the first error."""
    try:
        plan = packed(order, seconds)
    except ValueError as error:
        totals[f"refused: {re.split('[=:]| fits', str(error))[0]}"] += 1
        return ""
    totals["orders"] += 1
    totals["packed"] += plan.num_packed
    totals["left over"] += plan.num_left
    totals["orders on a grid"] += "cell" in order
    totals["orders packed as often as they fit"] += plan.copies is not None
    totals["orders of kits"] += any(part.kit for part in order["parts"])
    reasons = reasons_of(plan, order)
    wrong = check(plan, order, folder) or reasons.wrong()
    totals.update(reasons.verdicts)
    return wrong


def write(args: argparse.Namespace, totals: Counter[str], wrong: list[str]) -> None:
    """Write the results so far."""
    report = provenance() | {"arguments": {"seed": args.seed, "seconds": args.seconds}}
    write_json(args.out, report | {"wrong": wrong, "totals": dict(sorted(totals.items()))})


def main() -> int:
    """Pack and check random orders; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="orders that are not refused")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--minutes", type=float, default=1e9, help="longest time of this run")
    parser.add_argument("--resume", action="store_true", help="continue the run in the file --out")
    parser.add_argument("--out", default="benchmarks/results/fuzz_orders.json")
    args = parser.parse_args()
    logging.disable(logging.WARNING)  # warnings about parts that do not fit
    totals, wrong = Counter[str](), list[str]()
    if args.resume and Path(args.out).exists():
        before = json.loads(Path(args.out).read_text())
        totals.update(before["totals"])
        wrong += before["wrong"]
    with tempfile.TemporaryDirectory() as folder:
        run(args, totals, wrong, Path(folder))
    write(args, totals, wrong)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
