"""Milliseconds of replay operations at a million transitions.

    python benchmarks/bench_replay.py [--out benchmarks/results/replay_cpu.json] [--device cpu]

The prioritized sampler alone, then as TorchRL's replay buffer calls it on small transitions, with
uniform sampling beside it; then `DeviceReplay` of a small task, whose samples include maps that are
computed again. One process and one thread; prints hardware and versions and writes everything as
JSON. Medians over repeats after warm-up, of wall time and, on the CPU, of the thread's own time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from provenance import provenance, write_json
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import RandomSampler
from torchrl.data.replay_buffers.writers import RoundRobinWriter

from agents.replay import DevicePrioritizedSampler, DeviceReplay
from packing_env import make_env

TASK: dict[str, Any] = {
    "items": {"source": "cuboids", "extents": [[0.02, 0.02, 0.02], [0.04, 0.02, 0.02]]},
    "container": (0.16, 0.16, 0.1),
    "cell": 0.02,
    "num_items": 12,
    "pool_size": 64,
}
Operation = Callable[[], object]


def synchronize(device: str) -> None:
    """Wait for the device, so that the clock sees its work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def measure(name: str, work: Operation, args: argparse.Namespace) -> dict[str, Any]:
    """Median milliseconds of one call."""
    for _ in range(args.warmup):
        work()
    synchronize(args.device)
    wall, cpu = [], []
    for _ in range(args.repeats):
        start, start_cpu = time.perf_counter(), time.thread_time()
        for _ in range(args.calls):
            work()
        synchronize(args.device)
        wall.append(1e3 * (time.perf_counter() - start) / args.calls)
        cpu.append(1e3 * (time.thread_time() - start_cpu) / args.calls)
    row = {
        "operation": name,
        "ms": statistics.median(wall),
        "thread_cpu_ms": statistics.median(cpu),
        "spread_ms": [min(wall), max(wall)],
        "spread_thread_cpu_ms": [min(cpu), max(cpu)],
    }
    print(f"{name:42s} {row['ms']:8.4f} ms   thread {row['thread_cpu_ms']:8.4f} ms")
    return row


def plain_buffer(args: argparse.Namespace, sampler: Any) -> TensorDictReplayBuffer:
    """Full of transitions of two numbers."""
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(args.capacity, device=args.device, compilable=True),
        sampler=sampler,
        writer=RoundRobinWriter(compilable=True),
        compilable=True,
    )
    values = torch.zeros(args.capacity, 2, device=args.device)
    buffer.extend(TensorDict({"values": values}, [args.capacity], device=args.device))
    return buffer


def of_the_sampler(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Sampling and updating without and with TorchRL's buffer around it."""
    uniform = plain_buffer(args, RandomSampler())
    sampler = DevicePrioritizedSampler(args.capacity, beta_frames=100_000)
    buffer = plain_buffer(args, sampler)
    every = torch.arange(args.capacity, device=args.device)
    buffer.update_priority(every, torch.rand(args.capacity, device=args.device))
    index, error = every[:: args.capacity // args.batch][: args.batch], torch.rand(args.batch)
    index = index[torch.randperm(args.batch)].contiguous()
    error = error.to(args.device)
    new = TensorDict({"values": torch.zeros(64, 2)}, [64]).to(args.device)
    cases: dict[str, Operation] = {
        "sampler: sample": lambda: sampler.sample(buffer.storage, args.batch),
        "sampler: update priorities": lambda: sampler.update_priority(index, error),
        "sampler: 64 new transitions": lambda: sampler.mark_update(index[:64]),
        "buffer, uniform: sample": lambda: uniform.sample(args.batch),
        "buffer, prioritized: sample": lambda: buffer.sample(args.batch),
        "buffer, prioritized: update priorities": lambda: buffer.update_priority(index, error),
        "buffer, uniform: extend by 64": lambda: uniform.extend(new.clone()),
        "buffer, prioritized: extend by 64": lambda: buffer.extend(new.clone()),
    }
    return [measure(name, work, args) for name, work in cases.items()]


def of_device_replay(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The same of whole transitions of a small task."""
    env = make_env("irregular", num_envs=64, device=args.device, seed=0, **TASK)
    sampler = DevicePrioritizedSampler(args.capacity, beta_frames=100_000)
    rebuild = ("orientation_features", "drop_height")
    replay = DeviceReplay(env, args.capacity, n_steps=3, sampler=sampler, rebuild=rebuild)
    root = env.reset()
    for _ in range(40):
        step, root = env.step_and_maybe_reset(env.rand_action(root))
        replay.extend(step)
    rows = replay.buffer[: len(replay)].exclude("index").clone()
    while len(replay) < args.capacity:  # the same ones again, until it is full
        replay.buffer.extend(rows[: args.capacity - len(replay)])
    index = replay.sample(args.batch)["index"]
    error = torch.rand(args.batch, device=args.device)
    cases: dict[str, Operation] = {
        "DeviceReplay: sample": lambda: replay.sample(args.batch),
        "DeviceReplay: update priorities": lambda: replay.update_priority(index, error),
        "DeviceReplay: extend by 64": lambda: replay.extend(step),
    }
    found = [measure(name, work, args) for name, work in cases.items()]
    size = {"bytes_per_transition": replay.bytes_per_transition, "num_bytes": replay.num_bytes}
    return [row | size for row in found]


def main() -> None:
    """Run every case and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="benchmarks/results/replay_cpu.json")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="torch threads on the CPU")
    parser.add_argument("--capacity", type=int, default=2**20)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--calls", type=int, default=50, help="calls per repeat")
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    report = provenance(args)
    report["results"] = of_the_sampler(args) + of_device_replay(args)
    write_json(args.out, report)


if __name__ == "__main__":
    main()
