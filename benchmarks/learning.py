"""Learning test: an agent with several seeds, compared with heuristics on held-out instances.

    python benchmarks/learning.py shapes [--seeds 0 1 2] [--out ...] [key=value ...]
    python benchmarks/learning.py blobs --data DIR

Every seed is one `packing train experiment=learn_irregular` (or `learn_blobs`) of five minutes on
two cores. It is evaluated on the same 256 held-out instances as every heuristic; `random_legal`
plays them with the same number of seeds. `blobs` exports the 200 random objects of
`DIR/pools/random_blobs_*.npz` to STL files, trains on the first 150 and tests on the last 50.
Further arguments are passed to `packing train`.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import trimesh
from omegaconf import DictConfig, OmegaConf
from provenance import provenance, read_arguments, write_json

from agents import heuristics
from agents.config.build import build_held_out
from agents.config.compose import compose
from agents.estimate import NORMAL_95
from agents.nested import leaves
from agents.training.evaluate import evaluate
from packing_env import PackingEnv

STUDENT_95 = {
    2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262,
}  # fmt: skip
"""Two-sided 95 % quantile of Student's t, by count of samples."""


def export_blobs(data: Path, folder: Path) -> None:
    """Write one STL file per object of the pool, numbered in its order."""
    archive = np.load(next((data / "pools").glob("random_blobs_*.npz")))
    vertex, face = archive["v_off"], archive["f_off"]
    for k in range(len(vertex) - 1):
        mesh = trimesh.Trimesh(
            archive["verts"][vertex[k] : vertex[k + 1]],
            archive["faces"][face[k] : face[k + 1]].astype(np.int64),
            process=False,
        )
        mesh.export(folder / f"blob_{k:03d}.stl")


def trained(experiment: str, seed: int, folder: Path, overrides: list[str]) -> dict[str, Any]:
    """Return the `results.json` of a run; train unless it exists.

    An interrupted run continues from its newest checkpoint. A run whose settings differ from the
    experiment's current ones is repeated. `origin.json` in the run's folder holds the revision that
    finished the run.
    """
    done, checkpoints = folder / "results.json", folder / "checkpoints"
    config = compose("train", [f"experiment={experiment}", f"seed={seed}", *overrides])
    now = leaves(OmegaConf.to_container(config, resolve=True))
    resume = []
    if (folder / "config.yaml").is_file() and same_settings(now, folder):
        results: dict[str, Any] = json.loads(done.read_text("utf-8")) if done.is_file() else {}
        if "policies" in results:
            return results
        resume = [f"resume={folder}"] if any(checkpoints.glob("*")) else []
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    results = train(experiment, seed, folder, [*overrides, *resume])
    write_json(str(folder / "origin.json"), {"revision": provenance()["revision"]})
    return results


def same_settings(now: dict[str, Any], folder: Path) -> bool:
    """Return whether a run's settings are the experiment's current ones.

    A run saves the number of footprints that its network chose; an experiment does not set it.
    """
    saved = OmegaConf.load(folder / "config.yaml")
    assert isinstance(saved, DictConfig)
    then = leaves(OmegaConf.to_container(saved, resolve=True))
    common = (now.keys() & then.keys()) - {"run_dir", "resume"}
    common -= {key for key in common if key.endswith("network.footprints") and now[key] is None}
    return all(now[key] == then[key] for key in common)


def revision_of(folder: Path) -> str:
    """Return the revision that trained a run."""
    return str(json.loads((folder / "origin.json").read_text(encoding="utf-8"))["revision"])


def train(experiment: str, seed: int, folder: Path, overrides: list[str]) -> dict[str, Any]:
    """Train one run and return its `results.json`."""
    command = [
        str(Path(sys.executable).with_name("packing")),
        "train",
        f"experiment={experiment}",
        f"seed={seed}",
        f"run_dir={folder}",
        *overrides,
    ]
    print(" ".join(command[1:]), flush=True)
    subprocess.run(command, check=True)
    results: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return results


