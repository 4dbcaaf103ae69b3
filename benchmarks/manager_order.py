"""Value of the manager's item order: a trained worker with this order, and with largest first.

    python benchmarks/manager_order.py [--seeds 0 1 2] [--work DIR] [--out ...] [key=value ...]

Every seed is one `packing train experiment=learn_hierarchical`; a complete run under `--work` is
not repeated. Then the trained policy plays the held-out instances twice: with its manager, and with
the item of the largest bounding box first, as in stage 1. Everything else is equal, and differences
are paired by instance. In the last stage the worker was trained with the manager's order, so
largest first is at a slight disadvantage. The scores of both orders and of `random_legal`, and the
length of stage 1, are reported too. Huang et al., RA-L 2023 report that the learned order packs
0.31 and 1.02 more of 50 items.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from learning import half_width, revision_of, trained
from provenance import provenance, read_arguments, write_json

from agents import heuristics
from agents.config.build import build_held_out
from agents.config.compose import compose
from agents.training import checkpoint
from agents.training.evaluate import Evaluation, evaluate, paired_difference
from agents.training.resume import load_policy
from packing_env import PackingEnv

EXPERIMENT = "learn_hierarchical"
METRICS = ("utilization", "compactness", "items_packed", "return")
ORDERS = {"manager": True, "largest_first": False}
"""Values of the policy's `learned_order`."""


def play(env: PackingEnv, policy: Any, count: int) -> dict[str, Evaluation]:
    """Play the held-out instances under both orders."""
    played = {}
    for name, policy.learned_order in ORDERS.items():
        played[name] = evaluate(env, policy, count)
    return played


def compare(seed: int, args: argparse.Namespace, overrides: list[str]) -> dict[str, Any]:
    """Compare one seed's worker under both orders."""
    folder = args.work / f"seed{seed}"
    trained(EXPERIMENT, seed, folder, overrides)
    config = compose("train", [f"experiment={EXPERIMENT}", f"seed={seed}", *overrides])
    env = build_held_out(config)
    saved = checkpoint.load(folder)
    policy = load_policy(config, saved, env)
    played = play(env, policy, args.instances)
    played["random_legal"] = evaluate(env, heuristics.build("random_legal", env), args.instances)
    return {
        "seed": seed,
        "revision": revision_of(folder),
        "frames": saved.meta["frames"],
        "stage1_frames": config.agent.stage1_frames,
        "orders": {
            name: {metric: vars(found.estimate(metric)) for metric in METRICS}
            for name, found in played.items()
        },
        "manager_minus_largest_first": {
            metric: vars(paired_difference(played["manager"], played["largest_first"], metric))
            for metric in METRICS
        },
    }


def over_seeds(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Average the paired differences over the seeds, with 95 % half-widths (Student's t)."""
    found = {}
    for metric in METRICS:
        each = [run["manager_minus_largest_first"][metric]["mean"] for run in runs]
        found[metric] = {"mean": statistics.fmean(each), "half_width_over_seeds": half_width(each)}
    return found


def main() -> None:
    """Train the missing runs, compare the orders, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--instances", type=int, default=512)
    parser.add_argument("--work", type=Path, default=Path("runs/manager_order"))
    parser.add_argument("--out", default="benchmarks/results/manager_order.json")
    args, overrides = read_arguments(parser)
    runs = [compare(seed, args, overrides) for seed in args.seeds]
    for run in runs:
        gain = run["manager_minus_largest_first"]["utilization"]
        print(f"seed {run['seed']}: {gain['mean']:+.4f}±{gain['half_width']:.4f} utilization")
    args.work = None  # the location of the runs is not part of the result
    report = {
        "experiment": EXPERIMENT,
        "runs": runs,
        "manager_minus_largest_first": over_seeds(runs),
    }
    write_json(args.out, provenance(args) | report)


if __name__ == "__main__":
    main()
