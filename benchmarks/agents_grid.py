"""Every agent against random legal placements, several seeds each: the grid, resumable.

    python benchmarks/agents_grid.py [EXPERIMENT ...] [--seeds 0 1 2] [--work DIR] [--out ...]

One run is one `packing train experiment=learn_...` on one thread, as long as its file says. All
policies of an experiment share its held-out instances; `random_legal` is played with as many seeds.
A run that is complete, with the settings that its experiment has now, is not repeated, so the
script may be stopped and started again; rows of experiments that were not asked for stay as they
are.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path
from typing import Any

from learning import STUDENT_95, revision_of, summary, trained
from provenance import provenance, write_json

from agents import heuristics
from agents.config.build import build_held_out
from agents.config.compose import compose, groups
from agents.training.evaluate import evaluate

OUT = "benchmarks/results/agents.json"
SMALL = ["checkpoint.replay=false"]
"""Nobody goes on from these runs."""
ELSEWHERE = ("learn_blobs", "learn_irregular")
"""Longer runs, of `benchmarks/learning.py`."""


def experiments() -> list[str]:
    """Those of at most four minutes, which need nothing but the checkout."""
    found = [name for name in groups()["experiment"] if name.startswith("learn_")]
    return [name for name in found if name not in ELSEWHERE]


def play_random(experiment: str, seeds: list[int], count: int) -> list[list[float]]:
    """Utilization of `random_legal` on the experiment's held-out instances, by seed."""
    env = build_held_out(compose("train", [f"experiment={experiment}"]))
    policy = heuristics.build("random_legal", env)
    played = [evaluate(env, policy, count, seed=seed) for seed in seeds]
    return [found.metrics["utilization"].tolist() for found in played]


def row(experiment: str, seeds: list[int], work: Path) -> dict[str, Any]:
    """The table's row of one experiment."""
    config = compose("train", [f"experiment={experiment}"])
    folders = [work / experiment / f"seed{seed}" for seed in seeds]
    runs = [trained(experiment, s, f, SMALL) for s, f in zip(seeds, folders, strict=True)]
    agent = next(iter(runs[0]["policies"]))
    count = runs[0]["num_instances"]
    learned = summary([r["policies"][agent]["instances"]["utilization"] for r in runs])
    random_legal = summary(play_random(experiment, seeds, count))
    margin = learned["half_width_over_seeds"] + random_legal["half_width_over_seeds"]
    seconds = [r["training"]["elapsed"] for r in runs]
    frames = [r["training"]["frames"] for r in runs]
    return {
        "agent": agent,
        "task": config.env.task,
        "action_mode": config.env.action_mode,
        "seeds": seeds,
        "revisions": sorted({revision_of(folder) for folder in folders}),
        "instances": count,
        "training_seconds": seconds,
        "frames": frames,
        "updates": [r["training"]["updates"] for r in runs],
        "frames_per_second": statistics.fmean(f / s for f, s in zip(frames, seconds, strict=True)),
        "utilization": learned,
        "random_legal": random_legal,
        "heuristics": {
            name: played["summary"]["utilization"]
            for name, played in runs[0]["policies"].items()
            if name not in (agent, "random_legal")
        },
        "difference": learned["mean"] - random_legal["mean"],
        "sum_of_half_widths": margin,
        "beats_random_legal": learned["mean"] - random_legal["mean"] > margin,
    }


def show(name: str, found: dict[str, Any]) -> None:
    """One line of the table."""
    own, other = found["utilization"], found["random_legal"]
    print(
        f"{name:28s} {found['agent']:14s} {found['action_mode']:13s} "
        f"{own['mean']:.3f}±{own['half_width_over_seeds']:.3f}  "
        f"random {other['mean']:.3f}±{other['half_width_over_seeds']:.3f}  "
        f"{'beats' if found['beats_random_legal'] else 'DOES NOT BEAT'} random  "
        f"{found['frames_per_second']:.0f} frames/s",
        flush=True,
    )


def main() -> None:
    """Run what is missing, write the JSON after every experiment."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="*", help="default: every conf/experiment/learn_*")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path("runs/agents_grid"))
    parser.add_argument("--out", type=Path, default=Path(OUT))
    args = parser.parse_args()
    if len(args.seeds) not in STUDENT_95:
        parser.error(f"--seeds: {min(STUDENT_95)} to {max(STUDENT_95)} of them")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rows: dict[str, Any] = {}
    if args.out.is_file():
        rows = json.loads(args.out.read_text(encoding="utf-8"))["experiments"]
    for name in args.experiments or experiments():
        rows[name] = row(name, args.seeds, args.work)
        write_json(str(args.out), provenance() | {"experiments": dict(sorted(rows.items()))})
        show(name, rows[name])


if __name__ == "__main__":
    main()
