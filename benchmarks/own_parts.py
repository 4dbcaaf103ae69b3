"""A folder of real parts, each once, in a small container: what `packing pack` finds in its time.

    python benchmarks/own_parts.py --data DIR [--seconds 20] [--seeds 0 1 2] [--unit m] [--out ...]

The files of `DIR/meshes` at true size, in 240 x 180 x 150 mm, cells of 5 mm, rule `com_hull`.
`search_seconds` are those of the search; `wall_seconds` has reading, rasterising, compiling and the
full steps of the plan too. `largest_first` is the first packing that the search looks at: all parts
visible, by volume, each at its lowest legal place. Every plan is written and checked by
`packing_env.plan.check_plan`; a violation ends the run.
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
from packing_env.plan import check_plan

NO_TIME = 1e-6
"""Seconds after which a search has its first packing and no other."""


def packed(folder: Path, container: str, seconds: float, **options: Any) -> dict[str, Any]:
    """Pack the parts once, check the plan, and return what was found."""
    start = time.perf_counter()
    plan = pe.pack(folder, container, seconds, **options)
    wall = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as out:
        files = planner.save(plan, out)
        reports = [check_plan(file) for file in files if file.name == "plan.json"]
    for report in reports:
        if not report.holds:
            raise RuntimeError(f"the plan does not hold: {report.violation}")
    found = plan.containers[0]
    return {
        "utilization": plan.utilization,
        "parts": plan.num_packed,
        "left": plan.num_left,
        "height_mm": 1000 * max(report.height for report in reports),
        "packings_compared": plan.tried,
        "search_seconds": plan.seconds,
        "wall_seconds": wall,
        "names": [item.name for item in found.items],
    }


def main() -> None:
    """Pack with every seed, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with meshes/")
    parser.add_argument("--container", default="240x180x150mm")
    parser.add_argument("--cell", default="5mm")
    parser.add_argument("--stability", default="com_hull")
    parser.add_argument("--unit", default="m", help="of the files")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--out", default="benchmarks/results/own_parts.json")
    args = parser.parse_args()
    options = {"unit": args.unit, "cell": args.cell, "stability": args.stability}
    folder = args.data / "meshes"
    first = packed(folder, args.container, NO_TIME, **options)  # compiles the kernels, too
    print(f"largest first: {100 * first['utilization']:.1f} %, {first['parts']} parts", flush=True)
    runs = []
    for seed in args.seeds:
        runs.append(packed(folder, args.container, args.seconds, seed=seed, **options))
        text = f"{100 * runs[-1]['utilization']:.1f} %, {runs[-1]['parts']} parts"
        print(f"seed {seed}: {text}, {runs[-1]['wall_seconds']:.1f} s", flush=True)
    head = provenance()
    seeds = " ".join(map(str, args.seeds))
    head["command"] = (
        f"python benchmarks/own_parts.py --data DIR --container {args.container} "
        f"--cell {args.cell} --stability {args.stability} --unit {args.unit} "
        f"--seconds {args.seconds:g} --seeds {seeds}"
    )
    head["package"] = "the installed wheel" if "site-packages" in pe.__file__ else "the checkout"
    means = {key: statistics.fmean(run[key] for run in runs) for key in ("utilization", "parts")}
    found = {
        "mean": means,
        "largest_first": first,
        "seeds": dict(zip(seeds.split(), runs, strict=True)),
    }
    write_json(args.out, head | found)


if __name__ == "__main__":
    main()
