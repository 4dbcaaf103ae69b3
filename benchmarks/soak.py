"""A million random decisions, some of them nonsense: no exception, no NaN, laws hold, memory flat.

    python benchmarks/soak.py [--decisions 1e6] [--out benchmarks/results/soak.json]

Of the actions 5 % are drawn from all, legal or not, 1 % are NaN (in `continuous` mode; elsewhere an
action is an integer, and they are out of range too) and 1 % out of range; the others are random
legal ones. After every step: nothing in the state or what is returned is NaN, no height fell,
`utilization <= compactness <= pyramidality`, and what cannot be an action is counted as illegal.
Memory is that of the process, its growth the one after the first tenth.
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
    "irregular": {"task": "irregular", "num_envs": 64},
    "irregular, no-op": {"task": "irregular", "num_envs": 64, "illegal_action": "noop"},
    "irregular, continuous": {"task": "irregular", "num_envs": 64, "action_mode": "continuous"},
    "cuboid_online": {"task": "cuboid_online", "num_envs": 512},
    "cuboid_online, continuous": {
        "task": "cuboid_online", "num_envs": 512, "action_mode": "continuous",
    },
    "cuboid_buffer, project": {
        "task": "cuboid_buffer", "num_envs": 256, "illegal_action": "project",
    },
}  # fmt: skip
ILLEGAL, NOT_A_NUMBER, OUTSIDE = 0.05, 0.01, 0.01
ORDER = ("utilization", "compactness", "pyramidality")
SLACK = 1e-5


def nonsense(env: PackingEnv, root: TensorDictBase) -> torch.Tensor:
    """Spoil some actions in place; where they are out of range or no number."""
    action = root["action"]
    draw = torch.rand(env.batch_size)
    outside = draw < OUTSIDE
    broken = (draw >= OUTSIDE) & (draw < OUTSIDE + NOT_A_NUMBER)
    if action.is_floating_point():
        action = torch.where(outside[..., None], 3.0, action)
        root["action"] = torch.where(broken[..., None], math.nan, action)
        return outside | broken
    size = root["action_mask"].shape[-1]
    anywhere = torch.randint(size, env.batch_size)
    spoiled = (draw >= OUTSIDE + NOT_A_NUMBER) & (draw < OUTSIDE + NOT_A_NUMBER + ILLEGAL)
    action = torch.where(spoiled, anywhere, action)
    far = torch.where(torch.rand(env.batch_size) < 0.5, -7, size + 5)
    root["action"] = torch.where(outside | broken, far, action)
    return outside | broken


def check(root: TensorDictBase, following: TensorDictBase, bad: torch.Tensor, noted: int) -> int:
    """Whether the laws hold after a step; how many illegal actions there were so far."""
    for name, value in following.items(True, True):
        if value.is_floating_point() and bool(value.isnan().any()):
            raise AssertionError(f"{name} is NaN")
    metrics = following["metrics"]
    for low, high in itertools.pairwise(ORDER):
        if bool((metrics[low] > metrics[high] + SLACK).any()):
            raise AssertionError(f"{low} > {high}")
    if bool((following["observation", "heightmap"] < root["observation", "heightmap"]).any()):
        raise AssertionError("the heightmap fell within a step")
    if bool((metrics["illegal_actions"].squeeze(-1)[bad] < 1).any()):
        raise AssertionError("an action that is none was not counted as illegal")
    return noted + int(bad.sum())


def memory() -> float:
    """Resident memory of the process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def soak(name: str, decisions: int) -> dict[str, Any]:
    """One task."""
    torch.manual_seed(0)
    env = make_env(seed=1, **TASKS[name])
    rows = env.batch_size.numel()
    steps = math.ceil(decisions / rows)
    root, noted, sizes = env.reset(), 0, []
    for step in track(range(steps), description=name):
        root = env.rand_action(root)
        bad = nonsense(env, root)
        transition, root = env.step_and_maybe_reset(root)
        noted = check(transition, transition["next"], bad, noted)
        for key, value in env.state.items():
            if value.is_floating_point() and bool(value.isnan().any()):
                raise AssertionError(f"{key} of the state is NaN")
        if step % max(1, steps // 100) == 0:
            gc.collect()
            sizes.append(memory())
    warm, last = sizes[len(sizes) // 10], max(sizes[-5:])
    return {
        "decisions": steps * rows,
        "nonsensical": noted,
        "episodes": int(env.state["episode"].sum()),
        "memory_mib": {"after_a_tenth": warm, "at_the_end": last},
        "growth": last / warm - 1,
    }


def main() -> None:
    """Every task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decisions", type=float, default=1e6)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--out", default="benchmarks/results/soak.json")
    args = parser.parse_args()
    about, found = provenance(args), {}
    for name in args.tasks:
        found[name] = soak(name, int(args.decisions))
        print(f"{name}: {found[name]}", flush=True)
        left = [task for task in args.tasks if task not in found]
        write_json(args.out, about | {"tasks": found, "left_out": left})  # stays if it is cut off


if __name__ == "__main__":
    main()
