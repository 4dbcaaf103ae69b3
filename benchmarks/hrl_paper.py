"""A short training run of `experiment=hrl_paper` on a CPU, and its curve.

    nice -n 15 python benchmarks/hrl_paper.py [--minutes 20] [--run runs/hrl_paper] [KEY=VALUE ...]

The protocol is that of the experiment (200 x 200 cells and 50 items, of which 20 are offered), with
fewer rows, smaller batches and shorter stages (:data:`REDUCED`), and one thread. The sizes of the
networks are chosen to give the 10.23 MB that the paper prints. Further arguments are passed to
`packing train`. The curve is the run's `metrics.csv`. With `--collect` nothing is trained; the file
of a finished or running run is read.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from provenance import provenance, write_json

PRINTED_SIZE = (
    "network.encoder_width=16",
    "network.features=256",
    "network.hidden=192",
    "network.worker_width=28",
)
REDUCED = (
    "env.num_envs=2",
    "env.pool_size=64",
    "agent.batch_size=8",
    "agent.stage1_frames=400",
    "agent.epsilon_frames=300",
    "replay.capacity=2000",
    "trainer.warmup=40",
    "trainer.update_every=8",
    "trainer.log_every=40",
    "trainer.save_every=null",
    "evaluation.instances=2",
    "evaluation.rows=1",
    "evaluation.heuristics=[random_legal]",
)


def curve(folder: Path) -> list[dict[str, float]]:
    """Return the rows of a run's log, without empty entries."""
    with (folder / "metrics.csv").open(newline="", encoding="utf-8") as file:
        rows = [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
    return [{k: v for k, v in row.items() if math.isfinite(v)} for row in rows]


def main() -> None:
    """Train unless told not to; write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE of packing train")
    parser.add_argument("--minutes", type=float, default=20.0, help="wall-clock budget")
    parser.add_argument("--run", default="runs/hrl_paper")
    parser.add_argument("--collect", action="store_true", help="read a run, train nothing")
    parser.add_argument("--out", default="benchmarks/results/hrl_paper.json")
    args = parser.parse_args()
    report: dict[str, Any] = provenance(args) | {"load_before": os.getloadavg()}
    overrides = [*PRINTED_SIZE, *REDUCED, f"trainer.minutes={args.minutes}", *args.overrides]
    command = ["train", "experiment=hrl_paper", *overrides, f"run_dir={args.run}"]
    if not args.collect:
        single = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-m", "agents.cli", *command], check=True, env=single)
    folder = Path(args.run)
    results = folder / "results.json"
    if results.is_file():
        result = json.loads(results.read_text(encoding="utf-8"))
        report["training"] = result["training"]
        report["policies"] = {k: v["summary"] for k, v in result["policies"].items()}
    report |= {"overrides": overrides, "finished": results.is_file(), "curve": curve(folder)}
    write_json(args.out, report)


if __name__ == "__main__":
    main()
