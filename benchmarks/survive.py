"""Robustness of runs: killed saves, killed training, full disks, requests to stop.

    python benchmarks/survive.py [saves] [training] [full] [signals] [--work DIR] [--out ...]

- `saves`: a process that only writes and rotates checkpoints is killed (SIGKILL) at 50 random
  moments. Each time the newest complete checkpoint must load. It must be the last one that the
  process reported, or the one that it was writing.
- `training`: `packing train` is killed at five random moments and continues with `resume=auto`.
  Each time at most one save interval may be lost; at the end all tensors must equal those of an
  uninterrupted run, bit for bit.
- `full`: writing fails with ENOSPC in the middle of a checkpoint, and the newest one is truncated:
  the previous one must be loaded.
- `signals`: SIGTERM is sent 20 times, five times each in a step of the environment, an update, an
  evaluation and a save. The exit code must be 0, and the run must resume.
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
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from provenance import provenance, write_json

from agents.training import checkpoint

PARTS = ("saves", "training", "full", "signals")
SAVES, KILLS, STOPS = 50, 5, 5
EVERY = 1024
"""Frames between two checkpoints."""
FRAMES = 12 * EVERY
TASK = [
    "env=cuboid_online", "env.num_envs=32", "agent=dqn", "network.channels=8", "network.fold=2",
    "replay.capacity=4_000", "trainer.warmup=256", "trainer.update_every=64",
    "trainer.log_every=256", f"trainer.save_every={EVERY}", "checkpoint.keep=2",
]  # fmt: skip
FULL = """
import sys, torch
from agents.training import checkpoint
state = {"part": torch.zeros(1_000_000)}
checkpoint.save(sys.argv[1], 1, state, {})
written = torch.save
def save(what, file):
    written(what, file)
    file.truncate(1_000)
    raise OSError(28, "No space left on device")
torch.save = save
try:
    checkpoint.save(sys.argv[1], 2, state, {})
except checkpoint.CheckpointError as error:
    print(error)
"""
STOPPED = """
import os, signal, sys
from agents.algorithms import dqn
from agents.cli import main, train
from agents.training import checkpoint, rollout

def interrupt(home, name, count):
    inner, calls = getattr(home, name), []
    def called(*args, **options):
        calls.append(1)
        if len(calls) == count:
            os.kill(os.getpid(), signal.SIGTERM)
        return inner(*args, **options)
    setattr(home, name, called)

PLACES = {
    "step": (rollout.DeviceCollector, "step"),
    "update": (dqn.DQN, "update"),
    "evaluation": (train, "evaluate_part"),
    "save": (checkpoint, "_fingerprint"),
}
interrupt(*PLACES[sys.argv[1]], int(sys.argv[2]))
sys.exit(main.main(sys.argv[3:]))
"""


def packing(*arguments: str) -> list[str]:
    """Return a command line of `packing`."""
    return [sys.executable, "-m", "agents.cli", *arguments]


def save_for_ever(run: Path, report: int) -> None:
    """Write checkpoints; report the frames of each complete one to a pipe."""
    torch.set_num_threads(1)
    for frames in range(1, 10_000):
        part = [torch.full((250_000,), float(frames)) for _ in range(4)]
        checkpoint.save(run, frames, {"part": part, "frames": frames}, {"metrics": {}})
        checkpoint.rotate(run, 2)
        os.write(report, f"{frames}\n".encode())


def kill_saves(work: Path, chance: random.Random, kills: int = SAVES) -> dict[str, Any]:
    """Kill a process that writes checkpoints; return the counts of lost and whole ones."""
    torch.set_num_threads(1)
    outcomes = []
    for number in range(kills):
        run = work / f"saves{number}"
        incoming, outgoing = os.pipe()
        process = get_context("fork").Process(target=save_for_ever, args=(run, outgoing))
        process.start()
        os.close(outgoing)
        with open(incoming, encoding="ascii") as reports:
            reports.readline()  # the first checkpoint is complete
            time.sleep(chance.uniform(0.0, 0.5))
            process.kill()
            last = max((int(line) for line in reports), default=1)
        process.join()
        loaded = checkpoint.load(run)
        frames = loaded.state["frames"]
        whole = all(bool((part == frames).all()) for part in loaded.state["part"])
        left = len(list((run / checkpoint.FOLDER).glob(f"{checkpoint.DRAFT}*")))
        outcomes.append({"whole": whole, "lost": last - frames, "drafts": left})
        shutil.rmtree(run)
    return {
        "kills": len(outcomes),
        "whole": sum(each["whole"] for each in outcomes),
        "lost_a_reported_save": sum(each["lost"] > 0 for each in outcomes),
        "in_the_middle_of_a_save": sum(each["drafts"] > 0 for each in outcomes),
    }


def kill_training(work: Path, chance: random.Random) -> dict[str, Any]:
    """Kill and resume a training run; compare its end with an uninterrupted run."""
    whole, run = work / "undisturbed", work / "killed"
    start = time.monotonic()
    subprocess.run(
        packing("train", *TASK, f"trainer.frames={FRAMES}", f"run_dir={whole}"), check=True
    )
    seconds = time.monotonic() - start
    arguments = ["train", *TASK, f"trainer.frames={FRAMES}", f"run_dir={run}", "resume=auto"]
    lost = []
    for _ in range(KILLS):
        process = subprocess.Popen(packing(*arguments), stdout=subprocess.PIPE, text=True)
        time.sleep(chance.uniform(0.3, 0.6) * seconds)
        process.kill()
        process.communicate()
        lost.append(frames_logged(run) - frames_saved(run))
    subprocess.run(packing(*arguments), check=True)
    one, other = checkpoint.load(whole).state, checkpoint.load(run).state
    return {
        "kills": len(lost),
        "frames_between_saves": EVERY,
        "frames_lost": lost,
        "equal_to_undisturbed": same(one, other),
    }


def frames_logged(run: Path) -> int:
    """Return the frames of a killed run's last log row."""
    path = run / "metrics.csv"
    if not path.is_file():
        return 0
    with path.open(newline="", encoding="utf-8") as file:
        return max((int(row["frames"]) for row in csv.DictReader(file)), default=0)


