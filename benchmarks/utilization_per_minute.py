"""Utilization over wall-clock time, agent by agent, while they train.

    python benchmarks/utilization_per_minute.py [--experiments learn_cuboid_dqn learn_cuboid_ppo]
        [--seeds 0 1] [--minutes 2.5] [--out FILE.json] [--plot FILE.png] [key=value ...]

Each run is one `packing train experiment=...` on one thread; further arguments are passed to it.
The plot shows the log: the mean utilization of the episodes that ended since the previous row of
the log. The agent explores in these episodes. The clock starts with training. A first short run of
each experiment fills the cache of compiled kernels and is discarded.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib
import torch

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from provenance import provenance, read_arguments, write_json

COLUMNS = ("seconds", "frames", "utilization")


def train(
    folder: Path, experiment: str, seed: int, limits: list[str], overrides: list[str]
) -> list[list[float]]:
    """Train one run and return the rows of its log: seconds, frames, utilization."""
    command = [
        sys.executable, "-m", "agents.cli", "train", f"experiment={experiment}",
        f"seed={seed}", f"run_dir={folder}",
        "checkpoint.replay=false", "evaluation.instances=0", *limits, *overrides,
    ]  # fmt: skip
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    with (folder / "metrics.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    log = [[float(row[name]) for name in COLUMNS] for row in rows]
    return [row for row in log if math.isfinite(row[-1])]


def draw(runs: list[dict[str, Any]], path: str) -> None:
    """Plot a line per run, a colour per experiment."""
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    experiments = list(dict.fromkeys(run["experiment"] for run in runs))
    for run in runs:
        colour = f"C{experiments.index(run['experiment'])}"
        minutes = [row[0] / 60 for row in run["rows"]]
        label = run["experiment"] if run["seed"] == runs[0]["seed"] else None
        axes.plot(minutes, [row[2] for row in run["rows"]], color=colour, alpha=0.8, label=label)
    axes.set(xlabel="minutes of training", ylabel="utilization")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Train every experiment with every seed; write the JSON and the plot."""
    torch.set_num_threads(1)  # as in the runs
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    experiments = ["learn_cuboid_dqn", "learn_cuboid_ppo"]
    parser.add_argument("--experiments", nargs="+", default=experiments)
    parser.add_argument("--minutes", type=float, default=2.5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--out", default=None)
    parser.add_argument("--plot", default=None)
    arguments, overrides = read_arguments(parser)
    wrong = [word for word in overrides if "=" not in word or word.startswith("-")]
    if wrong:
        sys.exit(f"{wrong[0]} is neither an option nor key=value; --help lists the options")
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for experiment in arguments.experiments:
            short = ["trainer.minutes=null", "trainer.frames=6000"]
            train(Path(folder) / f"{experiment}-first", experiment, 0, short, overrides)
            limits = [f"trainer.minutes={arguments.minutes}", "trainer.frames=1e9"]
            for seed in arguments.seeds:
                place = Path(folder) / f"{experiment}-{seed}"
                rows = train(place, experiment, seed, limits, overrides)
                runs.append({"experiment": experiment, "seed": seed, "rows": rows})
                last = (
                    f"{rows[-1][2]:.3f} after {rows[-1][0]:.0f} s" if rows else "no episode ended"
                )
                print(f"{experiment}, seed {seed}: {last}")
    if arguments.out:
        write_json(arguments.out, provenance(arguments) | {"columns": COLUMNS, "runs": runs})
    if arguments.plot:
        draw(runs, arguments.plot)


if __name__ == "__main__":
    main()