def half_width(per_seed: list[float]) -> float:
    """Return the half-width of the 95 % interval of a mean over seeds (Student's t)."""
    count = len(per_seed)
    if count < 2:
        return math.inf
    return STUDENT_95[count] * statistics.stdev(per_seed) / math.sqrt(count)


def summary(per_seed: list[list[float]]) -> dict[str, Any]:
    """Return the mean utilization with two half-widths: over seeds, and over all instances."""
    means = [statistics.fmean(values) for values in per_seed]
    flat = [value for values in per_seed for value in values]
    return {
        "mean": statistics.fmean(means),
        "per_seed": means,
        "half_width_over_seeds": half_width(means),
        "half_width_over_instances": NORMAL_95 * statistics.stdev(flat) / math.sqrt(len(flat)),
    }


def utilization_of_random(env: PackingEnv, seeds: list[int], count: int) -> list[list[float]]:
    """Return the utilization of `random_legal` on `count` instances, by seed."""
    policy = heuristics.build("random_legal", env)
    played = [evaluate(env, policy, count, seed=seed) for seed in seeds]
    return [evaluation.metrics["utilization"].tolist() for evaluation in played]


def other_policies(run: dict[str, Any], agent: str) -> dict[str, Any]:
    """Return the utilization of the heuristics that a run was evaluated with."""
    return {
        name: played["summary"]["utilization"]
        for name, played in run["policies"].items()
        if name not in (agent, "random_legal")
    }


def difference(learned: dict[str, Any], random_legal: dict[str, Any]) -> dict[str, Any]:
    """Compare two summaries; the agent beats random if it leads by the sum of the half-widths."""
    lead = learned["mean"] - random_legal["mean"]
    margin = learned["half_width_over_seeds"] + random_legal["half_width_over_seeds"]
    return {
        "difference": lead,
        "sum_of_half_widths": margin,
        "beats_random_legal": lead > margin,
    }


def main() -> None:
    """Train every seed, compare the policies, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("items", choices=("shapes", "blobs"))
    parser.add_argument("--data", type=Path, help="folder with pools/, for blobs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out")
    args, overrides = read_arguments(parser)
    out = args.out or f"benchmarks/results/learning_{args.items}.json"
    with tempfile.TemporaryDirectory() as scratch:
        experiment = "learn_irregular"
        if args.items == "blobs":
            folder = Path(scratch) / "blobs"
            folder.mkdir()
            export_blobs(args.data, folder)
            experiment = "learn_blobs"
            overrides = [f"items.paths=[{folder}]", *overrides]
        runs = [
            train(experiment, seed, Path(scratch) / f"seed{seed}", overrides) for seed in args.seeds
        ]
        count = runs[0]["num_instances"]
        env = build_held_out(compose("train", [f"experiment={experiment}", *overrides]))
        random_legal = summary(utilization_of_random(env, args.seeds, count))
    agent = next(iter(runs[0]["policies"]))
    learned = summary([run["policies"][agent]["instances"]["utilization"] for run in runs])
    compared = difference(learned, random_legal)
    data, args.data = str(args.data), None  # the location of the data is not part of the result
    report = provenance(args) | {
        "command": provenance()["command"].replace(data, "DIR"),
        "experiment": experiment,
        "instances": count,
        "training": [run["training"] for run in runs],
        "utilization": {
            agent: learned, "random_legal": random_legal, **other_policies(runs[0], agent),
        },
        "difference_to_random_legal": compared.pop("difference"),
        **compared,
    }  # fmt: skip
    write_json(out, report)
    print(
        f"{agent} {learned['mean']:.4f}, random_legal {random_legal['mean']:.4f}; "
        f"difference {report['difference_to_random_legal']:.4f}, "
        f"half-widths {report['sum_of_half_widths']:.4f}"
    )


if __name__ == "__main__":
    main()
