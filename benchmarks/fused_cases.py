"""Random tasks on which the fused step, interpreted, is held to equal the rules bit by bit.

    python benchmarks/fused_cases.py [--of cuboids|shapes] [--first 0] [--cases 200] [--out FILE]

The cases are those of `tests/engine/test_fused_interpreted.py` for cuboids, and of
`test_fused_heights_interpreted.py` for items of any shape: in each, all observations, masks,
rewards, flags and states of four steps with resets are compared. The file is written anew every ten
cases, and names those that differ.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from importlib import import_module
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1]))

from provenance import provenance, write_json

OUT = "benchmarks/results/fused_{}.json"


def main() -> None:
    """Play the cases one by one."""
    cuboids = import_module("tests.engine.test_fused_interpreted")
    shapes = import_module("tests.engine.test_fused_heights_interpreted")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--of", default="cuboids", choices=("cuboids", "shapes"))
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--cases", type=int, default=cuboids.NUM_CASES, help="how many")
    parser.add_argument("--out")
    args = parser.parse_args()
    cases, out = cuboids if args.of == "cuboids" else shapes, args.out or OUT.format(args.of)
    report, start = provenance(args), time.perf_counter()
    differing, episodes = [], 0
    for seed in range(args.first, args.first + args.cases):
        try:
            episodes += cases.finished(seed)
        except AssertionError:
            differing.append(seed)
        played = seed - args.first + 1
        if played % 10 and played < args.cases:
            continue
        seconds = round(time.perf_counter() - start)
        found = {"cases": played, "differing": differing, "episodes_ended": episodes}
        write_json(out, {**report, **found, "seconds": seconds})
    print(f"{args.cases} cases, {len(differing)} differ, {episodes} episodes ended")


if __name__ == "__main__":
    main()
