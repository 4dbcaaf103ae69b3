"""Values of afterstates on meshes that training never saw: cross-validation; resumable.

    python benchmarks/meshes_by_fold.py DIR [--folds 3] [--work DIR] [--out ...] [key=value ...]

The files of DIR are dealt to the folds in an order drawn with seed 0. Every fold is one `packing
train experiment=learn_meshes` that holds the fold out; its agent and the heuristics then pack
sequences of the fold's meshes alone, the same for all. Differences are paired by instance.
"""

from __future__ import annotations

import argparse
import random
import statistics
from pathlib import Path
from typing import Any

from learning import revision_of, trained
from provenance import provenance, write_json

from agents.training.evaluate import NORMAL_95
from packing_env.items.meshes.load import SUPPORTED


def deal(files: list[Path], folds: int, work: Path) -> list[Path]:
    """Return a folder of links per fold, named so that the fold's meshes come last."""
    random.Random(0).shuffle(files)
    made = []
    for fold in range(folds):
        folder = work / f"meshes{fold}"
        folder.mkdir(parents=True, exist_ok=True)
        for k, file in enumerate(files):
            link = folder / f"{'test' if k % folds == fold else 'a'}_{k:03d}_{file.name}"
            if not link.exists():
                link.hardlink_to(file)
        made.append(folder)
    return made


def compare(run: dict[str, Any]) -> dict[str, Any]:
    """Return a fold's utilization by policy, and the differences to each heuristic, paired."""
    values = {name: part["instances"]["utilization"] for name, part in run["policies"].items()}
    agent, *others = values
    count = run["num_instances"]
    half = {n: NORMAL_95 * statistics.stdev(v) / count**0.5 for n, v in values.items()}
    differences = {}
    for name in others:
        gaps = [a - b for a, b in zip(values[agent], values[name], strict=True)]
        mean = statistics.fmean(gaps)
        differences[name] = {
            "mean": mean,
            "half_width": NORMAL_95 * statistics.stdev(gaps) / count**0.5,
            "relative": mean / statistics.fmean(values[name]),
        }
    return {
        "instances": count,
        "frames": run["training"]["frames"],
        "training_seconds": run["training"]["elapsed"],
        "utilization": {
            n: {"mean": statistics.fmean(v), "half_width": half[n]} for n, v in values.items()
        },
        "paired_difference": differences,
    }


def main() -> None:
    """Run the missing folds; write the JSON after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("meshes", type=Path)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("runs/meshes_by_fold"))
    parser.add_argument("--out", default="benchmarks/results/meshes_by_fold.json")
    args, overrides = parser.parse_known_args()
    files = sorted(file for file in args.meshes.iterdir() if file.suffix.lower() in SUPPORTED)
    head = provenance() | {
        "command": "python benchmarks/meshes_by_fold.py DIR " + " ".join(overrides),
        "files": [file.name for file in files],
    }
    found: list[dict[str, Any]] = []
    for fold, folder in enumerate(deal(files, args.folds, args.work)):
        held_out = [file.name[9:] for file in sorted(folder.iterdir()) if file.name[0] == "t"]
        share = (len(held_out) - 0.5) / len(files)  # rounded up to the count
        given = [f"items.paths=[{folder.resolve()}]", f"items.holdout={share:.4f}", *overrides]
        place = args.work / f"fold{fold}"
        run = trained("learn_meshes", fold, place, given)
        found.append({"held_out": held_out, "revision": revision_of(place)} | compare(run))
        write_json(args.out, head | {"folds": found, "relative_gain": gains(found)})
        print(found[-1]["utilization"])


def gains(folds: list[dict[str, Any]]) -> dict[str, float]:
    """Return the mean over the folds of the relative gain over each heuristic."""
    names = folds[0]["paired_difference"]
    return {
        name: statistics.fmean(fold["paired_difference"][name]["relative"] for fold in folds)
        for name in names
    }


if __name__ == "__main__":
    main()
