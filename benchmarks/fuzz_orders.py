"""Fuzzing of orders of boxes: the reference judges every plan, and left-over boxes have a cause.

    python benchmarks/fuzz_orders.py [--count 10000] [--seed 0] [--seconds 0.05]

Each order has random boxes, quantities, handling, containers, constraints and a stability rule; it
is packed, saved, and checked by the reference program. The first plan that is refused ends the run
with exit status 1 and the order that shows it. Reasons are counted by their first word; those of a
weight limit and of boxes that are too large are verified by arithmetic.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance, write_json

from packing_env.plan import check_plan, save_plan
from packing_env.planner import Part, Plan, pack

STABILITIES = ("none", "com_hull", "com_hull_10", "com_hull_20", "stands")


def draw_parts(random: np.random.Generator) -> list[Part]:
    """Draw the boxes of an order, millimetres."""
    longest = int(random.choice([8, 40, 300]))
    parts = []
    for number in range(int(random.integers(1, 7))):
        sides = random.integers(1, longest + 1, 3)
        handling: dict[str, Any] = {"weight": float(random.integers(1, 40)) / 4}
        if random.random() < 0.3:
            handling["max_load"] = float(random.integers(0, 60)) / 2
        if random.random() < 0.2:
            handling["stackable"] = False
        if random.random() < 0.2:
            handling["fragile"] = True
        if random.random() < 0.2:
            handling["group"] = int(random.integers(0, 3))
        if random.random() < 0.15:
            handling["layers"] = int(random.integers(1, 4))
        if random.random() < 0.1:
            handling["on_like"] = True
        faces = [(), ("+z",), ("+z", "-z"), ("+x", "+y")][
            int(random.choice(4, p=[0.6, 0.2, 0.1, 0.1]))
        ]
        parts.append(
            Part(
                sides=tuple(side / 10 for side in sides.tolist()),
                unit="cm",
                name=f"box {number}",
                quantity=int(random.integers(1, 25)),
                handling=handling,
                faces=faces,
                turn=bool(random.random() < 0.8),
            )
        )
    return parts


def draw_order(random: np.random.Generator) -> dict[str, Any]:
    """Draw an order and what it is packed into."""
    parts = draw_parts(random)
    largest = max(float(max(part.sides or (1.0,))) for part in parts) / 100
    container = (largest * random.uniform(0.8, 4.0, 3)).round(3)
    options: dict[str, Any] = {}
    total = sum(part.quantity * float(part.handling["weight"]) for part in parts)
    drawn = {
        "weight_limit": float(round(total * random.uniform(0.2, 1.0), 2)),
        "balance": float(random.choice([0.02, 0.1, 0.3])),
        "clearance": float(random.choice([0.001, 0.0035])),
        "wall_clearance": float(random.choice([0.0, 0.002])),
        "support": float(random.choice([0.3, 0.7, 1.0])),
        "door": str(random.choice(["top", "rear", "side"])),
        "fragile": str(random.choice(["last", "top"])),
        "preplaced": [
            [0.0, 0.0, 0.0, *(container * random.uniform(0.1, 0.5, 3)).round(4).tolist()]
        ],
    }
    options |= {name: value for name, value in drawn.items() if random.random() < 0.25}
    kind = random.random()
    if kind < 0.25:
        options = _on_pallet(options, container, random)
    elif kind < 0.5:
        options |= {"cut": _cuts(options.get("door", "top"), container, random)}
    walls = options.get("wall_clearance", options.get("clearance", 0.0))
    if 2 * walls >= container[:2].min():
        options = {k: v for k, v in options.items() if not k.endswith("clearance")}
    return {
        "parts": parts,
        "container": tuple(container.tolist()),
        "stability": str(random.choice(STABILITIES)),
        "containers": int(random.integers(1, 4)),
    } | options


def _on_pallet(
    options: dict[str, Any], container: np.ndarray, random: np.random.Generator
) -> dict[str, Any]:
    """Return options with an overhang, which has no door and no walls."""
    overhang = (container[:2] * random.choice([0.0, 0.02, 0.2, 0.4], 2)).round(3)
    others = {name: value for name, value in options.items() if name != "door"}
    return others | {"overhang": overhang.tolist(), "wall_clearance": 0.0}


def _cuts(door: str, container: np.ndarray, random: np.random.Generator) -> list[list[Any]]:
    """Draw one or two parallel edges that are cut off, none at the door."""
    closed = {"rear": "+x", "side": "+y", "top": "+z"}[door]
    one, other = sorted(random.choice(3, 2, replace=False).tolist())
    edges = [f"{a}{'xyz'[one]}{b}{'xyz'[other]}" for a in "+-" for b in "+-"]
    chosen = random.permutation([e for e in edges if closed not in (e[:2], e[2:])])
    sides = container[[one, other]]
    return [
        [str(edge), *(sides * random.uniform(0.05, 0.45, 2)).round(3).clip(0.001).tolist()]
        for edge in chosen[: random.integers(1, 3)]
    ]


def check(plan: Plan, order: dict[str, Any], folder: Path) -> str:
    """Return what is wrong with a plan, or ""."""
    packed = Counter(item.name for packing in plan.containers for item in packing.items)
    left = {part.name: part for part in plan.left}
    for part in order["parts"]:
        rest = left[part.label].quantity if part.label in left else 0
        if packed[part.label] + rest != part.quantity:
            return f"{part.label}: {packed[part.label]} packed and {rest} left of {part.quantity}"
    for number, packing in enumerate(plan.containers):
        file = folder / f"plan-{number}.json"
        save_plan(file, packing)
        report = check_plan(file)
        if not report.holds:
            return f"container {number}: {report.violation}"
        if report.not_checked:
            return f"container {number}: not checked: {report.not_checked}"
    return _wrong_reason(plan, order)


def _wrong_reason(plan: Plan, order: dict[str, Any]) -> str:
    parts = {part.label: part for part in order["parts"]}
    for rest in plan.left:
        part = parts[rest.name]
        if not rest.reason:
            return f"{rest.name}: no reason"
        sides = [float(side) for side in part.exact_sides]
        fits = any(
            all(a <= b + 1e-12 for a, b in zip(turn, order["container"], strict=True))
            for turn in itertools.permutations(sides)
        )
        if (rest.reason == "fits in no orientation") == fits:
            return f"{rest.name}: {rest.reason}, but fits is {fits}"
        if rest.reason.startswith("weight_limit") and plan.containers:
            weights = [sum(i.handling["weight"] for i in p.items) for p in plan.containers]
            # One more box would be too heavy for one of the containers.
            room = min(order["weight_limit"] - weight for weight in weights)
            if room >= part.handling["weight"]:
                return f"{rest.name}: {rest.reason}, but {weights} kg of {order['weight_limit']}"
    return ""


def main() -> int:
    """Pack and check random orders; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--out", default="benchmarks/results/fuzz_orders.json")
    args = parser.parse_args()
    totals, started = Counter[str](), time.perf_counter()
    report: dict[str, Any] = provenance() | {"arguments": vars(args)}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.count):
            order = draw_order(np.random.default_rng([args.seed, number]))
            arguments = {k: v for k, v in order.items() if k != "parts"}
            try:
                plan = pack(order["parts"], seconds=args.seconds, **arguments)
            except ValueError as error:
                totals[f"refused: {str(error)[:30]}"] += 1
                continue
            totals["orders"] += 1
            totals["packed"] += plan.num_packed
            totals["left"] += plan.num_left
            for rest in plan.left:
                totals[f"reason {rest.reason.split(':')[0][:40]}"] += 1
            wrong = check(plan, order, Path(folder))
            if wrong:
                report["wrong"] = {"order": repr(order), "number": number, "what": wrong}
                print(f"WRONG, order {number}: {wrong}\n{order}", flush=True)
                write_json(args.out, report | {"totals": dict(totals)})
                return 1
            if number % 200 == 199:
                print(
                    number + 1, dict(totals), f"{time.perf_counter() - started:.0f} s", flush=True
                )
                write_json(args.out, report | {"totals": dict(totals)})
    seconds = time.perf_counter() - started
    write_json(args.out, report | {"totals": dict(totals), "seconds": seconds})
    return 0


if __name__ == "__main__":
    sys.exit(main())
