"""Random tasks on which the fused step, in Triton's interpreter, must equal the engine `rules`.

    python benchmarks/fused_cases.py [--of cuboids|shapes] [--cases 200] [--resume] [--out FILE]

The cases are those of `tests/engine/test_fused_interpreted.py`. In each case, all observations,
masks, rewards, flags and states of four steps with resets are compared bit for bit. If no item of a
task has a legal placement in the empty container, the task counts as ``refused``, and another one
is drawn. The file is rewritten every five cases, and names the cases that differ. With ``--resume``
a run continues after the cases in the file; ``parts`` lists the runs with their revisions and
seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1]))

from provenance import provenance, write_json

OUT = "benchmarks/results/fused_{}.json"


def main() -> None:
    """Play the cases one by one."""
    tests = import_module("tests.engine.test_fused_interpreted")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--of", default="cuboids", choices=("cuboids", "shapes"))
    parser.add_argument("--cases", type=int, default=tests.NUM_CASES, help="number of cases")
    parser.add_argument("--resume", action="store_true", help="continue after the cases in --out")
    parser.add_argument("--out")
    args = parser.parse_args()
    ground = "cells" if args.of == "cuboids" else "heights"
    out = args.out or OUT.format(args.of)
    counts: dict[str, Any] = {"cases": 0, "differing": [], "episodes_ended": 0, "refused": 0}
    counts["parts"] = []
    if args.resume:
        before = json.loads(Path(out).read_text())
        counts |= {key: before[key] for key in counts if key in before}
    report, start, first = provenance(args), time.perf_counter(), counts["cases"]
    parts = counts["parts"]
    for seed in range(first, args.cases):
        try:
            engines, refused = tests.feasible(ground, seed)
            counts["refused"] += refused
            counts["episodes_ended"] += tests.ended(engines, seed)
        except AssertionError:
            counts["differing"].append(seed)
        counts["cases"] = seed + 1
        if counts["cases"] % 5 and counts["cases"] < args.cases:
            continue
        part = {"revision": report["revision"], "first": first, "cases": counts["cases"] - first}
        part["seconds"] = round(time.perf_counter() - start)
        write_json(out, {**report, **counts, "parts": [*parts, part]})
    differing, episodes = len(counts["differing"]), counts["episodes_ended"]
    print(f"{args.cases} cases, {differing} differ, {episodes} episodes ended")


if __name__ == "__main__":
    main()
