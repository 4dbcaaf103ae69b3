"""What metrics, logs, the progress bar and the black box cost a training run, and change in it.

    python benchmarks/telemetry.py [--agents dqn ppo] [--envs cuboid_online irregular] [--blocks 15]

Two runs of one seed take turns, block by block: one is watched as by default (metrics of every step
and update, a row in `metrics.csv` and a drawn bar every 2,048 frames, the black box), the other not
at all. The cost is the median over blocks of the ratio of their CPU times, less one. In the end
their weights, replay and environment must be the same bits.
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from provenance import provenance, write_json
from rich.console import Console

from agents.build import build_agent, build_env
from agents.composition import compose
from agents.logging import CSVLogger, NullLogger, ProgressBar
from agents.states import tensors
from agents.trainer import Trainer

EVERY = 2048
"""Frames of a log interval, and the least of a block."""


def trainer_of(agent: str, env: str, seed: int, *, watched: bool, black_box: int = 0) -> Trainer:
    """A training loop from the configuration; unwatched, it counts and keeps nothing."""
    options = [f"trainer.black_box={black_box}"]
    if not watched:
        options.append("trainer.log_every=1_000_000_000")
    config = compose("train", [f"agent={agent}", f"env={env}", f"seed={seed}", *options])
    torch.manual_seed(seed)
    made = build_env(config)
    learner = build_agent(config, made)
    collector = instantiate(config.collector)(made, learner.policy)
    trainer: Any = instantiate(config.trainer)(learner, collector, instantiate(config.replay)(made))
    if not watched:
        trainer._measure = trainer._note = lambda *found: None
    return trainer


class Run:
    """One of the two, a block at a time, with a random stream of its own.

    Args:
        trainer: The loop.
        folder: Where it logs; ``None``: nowhere.
    """

    def __init__(self, trainer: Trainer, folder: Path | None) -> None:
        self.trainer = trainer
        self.logger: Any = NullLogger(Path()) if folder is None else CSVLogger(folder)
        self.watched = folder is not None
        self.random = torch.get_rng_state()

    def block(self, frames: int) -> float:
        """Train for so many frames; the CPU seconds."""
        torch.set_rng_state(self.random)
        until = self.trainer.frames + frames
        start = time.process_time()
        bar = ProgressBar(Console(file=io.StringIO(), force_terminal=True), 10**9)
        if not self.watched:
            bar.close()  # it draws from a thread of its own
        while self.trainer.frames < until:
            self.trainer.step()
            if self.watched:
                bar.advance(self.trainer.frames, 0.0)
                if self.trainer._due("log"):
                    self.trainer._log(self.logger, bar, {})
        if self.watched:
            bar.close()
        spent = time.process_time() - start
        self.random = torch.get_rng_state()
        return spent


def same(one: Trainer, other: Trainer) -> bool:
    """Whether two runs have come to the same weights, moments, transitions and states."""
    parts = [
        [run.agent.state_dict(), run.replay.state_dict(), run.collector.state_dict()]
        for run in (one, other)
    ]
    found = [list(tensors(part)) for part in parts]
    pairs = zip(*found, strict=True)
    return all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


def compare(agent: str, env: str, args: argparse.Namespace) -> dict[str, Any]:
    """One agent on one preset."""
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(args.seed)
        given = {"watched": True, "black_box": args.black_box}
        watched = Run(trainer_of(agent, env, args.seed, **given), Path(folder))
        bare = Run(trainer_of(agent, env, args.seed, watched=False), None)
        warm_up = 3 * EVERY
        for run in (watched, bare):
            run.block(warm_up)
        ratios, seconds = [], []
        for number in range(args.blocks):
            order = (watched, bare) if number % 2 else (bare, watched)
            spent = {run: run.block(args.frames) for run in order}
            ratios.append(spent[watched] / spent[bare])
            seconds.append(spent[bare])
        watched.logger.close()
        return {
            "agent": agent,
            "env": env,
            "black_box": args.black_box,
            "cost": statistics.median(ratios) - 1,
            "costs": sorted(ratio - 1 for ratio in ratios),
            "unwatched_us_per_frame": 1e6 * statistics.median(seconds) / args.frames,
            "same_bits": same(watched.trainer, bare.trainer),
        }


def main() -> None:
    """Every pair that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--agents", nargs="+", default=["dqn", "ppo"])
    parser.add_argument("--envs", nargs="+", default=["cuboid_online", "irregular"])
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument(
        "--black-box", type=int, default=16, help="trainer.black_box of the watched"
    )
    parser.add_argument("--frames", type=int, default=EVERY)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="benchmarks/results/telemetry.json")
    args = parser.parse_args()
    found = []
    for env in args.envs:
        for agent in args.agents:
            found.append(compare(agent, env, args))
            print(found[-1], flush=True)
    write_json(args.out, provenance(args) | {"results": found})


if __name__ == "__main__":
    main()
