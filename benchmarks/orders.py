"""Orders of boxes through `pack`: exact fits, cut containers, the loads of Bischoff and Ratcliff.

    python benchmarks/orders.py exact [--count 500] [--seconds 5]
    python benchmarks/orders.py cut [--count 20] [--seconds 10] [--stability com_hull]
    python benchmarks/orders.py loads --data br_container_loading.json [--seconds 5] [--support 1]

`exact`: orders of one carton, k x l x m of them (1 to 6 each) in a container with 0 to 4 mm to
spare, in millimetres, tenths of them, centimetres and sixteenths of an inch; all fit. `cut`:
containers of 1200 x 800 x 1000 mm that guillotine cuts divide into 20 to 60 boxes, so that 100 %
can be packed. `loads`: boxes with allowed vertical sides, 587 x 233 x 220 cm. Every plan is checked
by the reference program; one that is refused ends the run.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from provenance import provenance, write_json

from packing_env.plan import check_plan, save_plan
from packing_env.planner import Part, Plan, pack

UNITS = {"mm": Fraction(1, 1000), "cm": Fraction(1, 100), "in": Fraction(254, 10_000)}
MILLIMETRE = Fraction(1, 1000)
CUT = (1200, 800, 1000)


def checked(plan: Plan) -> Plan:
    """Return a plan after the reference has accepted it."""
    with tempfile.TemporaryDirectory() as folder:
        for packing in plan.containers:
            file = Path(folder) / "plan.json"
            save_plan(file, packing)
            report = check_plan(file)
            if not report.holds:
                raise RuntimeError(f"refused: {report.violation}")
    return plan


def exact_orders(count: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Pack orders of one carton that fit exactly or nearly so."""
    for seed in range(count):
        draw = random.Random(seed)
        unit = draw.choice(["mm", "cm", "in", "mm"])
        parts = {"mm": draw.choice([1, 10]), "cm": 10, "in": 16}[unit]
        low, high = {"mm": (30, 600), "cm": (3, 60), "in": (1, 25)}[unit]
        sides = [Fraction(draw.randint(low * parts, high * parts), parts) for _ in range(3)]
        repeats = [draw.randint(1, 6) for _ in range(3)]
        spare = [Fraction(draw.choice([0, draw.randint(0, 40)]), 10) for _ in range(3)]
        container = tuple(
            side * n * UNITS[unit] + more * MILLIMETRE
            for side, n, more in zip(sides, repeats, spare, strict=True)
        )
        number = repeats[0] * repeats[1] * repeats[2]
        a, b, c = draw.sample(sides, 3)
        start = time.perf_counter()
        plan = pack([Part(sides=(a, b, c), unit=unit, quantity=number)], container, seconds)
        taken = time.perf_counter() - start
        yield {"boxes": number, "packed": checked(plan).num_packed, "seconds": taken}


def cut_container(draw: random.Random, number: int) -> list[tuple[int, int, int]]:
    """Return the boxes that random cuts through whole pieces leave."""
    pieces = [CUT]
    while len(pieces) < number:
        pieces.sort(key=lambda piece: -piece[0] * piece[1] * piece[2])
        piece = list(pieces.pop(draw.randrange(min(4, len(pieces)))))
        axis = max(range(3), key=lambda a: piece[a] * draw.uniform(0.5, 1))
        at = round(piece[axis] * draw.uniform(0.3, 0.7))
        for length in (at, piece[axis] - at):
            part = [*piece]
            part[axis] = length
            pieces.append((part[0], part[1], part[2]))
    return pieces


def cut_orders(count: int, seconds: float, stability: str) -> Iterator[dict[str, Any]]:
    """Pack the pieces of containers that were cut."""
    for seed in range(count):
        draw = random.Random(seed)
        boxes = cut_container(draw, draw.randint(20, 60))
        parts = []
        for number, box in enumerate(boxes):
            a, b, c = draw.sample(box, 3)
            parts.append(Part(sides=(a, b, c), unit="mm", name=f"box {number}"))
        plan = checked(pack(parts, "1200x800x1000mm", seconds, stability=stability))
        yield {
            "boxes": len(boxes),
            "packed": plan.num_packed,
            "utilization": plan.utilization,
            "seconds": plan.seconds,
        }


def loads(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Pack the supplied loads, with the stability or the support that was asked for."""
    options: dict[str, Any] = {"stability": args.stability}
    if args.support is not None:
        options["support"] = args.support
    for load in json.loads(args.data.read_text())["instances"]:
        name = load["name"].split("_")[0]
        if args.classes and name not in args.classes:
            continue
        parts = [
            Part(
                sides=tuple(kind["dims"]),
                unit="cm",
                quantity=kind["count"],
                name=f"type {number}",
                faces=tuple(f"+{'xyz'[a]}" for a in range(3) if kind["vertical_ok"][a]),
            )
            for number, kind in enumerate(load["types"])
        ]
        container = "x".join(map(str, load["container"])) + "cm"
        plan = checked(pack(parts, container, args.seconds, **options))
        yield {
            "instance": load["name"],
            "class": name,
            "utilization": plan.utilization,
            "best_known": load["best_known_utilisation"],
            "seconds": plan.seconds,
        }


def summary(what: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the rows show together."""
    seconds = {
        "median_seconds": statistics.median(row["seconds"] for row in rows),
        "longest_seconds": max(row["seconds"] for row in rows),
    }
    if what != "loads":
        complete = sum(row["packed"] == row["boxes"] for row in rows)
        mean = [row["utilization"] for row in rows if "utilization" in row]
        extra = {"mean_utilization": statistics.fmean(mean)} if mean else {}
        return {"orders": len(rows), "complete": complete} | extra | seconds
    classes = {
        name: statistics.fmean(row["utilization"] for row in rows if row["class"] == name)
        for name in dict.fromkeys(row["class"] for row in rows)
    }
    means = {
        label: statistics.fmean([classes[name] for name in classes if name in names])
        for label, names in (
            ("BR1 to BR7", [f"BR{n}" for n in range(1, 8)]),
            ("BR8 to BR15", [f"BR{n}" for n in range(8, 16)]),
        )
        if any(name in names for name in classes)
    }
    return {"classes": classes, "means": means} | seconds


def main() -> None:
    """Run one of the measurements and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("exact", "cut", "loads"))
    parser.add_argument("--count", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--stability", default="com_hull")
    parser.add_argument("--support", type=float)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--classes", nargs="*", default=[])
    parser.add_argument("--out")
    args = parser.parse_args()
    pack([Part(sides=(1, 1, 1), quantity=2)], (1.0, 1.0, 2.0), 1.0)  # compiles
    if args.what == "exact":
        rows = list(exact_orders(args.count or 500, args.seconds))
    elif args.what == "cut":
        rows = list(cut_orders(args.count or 20, args.seconds, args.stability))
    else:
        rows = list(loads(args))
    total = summary(args.what, rows)
    print(json.dumps(total, indent=1))
    settings = {key: str(value) for key, value in vars(args).items()}
    out = args.out or f"benchmarks/results/orders_{args.what}.json"
    write_json(out, provenance() | {"arguments": settings, "summary": total, "rows": rows})


if __name__ == "__main__":
    main()
