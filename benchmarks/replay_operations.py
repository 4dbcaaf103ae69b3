"""Speed of replay operations at a million transitions.

    python benchmarks/replay_operations.py [--capacity 1048576] [--batch-size 256] [--out ...]

Three things are measured: the prioritized sampler alone; TorchRL's buffer with it and with the
uniform sampler (transitions of two numbers); and whole transitions of a small task in
`DeviceReplay`, whose samples include recomputed maps.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from provenance import provenance, write_json
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import RandomSampler, Sampler
from torchrl.data.replay_buffers.writers import RoundRobinWriter

from agents.bench.measure import Clock
from agents.replay import DevicePrioritizedSampler, DeviceReplay
from packing_env import make_env

NEW = 64
"""Transitions per `extend`: the number of rows of the environment."""
TASK: dict[str, Any] = {
    "items": {"source": "cuboids", "extents": [[0.02, 0.02, 0.02], [0.04, 0.02, 0.02]]},
    "container": (0.16, 0.16, 0.1),
    "cell": 0.02,
    "num_items": 12,
    "pool_size": 64,
}
REBUILT = ("orientation_features", "drop_height")
"""Observations that are recomputed for a sample."""
Operations = dict[str, Callable[[], object]]


def full_buffer(capacity: int, sampler: Sampler) -> TensorDictReplayBuffer:
    """Return a buffer full of transitions of two numbers."""
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(capacity, device="cpu", compilable=True),
        sampler=sampler,
        writer=RoundRobinWriter(compilable=True),
        compilable=True,
    )
    buffer.extend(TensorDict({"values": torch.zeros(capacity, 2)}, [capacity]))
    return buffer


def sampler_operations(capacity: int, batch_size: int) -> Operations:
    """Return sampling and updates, with and without TorchRL's buffer around the sampler."""
    uniform = full_buffer(capacity, RandomSampler())
    sampler = DevicePrioritizedSampler(capacity, beta_frames=100_000)
    buffer = full_buffer(capacity, sampler)
    every = torch.arange(capacity)
    buffer.update_priority(every, torch.rand(capacity))
    index = every[:: capacity // batch_size][:batch_size]  # over the ring
    index = index[torch.randperm(batch_size)].contiguous()
    error = torch.rand(batch_size)
    new = TensorDict({"values": torch.zeros(NEW, 2)}, [NEW])
    return {
        "sampler: sample": lambda: sampler.sample(buffer.storage, batch_size),
        "sampler: update priorities": lambda: sampler.update_priority(index, error),
        f"sampler: {NEW} new transitions": lambda: sampler.mark_update(every[:NEW]),
        "buffer, uniform: sample": lambda: uniform.sample(batch_size),
        "buffer, prioritized: sample": lambda: buffer.sample(batch_size),
        "buffer, prioritized: update priorities": lambda: buffer.update_priority(index, error),
        f"buffer, uniform: extend by {NEW}": lambda: uniform.extend(new.clone()),
        f"buffer, prioritized: extend by {NEW}": lambda: buffer.extend(new.clone()),
    }


def replay_operations(capacity: int, batch_size: int) -> tuple[Operations, int]:
    """Return sampling and updates of whole transitions, and the bytes of one."""
    env = make_env("irregular", num_envs=NEW, **TASK)
    sampler = DevicePrioritizedSampler(capacity, beta_frames=100_000)
    replay = DeviceReplay(env, capacity, n_steps=3, sampler=sampler, rebuild=REBUILT)
    root = env.reset()
    for _ in range(40):
        step, root = env.step_and_maybe_reset(env.rand_action(root))
        replay.extend(step)
    rows = replay.buffer[: len(replay)].exclude("index").clone()
    while len(replay) < capacity:  # repeat the transitions until the buffer is full
        replay.buffer.extend(rows[: capacity - len(replay)])
    index = replay.sample(batch_size)["index"]
    error = torch.rand(batch_size)
    operations: Operations = {
        "DeviceReplay: sample": lambda: replay.sample(batch_size),
        "DeviceReplay: update priorities": lambda: replay.update_priority(index, error),
        f"DeviceReplay: extend by {NEW}": lambda: replay.extend(step),
    }
    return operations, replay.bytes_per_transition


def main() -> None:
    """Measure, print, and write the file."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--capacity", type=int, default=1_048_576, help="transitions")
    parser.add_argument("--batch-size", type=int, default=256, help="transitions per sample")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default="benchmarks/results/bench_replay.json")
    args = parser.parse_args()
    if not 1 <= args.batch_size <= args.capacity:
        parser.error(f"--batch-size {args.batch_size} must lie between 1 and {args.capacity}")
    clock = Clock(torch.device("cpu"), repeats=args.repeats)
    sizes = (args.capacity, args.batch_size)
    whole, num_bytes = replay_operations(*sizes)
    results = {}
    for name, work in (sampler_operations(*sizes) | whole).items():
        results[name] = clock.measure(work)
        print(f"{name}: {results[name]['wall_ms']:.3f} ms")
    report = {"bytes_per_transition": num_bytes, "operations": results}
    write_json(args.out, provenance(args) | report)


if __name__ == "__main__":
    main()
