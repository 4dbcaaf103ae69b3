"""Cost of action modes: time relative to the mode `placement`, and memory that steps allocate.

    python benchmarks/action_modes.py [--out benchmarks/results/action_modes.json]

Times are medians of the CPU time of one decision in every row of `cuboid_online`; actions are
random legal ones. The modes take turns, so that a slow phase of the machine affects all of them.
Torch's profiler measures the memory that a step of `irregular_paper` in the mode `hierarchical`
allocates, with the engine `rules` and with the default engine. Observations that the step returns
are counted separately.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from provenance import provenance, write_json
from torch.profiler import ProfilerActivity, profile

from agents.bench.step import Loop
from packing_env import make_env
from packing_env.tasks import LEAN

MODES = ("placement", "candidate", "continuous", "hierarchical")
ROWS = (64, 1024)
LESS = tuple(name for name in LEAN if name != "drop_height")
"""Observations of an agent that computes the maps of one item itself."""


def times(rows: int, rounds: int, calls: int) -> dict[str, Any]:
    """Return milliseconds of CPU per decision of all rows, and their ratios to `placement`."""
    loops = {
        mode: Loop(make_env("cuboid_online", num_envs=rows, action_mode=mode), "random_legal")
        for mode in MODES
    }
    for loop in loops.values():
        for _ in range(40):  # episodes of different ages
            loop.step()
    spent: dict[str, list[float]] = {mode: [] for mode in MODES}
    for _ in range(rounds):
        for mode, loop in loops.items():
            start = time.thread_time()
            for _ in range(calls):
                loop.step()
            spent[mode].append(1e3 * (time.thread_time() - start) / calls)
    median = {mode: statistics.median(values) for mode, values in spent.items()}
    paired = {
        mode: statistics.median(
            value / other for value, other in zip(values, spent["placement"], strict=True)
        )
        for mode, values in spent.items()
    }
    engines = {mode: loop.env.engine_name for mode, loop in loops.items()}
    return {"rows": rows, "cpu_ms": median, "times_placement": paired, "engines": engines}


def memory(rows: int, engine: str, observation: tuple[str, ...], steps: int) -> dict[str, Any]:
    """Return bytes and allocations per step, and the bytes of the tensors that a step returns."""
    env = make_env(
        "irregular_paper",
        num_envs=rows,
        action_mode="hierarchical",
        engine=engine,
        observation=observation,
    )
    root = env.reset()
    handed_out: list[int] = []
    sizes: list[int] = []
    for index in range(steps + 2):
        root = env.rand_action(root)
        if index < 2:
            step, root = env.step_and_maybe_reset(root)
            continue
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watch:
            step, root = env.step_and_maybe_reset(root)
        events = watch.profiler.kineto_results.events()
        taken = [event.nbytes() for event in events if event.name() == "[memory]"]
        sizes += [size for size in taken if size > 0]
        handed_out.append(int(step["next"].bytes()) + int(root.bytes()))
    total, given = sum(sizes) / steps, sum(handed_out) / steps
    return {
        "rows": rows,
        "engine": env.engine_name,
        "observation": list(observation),
        "allocations": len(sizes) / steps,
        "bytes": total,
        "bytes_handed_out": given,
        "bytes_of_temporaries": total - given,
    }


def main() -> None:
    """Measure, print, and write the file."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="benchmarks/results/action_modes.json")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    with torch.no_grad():
        timings = [times(rows, args.rounds, args.calls) for rows in ROWS]
        for row in timings:
            print(row)
        memories = []
        for observation in (LEAN, LESS):
            pair = [memory(2, engine, observation, args.steps) for engine in ("rules", "auto")]
            print(*pair, sep="\n")
            share = pair[1]["bytes"] / pair[0]["bytes"]
            least = pair[1]["bytes_of_temporaries"] / pair[0]["bytes_of_temporaries"]
            memories.append({"engines": pair, "share": share, "share_of_temporaries": least})
            print(f"bytes relative to `rules`: {share:.3f}, of temporaries {least:.4f}")
    write_json(args.out, {**provenance(args), "times": timings, "memory": memories})


if __name__ == "__main__":
    main()
