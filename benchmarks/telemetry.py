"""Cost of metrics, logs, progress bar and kept batches in a training run, and their side effects.

    python benchmarks/telemetry.py [--agents dqn ppo] [--envs cuboid_online] [--blocks 80]
        [--set KEY=VALUE ...]

Two runs with the same seed alternate step by step. One is watched, with the default telemetry:
metrics of every step and update, a row in `metrics.csv` every log interval, a progress bar that is
drawn twice a second, and kept batches. The other is not watched. Both make the same decisions and
updates, so the two steps of a pair differ only in the telemetry. A block is one log interval, so it
includes all periodic work. The time of a step is the CPU time of the process; the time of the
drawing thread counts only for the watched run.

For every step of the interval, the script takes the ratio of the two times, watched to unwatched,
and its median over the blocks. The cost is the mean of these medians, weighted by the unwatched
times, minus one. Its 95 % interval comes from resampled blocks. At the end, weights, moments,
replay, environment and random generators must be equal bit for bit.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from provenance import provenance, write_json
from rich.console import Console
from torch import Tensor

from agents.config.build import build_trainer
from agents.config.compose import compose
from agents.loggers.logging import CSVLogger
from agents.loggers.progress import ProgressBar
from agents.nested import named_tensors
from agents.training import process
from agents.training.trainer import Trainer

UNWATCHED = ("trainer.log_every=1_000_000_000",)
"""Overrides of the unwatched run, which also has no metrics, log and bar."""
RESAMPLES = 2_000


def trainer_of(config: DictConfig, *, watched: bool) -> Trainer:
    """Build a training loop from the configuration; an unwatched one computes no metrics."""
    torch.manual_seed(config.seed)
    trainer: Any = build_trainer(config)
    if not watched:
        trainer._measure = trainer._note = lambda *found: None
        trainer.recent.before = trainer.recent.after = lambda *found: None
    return trainer


class Run:
    """One of the two runs, with its own random stream.

    Args:
        config: Configuration of the training run.
        folder: Folder of its log; ``None`` if the run is not watched.
    """

    def __init__(self, config: DictConfig, folder: Path | None) -> None:
        self.trainer = trainer_of(config, watched=folder is not None)
        self.logger: CSVLogger | None = None
        self.bar: ProgressBar | None = None
        if folder is not None:
            self.logger = CSVLogger(folder)
            self.bar = ProgressBar(Console(file=io.StringIO(), force_terminal=True), 10**9)
        self.random = torch.get_rng_state()

    def step(self, drawing: list[threading.Thread]) -> float:
        """Take a step as in ``Trainer.run``; return its CPU seconds, without ``drawing``'s."""
        torch.set_rng_state(self.random)
        start, wall, apart = time.process_time(), time.perf_counter(), time_of(drawing)
        trainer = self.trainer
        trainer.step()
        trainer.elapsed += time.perf_counter() - wall
        if self.bar is not None and self.logger is not None:
            self.bar.advance(trainer.frames, trainer.elapsed)
            if trainer._due("log"):
                trainer._log(self.logger, self.bar, {}, ends=True)
        spent = time.process_time() - start - (time_of(drawing) - apart)
        self.random = torch.get_rng_state()
        return spent

    def close(self) -> None:
        """Close log and bar, if any."""
        for part in (self.logger, self.bar):
            if part is not None:
                part.close()

    def state(self) -> dict[str, Any]:
        """Return the state that must not depend on the telemetry."""
        parts: dict[str, Any] = {
            "agent": self.trainer.agent,
            "replay": self.trainer.replay,
            "collector": self.trainer.collector,
        }
        return {name: part.state_dict() for name, part in parts.items()} | {"random": self.random}


def time_of(threads: list[threading.Thread]) -> float:
    """Return the CPU seconds of living threads."""
    clocks = [time.pthread_getcpuclockid(thread.ident) for thread in threads if thread.ident]
    return sum(map(time.clock_gettime, clocks))


