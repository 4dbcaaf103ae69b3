"""Measure the cost of a step of ``irregular``, with and without its preference ``surest``.

    python benchmarks/surest_cost.py [--rows 16] [--rounds 5] [--out PATH]

Actions are random legal ones. Environments take turns, so that other programs on the machine slow
all of them equally. Times are medians of the CPU time of one thread over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from provenance import provenance, write_json

from packing_env import make_env
from packing_env.envs import PackingEnv

BASE = "irregular_com_hull"
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    BASE: (BASE, {}),
    "irregular": ("irregular", {}),
    "irregular_com_hull, surest": (BASE, {"surest": ("com_hull_10", "com_hull_20")}),
    "irregular_com_hull, cells of 5 mm, 32 x 32 places": (BASE, {"cell": 0.005, "grid_step": 2}),
    "irregular, cells of 5 mm, 32 x 32 places": ("irregular", {"cell": 0.005, "grid_step": 2}),
    "irregular, cells of 5 mm, 64 x 64 places": ("irregular", {"cell": 0.005}),
}
"""Presets, and overrides of them."""


def play(env: PackingEnv, root: Any, steps: int) -> tuple[Any, float]:
    """Take steps with random legal actions; return the last root and the CPU seconds of a step."""
    spent = 0.0
    for _ in range(steps):
        root = env.rand_action(root)
        begun = time.process_time()
        _, root = env.step_and_maybe_reset(root)
        spent += time.process_time() - begun
    return root, spent / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", default="benchmarks/results/surest_cost.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    report = provenance(args)
    envs = {
        name: make_env(task, num_envs=args.rows, pool_size=64, **changes)
        for name, (task, changes) in SETTINGS.items()
    }
    roots = {name: play(env, env.reset(), 2)[0] for name, env in envs.items()}  # compiles
    seconds: dict[str, list[float]] = {name: [] for name in envs}
    for _ in range(args.rounds):
        for name, env in envs.items():
            roots[name], each = play(env, roots[name], args.steps)
            seconds[name].append(each)
    base = statistics.median(seconds[BASE])
    rows = {
        name: {
            "engine": env.engine.name,
            "changes": str(SETTINGS[name]),
            "ms_a_step": 1e3 * statistics.median(seconds[name]),
            "all_ms": [1e3 * each for each in seconds[name]],
            "ratio": statistics.median(seconds[name]) / base,
        }
        for name, env in envs.items()
    }
    write_json(args.out, {**report, "settings": rows})
    for name, row in rows.items():
        print(f"{row['ms_a_step']:8.2f} ms {row['ratio']:6.2f} x  {row['engine']:8}  {name}")


if __name__ == "__main__":
    main()
