"""The weights of RS-125 on boxes with other sides, compared with further or new training.

    python benchmarks/shift.py [--frames 200000] [--work DIR]

RS-125 has sides of 1 to 5 cells. Four policies play streams with other ranges of sides:
`pretrained/cuboid_online` unchanged, the same weights after further training
(`warm_start.checkpoint`), an agent trained from random weights with as many decisions, and the best
heuristic. All play the same held-out streams. With `--frames 0` nothing is trained.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from learning import trained
from provenance import provenance, write_json

from agents.cli.main import main as packing
from agents.estimate import Estimate
from agents.training import runs

EXPERIMENT, BASE = "learn_cuboid_afterstate", "pretrained/cuboid_online"
HEURISTICS = ["deepest_bottom_left", "lowest_z", "heightmap_minimization"]
LAWS = ((1, 5), (1, 3), (1, 4), (2, 4), (2, 5), (3, 5), (1, 6), (2, 6))
"""Ranges of sides: shortest and longest side in cells; the first is that of RS-125."""
FINE_TUNING = 2e-4
"""Learning rate of further training, between the first and the last rate of the first training."""


def settings(low: int, high: int, instances: int) -> list[str]:
    """Return the settings of a range of sides, which training and evaluation share."""
    return [
        "generator=uniform_cuboids",
        f"generator.low={low}",
        f"generator.high={high}",
        f"evaluation.instances={instances}",
        "evaluation.rows=250",
        f"evaluation.heuristics=[{','.join(HEURISTICS)}]",
    ]


def played(run: Path, law: list[str]) -> dict[str, Any]:
    """Play a range of sides with the weights of RS-125; return the `results.json`."""
    done = run / "results.json"
    if not done.is_file():
        code = packing(["eval", f"checkpoint={BASE}", *law, f"run_dir={run}"])
        if code:
            raise SystemExit(code)
    return runs.read_json(done)


def compare(low: int, high: int, args: argparse.Namespace) -> dict[str, Any]:
    """Train and play on one range of sides."""
    law, work = settings(low, high, args.instances), args.work / f"sides_{low}_{high}"
    by_policy = played(work / "unchanged", law)["policies"]
    frames = [f"trainer.frames={args.frames}", f"agent.lr_frames={args.frames}"]
    further = [f"warm_start.checkpoint={BASE}", f"agent.lr={FINE_TUNING}"]
    policies = {"unchanged": by_policy["afterstate"]}
    for name, own in (("further", further), ("anew", [])) if args.frames else ():
        run = trained(EXPERIMENT, 0, work / name, [*law, *frames, *own])
        policies[name] = run["policies"]["afterstate"]
    best = max(HEURISTICS, key=lambda name: by_policy[name]["summary"]["utilization"]["mean"])
    policies["heuristic"] = by_policy[best]
    values = {n: torch.tensor(each["instances"]["utilization"]) for n, each in policies.items()}
    pairs = [("unchanged", "heuristic")]
    if args.frames:
        pairs += [("further", "unchanged"), ("further", "anew")]
    return {
        "sides": [low, high],
        "best_heuristic": best,
        "utilization": {n: each["summary"]["utilization"] for n, each in policies.items()},
        "paired_difference": {
            f"{a} - {b}": vars(Estimate.of(values[a] - values[b])) for a, b in pairs
        },
    }


def main() -> None:
    """Play every range of sides and write the JSON after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--laws", type=int, default=len(LAWS), help="number of laws")
    parser.add_argument("--work", type=Path, default=Path("runs/shift"))
    parser.add_argument("--out", default="benchmarks/results/shift.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    options = {key: getattr(args, key) for key in ("frames", "instances")}
    command = f"python benchmarks/shift.py --frames {args.frames}"
    result = provenance() | {"command": command, "arguments": options}
    result["laws"] = []
    for low, high in LAWS[: args.laws]:
        result["laws"].append(compare(low, high, args))
        write_json(args.out, result)
        means = result["laws"][-1]["utilization"]
        print(low, high, {name: round(each["mean"], 4) for name, each in means.items()})


if __name__ == "__main__":
    main()
