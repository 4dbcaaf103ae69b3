"""Utilization over wall-clock time, agent by agent, while they train.

    python benchmarks/utilization_per_minute.py [--agents dqn ppo] [--minutes 3] [--seeds 0 1]
        [--out FILE.json] [--plot FILE.png] [key=value ...]

Each run is one `packing train`, by default on `cuboid_online` on one thread; further arguments go
to it. What is drawn is what the log holds: the mean utilization of the episodes that ended since
the row before, played by the agent as it explores. The clock starts with training; compiled
kernels are cached by a first short run, which is thrown away.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from provenance import provenance, write_json

COLUMNS = ("seconds", "frames", "utilization")


def train(folder: Path, agent: str, seed: int, seconds: float, overrides: list[str]) -> list[Any]:
    """The rows of one run's log: seconds, frames, utilization."""
    command = [
        "packing", "train", f"agent={agent}", f"seed={seed}", f"trainer.seconds={seconds}",
        "trainer.frames=1e9", f"run_dir={folder}", "checkpoint.replay=false", *overrides,
    ]  # fmt: skip
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    with (folder / "metrics.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [[float(row[name]) for name in COLUMNS] for row in rows if row["utilization"]]


def draw(runs: list[dict[str, Any]], title: str, path: str) -> None:
    """A line per run, a colour per agent."""
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    agents = list(dict.fromkeys(run["agent"] for run in runs))
    for run in runs:
        colour = f"C{agents.index(run['agent'])}"
        minutes = [row[0] / 60 for row in run["rows"]]
        label = run["agent"] if run["seed"] == runs[0]["seed"] else None
        axes.plot(minutes, [row[2] for row in run["rows"]], color=colour, alpha=0.8, label=label)
    axes.set(xlabel="minutes of training", ylabel="utilization", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", nargs="+", default=["dqn", "ppo"])
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--out", default=None)
    parser.add_argument("--plot", default=None)
    arguments, further = parser.parse_known_args()
    wrong = [word for word in further if "=" not in word or word.startswith("-")]
    if wrong:
        sys.exit(f"{wrong[0]}: neither an option nor key=value")
    overrides = ["env=cuboid_online", *further]
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        train(Path(folder) / "first", arguments.agents[0], 0, 1.0, overrides)
        for agent in arguments.agents:
            for seed in arguments.seeds:
                place = Path(folder) / f"{agent}-{seed}"
                rows = train(place, agent, seed, 60 * arguments.minutes, overrides)
                runs.append({"agent": agent, "seed": seed, "columns": COLUMNS, "rows": rows})
                print(f"{agent}, seed {seed}: {rows[-1][2]:.3f} after {rows[-1][0]:.0f} s")
    if arguments.out:
        write_json(arguments.out, provenance(arguments) | {"runs": runs})
    if arguments.plot:
        draw(runs, " ".join(overrides), arguments.plot)


if __name__ == "__main__":
    main()
