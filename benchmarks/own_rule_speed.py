"""Speed of a user's stability rule compared with the built-in rule of the same formula.

    python benchmarks/own_rule_speed.py [--rows 1024] [--steps 30] [--repeats 9]

Three environments of `cuboid_online` differ in their rule: `center_hull`; the same formula
registered by a user before the first environment, which is compiled; and the same formula
registered later, which torch evaluates. They play random legal actions in turn, on one thread. The
results are decisions per second of CPU time, and the ratios of each repeat to the built-in rule.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from provenance import provenance, write_json

from packing_env import PackingEnv, make_env
from packing_env.core import stability
from packing_env.kernels import stability_rules

FORMULA = "center_hull"
EARLY, LATE = "own rule, compiled", "own rule, torch"


def environments(rows: int) -> dict[str, PackingEnv]:
    """Return an environment per rule; rules that come after the first step are not compiled."""
    formula = stability_rules.RULES[FORMULA]
    envs: dict[str, PackingEnv] = {}
    for name, rule in (("built-in rule", FORMULA), (EARLY, "early"), (LATE, "late")):
        if rule == "late":
            stability.register(rule, formula)
        envs[name] = make_env(
            "cuboid_online", num_envs=rows, seed=0, stability=rule, stability_metric=rule
        )
        seconds(envs[name], 1)
    return envs


def seconds(env: PackingEnv, steps: int) -> float:
    """Return the CPU seconds of random legal steps."""
    torch.manual_seed(0)
    root = env.reset()
    start = time.process_time()
    for _ in range(steps):
        _, root = env.step_and_maybe_reset(env.rand_action(root))
    return time.process_time() - start


@torch.no_grad()
def main() -> None:
    """Measure, print, and write the file."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=30, help="steps per repeat")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", default="benchmarks/results/own_rule_speed.json")
    args = parser.parse_args()
    stability.register("early", stability_rules.RULES[FORMULA])
    envs = environments(args.rows)
    spent: dict[str, list[float]] = {name: [] for name in envs}
    for repeat in range(-1, args.repeats):  # the first is not timed
        for name, env in envs.items():
            cpu_seconds = seconds(env, args.steps)
            if repeat >= 0:
                spent[name].append(cpu_seconds)
    base = spent["built-in rule"]
    results = {}
    for name, times in spent.items():
        ratios = [first / own for first, own in zip(base, times, strict=True)]
        results[name] = {
            "decisions_per_cpu_second": args.rows * args.steps / statistics.median(times),
            "ratio_to_built_in": statistics.median(ratios),
            "ratio_range": [min(ratios), max(ratios)],
        }
        print(
            f"{name}: {results[name]['decisions_per_cpu_second']:,.0f} decisions per CPU second, "
            f"{results[name]['ratio_to_built_in']:.2f} of the built-in rule"
        )
    write_json(args.out, provenance(args) | {"rules": results})


if __name__ == "__main__":
    main()