def frames_saved(run: Path) -> int:
    """Return the frames of a run's newest checkpoint, 0 without one."""
    try:
        return int(checkpoint.read_meta(run)["frames"])
    except checkpoint.CheckpointError:
        return 0


def same(one: Any, other: Any) -> bool:
    """Return whether two states are equal except for clocks."""
    if isinstance(one, dict):
        names = one.keys() - {"elapsed", "logged"}
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in names)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def fill_disk(work: Path, chance: random.Random) -> dict[str, Any]:
    """Make a save fail and truncate a checkpoint; return which checkpoints are loaded."""
    run = work / "full"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(run)], capture_output=True, text=True, check=True
    )
    taken = checkpoint.load(run).meta["frames"]
    checkpoint.save(run, 3, {"part": torch.zeros(1_000)}, {})
    newest = run / checkpoint.FOLDER / f"{3:012d}" / checkpoint.TENSORS
    newest.write_bytes(newest.read_bytes()[:500])
    return {
        "said": re.sub(r"/\S*/", "", done.stdout.strip()),
        "taken_after_full_disk": taken,
        "taken_beside_a_truncated_one": checkpoint.load(run).meta["frames"],
    }


def send_signals(work: Path, chance: random.Random) -> dict[str, Any]:
    """Send SIGTERM at chosen calls; return how many runs saved and resumed."""
    found: dict[str, Any] = {}
    evaluated = ["trainer.evaluate_every=512", "evaluation.instances=4"]
    limits = {"step": 200, "update": 60, "evaluation": 6, "save": 12}
    for place, limit in limits.items():
        for number in range(STOPS):
            run = work / f"{place}{number}"
            count = chance.randint(2, limit)
            command = ["train", *TASK, *evaluated, f"trainer.frames={FRAMES}", f"run_dir={run}"]
            stopped = subprocess.run(
                [sys.executable, "-c", STOPPED, place, str(count), *command],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            resumed = subprocess.run(
                packing("train", f"resume={run}", f"trainer.frames={frames_saved(run) + 64}"),
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            good = stopped.returncode == 0 and resumed.returncode == 0
            entry = found.setdefault(place, {"signals": 0, "saved_and_went_on": 0, "at_call": []})
            entry["signals"] += 1
            entry["saved_and_went_on"] += good and frames_saved(run) > 0
            entry["at_call"].append(count)
            shutil.rmtree(run)
    return found


def main() -> None:
    """Run the requested parts, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("runs/survive"))
    parser.add_argument("--out", default="benchmarks/results/survive.json")
    args = parser.parse_args()
    args.parts = args.parts or list(PARTS)
    if set(args.parts) - set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    made = {
        "saves": kill_saves, "training": kill_training, "full": fill_disk, "signals": send_signals,
    }  # fmt: skip
    report: dict[str, Any] = {}
    for part in args.parts:
        report[part] = made[part](args.work, random.Random(args.seed))
        print(part, report[part], flush=True)
    args.work = None  # the location of the runs is not part of the result
    write_json(args.out, provenance(args) | report)


if __name__ == "__main__":
    main()
