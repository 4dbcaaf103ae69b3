"""Grid of every agent against random placements and heuristics, several seeds each; resumable.

    python benchmarks/agents_grid.py [EXPERIMENT ...] [--seeds 0 1 2] [--scale 0.1] [--work DIR]

A run is one `packing train experiment=learn_...` on one thread, for the number of decisions that
the experiment's file sets. A run takes an hour or two, so all of them take days; `--scale`
multiplies these numbers and the lengths of the schedules, and the result states the frames. All
policies of an experiment are evaluated on the same held-out instances. `random_legal` plays them
with the same number of seeds, and the difference to each heuristic is paired by instance. A
complete run with the current settings of its experiment is not repeated, and an interrupted one
continues from its last checkpoint. So the script may be stopped and restarted at any time. Rows of
other experiments stay in the output.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path
from typing import Any

from afterstates import paired
from learning import (
    STUDENT_95,
    difference,
    other_policies,
    revision_of,
    summary,
    trained,
    utilization_of_random,
)
from omegaconf import DictConfig, OmegaConf
from provenance import provenance, write_json

from agents.config.build import build_held_out
from agents.config.compose import compose
from agents.config.folders import groups

OUT = "benchmarks/results/agents.json"
SMALL = ["checkpoint.keep=1"]
SCALED = ("trainer.frames", "agent.lr_frames", "replay.sampler.beta_frames")
"""Settings that count frames of the whole run."""
ELSEWHERE = (
    "learn_blobs", "learn_irregular", "learn_afterstate", "learn_cuboid_afterstate",
    "learn_discrete_s1", "learn_discrete_s2", "learn_continuous_s1", "learn_continuous_s2",
    "learn_meshes", "learn_area_corners", "learn_com_hull", "learn_buffer", "learn_constraints",
    "learn_cube", "learn_cut1", "learn_cut2", "learn_nesting", "learn_paper", "learn_voxels",
)  # fmt: skip
"""Experiments with a result file of their own; `benchmarks/afterstates.py` writes most of them."""


def experiments() -> list[str]:
    """Return the experiments that need no files except the checkout."""
    names = [name for name in groups()["experiment"] if name.startswith("learn_")]
    return [name for name in names if name not in ELSEWHERE]


def play_random(experiment: str, seeds: list[int], count: int) -> list[list[float]]:
    """Return the utilization of `random_legal` on the held-out instances, by seed."""
    env = build_held_out(compose("train", [f"experiment={experiment}"]))
    return utilization_of_random(env, seeds, count)


def scaled(config: DictConfig, scale: float) -> list[str]:
    """Return the overrides that multiply a run's frames and schedules."""
    if scale == 1.0:
        return []
    frames = {key: OmegaConf.select(config, key) for key in SCALED}
    return [f"{key}={round(count * scale)}" for key, count in frames.items() if count]


def row(experiment: str, seeds: list[int], work: Path, scale: float) -> dict[str, Any]:
    """Return the table's row of one experiment."""
    config = compose("train", [f"experiment={experiment}"])
    folders = [work / experiment / f"seed{seed}" for seed in seeds]
    overrides = SMALL + scaled(config, scale)
    runs = [trained(experiment, s, f, overrides) for s, f in zip(seeds, folders, strict=True)]
    agent = next(iter(runs[0]["policies"]))
    count = runs[0]["num_instances"]
    learned = summary([r["policies"][agent]["instances"]["utilization"] for r in runs])
    random_legal = summary(play_random(experiment, seeds, count))
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
        "heuristics": (others := other_policies(runs[0], agent)),
        "paired_difference": {name: paired(runs, agent, name) for name in others},
        **difference(learned, random_legal),
    }


def show(name: str, found: dict[str, Any]) -> None:
    """Print one line of the table."""
    own, other = found["utilization"], found["random_legal"]
    print(
        f"{name:28s} {found['agent']:14s} {found['action_mode']:13s} "
        f"{own['mean']:.3f}±{own['half_width_over_seeds']:.3f}  "
        f"random {other['mean']:.3f}±{other['half_width_over_seeds']:.3f}  "
        f"{'beats' if found['beats_random_legal'] else 'DOES NOT BEAT'} random  "
        f"{found['frames_per_second']:.0f} frames/s  "
        + ", ".join(
            f"{value['mean']:+.3f}±{value['half_width']:.3f} {heuristic}"
            for heuristic, value in found["paired_difference"].items()
        ),
        flush=True,
    )


def main() -> None:
    """Run the missing experiments; write the JSON after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="*", help="default: every conf/experiment/learn_*")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--scale", type=float, default=1.0, help="share of the frames (default 1)")
    parser.add_argument("--work", type=Path, default=Path("runs/agents_grid"))
    parser.add_argument("--out", type=Path, default=Path(OUT))
    args = parser.parse_args()
    if len(args.seeds) not in STUDENT_95:
        parser.error(f"--seeds takes {min(STUDENT_95)} to {max(STUDENT_95)} seeds")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rows: dict[str, Any] = {}
    if args.out.is_file():
        rows = json.loads(args.out.read_text(encoding="utf-8"))["experiments"]
    for name in args.experiments or experiments():
        rows[name] = row(name, args.seeds, args.work, args.scale)
        write_json(str(args.out), provenance() | {"experiments": dict(sorted(rows.items()))})
        show(name, rows[name])


if __name__ == "__main__":
    main()
