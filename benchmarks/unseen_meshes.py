"""Values of afterstates on meshes that training never saw; resumable.

    python benchmarks/unseen_meshes.py blobs --data DIR [--work DIR] [--out ...] [key=value ...]
    python benchmarks/unseen_meshes.py folds --data DIR [--folds 3] [--copies 0.7 1.0 1.35]
        [--ms 100] [--searched 128]

`blobs`: the 200 objects of `DIR/pools/random_blobs_*.npz`, the last 50 held out, in a cube of
0.2 m. `--folds` is the number of seeds. `folds`: cross-validation over the files of `DIR/meshes`,
which are assigned to the folds in a random order (seed 0). Every run is one `packing train
experiment=learn_meshes`. With `--copies`, a run also trains on copies of its meshes at these
scales, because a few meshes have only a few sizes. Agent and heuristics then pack the same
sequences of held-out meshes, at their true size. With `--ms` the agent packs the first `--searched`
sequences again, with that many milliseconds of search per decision. Differences are paired by
instance.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from learning import export_blobs, revision_of, trained
from lookahead import first, summary
from omegaconf import DictConfig
from provenance import provenance, read_arguments, write_json

from agents import load_policy
from agents.config.build import build_held_out, build_heuristics
from agents.config.compose import compose
from agents.search import Budget, Lookahead
from agents.training.evaluate import Evaluation, evaluate, paired_difference
from packing_env.items.meshes.load import SUPPORTED


def deal(files: list[Path], folds: int, work: Path) -> list[Path]:
    """Return a folder of links per fold, named so that the fold's meshes come last."""
    random.Random(0).shuffle(files)
    folders = []
    for fold in range(folds):
        folder = work / f"meshes{fold}"
        folder.mkdir(parents=True, exist_ok=True)
        for k, file in enumerate(files):
            link = folder / f"{'test' if k % folds == fold else 'a'}_{k:03d}_{file.name}"
            if not link.exists():
                link.hardlink_to(file)
        folders.append(folder)
    return folders


def compare(run: Path, config: DictConfig, ms: float | None, searched: int) -> dict[str, Any]:
    """Play the held-out meshes; return utilization by policy, and the differences, paired."""
    env, count = build_held_out(config), int(config.evaluation.instances)
    evaluations: dict[str, Evaluation] = {
        "afterstate": evaluate(env, load_policy(str(run), env), count)
    }
    others = build_heuristics(config.evaluation.heuristics, env)
    evaluations |= {name: evaluate(env, policy, count) for name, policy in others.items()}
    played: dict[str, Any] = {
        "instances": count,
        "policies": {n: summary(f) for n, f in evaluations.items()},
    }
    played["paired_difference"] = differences(evaluations["afterstate"], evaluations, others)
    if ms is not None:
        search = Lookahead(env, partial(load_policy, str(run)), budget=Budget(ms=ms))
        result = evaluate(env, search, searched)
        part = {n: first(f, searched) for n, f in evaluations.items()}
        played["search"] = {"ms": ms, **summary(result)}
        played["search"]["paired_difference"] = differences(result, part, part)
    return played


def differences(
    own: Evaluation, found: dict[str, Evaluation], names: Iterable[str]
) -> dict[str, dict[str, float]]:
    """Return the paired differences of a policy to others, and their share of the others' mean."""
    made = {}
    for name in names:
        gap = paired_difference(own, found[name])
        relative = gap.mean / found[name].estimate("utilization").mean
        made[name] = {**vars(gap), "relative": relative}
    return made


def splits(kind: str, data: Path, folds: int, work: Path) -> list[list[str]]:
    """Return the overrides of every run: its folder, the held-out share, and the container."""
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
        share = (len(held_out) - 0.5) / len(files)  # rounds up to the number of files held out
        made.append([f"items.paths=[{folder.resolve()}]", f"items.holdout={share:.4f}"])
    return made


def main() -> None:
    """Run the missing splits; write the JSON after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("blobs", "folds"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--copies", type=float, nargs="+", default=[1.0])
    parser.add_argument("--ms", type=float)
    parser.add_argument("--searched", type=int, default=128)
    parser.add_argument("--work", type=Path, default=Path("runs/unseen_meshes"))
    parser.add_argument("--out")
    args, overrides = read_arguments(parser)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    for split, given in enumerate(splits(args.kind, args.data, args.folds, args.work)):
        place = args.work / f"{args.kind}_run{split}"
        shown = [*given, *overrides]
        copies = [f"env.scales={args.copies}", "evaluation.instances=1"]
        run = trained("learn_meshes", split, place, [*shown, *copies])
        config = compose("train", ["experiment=learn_meshes", *shown])
        found.append(
            {
                "revision": revision_of(place),
                "settings": shown[1:],
                "copies": args.copies,
                "frames": run["training"]["frames"],
                "training_seconds": run["training"]["elapsed"],
                **compare(place, config, args.ms, args.searched),
            }
        )
        out = args.out or f"benchmarks/results/unseen_{args.kind}.json"
        write_json(out, provenance() | {"command": command(args, overrides), **gains(found)})
        print(found[-1]["policies"], found[-1].get("search"), flush=True)


def command(args: argparse.Namespace, overrides: list[str]) -> str:
    """Return the command line without the paths of this machine."""
    copies = " ".join(map(str, args.copies))
    search = f" --ms {args.ms:g} --searched {args.searched}" if args.ms else ""
    given = "".join(f" {text}" for text in overrides)
    return (
        f"python benchmarks/unseen_meshes.py {args.kind} --data DIR --folds {args.folds} --copies "
        f"{copies}{search}{given}"
    )


def gains(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the splits, and the mean over them of the relative gain over each heuristic."""
    parts = {"": found, "_of_search": [split["search"] for split in found if "search" in split]}
    made: dict[str, Any] = {"splits": found}
    for name, splits in parts.items():
        if splits:
            rules = splits[0]["paired_difference"]
            made[f"relative_gain{name}"] = {
                rule: statistics.fmean(s["paired_difference"][rule]["relative"] for s in splits)
                for rule in rules
            }
    return made


if __name__ == "__main__":
    main()