def differing(one: Run, other: Run) -> list[str]:
    """Return the names of tensors whose bits differ between the runs."""
    found, others = named_tensors(one.state()), named_tensors(other.state())
    unequal = [n for n in found.keys() & others.keys() if not _same(found[n], others[n])]
    return sorted([*unequal, *(found.keys() ^ others.keys())])


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    bits = [value.detach().cpu().reshape(-1).view(torch.uint8) for value in (one, other)]
    return torch.equal(*bits)


def cost(watched: Tensor, bare: Tensor) -> float:
    """Compute the cost from CPU seconds ``[blocks, steps]``."""
    weights = bare.quantile(0.5, 0)
    ratios = (watched / bare).quantile(0.5, 0)
    return float((weights * ratios).sum() / weights.sum()) - 1


def interval(watched: Tensor, bare: Tensor, seed: int = 0) -> list[float]:
    """Compute the 95 % interval of the cost, from blocks drawn with replacement."""
    draw = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(RESAMPLES):
        rows = torch.randint(len(bare), (len(bare),), generator=draw)
        found.append(cost(watched[rows], bare[rows]))
    return torch.tensor(found).quantile(torch.tensor([0.025, 0.975])).tolist()


def compare(agent: str, env: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one agent on one preset."""
    overrides = [f"agent={agent}", f"env={env}", f"seed={args.seed}", *args.set]
    config = compose("train", overrides)
    bare = Run(compose("train", [*overrides, *UNWATCHED]), None)
    others = threading.enumerate()
    with tempfile.TemporaryDirectory() as folder:
        watched = Run(config, Path(folder))
        drawing = [thread for thread in threading.enumerate() if thread not in others]
        count = int(config.trainer.log_every) // watched.trainer.collector.env.batch_size.numel()
        for _ in range(args.warm_up * count):
            watched.step([])
            bare.step([])
        gc.collect()
        gc.freeze()  # so that existing objects are not collected during a step of either run
        updates = watched.trainer.updates
        seconds = torch.zeros(2, args.blocks, count, dtype=torch.float64)
        for block in range(args.blocks):
            for step in range(count):
                turns: list[tuple[int, Run, list[threading.Thread]]]
                turns = [(0, watched, []), (1, bare, drawing)]
                for place, run, apart in turns if (block + step) % 2 else reversed(turns):
                    seconds[place, block, step] = run.step(apart)
        watched.close()
        gc.unfreeze()
    return {
        "agent": agent,
        "env": env,
        "cost": cost(*seconds),
        "interval": interval(*seconds),
        "cost_of_sums": float(seconds[0].sum() / seconds[1].sum()) - 1,
        "blocks": args.blocks,
        "steps_per_block": count,
        "updates": watched.trainer.updates - updates,
        "watching_us_per_step": 1e6 * float((seconds[0] - seconds[1]).quantile(0.5, 0).mean()),
        "unwatched_us_per_step": 1e6 * float(seconds[1].quantile(0.5, 0).mean()),
        "differing": differing(watched, bare),
        "compared_tensors": len(named_tensors(watched.state())),
        "config": OmegaConf.to_container(config, resolve=True),
    }


def main() -> None:
    """Measure every requested pair, write the JSON."""
    process.tune()  # as the command does
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--agents", nargs="+", default=["dqn", "ppo"])
    parser.add_argument("--envs", nargs="+", default=["cuboid_online"])
    parser.add_argument("--blocks", type=int, default=80)
    parser.add_argument("--warm-up", type=int, default=3, help="blocks that are not counted")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="for both runs")
    parser.add_argument("--out", default="benchmarks/results/telemetry.json")
    args = parser.parse_args()
    load, rows = [os.getloadavg()], []
    for env in args.envs:
        for agent in args.agents:
            rows.append(compare(agent, env, args))
            short = {name: rows[-1][name] for name in ("cost", "interval", "differing")}
            print(f"{agent} on {env}: {short}", flush=True)
    load.append(os.getloadavg())
    report = {
        "measured": " ".join(__doc__.split("\n\n", 2)[2].split()),
        "unwatched": [*UNWATCHED, "no metrics", "no log", "no bar", "no recent batches"],
        "usable_cores": len(os.sched_getaffinity(0)),
        "load_before_and_after": load,
        "results": rows,
    }
    write_json(args.out, provenance(args) | report)


if __name__ == "__main__":
    main()
