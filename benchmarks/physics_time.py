"""Time `packing check --physics` on a plan of many items, on one core.

    python benchmarks/physics_time.py [--items 50] [--meshes FOLDER]

Items are packed by deepest-bottom-left and settled, under the default rule and under stricter ones.
Under the stricter rules most items stand, so the simulation does not end early. The command runs in
a separate process, so its start and its check of the plan are included. Convex parts of meshes that
are not in the package are computed in the first run and read in the others. Other programs on the
machine affect `seconds`, but hardly `cpu_seconds`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from provenance import provenance

import agents
import packing_env as pe
from agents.training.evaluate import evaluate
from packing_env.plan import save_plan

RULES: dict[str, dict[str, Any]] = {
    "default": {},
    "strict": {"stability": "com_hull_20", "contact_tol": 0.002},
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=50)
    parser.add_argument("--scale", type=float, default=0.6, help="scale of the items")
    parser.add_argument("--meshes", type=Path, help="a folder of meshes instead of the shapes")
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=list(RULES))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/physics_time.json"))
    return parser.parse_args()


def plan_of(options: argparse.Namespace, rules: str, path: Path) -> int:
    """Make 16 plans, write the one with the most items, and return its number of items."""
    items = {"source": "shapes"}
    if options.meshes:
        items = {"source": "meshes", "paths": str(options.meshes)}
    changes: dict[str, Any] = {"num_items": options.items, "scales": [options.scale]}
    changes |= {"items": {"resting": rules == "strict", **items}, **RULES[rules]}
    env = pe.make_env(
        "irregular_com_hull",
        num_envs=16,
        seed=0,
        split="test",
        draw="sequential",
        pool_size=64,
        **changes,
    )
    policy = agents.heuristics.build("deepest_bottom_left", env)
    packings = evaluate(env, policy, 16, keep=16).packings(env)
    packing = max(packings, key=lambda each: len(each.items))
    save_plan(path, packing)
    return len(packing.items)


SETTINGS: dict[str, dict[str, Any]] = {
    "sequential, to the end": {"order": "sequential", "moved_cells": 1e3, "moved_degrees": 180},
    "sequential": {"order": "sequential"},
    "released": {"order": "released"},
}
"""Settings of the simulation; the first never ends early, so it takes longest."""


def timed(path: Path, order: str) -> dict[str, Any]:
    """Run the command on one core; return its time and what it found."""
    settings = path.with_suffix(".yaml")
    settings.write_text(json.dumps(SETTINGS[order]), encoding="utf-8")  # JSON is also YAML
    command = [sys.executable, "-m", "agents.cli", "check", str(path), "--physics", "--json"]
    command += ["--settings", str(settings)]
    if hasattr(os, "sched_setaffinity"):
        command = ["taskset", "-c", str(min(os.sched_getaffinity(0))), *command]
    start, before = time.perf_counter(), _cpu_seconds()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds, cpu_seconds = time.perf_counter() - start, _cpu_seconds() - before
    (report,) = json.loads(done.stdout)
    physics = report["physics"]
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "load_average": os.getloadavg()[0],
        "plan_holds": report["holds"],
        "placed": physics["placed"],
        "first_failure": physics["first_failure"],
        "simulated_seconds": physics["seconds"],
        "moved": physics["moved"],
    }


def _cpu_seconds() -> float:
    """Return the CPU time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    content = json.loads(options.out.read_text()) if options.out.exists() else {}
    plans = content.setdefault(options.meshes.name if options.meshes else "shapes", {})
    content |= provenance()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        for rules in options.rules:
            count = plan_of(options, rules, path)
            plans[rules] = {"items": count, "scale": options.scale, "rules": RULES[rules]}
            for order in SETTINGS:
                plans[rules][order] = timed(path, order)
                options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
                print(rules, order, plans[rules][order], flush=True)


if __name__ == "__main__":
    main()
