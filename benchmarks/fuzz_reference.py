"""Fuzzing of random tasks against the reference program, with whole masks, for many steps.

    python benchmarks/fuzz_reference.py [--steps 10000] [--seed 0] [--out PATH]

Each task is drawn at random: grid up to 20 x 20 cells, up to 6 orientations, visibility, grid step,
stability rule, tolerance, action mode, illegal actions, kernel backend; its items are random
irregular maps or the embedded shapes. Per row and step the heightmap, every rest height, every bit
of the mask, the candidates and the done flags must be equal, and reward and metrics equal to within
1e-6. The first difference ends the run with exit status 1 and prints the task.

With ``--standing`` the tasks use the rules for packings that stand (com_hull, com_hull with
margins, and the preference ``surest``), on small grids, with all kinds of illegal actions and all
engines:

    python benchmarks/fuzz_reference.py --standing --backend eager --out RESULT
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from provenance import provenance, write_json

from packing_env import kernels, make_env
from packing_env.core.random import choose_uniform
from packing_env.envs import PackingEnv
from packing_env.testing import CheckError, Referee

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.small_tasks import random_catalogue, small_env  # the random items of the tests

REWARD = {"utilization": 1.0, "objective": 0.5, "item": 0.1, "height": 0.2, "illegal": 0.3}
SUREST = [
    (),
    ("com_hull_10",),
    ("com_hull_20",),
    ("com_hull_10", "com_hull_20"),
    ("com_hull_strict", "com_hull_10", "com_hull_20"),
]
FAMILIES = ("polycubes", "extrusions", "revolutions", "brackets", "cups", "household")


def draw_task(random: np.random.Generator) -> dict[str, Any]:
    """Draw a random task as plain values."""
    visible = int(random.integers(1, 4))
    real = bool(random.random() < 0.4)
    return {
        "seed": int(random.integers(0, 2**31)),
        "rows": int(random.integers(1, 6)),
        "backend": str(random.choice(kernels.available_backends())),
        "shapes": str(random.choice(FAMILIES)) if real else None,
        "grid": [int(n) for n in random.integers(8 if real else 4, 21, 2)],
        "orientations": int(random.integers(1, 7)),
        "window": int(random.integers(2, 7)),
        "height": float(random.choice([0.05, 0.08, 0.12])),
        "illegal_share": float(random.choice([0.0, 0.0, 0.2])),
        "params": {
            "num_items": int(random.integers(max(4, visible + 1), 12)),
            "num_visible": visible,
            "preview": int(random.integers(0, 2)),
            "grid_step": int(random.integers(1, 4)),
            "stability": str(random.choice(["com_hull", "com_hull", "none"])),
            "contact_tol": None if random.random() < 0.6 else 0.0,
            "action_mode": str(random.choice(["placement", "placement", "candidate"])),
            "num_candidates": int(random.integers(1, 40)),
            "item_order": str(random.choice(["arrival", "volume"])),
            "illegal_action": str(random.choice(["terminate", "noop"])),
        },
    }


def draw_standing(random: np.random.Generator, backend: str | None) -> dict[str, Any]:
    """Draw a random task of a small grid with ``surest`` rules."""
    task = draw_task(random)
    params: dict[str, Any] = {}
    task["grid"] = [int(n) for n in random.integers(4, 7, 2)]
    task |= {"shapes": None, "orientations": int(random.integers(1, 4))}
    task |= {"illegal_share": float(random.choice([0.0, 0.1])), "backend": backend}
    params["num_visible"] = int(random.integers(1, 3))
    params["grid_step"] = int(random.integers(1, 3))
    params["stability"] = str(random.choice(["com_hull", "com_hull", "com_hull_strict", "none"]))
    params["surest"] = SUREST[int(random.integers(len(SUREST)))]
    params["contact_tol"] = (None, 0.0, 0.002)[int(random.integers(3))]
    params["illegal_action"] = str(random.choice(["terminate", "noop", "project"]))
    return {**task, "params": task["params"] | params}


def build(task: dict[str, Any]) -> PackingEnv:
    """Build the environment of a task."""
    x, y = task["grid"]
    shell = {"seed": task["seed"]}
    if task["shapes"]:
        params = dict(task["params"])
        if params["contact_tol"] is None:
            params["contact_tol"] = 0.02  # one cell, as for the other items
        return make_env(
            "irregular",
            num_envs=task["rows"],
            items={"source": "shapes", "families": (task["shapes"],), "use_cache": False},
            orientations="yaw",
            container=(x * 0.02, y * 0.02, 3 * task["height"]),
            cell=0.02,
            pool_size=32,
            reward=REWARD,
            **shell,
            **params,
        )
    catalogue = random_catalogue(
        task["seed"],
        num_items=8,
        num_orientations=task["orientations"],
        window=min(task["window"], x, y),
        container=(x * 0.01, y * 0.01, task["height"]),
    )
    return small_env(catalogue, task["rows"], shell=shell, reward=REWARD, **task["params"])


def play(env: PackingEnv, task: dict[str, Any], limit: int) -> dict[str, int]:
    """Compare up to 12 decisions per row with the reference; return the counts of comparisons."""
    generator = torch.Generator().manual_seed(task["seed"])
    root = env.reset()
    referee = Referee(env)
    referee.begin(torch.ones_like(root["done"]), root)
    finished = 0
    for _ in range(min(12, limit)):
        mask = root["action_mask"]
        shape = mask.shape[:1]
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
        action = choose_uniform(mask, uniform)
        # The reference does not specify to which placement an action out of range is projected.
        beyond = 0 if env.params.illegal_action == "project" else 2
        wild = torch.randint(-beyond, mask.shape[1] + beyond, shape, generator=generator)
        astray = torch.rand(shape, generator=generator) < task["illegal_share"]
        root.set("action", torch.where(astray, wild, action))
        decisions = referee.decide(root["action"])
        following = env.step(root)["next"]
        referee.step(decisions, following)
        finished += int(following["done"].sum())
        root = env.maybe_reset(env.step_mdp(root))
        referee.begin(following["done"], root)
    lattice = env.params.lattice[0] * env.params.lattice[1]
    places = env.params.num_visible * env.catalogue.num_orientations * lattice
    return {
        "steps": referee.steps,
        "mask_bits": referee.steps * places,
        "episodes": finished,
    }


def main() -> int:
    """Play random tasks until enough steps are compared, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--standing", action="store_true", help="rules for packings that stand")
    parser.add_argument("--backend", default=None, help="kernels with --standing; default: any")
    parser.add_argument("--out", default="benchmarks/results/fuzz_reference.json")
    args = parser.parse_args()
    random = np.random.default_rng(args.seed)
    totals: dict[str, int] = {"tasks": 0, "tasks_with_shapes": 0, "steps": 0}
    report = provenance(args)
    started = time.perf_counter()
    while totals["steps"] < args.steps:
        task = draw_standing(random, args.backend) if args.standing else draw_task(random)
        kernels.set_backend(task["backend"])
        try:
            env = build(task)
            counts = play(env, task, args.steps)
        except CheckError as error:
            print(f"DIFFERENT: {error}\n{task}", file=sys.stderr)
            write_json(args.out, {**report, **totals, "difference": str(error), "task": task})
            return 1
        totals["tasks"] += 1
        totals["tasks_with_shapes"] += task["shapes"] is not None
        counts[f"steps_of_engine_{env.engine.name}"] = counts["steps"]
        for name, count in counts.items():
            totals[name] = totals.get(name, 0) + count
        if totals["tasks"] % 25 == 0:
            print(f"{totals} {time.perf_counter() - started:.0f} s", flush=True)
    seconds = round(time.perf_counter() - started, 1)
    write_json(args.out, {**report, **totals, "differences": 0, "seconds": seconds})
    print(f"no difference in {totals['steps']} steps, {seconds} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
