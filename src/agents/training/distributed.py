"""Data-parallel training: each process has its own rows, gradients are averaged.

    torchrun --nproc-per-node 2 -m agents.cli train env.num_envs=64 trainer.frames=1e6

Every process steps rows of its own (the streams of rank r start at row r * num_envs) and learns
from its own replay; each gradient is the mean over the processes, so that parameters stay
identical. Frames count the rows of all processes. Only rank 0 logs, saves and evaluates.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import distributed


@dataclass(frozen=True)
class World:
    """The processes that learn together.

    Attributes:
        rank: Index of this process.
        size: Number of processes.
    """

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """True in the process that logs, saves and evaluates."""
        return self.rank == 0

    def agree(self, wish: bool) -> bool:
        """Return whether any process wishes it, the same in all. Reads host values only."""
        if self.size == 1:
            return wish
        wishes: list[bool | None] = [None] * self.size
        distributed.all_gather_object(wishes, wish)
        return any(wishes)


@contextmanager
def joined(device: str | torch.device) -> Iterator[World]:
    """Join the processes that ``torchrun`` started; a process on its own is a world of one."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World()
        return
    if torch.device(device).type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        distributed.init_process_group("cpu:gloo,cuda:nccl")
    else:
        distributed.init_process_group("gloo")
    try:
        yield World(distributed.get_rank(), size)
    finally:
        distributed.destroy_process_group()
