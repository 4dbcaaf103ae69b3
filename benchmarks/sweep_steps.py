"""Decisions per second over rows and over keys of the configuration, with a picture.

    python benchmarks/sweep_steps.py [--env irregular] [--rows 1 4 16 64 256] [--sweep-rows 16]
        [--sweep env.orientations=none,yaw,pi/2,pi/4 ...] [--out ...] [KEY=VALUE ...]

`packing bench step` measures every value of a swept key separately, with `--sweep-rows` rows. The
picture is a PNG file next to the JSON file. KEY=VALUE is passed to every `packing bench step`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from provenance import provenance, write_json

from agents.cli import main as cli
from packing_env.extras import require

SWEEP = (
    "env.orientations=none,yaw,pi/2,pi/4",
    "env.resolution=16,24,32,48",
    "env.grid_step=1,2,4",
    "env.num_items=6,12,24,48",
)
_SIDE = 4.2
"""Width and height of a panel in inches."""


def rates(overrides: Sequence[str]) -> dict[str, float]:
    """Return the decisions per second of `packing bench step`, by number of rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.json"
        status = cli.main(["bench", "step", *overrides, f"out={path}"])
        if status:
            sys.exit(status)
        results = json.loads(path.read_text(encoding="utf-8"))["results"]
    return {str(row["case"]["rows"]): row["values"]["decisions_per_second"] for row in results}


def measure(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return decisions per second by number of rows, and by value of every swept key."""
    common = [f"env={args.env}", "bench.kernels=[numba]", "bench.actions=[random_legal]"]
    common += args.overrides
    rows = ",".join(map(str, args.rows))
    results = {"rows": rates([*common, f"bench.rows=[{rows}]"])}
    for sweep in args.sweep:
        key, _, values = sweep.partition("=")
        results[key] = {}
        for value in values.split(","):
            point = [*common, f"bench.rows=[{args.sweep_rows}]", f"{key}={value}"]
            (results[key][value],) = rates(point).values()
    return results


def draw(results: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Draw a panel per key."""
    size = (_SIDE * len(results), _SIDE)
    figure: Any = require("matplotlib.figure", "plots").Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(results), squeeze=False)[0]
    for axes, (key, points) in zip(panels, results.items(), strict=True):
        axes.plot(list(points), list(points.values()), marker="o")
        axes.set_yscale("log")
        axes.set_xlabel("containers" if key == "rows" else key)
        axes.set_ylabel("decisions per second")
        axes.grid(visible=True, which="both", alpha=0.3)
    figure.savefig(path)


def main() -> None:
    """Measure, draw, and write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--env", default="irregular", help="preset")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    parser.add_argument("--sweep", nargs="*", default=SWEEP, metavar="KEY=A,B,C")
    parser.add_argument("--sweep-rows", type=int, default=16)
    parser.add_argument("--out", default="benchmarks/results/bench_sweep_irregular.json")
    args = parser.parse_intermixed_args()
    results = measure(args)
    write_json(args.out, provenance(args) | {"decisions_per_second": results})
    draw(results, Path(args.out).with_suffix(".png"))


if __name__ == "__main__":
    main()
