"""Orders of boxes through `pack`: exact fits, cut containers, published loads, deliveries.

    python benchmarks/orders.py exact [--count 500] [--seconds 5]
    python benchmarks/orders.py cut [--count 20] [--seconds 10] [--rules com_hull]
    python benchmarks/orders.py loads [--count 2] [--seconds 5] [--rules none com_hull full]
    python benchmarks/orders.py stops [--count 10] [--seconds 5] [--rules rear side top]

- `exact`: orders of k x l x m equal cartons (1 to 6 each) for a container with 0 to 4 mm to spare,
  in millimetres, tenths of a millimetre, centimetres and sixteenths of an inch; all cartons fit.
- `cut`: containers of 1200 x 800 x 1000 mm that guillotine cuts divide into 20 to 60 boxes, so
  100 % can be packed.
- `loads`: boxes with allowed vertical sides in 587 x 233 x 220 cm, `--count` loads of each class,
  drawn by `bischoff_ratcliff.py`; `--data br_container_loading.json` compares the loads with
  published files. The rule `full` requires full support (`--support 1`); other rules are values of
  `--stability`.
- `stops`: 8 to 60 random kinds of boxes of 25 to 80 cm for three stops, in a container of
  12 x 2.4 x 2.4 m; `--rules` names its door. The boxes fill half of the container, or 1.2
  containers. In every second order, nothing may rest on the boxes of 30 % of the kinds.

The reference program checks every plan; a refused plan ends the run. Rows are written one by one,
so the same command continues an interrupted run unless `--fresh` is set.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from bischoff_ratcliff import CONTAINER, Kind, draw_load
from provenance import provenance, write_json

from packing_env.plan import check_plan, save_plan
from packing_env.planner import Part, Plan, pack

UNITS = {"mm": Fraction(1, 1000), "cm": Fraction(1, 100), "in": Fraction(254, 10_000)}
MILLIMETRE = Fraction(1, 1000)
CUT = (1200, 800, 1000)
TRAILER = (1200, 240, 240)

Row = dict[str, Any]
Runs = Iterator[tuple[Row, Callable[[], Row]]]
"""Descriptions of runs, each with a function that returns its result."""


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


def exact_orders(count: int, seconds: float) -> Runs:
    """Yield orders of one carton that fit exactly or nearly so."""
    for seed in range(count):
        yield {"seed": seed}, partial(pack_exact, seed, seconds)


def pack_exact(seed: int, seconds: float) -> Row:
    """Pack an order of one carton."""
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
    return {"boxes": number, "packed": checked(plan).num_packed, "seconds": taken}


def cut_container(draw: random.Random, number: int) -> list[tuple[int, int, int]]:
    """Return the boxes into which random guillotine cuts divide the container."""
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


def cut_orders(count: int, seconds: float, rules: list[str]) -> Runs:
    """Yield the runs that pack the pieces of a container cut at random."""
    for seed, name in itertools.product(range(count), rules):
        yield {"seed": seed, "rules": name}, partial(pack_cut, seed, seconds, name)


def pack_cut(seed: int, seconds: float, rules: str) -> Row:
    """Pack the pieces of one container cut at random."""
    draw = random.Random(seed)
    boxes = cut_container(draw, draw.randint(20, 60))
    parts = []
    for number, box in enumerate(boxes):
        a, b, c = draw.sample(box, 3)
        parts.append(Part(sides=(a, b, c), unit="mm", name=f"box {number}"))
    plan = checked(pack(parts, "1200x800x1000mm", seconds, **options(rules)))
    return {
        "boxes": len(boxes),
        "packed": plan.num_packed,
        "utilization": plan.utilization,
        "seconds": plan.seconds,
    }


def options(rules: str) -> dict[str, Any]:
    """Return the arguments of `pack` for a value of `--rules`."""
    return {"stability": "none", "support": 1.0} if rules == "full" else {"stability": rules}


def loads(count: int, seconds: float, rules: list[str], data: Path | None) -> Runs:
    """Yield the first load of every class, then the second ones, and so on.

    Raises:
        RuntimeError: A supplied load differs from the drawn one.
    """
    supplied = json.loads(data.read_text())["instances"] if data else []
    named = {load["name"]: load for load in supplied}
    for instance, number, name in itertools.product(range(1, count + 1), range(1, 16), rules):
        kinds = draw_load(number, instance)
        load = named.get(f"BR{number}_{instance:03}")
        if load and kinds != [
            (tuple(kind["dims"]), tuple(map(bool, kind["vertical_ok"])), kind["count"])
            for kind in load["types"]
        ]:
            raise RuntimeError(f"{load['name']} is not the load that is drawn")
        row = {"class": f"BR{number}", "instance": instance, "rules": name}
        yield row, partial(pack_load, kinds, seconds, name)


def pack_load(kinds: list[Kind], seconds: float, rules: str) -> Row:
    """Pack a load."""
    parts = [
        Part(
            sides=kind.sides,
            unit="cm",
            quantity=kind.quantity,
            name=f"type {number}",
            faces=tuple(f"+{axis}" for axis, may in zip("xyz", kind.upright, strict=True) if may),
        )
        for number, kind in enumerate(kinds)
    ]
    plan = checked(pack(parts, "x".join(map(str, CONTAINER)) + "cm", seconds, **options(rules)))
    return {"utilization": plan.utilization, "seconds": plan.seconds}


def deliveries(count: int, seconds: float, rules: list[str]) -> Runs:
    """Yield orders for three stops."""
    for seed, name, share, stacked in itertools.product(
        range(count), rules, (0.5, 1.2), (True, False)
    ):
        row = {"seed": seed, "rules": name, "share": share, "stackable": stacked}
        yield row, partial(pack_delivery, seed, name, share, stacked, seconds)


def pack_delivery(seed: int, rules: str, share: float, stackable: bool, seconds: float) -> Row:
    """Pack an order for three stops."""
    draw = random.Random(seed)
    number, volume = draw.randint(8, 60), math.prod(TRAILER)
    parts = []
    for kind in range(number):
        sides = (draw.randint(25, 80), draw.randint(25, 80), draw.randint(25, 80))
        quantity = max(1, round(share * volume / number / math.prod(sides)))
        handling = {"group": 1 + kind % 3}
        if not stackable and draw.random() < 0.3:
            handling["stackable"] = False
        parts.append(
            Part(sides=sides, unit="cm", name=f"{kind}", quantity=quantity, handling=handling)
        )
    plan = checked(pack(parts, "x".join(map(str, TRAILER)) + "cm", seconds, door=rules))
    ordered = sum(part.quantity * math.prod(part.sides) for part in parts if part.sides)
    possible = min(1.0, ordered / volume)
    return {"packed": plan.utilization / possible, "seconds": plan.seconds}


def summary(what: str, rows: list[Row]) -> Row:
    """Summarize the rows."""
    total: Row = {
        "median_seconds": statistics.median(row["seconds"] for row in rows),
        "longest_seconds": max(row["seconds"] for row in rows),
    }
    if what == "exact":
        return {"orders": len(rows), "complete": complete(rows)} | total
    if what == "stops":
        return total | deliveries_summary(rows)
    for name in dict.fromkeys(row["rules"] for row in rows):
        mine = [row for row in rows if row["rules"] == name]
        total[name] = loads_summary(mine) if what == "loads" else cut_summary(mine)
    return total


def complete(rows: list[Row]) -> int:
    """Return the number of completely packed orders."""
    return sum(row["packed"] == row["boxes"] for row in rows)


def cut_summary(rows: list[Row]) -> Row:
    """Summarize the rows of cut containers."""
    mean = statistics.fmean(row["utilization"] for row in rows)
    return {"orders": len(rows), "complete": complete(rows), "mean_utilization": mean}


def deliveries_summary(rows: list[Row]) -> Row:
    """Return the mean packed share of each kind of order."""
    kinds: dict[str, list[float]] = {}
    for row in rows:
        stackable = "all stackable" if row["stackable"] else "70 % stackable"
        kinds.setdefault(f"{row['rules']}, {row['share']}, {stackable}", []).append(row["packed"])
    return {kind: statistics.fmean(packed) for kind, packed in kinds.items()}


def loads_summary(rows: list[Row]) -> Row:
    """Return the mean of each class, and the means over the classes of each paper."""
    classes = {
        name: statistics.fmean(row["utilization"] for row in rows if row["class"] == name)
        for name in dict.fromkeys(row["class"] for row in rows)
    }
    early = [mean for name, mean in classes.items() if int(name[2:]) <= 7]
    late = [mean for name, mean in classes.items() if int(name[2:]) >= 8]
    means = {"BR1 to BR7": early, "BR8 to BR15": late}
    return {"loads": len(rows), "classes": classes} | {
        label: statistics.fmean(values) for label, values in means.items() if values
    }


def runs_of(args: argparse.Namespace) -> Runs:
    """Return the requested runs."""
    if args.what == "exact":
        return exact_orders(args.count or 500, args.seconds)
    if args.what == "cut":
        return cut_orders(args.count or 20, args.seconds, args.rules or ["com_hull"])
    if args.what == "stops":
        return deliveries(args.count or 10, args.seconds, args.rules or ["rear", "side", "top"])
    rules = args.rules or ["none", "com_hull", "full"]
    return loads(args.count or 2, args.seconds, rules, args.data)


def main() -> None:
    """Run one of the measurements and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("exact", "cut", "loads", "stops"))
    parser.add_argument("--count", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rules", nargs="*")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--fresh", action="store_true", help="discard existing rows")
    parser.add_argument("--out")
    args = parser.parse_args()
    out = args.out or f"benchmarks/results/orders_{args.what}.json"
    runs = list(runs_of(args))
    # 1. Read existing rows whose searches had the same time.
    rows = known_rows(Path(out), args)
    pack([Part(sides=(1, 1, 1), quantity=2)], (1.0, 1.0, 2.0), 1.0)  # compiles
    # 2. Run the other rows, and write the file after each.
    settings = {key: str(value) for key, value in vars(args).items()}
    ready = [what_ran(old, runs[0][0]) for old in rows]
    for row, run in runs:
        if row not in ready:
            head = provenance() | {"arguments": settings}
            rows.append(row | run() | {"revision": head["revision"]})
            print(rows[-1], flush=True)
            write_json(out, head | {"summary": summary(args.what, rows), "rows": rows})
    print(json.dumps(summary(args.what, rows), indent=1))


def known_rows(out: Path, args: argparse.Namespace) -> list[Row]:
    """Return the rows of a file with their revisions, if its searches had as much time."""
    if args.fresh or not out.exists():
        return []
    before = json.loads(out.read_text())
    if before["arguments"]["seconds"] != str(args.seconds):
        return []
    return [{"revision": before["revision"]} | row for row in before["rows"]]


def what_ran(row: Row, like: Row) -> Row:
    """Return the description of a run without its result."""
    return {key: row.get(key) for key in like}


if __name__ == "__main__":
    main()
