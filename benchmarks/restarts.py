"""Kill processes of a job: does it restart, what is lost, and does it end as if undisturbed?

    python benchmarks/restarts.py [--trials 20] [--ranks 2] [--work DIR] [--out ...]

Each trial trains a small agent by `torchrun --max-restarts 1` and kills (SIGKILL) a random one of
its processes at a random moment after the first checkpoint. torchrun starts the processes again,
and they continue from the newest checkpoint. The result counts trials that end with exit code 0
after all frames, frames that were played twice (at most one interval between checkpoints), and
trials in which the final states of all processes equal those of an undisturbed job bit for bit.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from agents.training import checkpoint

FRAMES, SAVE_EVERY, LOG_EVERY = 1024, 128, 32
JOB = [
    "items=example_cuboids", "items.extents=[[0.02,0.02,0.02],[0.04,0.02,0.02]]",
    "env.container=[0.08,0.08,0.06]", "env.cell=0.02", "env.num_items=6", "env.num_envs=4",
    "env.pool_size=24", "agent.batch_size=4", "network.channels=4", "replay=prioritized",
    "replay.capacity=200", "trainer.warmup=16", "trainer.update_every=16", "curve=null",
    f"trainer.frames={FRAMES}", f"trainer.save_every={SAVE_EVERY}",
    f"trainer.log_every={LOG_EVERY}",
]  # fmt: skip
CONTINUED = re.compile(r"continuing from \S+, after ([\d,]+) frames")


def launch(folder: Path, ranks: int, restarts: int) -> subprocess.Popen[bytes]:
    """Start a job that writes into ``folder``, and its output beside it."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={ranks}", f"--max-restarts={restarts}", "-m", "agents.cli"]
    with folder.with_suffix(".log").open("wb") as output:
        return subprocess.Popen(
            [*command, "train", *JOB, f"run_dir={folder}", "resume=auto"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def logged_frames(folder: Path) -> int:
    """Return the frames of the last line of the job's log; 0 before the first."""
    path = folder / "metrics.csv"
    if not path.is_file():
        return 0
    with path.open(newline="", encoding="utf-8") as file:
        frames = [row["frames"] for row in csv.DictReader(file)]
    return int(frames[-1]) if frames and (frames[-1] or "").isdigit() else 0


def children(pid: int) -> list[int]:
    """Return the processes that a process started (Linux)."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def trial(folder: Path, ranks: int, dice: random.Random) -> dict[str, Any]:
    """Train, kill one process on the way, and return what happened."""
    job = launch(folder, ranks, restarts=1)
    moment = dice.randrange(SAVE_EVERY + LOG_EVERY, FRAMES - 2 * LOG_EVERY)
    while logged_frames(folder) < moment and job.poll() is None:
        time.sleep(0.02)
    time.sleep(dice.uniform(0.0, 0.3))
    killed_at, processes = logged_frames(folder), children(job.pid)
    victim = dice.randrange(len(processes))
    os.kill(processes[victim], signal.SIGKILL)
    code = job.wait(timeout=900)
    said = folder.with_suffix(".log").read_text(errors="replace")
    resumed = [int(each.replace(",", "")) for each in CONTINUED.findall(said)]
    return {
        "killed_process": victim,
        "killed_at": killed_at,
        "resumed_at": resumed[-1] if resumed else None,
        "lost": killed_at - resumed[-1] if resumed else None,
        "exit_code": code,
        "frames": logged_frames(folder),
    }


def states(folder: Path, ranks: int) -> list[Any]:
    """Return the final state of every process, without clocks."""
    final = []
    for rank in range(ranks):
        state = checkpoint.load(folder, rank=rank).state
        del state["counters"]["elapsed"], state["waiting"]["logged"]
        final.append(state)
    return final


def equal(one: Any, other: Any) -> bool:
    """Return whether two states are equal bit for bit (NaN equals NaN)."""
    if isinstance(one, torch.Tensor):
        same = one.shape == other.shape and one.dtype == other.dtype
        return same and torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def main() -> None:
    from provenance import provenance, write_json  # beside this file

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", default="/tmp/packing-restarts")
    parser.add_argument("--out", default="benchmarks/results/restarts.json")
    args = parser.parse_args()
    work, dice = Path(args.work), random.Random(args.seed)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    if launch(work / "undisturbed", args.ranks, restarts=0).wait(timeout=900):
        sys.exit(f"the undisturbed job failed: see {work / 'undisturbed.log'}")
    wanted, trials = states(work / "undisturbed", args.ranks), []
    for number in range(args.trials):
        outcome = trial(work / f"trial-{number}", args.ranks, dice)
        outcome["as_undisturbed"] = equal(states(work / f"trial-{number}", args.ranks), wanted)
        print(number, outcome, flush=True)
        trials.append(outcome)
        report = {
            **provenance(),
            "ranks": args.ranks,
            "seed": args.seed,
            "frames": FRAMES,
            "save_every": SAVE_EVERY,
            "trials": trials,
            "finished": sum(t["exit_code"] == 0 and t["frames"] >= FRAMES for t in trials),
            "lost_at_most_one_interval": sum(
                t["lost"] is not None and t["lost"] <= SAVE_EVERY for t in trials
            ),
            "as_undisturbed": sum(t["as_undisturbed"] for t in trials),
        }
        write_json(args.out, report)


if __name__ == "__main__":
    main()
