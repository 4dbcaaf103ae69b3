"""Fuzzing of orders of boxes: the reference judges every plan, and left-over boxes have a cause.

    python benchmarks/fuzz_orders.py [--count 10000] [--seed 0] [--minutes 14] [--resume]

Each order has random boxes, quantities, handling, containers, constraints and a stability rule. It
is packed, saved, and checked by the reference program. Then the reference program tries to add one
more of each left-over box to the finished loads (:mod:`left_overs`):

- No place satisfies all constraints; otherwise the planner should have used this place.
- If the reason names constraints, the box has a place without them, or more boxes are packed.
- "No room found": the box has no free place even without constraints.
- "Fits in no orientation" is true by arithmetic.

The first refused plan or wrong reason ends the run with exit status 1 and prints the order.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import left_overs
import numpy as np
from left_overs import OF_BOXES, WITHOUT
from provenance import provenance, write_json

from packing_env.plan import check_plan, save_plan
from packing_env.planner import LeftOver, Part, Plan, pack
from packing_env.planner.reasons import (
    NO_ROOM,
    NOT_TRIED,
    OTHER_FACE,
    OTHER_TURN,
    TOO_HEAVY,
    TOO_LARGE,
)

STABILITIES = ("none", "com_hull", "com_hull_10", "com_hull_20", "stands")

_FITS = {
    TOO_LARGE: [False, False, False],
    OTHER_TURN: [False, True, True],
    OTHER_FACE: [False, False, True],
}
"""Whether a box fits as ordered, if it may be turned, and if it may also lie on any face."""


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
                quantity=int(random.integers(1, 13)),
                handling=handling,
                faces=faces,
                turn=bool(random.random() < 0.8),
            )
        )
    return parts


def draw_order(random: np.random.Generator) -> dict[str, Any]:
    """Draw an order with containers and constraints."""
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
    """Return the first error of a plan, or ""."""
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
    return ""


class Reasons:
    """The reasons of a plan's left-over boxes, tested one by one with the reference program.

    Attributes:
        verdicts: How each reason was verified, and how often.
    """

    def __init__(self, plan: Plan, order: dict[str, Any]) -> None:
        self.verdicts = Counter[str]()
        self._plan, self._order = plan, order
        self._parts = {part.label: part for part in order["parts"]}
        self._walls_too = "wall_clearance" not in order
        self._loads = [left_overs.finished(packing) for packing in plan.containers]

    def wrong(self) -> str:
        """Return the first wrong reason, or ""."""
        return next(filter(None, map(self._wrong, self._plan.left)), "")

    def _wrong(self, rest: LeftOver) -> str:
        part, reason = self._parts[rest.name], rest.reason
        what = f"{rest.name}: {reason}"
        # 1. Test sizes by arithmetic.
        turned = replace(part, turn=True)
        fits = [self._fits(each) for each in (part, turned, replace(turned, faces=()))]
        if reason in _FITS:
            self.verdicts[f"{reason}: true by arithmetic"] += 1
            return "" if fits == _FITS[reason] else f"{what}, but fits is {fits}"
        if not fits[0]:
            return f"{what}, but it does not fit"
        if not reason or not self._loads:
            return f"{what}, and nothing is packed" if not reason else ""
        if reason == NOT_TRIED:
            self.verdicts["not tried in time"] += 1
            return ""
        # 2. No place may satisfy all constraints.
        box = self._place(part, [])
        if box:
            return f"{what}, but it has a place: {box}"
        # 3. Without the named constraints there must be a place; if none is named, there must be no
        # place even without constraints.
        none = reason == NO_ROOM
        names = [*WITHOUT, *OF_BOXES] if none else [w.split(":")[0] for w in reason.split("; ")]
        names = ["weight_limit"] if reason == TOO_HEAVY else names
        box = self._place(part, names, alone=not none)
        if none:
            self.verdicts[f"{reason}: no free place"] += 1
            return f"{what}, but without constraints there is a place: {box}" if box else ""
        label = " and ".join(names) if len(names) < 3 else "three or more constraints"
        if box:
            self.verdicts[f"{label}: a place without"] += 1
        elif self._packs_more(part, names, rest.quantity):
            self.verdicts[f"{label}: more are packed without"] += 1
        else:
            self.verdicts[f"{label}: not confirmed"] += 1
        return ""

    def _fits(self, part: Part) -> bool:
        unit = 1e-6
        room = [round(side / unit) for side in self._order["container"]]
        return any(
            all(a <= b for a, b in zip(sides, room, strict=True))
            for sides in left_overs.orientations(part, unit)
        )

    def _place(self, part: Part, names: list[str], alone: bool = False) -> Any:
        """Return a place for one more box in a load, or alone, without some constraints."""
        empty = [replace(self._loads[0], items=[])]
        loads = [*self._loads, *(empty if alone else [])]
        places = (left_overs.place(load, part, names, self._walls_too) for load in loads)
        return next(filter(None, places), None)

    def _packs_more(self, part: Part, names: list[str], left: int) -> bool:
        """Return whether a container takes more of a part without some constraints."""
        options = {k: v for k, v in self._order.items() if k not in ("parts", *names)}
        options |= {"fragile": "top"} if "fragile" in names else {}
        if "clearance" in names and self._walls_too:
            options |= {"wall_clearance": 0.0}
        for packing in self._plan.containers:
            counts = Counter(item.name for item in packing.items)
            counts[part.label] += left
            parts = [
                replace(each, quantity=counts[each.label])
                for each in self._order["parts"]
                if counts[each.label]
            ]
            plan = pack(parts, seconds=0.5, **options | {"containers": 1})
            rest = sum(each.quantity for each in plan.left if each.name == part.label)
            if rest < left:
                return True
        return False


def run(args: argparse.Namespace, totals: Counter[str], folder: Path) -> str:
    """Pack and check orders until the count or the time is reached; return the first error."""
    started = time.perf_counter()
    before = totals["seconds"]
    while totals["tried"] < args.count and time.perf_counter() - started < args.minutes * 60:
        number = totals["tried"]
        order = draw_order(np.random.default_rng([args.seed, number]))
        arguments = {k: v for k, v in order.items() if k != "parts"}
        totals["tried"] += 1
        totals["seconds"] = before + int(time.perf_counter() - started)
        try:
            plan = pack(order["parts"], seconds=args.seconds, **arguments)
        except ValueError as error:
            totals[f"refused: {str(error)[:30]}"] += 1
            continue
        totals["orders"] += 1
        totals["packed"] += plan.num_packed
        totals["left over"] += plan.num_left
        reasons = Reasons(plan, order)
        wrong = check(plan, order, folder) or reasons.wrong()
        totals.update(reasons.verdicts)
        if wrong:
            print(f"WRONG, order {number}: {wrong}\n{order}", flush=True)
            return f"order {number}: {wrong}"
        if number % 200 == 199:
            print(number + 1, f"{time.perf_counter() - started:.0f} s", flush=True)
            write(args, totals)
    return ""


def write(args: argparse.Namespace, totals: Counter[str], wrong: str = "") -> None:
    """Write the results so far."""
    report = provenance() | {"arguments": {"seed": args.seed, "seconds": args.seconds}}
    write_json(args.out, report | {"wrong": wrong, "totals": dict(sorted(totals.items()))})


def main() -> int:
    """Pack and check random orders; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--minutes", type=float, default=1e9, help="of this run, at most")
    parser.add_argument("--resume", action="store_true", help="go on with the file --out")
    parser.add_argument("--out", default="benchmarks/results/fuzz_orders.json")
    args = parser.parse_args()
    totals = Counter[str]()
    if args.resume and Path(args.out).exists():
        totals.update(json.loads(Path(args.out).read_text())["totals"])
    with tempfile.TemporaryDirectory() as folder:
        wrong = run(args, totals, Path(folder))
    write(args, totals, wrong)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
