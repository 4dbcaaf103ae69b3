"""`packing adapt`: the gain on five splits of BED-BPP, and the effect of useless histories.

    python benchmarks/adapt.py ORDERS [--minutes 1] [--base-minutes 2.5] [--work DIR]

ORDERS is the file of BED-BPP's orders. The base is an agent that was trained for `--base-minutes`
on boxes whose sides are uniform in BED's ranges (`benchmarks/bed_orders.py`). For each split, the
history is drawn from one half of the articles, and the base is adapted to it for `--minutes`. The
base and the adapted agent then pack orders of the other half. Useless histories are drawn from the
distribution on which `pretrained/cuboid_online` was trained, so this agent has nothing to learn
from them. Parts that are complete in DIR are not repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import bed_orders
import torch
from learning import half_width
from provenance import provenance, write_json

import agents
from agents.cli.main import main as packing
from agents.training import runs
from agents.training.evaluate import Evaluation, evaluate, paired_difference
from packing_env import make_env
from packing_env.generators.cuboids.loads import Kind

RESULTS = "results.json"
RS_125 = "pretrained/cuboid_online"


def train_base(folder: Path, minutes: float) -> Path:
    """Train the base on boxes with uniform sides; return its folder."""
    run = folder / "base"
    if (run / RESULTS).is_file():
        return run
    path = bed_orders.write(
        folder / "uniform.json", bed_orders.uniform_boxes(0), count=1000, seed=0
    )
    task = bed_orders.TASK | {"num_envs": 64}
    options = [f"env.{key}={json.dumps(value)}".replace('"', "") for key, value in task.items()]
    command = ["train", "env=cuboid_online", "agent=afterstate", *options]
    command += ["generator=cuboid_sequences", f"generator.path={path}", "curve=null"]
    command += ["trainer.frames=1e9", f"trainer.minutes={minutes}", f"run_dir={run}"]
    ended(packing(command))
    return run


def adapted(base: str, history: Path, run: Path, minutes: float) -> dict[str, Any]:
    """Adapt a base to a history; return `results.json`, and whether the weights were saved."""
    if not (run / RESULTS).is_file():
        words = ["--history", str(history), "--minutes", str(minutes), "--out", str(run)]
        ended(packing(["adapt", base, *words]))
    results = runs.read_json(run / RESULTS)
    return {
        "saved": (run / "checkpoints").is_dir(),
        "decisions": results["training"]["frames"],
        "seconds": results["training"]["seconds"],
        "held_out": results["num_instances"],
        "old": results["policies"]["old"]["summary"]["utilization"],
        "gain_on_held_out": results["paired_difference_in_utilization"]["new - old"],
    }


def play(run: Path, orders: Path, count: int) -> Evaluation:
    """Play orders with the weights of a run."""
    generator = {"name": "cuboid_sequences", "path": str(orders), "own_container": False}
    options = bed_orders.TASK | {"draw": "sequential", "generator": generator}
    env = make_env("cuboid_online", 50, **options)
    return evaluate(env, agents.load_policy(run, env), count)


def split(
    args: argparse.Namespace, kinds: list[Kind], base: Path, seed: int, work: Path
) -> dict[str, Any]:
    """Adapt to one half of the articles, and play the other half with both weights."""
    run = work / f"split{seed}"
    done = run / "split.json"
    if done.is_file():
        return runs.read_json(done)
    first, second = bed_orders.halves(kinds, seed)
    history = bed_orders.write(work / f"history{seed}.json", first, count=args.history, seed=seed)
    test = bed_orders.write(work / f"test{seed}.json", second, count=args.test, seed=100 + seed)
    found = adapted(str(base), history, run, args.minutes)
    before = play(base, test, args.test)
    after = play(run, test, args.test) if found["saved"] else before
    found["test_old"] = vars(before.estimate("utilization"))
    found["test_new"] = vars(after.estimate("utilization"))
    found["gain_on_test"] = vars(paired_difference(after, before))
    runs.write_json(done, found)
    return found


def ended(code: int) -> None:
    """Exit with the code of a command that failed."""
    if code:
        raise SystemExit(code)


def main() -> None:
    """Adapt to every history and write the JSON after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("orders")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--base-minutes", type=float, default=2.5)
    parser.add_argument("--useless-minutes", type=float, default=0.15)
    parser.add_argument("--history", type=int, default=300)
    parser.add_argument("--test", type=int, default=100)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--useless", type=int, default=20)
    parser.add_argument("--work", type=Path, default=Path("runs/adapt"))
    parser.add_argument("--out", default="benchmarks/results/adapt.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    work, out = args.work, args.out
    args.orders = Path(args.orders).name
    args.work = args.out = None  # not part of the result
    result = provenance(args)
    result["command"] = f"python benchmarks/adapt.py {args.orders}"  # `arguments` holds the options
    kinds = bed_orders.lines(parser.parse_args().orders)
    # 1. The splits of BED-BPP.
    base = train_base(work, args.base_minutes)
    result["splits"] = []
    for seed in range(args.splits):
        entry = split(args, kinds, base, seed, work)
        result["splits"].append(entry)
        gains = {
            key: [each[key]["mean"] for each in result["splits"]]
            for key in ("gain_on_held_out", "gain_on_test")
        }
        result["over_splits"] = {
            key: {"mean": statistics.fmean(means), "half_width": half_width(means)}
            for key, means in gains.items()
        }
        write_json(out, result)
    # 2. Useless histories.
    result["useless"] = []
    for seed in range(args.useless):
        path = bed_orders.write_shuffled(
            work / f"shuffled{seed}.json", count=args.history, seed=seed
        )
        entry = adapted(RS_125, path, work / f"useless{seed}", args.useless_minutes)
        result["useless"].append(entry)
        result["useless_kept"] = sum(not each["saved"] for each in result["useless"])
        write_json(out, result)


if __name__ == "__main__":
    main()
