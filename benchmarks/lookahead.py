"""Search on top of a policy, at several budgets per decision, on the same held-out instances.

    python benchmarks/lookahead.py TASK BASE [BASE ...] [--ms 10 100 1000]
        [--instances 500 500 100] [--rule deepest_bottom_left] [--breadth 4] [--depth 2]
        [--candidates 24] [--rows 20] [--out ...] [key=value ...]

BASE is a heuristic, a run or `pretrained/NAME`; `key=value` sets options of the environment, lists
as in `scales=[1.0]`. Every budget is compared with the base alone, and both are compared with the
heuristic `--rule`, paired by instance. `--ms` without a number only compares the base with this
heuristic. Several bases must be runs of one experiment with different seeds. Then the result has
their mean and the half-width of its interval over the seeds (Student's t). Search takes only one
base.

Milliseconds are wall-clock time, with `--threads` threads. Every plan is checked by the reference
program (`packing check`). The result is written after every budget.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from learning import half_width
from omegaconf import OmegaConf
from provenance import provenance, read_arguments, write_json

from agents import heuristics, load_policy
from agents.config.build import build_heuristics
from agents.search import Budget, Lookahead
from agents.training.evaluate import Evaluation, evaluate, paired_difference
from packing_env import PackingEnv, make_env
from packing_env.plan import save_plan
from packing_env.plan.check import check_plan


def count_sound(found: Evaluation, env: PackingEnv) -> int:
    """Return how many of the kept plans the reference program accepts."""
    sound = 0
    with tempfile.TemporaryDirectory() as folder:
        for packing in found.packings(env):
            place = Path(folder) / "plan.json"
            save_plan(place, packing)
            sound += check_plan(place).violation is None
    return sound


def main() -> None:
    """Play the instances under every budget and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    parser.add_argument("base", nargs="+")
    parser.add_argument("--ms", type=float, nargs="*", default=[10.0, 100.0, 1000.0])
    parser.add_argument("--instances", type=int, nargs="+", default=[500, 500, 100])
    parser.add_argument("--rule", default="deepest_bottom_left")
    parser.add_argument("--breadth", type=int, default=4)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--candidates", type=int)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out")
    args, overrides = read_arguments(parser)
    if args.ms and len(args.ms) != len(args.instances):
        parser.error("--instances takes one number for each of --ms")
    if args.ms and len(args.base) > 1:
        parser.error("search takes one base; give --ms without a number to compare several")
    torch.set_num_threads(args.threads)
    options: Any = OmegaConf.to_container(OmegaConf.from_dotlist(overrides))
    options |= {"split": "test", "draw": "sequential", "seed": args.seed}
    env = make_env(args.task, args.rows, **options)
    rule = args.base[0] in heuristics.HEURISTICS
    build = heuristics.build if rule else load_policy
    most = max(args.instances)
    other = build_heuristics([args.rule], env)[args.rule]
    by_seed = [evaluate(env, build(base, env), most) for base in args.base]
    alone = mean_over_seeds(by_seed)
    by_rule = evaluate(env, other, most)
    out = args.out or f"benchmarks/results/lookahead_{args.task}.json"
    place, args.out = f" --out {args.out}", None  # not part of the result
    result = provenance(args) | {"base": summary(alone), args.rule: summary(by_rule)}
    if len(by_seed) > 1:
        result["base"] |= over_seeds(by_seed)
    result["command"] = result["command"].replace(place, "")
    result["base_minus_rule"] = vars(paired_difference(alone, by_rule))
    result["search"] = []
    write_json(out, result)
    print(f"alone: {alone.estimate('utilization')} on {most} instances", flush=True)
    for ms, count in zip(args.ms, args.instances, strict=False):
        depth = None if rule else args.depth
        search = Lookahead(
            env,
            partial(build, args.base[0]),
            breadth=args.breadth,
            depth=depth,
            num_candidates=args.candidates,
            budget=Budget(ms=ms),
        )
        searched = evaluate(env, search, count, keep=count)
        entry = {"ms": ms, **summary(searched), "sound_plans": count_sound(searched, env)}
        entry["minus_base"] = vars(paired_difference(searched, first(alone, count)))
        entry["minus_rule"] = vars(paired_difference(searched, first(by_rule, count)))
        result["search"].append(entry)
        write_json(out, result)
        print(f"{ms:g} ms: {searched.estimate('utilization')} on {count} instances", flush=True)


def summary(found: Evaluation) -> dict[str, Any]:
    """Return utilization, items and time per decision."""
    return {
        "instances": len(found),
        "utilization": vars(found.estimate("utilization")),
        "items_packed": vars(found.estimate("items_packed")),
        "decision_ms": {"mean": found.decision_ms},
    }


def mean_over_seeds(by_seed: list[Evaluation]) -> Evaluation:
    """Return the evaluation whose metrics are the means over the seeds, instance by instance."""
    metrics = {
        name: torch.stack([found.metrics[name] for found in by_seed]).mean(0)
        for name in by_seed[0].metrics
    }
    decision_ms = statistics.fmean(found.decision_ms for found in by_seed)
    return replace(by_seed[0], metrics=metrics, decision_ms=decision_ms, states=None)


def over_seeds(by_seed: list[Evaluation]) -> dict[str, Any]:
    """Return the mean of each seed, and the interval of their mean over the seeds."""
    result = {}
    for name in ("utilization", "items_packed"):
        means = [found.estimate(name).mean for found in by_seed]
        result[name] = {
            "mean": statistics.fmean(means),
            "per_seed": means,
            "half_width_over_seeds": half_width(means),
        }
    return result


def first(found: Evaluation, count: int) -> Evaluation:
    """Return the evaluation of the first instances."""
    metrics = {name: values[:count] for name, values in found.metrics.items()}
    return replace(found, metrics=metrics, states=None)


if __name__ == "__main__":
    main()
