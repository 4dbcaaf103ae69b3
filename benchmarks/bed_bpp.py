"""BED-BPP (Kagerer et al., IJRR 2023): the score of the benchmark, offline and online.

    python benchmarks/bed_bpp.py ORDERS [--plans PLANS] [--seconds 10]

ORDERS is a file of orders: `example_data/5_bed-bpp.json` of the benchmark's repository, the whole
benchmark, or `bed_bpp_orders.json` of the public data set. PLANS is a packing plan in the
benchmark's format, such as `packing_plan_5-bed-bpp.json`; it is scored in the same way.

The score is that of the leaderboard: the boxes of stable piles below 2 m, divided by all boxes. A
pile counts as stable if no box moves by more than 10 mm in z. The authors simulate in Blender, this
program in MuJoCo; all boxes are released at once, without walls. Boxes may turn only about z.

- offline: all boxes of an order are known (`packing_env.pack`, exact, rule `stands`). They are
  packed into a container 2 m high, and into the lowest container for which a search of `--seconds`
  packs all boxes.
- online: boxes come in the sequence of the order, one visible at a time. Places lie on a lattice of
  5 or 10 mm that divides all sides; the rule is `equilibrium`. A pile ends with the first box
  without a legal placement.
- drawn: online heuristics on the test orders of `benchmarks/adapt.py`, five splits.

Rows that the result file already holds are not repeated.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import bed_orders
import numpy as np
from provenance import provenance, write_json

from agents import heuristics
from agents.training.evaluate import evaluate
from agents.training.runs import read_json
from packing_env import make_env, pack
from packing_env.generators.cuboids.files import read_loads
from packing_env.generators.cuboids.loads import Load
from packing_env.items.meshes.mesh import UNITS
from packing_env.physics import read_settings, simulate
from packing_env.plan import Packing, check_plan, save_plan
from packing_env.plan.foreign import ForeignBox, read_foreign
from packing_env.plan.packing import PlacedItem
from packing_env.planner import Part

LIMIT = 0.01
"""Movement in z, metres, beyond which a pile is not stable."""
HEURISTICS = ("deepest_bottom_left", "lowest_z")
LOWEST, PUBLISHED = "offline, lowest", "published plan"
STEP = 10
"""Heights that are tried for the lowest container are multiples of this, millimetres."""
SETTINGS = read_settings({"order": "released", "walls": False})


def judged(packing: Packing, boxes: int, *, ours: bool = True) -> dict[str, Any]:
    """Simulate a pile; return the values that the benchmark measures."""
    if ours:
        with tempfile.TemporaryDirectory() as folder:
            plan = Path(folder) / "plan.json"
            save_plan(plan, packing)
            report = check_plan(plan)
        if not report.holds:
            raise RuntimeError(f"a plan does not hold: {report.violation}")
    tops = [float(item.z) + _height(item) for item in packing.items]
    below = sum(bool(top <= 2.0 + 1e-6) for top in tops)
    settled = simulate(packing, SETTINGS).settled
    pairs = zip(packing.items, settled.items, strict=True)
    moved = float(max(abs(a.z - b.z) for a, b in pairs))
    x, y, _ = packing.container
    volume = sum(item.volume for item in packing.items)
    return {
        "boxes": boxes,
        "packed": below,
        "stable": moved <= LIMIT,
        "moved_in_z": moved,
        "height": max(tops),
        "utilization": volume / (x * y * 2.0),
        "utilization_to_height": volume / (x * y * max(tops)),
    }


def _height(item: PlacedItem) -> float:
    """Return the vertical side of a box, metres."""
    assert item.extent is not None
    sides = np.array(item.extent) * UNITS[item.unit]
    return float((np.abs(item.rotation) @ sides)[2])


def offline(load: Load, seconds: float) -> dict[str, Any]:
    """Pack an order with all boxes known, within 2 m and as low as the search can."""
    parts = [
        Part(sides=kind.sides, unit="mm", name=kind.name or "", faces=("+z",))
        for kind in load.kinds
    ]
    assert load.container is not None
    x, y, highest = map(round, load.container)
    volume = sum(math.prod(kind.sides) for kind in load.kinds)

    def packed(height: int) -> Packing:
        plan = pack(parts, f"{x}x{y}x{height}mm", seconds, stability="stands")
        return plan.containers[0]

    best = packed(highest)
    result = {"offline, 2 m": judged(best, len(parts))}
    # Bisect the heights: find the lowest container into which the search packs all boxes.
    low, high = math.ceil(volume / (x * y) / STEP), highest // STEP
    while len(best.items) == len(parts) and low < high:
        middle = (low + high) // 2
        lower = packed(STEP * middle)
        if len(lower.items) == len(parts):
            best, high = lower, middle
        else:
            low = middle + 1
    return result | {LOWEST: judged(best, len(parts))}


def online(path: str, load: Load, name: str) -> dict[str, Any]:
    """Pack an order in its sequence, on the coarsest lattice that needs no rounding."""
    assert load.container is not None
    lengths = [*load.container, *(side for kind in load.kinds for side in kind.sides)]
    cell = math.gcd(*map(round, lengths))
    env = make_env(
        "cuboid_online",
        1,
        pool_size=1,
        draw="sequential",
        container=tuple(side / 1000 for side in load.container),
        cell=cell / 1000,
        num_items=len(load.kinds),
        stability="equilibrium",
        stability_metric="none",
        generator={"name": "cuboid_sequences", "path": path, "instance": load.name},
    )
    played = evaluate(env, heuristics.build(name, env), keep=1)
    return {name: judged(played.packings(env)[0], len(load.kinds))}


def published(boxes: Sequence[ForeignBox], load: Load) -> dict[str, Any]:
    """Judge a plan in the format of the benchmark."""
    assert load.container is not None
    items = []
    for order, box in enumerate(boxes):
        corner = np.array([float(length) for length in box.position]) / 1000
        x, y, z = (float(side) / 1000 for side in box.size)
        items.append(
            PlacedItem(
                order, box.name, "cuboid", "m", 1.0, (x, y, z), np.eye(3), corner, (0, 0),
                z=corner[2], orientation=0, item_id=0, support_ratio=0.0, volume=x * y * z,
            )
        )  # fmt: skip
    x, y, z = (side / 1000 for side in load.container)
    packing = Packing(
        (x, y, z), 0.01, "none", tuple(items), len(items), {}, geometry="boxes", unit=0.001
    )
    return {PUBLISHED: judged(packing, len(load.kinds), ours=False)}


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the score and the means over the orders."""
    boxes = sum(row["boxes"] for row in rows)
    keys = ("height", "utilization", "utilization_to_height", "stable")
    means = {key: statistics.fmean(float(row[key]) for row in rows) for key in keys}
    return {
        "score": sum(row["stable"] * row["packed"] for row in rows) / boxes,
        "packed": sum(row["packed"] for row in rows) / boxes,
        **means,
    }


