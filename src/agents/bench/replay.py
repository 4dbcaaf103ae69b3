"""Speed of replay operations at a given number of transitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import RandomSampler, Sampler
from torchrl.data.replay_buffers.writers import RoundRobinWriter

from agents.bench.base import Benchmark, Job, Row, Rows, Session
from agents.config import build
from agents.replay import DevicePrioritizedSampler, DeviceReplay

Operations = tuple[Mapping[str, Callable[[], object]], dict[str, Any]]
"""Operations by name, and values that all of them share."""
NEW = 64
"""Transitions per ``extend``, which are the rows of the environment."""


@dataclass(kw_only=True)
class Replay(Benchmark):
    """Speed of the prioritized sampler, of TorchRL's buffer around it, and of whole transitions.

    Uniform sampling is measured as well. Samples of :class:`DeviceReplay` include maps that are
    computed again.

    Args:
        capacity: Transitions; the buffers are full from the start.
        batch_size: Transitions per sample.
        n_steps: Longest reward window of the task's transitions.
        rebuild: Observations that are computed again for a sample.
    """

    columns: ClassVar[Mapping[str, str]] = {
        "wall_ms": "ms",
        "thread_cpu_ms": "CPU ms",
        "bytes_per_transition": "bytes/transition",
    }
    capacity: int
    batch_size: int
    n_steps: int
    rebuild: tuple[str, ...] | None

    def __post_init__(self) -> None:
        size, most = int(self.batch_size), int(self.capacity)
        if not 1 <= size <= most:
            raise ValueError(
                f"bench.batch_size={size} must lie between 1 and bench.capacity={most}"
            )
        self.batch_size, self.capacity = size, most

    def jobs(self, session: Session) -> list[Job]:
        """Return a job with small transitions and one with those of the task."""
        parts = {"sampler": self._sampler_operations, "DeviceReplay": self._task_operations}
        return [Job({"what": k}, partial(self._rows, session, make)) for k, make in parts.items()]

    def _rows(self, session: Session, make: Callable[[Session], Operations]) -> Rows:
        torch.manual_seed(int(session.config.seed))
        operations, values = make(session)
        for name, work in operations.items():
            yield Row({"operation": name}, session.clock.measure(work).values() | values)

    def _sampler_operations(self, session: Session) -> Operations:
        """Return sampling and updates, with and without TorchRL's buffer around the sampler."""
        device = session.clock.device
        uniform = self._plain_buffer(device, RandomSampler())
        sampler = DevicePrioritizedSampler(self.capacity, beta_frames=100_000)
        buffer = self._plain_buffer(device, sampler)
        every = torch.arange(self.capacity, device=device)
        buffer.update_priority(every, torch.rand(self.capacity, device=device))
        index = every[:: self.capacity // self.batch_size][: self.batch_size]  # over the ring
        index = index[torch.randperm(self.batch_size, device=device)].contiguous()
        error = torch.rand(self.batch_size, device=device)
        new = TensorDict({"values": torch.zeros(NEW, 2, device=device)}, [NEW])
        operations = {
            "sampler: sample": lambda: sampler.sample(buffer.storage, self.batch_size),
            "sampler: update priorities": lambda: sampler.update_priority(index, error),
            f"sampler: {NEW} new transitions": lambda: sampler.mark_update(every[:NEW]),
            "buffer, uniform: sample": lambda: uniform.sample(self.batch_size),
            "buffer, prioritized: sample": lambda: buffer.sample(self.batch_size),
            "buffer, prioritized: update priorities": lambda: buffer.update_priority(index, error),
            f"buffer, uniform: extend by {NEW}": lambda: uniform.extend(new.clone()),
            f"buffer, prioritized: extend by {NEW}": lambda: buffer.extend(new.clone()),
        }
        return operations, {"capacity": self.capacity}

    def _plain_buffer(self, device: torch.device, sampler: Sampler) -> TensorDictReplayBuffer:
        """Build a buffer full of transitions of two numbers."""
        buffer = TensorDictReplayBuffer(
            storage=LazyTensorStorage(self.capacity, device=device, compilable=True),
            sampler=sampler,
            writer=RoundRobinWriter(compilable=True),
            compilable=True,
        )
        values = torch.zeros(self.capacity, 2, device=device)
        buffer.extend(TensorDict({"values": values}, [self.capacity], device=device))
        return buffer

    def _task_operations(self, session: Session) -> Operations:
        """Return sampling and updates of whole transitions of ``config.env``."""
        env = build.build_env(session.config, num_envs=NEW)
        sampler = DevicePrioritizedSampler(self.capacity, beta_frames=100_000)
        replay = DeviceReplay(
            env, self.capacity, n_steps=self.n_steps, sampler=sampler, rebuild=self.rebuild
        )
        root = env.reset()
        for _ in range(40):
            step, root = env.step_and_maybe_reset(env.rand_action(root))
            replay.extend(step)
        rows = replay.buffer[: len(replay)].exclude("index").clone()
        while len(replay) < self.capacity:  # repeat the transitions until the buffer is full
            replay.buffer.extend(rows[: self.capacity - len(replay)])
        index = replay.sample(self.batch_size)["index"]
        error = torch.rand(self.batch_size, device=env.device)
        operations = {
            "DeviceReplay: sample": lambda: replay.sample(self.batch_size),
            "DeviceReplay: update priorities": lambda: replay.update_priority(index, error),
            f"DeviceReplay: extend by {NEW}": lambda: replay.extend(step),
        }
        return operations, {
            "capacity": self.capacity,
            "bytes_per_transition": replay.bytes_per_transition,
            "num_bytes": replay.num_bytes,
        }
