"""Values of afterstates: train several seeds and compare them with heuristics; resumable.

    python benchmarks/afterstates.py EXPERIMENT [--seeds 0 1 2] [--work DIR] [key=value ...]

A run is one `packing train experiment=EXPERIMENT` (`learn_cuboid_afterstate`, `learn_afterstate`),
of a fixed number of decisions. A complete run with the current settings is not repeated. The result
holds each seed's mean over the same held-out instances, the wall-clock time and threads of each
training, the time of a decision, and the difference to each heuristic, paired by instance.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from learning import other_policies, revision_of, summary, trained
from provenance import provenance, read_arguments, write_json

from agents.estimate import NORMAL_95


def paired(runs: list[dict[str, Any]], agent: str, other: str) -> dict[str, float]:
    """Return the mean difference over seeds and instances, with its half-width over instances."""
    theirs = runs[0]["policies"][other]["instances"]["utilization"]
    ours = [run["policies"][agent]["instances"]["utilization"] for run in runs]
    differences = [
        statistics.fmean(values) - reference
        for values, reference in zip(zip(*ours, strict=True), theirs, strict=True)
    ]
    spread = statistics.stdev(differences) / len(differences) ** 0.5
    return {"mean": statistics.fmean(differences), "half_width": NORMAL_95 * spread}


def report(experiment: str, runs: list[dict[str, Any]], folders: list[Path]) -> dict[str, Any]:
    """Return the result of all seeds."""
    agent = next(iter(runs[0]["policies"]))
    played = [run["policies"][agent] for run in runs]
    others = other_policies(runs[0], agent)
    learned = summary([part["instances"]["utilization"] for part in played])
    if len(runs) == 1:
        learned["half_width_over_seeds"] = None  # undefined for one seed
    seconds = [run["training"]["elapsed"] for run in runs]
    frames = [run["training"]["frames"] for run in runs]
    return {
        "experiment": experiment,
        "instances": runs[0]["num_instances"],
        "revisions": sorted({revision_of(folder) for folder in folders}),
        "frames": frames,
        "training_seconds": seconds,
        "decision_ms": [part["summary"]["decision_ms"]["mean"] for part in played],
        "utilization": {
            agent: learned,
            **others,
        },
        "paired_difference": {name: paired(runs, agent, name) for name in others},
    }


def main() -> None:
    """Train every seed, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path("runs/afterstates"))
    parser.add_argument("--out")
    args, overrides = read_arguments(parser)
    folders = [args.work / args.experiment / f"seed{seed}" for seed in args.seeds]
    runs = [
        trained(args.experiment, seed, folder, overrides)
        for seed, folder in zip(args.seeds, folders, strict=True)
    ]
    result = report(args.experiment, runs, folders)
    out = args.out or f"benchmarks/results/{args.experiment}.json"
    places = [f" --{name} {value}" for name in ("work", "out") if (value := getattr(args, name))]
    args.work = args.out = None  # not part of the result
    whole = provenance(args) | result
    for place in places:
        whole["command"] = whole["command"].replace(place, "")
    write_json(out, whole)
    for name, value in result["utilization"].items():
        print(f"{name} {value['mean']:.4f}")


if __name__ == "__main__":
    main()