def drawn(path: str, splits: int, count: int) -> dict[str, Any]:
    """Play the heuristics on the test orders of `benchmarks/adapt.py`."""
    found: dict[str, list[Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(splits):
            second = bed_orders.halves(bed_orders.lines(path), seed)[1]
            test = bed_orders.write(
                Path(folder) / f"{seed}.json", second, count=count, seed=100 + seed
            )
            generator = {"name": "cuboid_sequences", "path": str(test), "own_container": False}
            options = bed_orders.TASK | {"draw": "sequential", "generator": generator}
            env = make_env("cuboid_online", 50, **options)
            for name in HEURISTICS:
                played = evaluate(env, heuristics.build(name, env), count)
                found.setdefault(name, []).append(vars(played.estimate("utilization")))
    return found


def rounding(path: str) -> dict[str, float]:
    """Return the volume of all boxes with sides rounded up to a lattice, over the true volume."""
    sides = np.array([kind.sides for kind in bed_orders.lines(path)])
    volume = sides.prod(1).sum()
    return {
        f"{step} mm": float((np.ceil(sides / step) * step).prod(1).sum() / volume)
        for step in (5, 10, 20, 50)
    }


def tasks(args: argparse.Namespace) -> Iterator[tuple[str, str, Callable[[], dict[str, Any]]]]:
    """Yield policy, order, and the function that returns the rows of this order by policy."""
    loads = read_loads(args.orders)
    for policy in HEURISTICS:
        for load in loads:
            yield policy, load.name, partial(online, args.orders, load, policy)
    if args.plans is not None:
        order_of = {load.name: load for load in loads}
        for plan in read_foreign(args.plans) or []:
            yield PUBLISHED, plan.name, partial(published, plan.boxes, order_of[plan.name])
    for load in loads:
        yield LOWEST, load.name, partial(offline, load, args.seconds)


def main() -> None:
    """Judge every order, write the JSON after each part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("orders")
    parser.add_argument("--plans", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--test", type=int, default=100)
    parser.add_argument("--out", default="benchmarks/results/bed_bpp.json")
    args = parser.parse_args()
    result = provenance()
    result["command"] = f"python benchmarks/bed_bpp.py {Path(args.orders).name}"
    if args.plans is not None:
        result["command"] += f" --plans {args.plans.name}"
    result |= {"seconds": args.seconds, "volume_on_lattice": rounding(args.orders)}
    policies: dict[str, Any] = read_json(Path(args.out)).get("policies", {})
    for policy, order, judge in tasks(args):
        if order in policies.get(policy, {}).get("orders", {}):
            continue
        for name, row in judge().items():
            rows = policies.setdefault(name, {"orders": {}})["orders"]
            rows[order] = row
            policies[name]["summary"] = summary(list(rows.values()))
            print(name, order, row, flush=True)
        write_json(args.out, result | {"policies": policies})  # after each order, so none is lost
    if args.splits:
        result["drawn"] = {
            "heuristics": drawn(args.orders, args.splits, args.test), "orders": args.test
        }  # fmt: skip
    write_json(args.out, result | {"policies": policies})


if __name__ == "__main__":
    main()
