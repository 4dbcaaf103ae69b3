"""A million random steps by TorchRL's own collector with `ActionMask`, on several presets.

    python benchmarks/random_steps.py [--steps 1e6] [--out benchmarks/results/random_steps.json]

The collector has no policy: it draws from the environment's action spec. Every action is looked up
in the mask of the state in which it was drawn, and the actions that the environment counts as
illegal are summed. The memory of the process is read at intervals; its growth is measured after the
first tenth. The file is written at every interval, so it shows how far an interrupted run came.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Iterator
from typing import Any

import torch
from provenance import provenance, write_json
from rich.progress import track
from soak import memory
from tensordict import TensorDictBase
from torchrl.collectors import Collector
from torchrl.envs import ActionMask, TransformedEnv

from packing_env import make_env
from packing_env.tasks import LEAN

TASKS: dict[str, dict[str, Any]] = {
    "irregular_com_hull": {"num_envs": 64, "observation": LEAN},
    "cuboid_online": {"num_envs": 512},
    "cuboid_buffer": {"num_envs": 256},
    "cuboid_continuous": {"num_envs": 64},
}
LENGTH = 8
"""Decisions per row in a batch of the collector."""
INTERVALS = 50
"""Number of readings of the memory."""


def legal(batch: TensorDictBase) -> int:
    """Return how many actions of a batch their masks allow."""
    allowed = batch["action_mask"].gather(-1, batch["action"][..., None])
    return int(allowed.sum())


def counted(batch: TensorDictBase) -> int:
    """Return how many actions the environment counts as illegal."""
    name = ("metrics", "illegal_actions")
    return int((batch["next"][name] - batch[name]).sum())


def play(name: str, steps: int) -> Iterator[dict[str, Any]]:
    """Collect from one preset; yield the results so far at every interval and at the end."""
    torch.manual_seed(0)
    env = TransformedEnv(make_env(name, seed=1, **TASKS[name]), ActionMask())
    frames = env.batch_size.numel() * LENGTH
    batches = -(-steps // frames)
    collector = Collector(env, None, frames_per_batch=frames, total_frames=batches * frames)
    allowed = illegal = episodes = 0
    sizes: list[tuple[int, float]] = []
    start, start_cpu = time.perf_counter(), time.process_time()
    for index, batch in enumerate(track(collector, description=name, total=batches), 1):
        allowed, illegal = allowed + legal(batch), illegal + counted(batch)
        episodes += int(batch["next", "done"].sum())
        if index % max(1, batches // INTERVALS) and index < batches:
            continue
        gc.collect()
        sizes.append((index * frames, round(memory(), 1)))
        warm, last = sizes[len(sizes) // 10][1], max(size for _, size in sizes[-3:])
        yield {
            "steps": index * frames,
            "of": batches * frames,
            "episodes": episodes,
            "legal_share": allowed / (index * frames),
            "illegal_actions": illegal,
            "seconds": round(time.perf_counter() - start, 1),
            "cpu_seconds": round(time.process_time() - start_cpu, 1),
            "growth": last / warm - 1,
            "memory_mib": [{"steps": at, "resident": size} for at, size in sizes],
        }
    collector.shutdown()


def main() -> None:
    """Play every preset, write the JSON at every interval."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=float, default=1e6)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--out", default="benchmarks/results/random_steps.json")
    args = parser.parse_args()
    about, found = provenance(args) | {"load_before": os.getloadavg()}, {}
    for name in args.tasks:
        for so_far in play(name, int(args.steps)):
            found[name] = so_far
            left = [task for task in args.tasks if task not in found]
            write_json(args.out, about | {"tasks": found, "left_out": left})
        print(f"{name}: {found[name]}", flush=True)


if __name__ == "__main__":
    main()
