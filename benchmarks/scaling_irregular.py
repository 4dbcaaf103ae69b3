"""CPU time of every pass of a step of `irregular_com_hull`, as the number of rows grows.

    python benchmarks/scaling_irregular.py [--out benchmarks/results/scaling_irregular.json]

A step of all rows (choice of random legal actions, step, resets) costs ``fixed + rows * per_row``;
both are fitted to the medians of whole steps without a profiler. The passes are then timed by a
profiler on the CPU clock of the thread. A pass whose time per row grows with the rows is bound by
memory; a pass whose time per row stays constant is bound by computation. ``lean`` leaves the items'
maps, the largest part, out of the observations.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from provenance import provenance, write_json

from agents.bench.step import Loop
from packing_env import make_env
from packing_env.tasks import LEAN

ROWS = (4, 16, 64, 256)
OBSERVATIONS: dict[str, dict[str, Any]] = {"default": {}, "lean": {"observation": LEAN}}
PASSES = {
    "com_hull": ("support", "_tiered_hull"),
    "drop_height": ("drop", "_drop_height"),
    "observe": ("step", "_observe"),
    "decide": ("step", "_decide"),
    "close_lid": ("step", "_close_lid"),
    "choose": ("choice", "_choose"),
}
"""Compiled passes: the folder in ``kernels`` and the name of each."""


def measure(rows: int, options: dict[str, Any]) -> dict[str, Any]:
    """Return CPU times of one batch size."""
    play = Loop(make_env("irregular_com_hull", num_envs=rows, seed=0, **options), "random_legal")
    count = max(9, 4096 // rows)
    for _ in range(9):
        play.step()
    spent = []
    for _ in range(count):
        start = time.thread_time()
        play.step()
        spent.append(time.thread_time() - start)
    profile = cProfile.Profile(time.thread_time)
    profile.enable()
    for _ in range(count):
        play.step()
    profile.disable()
    found: dict[str, float] = {}
    for (path, _, name), numbers in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        for key, (folder, function) in PASSES.items():
            if name == function and folder in Path(path).parts:
                found[key] = 1e6 * numbers[2] / count / rows
    if missing := PASSES.keys() - found.keys():
        raise RuntimeError(f"the profile has no {sorted(missing)}: look up their names in PASSES")
    step = statistics.median(spent)
    return {
        "cpu_ms_per_step": 1e3 * step,
        "decisions_per_cpu_second": rows / step,
        "us_per_row": dict(sorted(found.items())),
    }


def fit(found: dict[int, dict[str, Any]]) -> dict[str, float]:
    """Fit ``fixed + rows * per_row`` through the smallest and the largest batch."""
    least, most = min(found), max(found)
    small, large = (found[rows]["cpu_ms_per_step"] for rows in (least, most))
    per_row = (large - small) / (most - least)
    return {"fixed_us": 1e3 * (small - least * per_row), "per_row_us": 1e3 * per_row}


def main() -> None:
    """Measure every batch size, with both observations; write the JSON."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="benchmarks/results/scaling_irregular.json")
    args = parser.parse_args()
    report: dict[str, Any] = provenance(args) | {"load_before": os.getloadavg()}
    for name, options in OBSERVATIONS.items():
        measured = {rows: measure(rows, options) for rows in ROWS}
        rates = [measured[rows]["decisions_per_cpu_second"] for rows in (ROWS[0], ROWS[-1])]
        report[name] = {"rows": measured, "model": fit(measured), "scaling": rates[1] / rates[0]}
        print(name, report[name], flush=True)
    write_json(args.out, report)


if __name__ == "__main__":
    main()
