"""Values of afterstates on meshes that training never saw; resumable.

    python benchmarks/unseen_meshes.py blobs --data DIR [--work DIR] [--out ...] [key=value ...]
    python benchmarks/unseen_meshes.py folds --data DIR [--folds 3]

`blobs`: the 200 objects of `DIR/pools/random_blobs_*.npz`, the last 50 held out, in a cube of
0.2 m, with as many seeds as `--folds`. `folds`: cross-validation over the files of `DIR/meshes`,
dealt in an order drawn with seed 0. Every run is one `packing train experiment=learn_meshes`; its
agent and the heuristics then pack the same sequences of the held-out meshes alone. Differences are
paired by instance.
"""

from __future__ import annotations

import argparse
import random
import statistics
from pathlib import Path
from typing import Any

from learning import export_blobs, revision_of, trained
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


def splits(kind: str, data: Path, folds: int, work: Path) -> list[list[str]]:
    """Return the overrides of every run: its folder, the share held out, and the container."""
    if kind == "blobs":
        folder = work / "blobs"
        if not folder.is_dir():
            folder.mkdir(parents=True)
            export_blobs(data, folder)
        container = "env.container=[0.2,0.2,0.2]"
        return [[f"items.paths=[{folder.resolve()}]", "items.holdout=0.25", container]] * folds
    files = sorted(f for f in (data / "meshes").iterdir() if f.suffix.lower() in SUPPORTED)
    made = []
    for folder in deal(files, folds, work):
        held_out = [file for file in folder.iterdir() if file.name[0] == "t"]
        share = (len(held_out) - 0.5) / len(files)  # rounded up to the count
        made.append([f"items.paths=[{folder.resolve()}]", f"items.holdout={share:.4f}"])
    return made


def main() -> None:
    """Run the missing splits; write the JSON after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("blobs", "folds"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("runs/unseen_meshes"))
    parser.add_argument("--out")
    args, overrides = parser.parse_known_args()
    command = f"python benchmarks/unseen_meshes.py {args.kind} --data DIR " + " ".join(overrides)
    found: list[dict[str, Any]] = []
    for split, given in enumerate(splits(args.kind, args.data, args.folds, args.work)):
        place = args.work / f"{args.kind}_run{split}"
        run = trained("learn_meshes", split, place, [*given, *overrides])
        found.append({"revision": revision_of(place), "settings": given[1:]} | compare(run))
        out = args.out or f"benchmarks/results/unseen_{args.kind}.json"
        head = provenance() | {"command": command.strip()}
        write_json(out, head | {"splits": found, "relative_gain": gains(found)})
        print(found[-1]["utilization"])


def gains(found: list[dict[str, Any]]) -> dict[str, float]:
    """Return the mean over the splits of the relative gain over each heuristic."""
    names = found[0]["paired_difference"]
    return {
        name: statistics.fmean(split["paired_difference"][name]["relative"] for split in found)
        for name in names
    }


if __name__ == "__main__":
    main()
