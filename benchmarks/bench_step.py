"""Steps per second of `PackingEnv` with random legal actions.

    python benchmarks/bench_step.py [--out benchmarks/results/step_cpu.json] [--device cpu]

One process; prints hardware and versions and writes everything as JSON. A step is one decision in
every row: `rand_action` and `step_and_maybe_reset` (native autoreset), exact masks included.
Medians over repeats after warm-up; wall time and, on the CPU, process time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from provenance import provenance, write_json

from packing_env import kernels, make_env

LEAN = ("heightmap", "item_id", "item_features", "orientation_features", "drop_height")
CASES: tuple[tuple[str, tuple[int, ...], dict[str, Any]], ...] = (
    ("irregular", (1, 16, 64, 256), {"observation": LEAN}),
    ("irregular", (64,), {"observation": (*LEAN, "item_maps")}),
    ("irregular_paper", (1, 4, 16), {"num_visible": 1}),
    ("irregular_paper", (1,), {"num_visible": 20}),
    ("cuboid_online", (1, 64, 1024), {}),
    ("cuboid_online", (1024,), {"stability": "none"}),
    ("cuboid_continuous", (1, 64), {}),
)


def synchronize(device: str) -> None:
    """Wait for the device, so that the clock sees its work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def measure(task: str, num_envs: int, args: argparse.Namespace, options: dict[str, Any]) -> dict:
    """Median seconds of a step, and what follows from it."""
    torch.manual_seed(0)
    env = make_env(task, num_envs=num_envs, device=args.device, seed=0, **options)
    td = env.reset()

    def steps(count: int) -> None:
        nonlocal td
        for _ in range(count):
            _, td = env.step_and_maybe_reset(env.rand_action(td))
        synchronize(args.device)

    steps(args.warmup)
    wall, cpu = [], []
    for _ in range(args.repeats):
        start, start_cpu = time.perf_counter(), time.process_time()
        steps(args.steps)
        wall.append((time.perf_counter() - start) / args.steps)
        cpu.append((time.process_time() - start_cpu) / args.steps)
    step = statistics.median(wall)
    return {
        "task": task,
        "num_envs": num_envs,
        "options": {key: list(v) if isinstance(v, tuple) else v for key, v in options.items()},
        "num_actions": int(env.action_spec.n),
        "ms_per_step": 1e3 * step,
        "cpu_ms_per_step": 1e3 * statistics.median(cpu),
        "decisions_per_second": num_envs / step,
        "spread_ms": [1e3 * min(wall), 1e3 * max(wall)],
    }


def main() -> None:
    """Run every case and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="benchmarks/results/step_cpu.json")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="torch threads on the CPU")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    report = provenance(args) | {"kernels": kernels.backend_for(args.device), "results": []}
    for task, batches, options in CASES:
        for num_envs in batches:
            row = measure(task, num_envs, args, options)
            report["results"].append(row)
            print(
                f"{task:16s} B={num_envs:<4d} A={row['num_actions']:<8d} "
                f"{row['ms_per_step']:9.2f} ms/step {row['decisions_per_second']:9.1f} decisions/s"
            )
    write_json(args.out, report)


if __name__ == "__main__":
    main()
