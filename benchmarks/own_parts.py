"""Packings that `packing pack` finds for a folder of real parts, each once, in a small container.

    python benchmarks/own_parts.py --data DIR [--seconds 20] [--seeds 0 1 2] [--unit m] [--out ...]

The files of `DIR/meshes` are packed at true size into 240 x 180 x 150 mm, with cells of 5 mm, under
the rules `com_hull` (the default) and `stands`. `search_seconds` is the time of the search;
`wall_seconds` also includes reading, rasterising, compiling and writing out the plan's steps.
`largest_first` is the first packing that the search evaluates: parts in order of volume, each at
its lowest legal place. Every plan is written and checked by `packing_env.plan.check_plan`; a
violation ends the run. Then the plan is simulated with walls, item by item and released at once:
`kept` is the utilization before the first item moves, `moved` the number of items that move.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from provenance import provenance, write_json

import packing_env as pe
from packing_env import planner
from packing_env.physics import read_settings, simulate
from packing_env.plan import Packing, check_plan

NO_TIME = 1e-6
"""Seconds of a search that ends with its first packing."""


def simulated(packing: Packing) -> dict[str, float]:
    """Return the kept utilization and the number of moved items, in both orders of simulation."""
    found: dict[str, float] = {}
    for order in ("sequential", "released"):
        report = simulate(packing, read_settings({"order": order, "walls": True}))
        found[f"kept_{order}"] = report.utilization_kept
        found[f"moved_{order}"] = report.count("moved")
    return found


def packed(folder: Path, container: str, seconds: float, **options: Any) -> dict[str, Any]:
    """Pack the parts once, check the plan, and return its values."""
    start = time.perf_counter()
    plan = pe.pack(folder, container, seconds, **options)
    wall = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as out:
        files = planner.save(plan, out)
        reports = [check_plan(file) for file in files if file.name == "plan.json"]
    for report in reports:
        if not report.holds:
            raise RuntimeError(f"the plan does not hold: {report.violation}")
    first = plan.containers[0]
    return {
        "utilization": plan.utilization,
        "parts": plan.num_packed,
        "left": plan.num_left,
        "height_mm": 1000 * max(report.height for report in reports),
        "packings_compared": plan.tried,
        "search_seconds": plan.seconds,
        "wall_seconds": wall,
        "names": [item.name for item in first.items],
        **simulated(first),
    }


def by_rule(args: argparse.Namespace, rule: str) -> dict[str, Any]:
    """Pack with every seed by a stability rule; return the runs, and their means."""
    options = {"unit": args.unit, "cell": args.cell, "stability": rule}
    folder = args.data / "meshes"
    first = packed(folder, args.container, NO_TIME, **options)  # compiles the kernels, too
    print(f"{rule}, largest first: {summary(first)}", flush=True)
    runs = []
    for seed in args.seeds:
        runs.append(packed(folder, args.container, args.seconds, seed=seed, **options))
        print(f"{rule}, seed {seed}: {summary(runs[-1])}", flush=True)
    numbers = [key for key, value in first.items() if isinstance(value, (int, float))]
    return {
        "mean": {key: statistics.fmean(run[key] for run in runs) for key in numbers},
        "largest_first": first,
        "seeds": {str(seed): run for seed, run in zip(args.seeds, runs, strict=True)},
    }


def summary(run: dict[str, Any]) -> str:
    """Return a run as text."""
    kept, moved = run["kept_sequential"], run["moved_released"]
    return (
        f"{100 * run['utilization']:.1f} %, {run['parts']} parts, {run['wall_seconds']:.1f} s; "
        f"{100 * kept:.1f} % stands when placed one by one, {moved} parts move when released"
    )


def main() -> None:
    """Pack with every seed by both rules, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with meshes/")
    parser.add_argument("--container", default="240x180x150mm")
    parser.add_argument("--cell", default="5mm")
    parser.add_argument("--rules", nargs="+", default=["com_hull", "stands"])
    parser.add_argument("--unit", default="m", help="unit of the files")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--out", default="benchmarks/results/own_parts.json")
    args = parser.parse_args()
    by_rules = {rule: by_rule(args, rule) for rule in args.rules}
    head = provenance()
    head["command"] = (
        f"python benchmarks/own_parts.py --data DIR --container {args.container} "
        f"--cell {args.cell} --rules {' '.join(args.rules)} --unit {args.unit} "
        f"--seconds {args.seconds:g} --seeds {' '.join(map(str, args.seeds))}"
    )
    head["package"] = "the installed wheel" if "site-packages" in pe.__file__ else "the checkout"
    write_json(args.out, head | by_rules)


if __name__ == "__main__":
    main()
