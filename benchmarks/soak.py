"""Soak test: a million random decisions, some invalid; no exception, no NaN, constant memory.

    python benchmarks/soak.py [--decisions 1e6] [--out benchmarks/results/soak.json]

5 % of the actions are drawn from all actions, legal or not, and 1 % are out of range. Another 1 %
are NaN in `continuous` mode; in the other modes actions are integers, so these are out of range,
too. The other actions are random legal ones. After every step the script checks that no entry of
the state or of the result is NaN, that no height has fallen, that `utilization <= compactness <=
pyramidality`, and that invalid actions are counted as illegal. Memory is that of the process; its
growth is measured after the first tenth.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import math
import resource
from pathlib import Path
from typing import Any

import torch
from provenance import provenance, write_json
from rich.progress import track
from tensordict import TensorDictBase

from packing_env import PackingEnv, make_env

TASKS: dict[str, dict[str, Any]] = {
    "irregular_com_hull": {"task": "irregular_com_hull", "num_envs": 64},
    "irregular_com_hull, no-op": {
        "task": "irregular_com_hull", "num_envs": 64, "illegal_action": "noop",
    },
    "irregular_com_hull, continuous": {
        "task": "irregular_com_hull", "num_envs": 64, "action_mode": "continuous",
    },
    "cuboid_online": {"task": "cuboid_online", "num_envs": 512},
    "cuboid_online, continuous": {
        "task": "cuboid_online", "num_envs": 512, "action_mode": "continuous",
    },
    "cuboid_buffer, project": {
        "task": "cuboid_buffer", "num_envs": 256, "illegal_action": "project",
    },
}  # fmt: skip
ILLEGAL, NAN, OUTSIDE = 0.05, 0.01, 0.01
ORDER = ("utilization", "compactness", "pyramidality")
SLACK = 1e-5


def invalidate(env: PackingEnv, root: TensorDictBase) -> torch.Tensor:
    """Replace some actions in place; return a mask of those that are out of range or NaN."""
    action = root["action"]
    draw = torch.rand(env.batch_size)
    outside = draw < OUTSIDE
    nan = (draw >= OUTSIDE) & (draw < OUTSIDE + NAN)
    if action.is_floating_point():
        action = torch.where(outside[..., None], 3.0, action)
        root["action"] = torch.where(nan[..., None], math.nan, action)
        return outside | nan
    size = root["action_mask"].shape[-1]
    anywhere = torch.randint(size, env.batch_size)
    illegal = (draw >= OUTSIDE + NAN) & (draw < OUTSIDE + NAN + ILLEGAL)
    action = torch.where(illegal, anywhere, action)
    far = torch.where(torch.rand(env.batch_size) < 0.5, -7, size + 5)
    root["action"] = torch.where(outside | nan, far, action)
    return outside | nan


def check(root: TensorDictBase, following: TensorDictBase, invalid: torch.Tensor) -> None:
    """Raise an AssertionError if one of these conditions is violated after a step."""
    for name, value in following.items(True, True):
        if value.is_floating_point() and bool(value.isnan().any()):
            raise AssertionError(f"{name} is NaN")
    metrics = following["metrics"]
    for low, high in itertools.pairwise(ORDER):
        if bool((metrics[low] > metrics[high] + SLACK).any()):
            raise AssertionError(f"{low} > {high}")
    if bool((following["observation", "heightmap"] < root["observation", "heightmap"]).any()):
        raise AssertionError("the heightmap fell within a step")
    if bool((metrics["illegal_actions"].squeeze(-1)[invalid] < 1).any()):
        raise AssertionError("an invalid action was not counted as illegal")


def memory() -> float:
    """Return the resident memory of the process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def soak(name: str, decisions: int) -> dict[str, Any]:
    """Run one task."""
    torch.manual_seed(0)
    env = make_env(seed=1, **TASKS[name])
    rows = env.batch_size.numel()
    steps = math.ceil(decisions / rows)
    root, count, sizes = env.reset(), 0, []
    for step in track(range(steps), description=name):
        root = env.rand_action(root)
        invalid = invalidate(env, root)
        transition, root = env.step_and_maybe_reset(root)
        check(transition, transition["next"], invalid)
        count += int(invalid.sum())
        for key, value in env.state.items():
            if value.is_floating_point() and bool(value.isnan().any()):
                raise AssertionError(f"{key} of the state is NaN")
        if step % max(1, steps // 100) == 0:
            gc.collect()
            sizes.append(memory())
    warm, last = sizes[len(sizes) // 10], max(sizes[-5:])
    return {
        "decisions": steps * rows,
        "nonsensical": count,
        "episodes": int(env.state["episode"].sum()),
        "memory_mib": {"after_a_tenth": warm, "at_the_end": last},
        "growth": last / warm - 1,
    }


def main() -> None:
    """Run every task, write the JSON after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decisions", type=float, default=1e6)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--out", default="benchmarks/results/soak.json")
    args = parser.parse_args()
    about, tasks = provenance(args), {}
    for name in args.tasks:
        tasks[name] = soak(name, int(args.decisions))
        print(f"{name}: {tasks[name]}", flush=True)
        left = [task for task in args.tasks if task not in tasks]
        write_json(args.out, about | {"tasks": tasks, "left_out": left})  # survives an interruption


if __name__ == "__main__":
    main()
