"""Processes that learn together: each has its own rows and replay; gradients are averaged.

    torchrun --nproc-per-node 2 -m agents.cli train env.num_envs=64 trainer.frames=1e6

Rank r steps num_envs rows, starting at row r * num_envs, and learns from its own replay. Each
gradient is the mean over the processes, so parameters stay identical. Frames are counted over the
rows of all processes. Messages are tensors; text is sent as bytes, so nothing is pickled. Rank 0
logs. All processes share the work of evaluations and checkpoints.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, distributed
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from agents.config.folders import ConfigError
from agents.process_group import add_up
from agents.training.evaluate import check_instances, evaluate
from packing_env.envs import PackingEnv
from packing_env.values import Positive


class RankError(RuntimeError):
    """Another process of the job ended or failed."""


@dataclass(frozen=True)
class World:
    """The processes that learn together: the rank of this one, and their number."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """True in the process that logs and writes the state that all processes share."""
        return self.rank == 0

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return each flag OR-ed over the processes, by one message."""
        if self.size == 1:
            return flags
        return tuple(add_up(torch.tensor(flags, dtype=torch.int32)).bool().tolist())

    def gather(self, tensor: Tensor) -> Tensor:
        """Return the tensors of all processes on the host, ``[size, *shape]``, by one message."""
        # Metrics and texts are small, so they are sent through the host on every device.
        own = tensor.detach().cpu().contiguous()
        if self.size == 1:
            return own[None]
        gathered = own.new_empty((self.size, *own.shape))
        distributed.all_gather(list(gathered.unbind()), own)
        return gathered

    def texts(self, own: str) -> list[str]:
        """Return the texts of all processes, by two messages."""
        # All messages have one size, so the texts are padded to the longest one.
        content = torch.tensor(list(own.encode()), dtype=torch.uint8)
        sizes = self.gather(torch.tensor(len(content))).tolist()
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(content)] = content
        messages = zip(self.gather(padded), sizes, strict=True)
        return [bytes(text[:size].tolist()).decode() for text, size in messages]

    def from_first(self, make: Callable[[], str]) -> str:
        """Return the text that ``make`` returns in rank 0; other ranks do not call ``make``."""
        return self.texts(make() if self.leads else "")[0]

    def all_do(self, work: Callable[[], None]) -> None:
        """Call a function in every process; if it fails in one, raise in all of them."""
        # A process that raised at once would leave the others waiting for its next message.
        failure: OSError | RuntimeError | None = None
        try:
            work()
        except (OSError, RuntimeError) as error:
            failure = error
        # This message tells all processes whether any failed.
        (failed,) = self.any(failure is not None)
        if failed:
            raise failure or OSError("another process failed")

    def part(self, count: int) -> range:
        """Return this process's part of ``range(count)``; the last parts may be short or empty."""
        share = -(-count // self.size)
        return range(min(self.rank * share, count), min((self.rank + 1) * share, count))


ALONE = World()
"""A single process."""


@contextmanager
def joined(device: torch.device | str, *, timeout: Positive = 600.0) -> Iterator[World]:
    """Join the processes that ``torchrun`` started; a single process forms a world of one.

    Args:
        device: Device of the command; on GPUs, each process gets its own.
        timeout: Seconds that a process waits for the others before it fails.

    Raises:
        ConfigError: Several processes cannot share ``device``, or an environment variable is
            missing.
        RankError: Another process failed, or did not join in time.
    """
    size = _variable("WORLD_SIZE", "1")
    if size == 1:
        yield World()
        return
    # 1. Form the process group: CPUs exchange messages by gloo, GPUs by NCCL.
    rank, own = _variable("RANK"), own_device(device, size)
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        _required(name)
    wait = timedelta(seconds=timeout)
    try:
        server = next(iter(rendezvous("env://", timeout=wait)))[0]
        # torchrun keeps its server for the next attempt, so each attempt has a store of its own.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        distributed.init_process_group(
            "gloo" if own is None else "cpu:gloo,cuda:nccl",
            store=PrefixStore(f"packing-{attempt}", server),
            rank=rank,
            world_size=size,
            timeout=wait,
            device_id=own,
        )
    except distributed.DistError as error:
        raise RankError(
            f"rank {rank}: not all of the {size} processes joined within "
            f"distributed.timeout={timeout:g} seconds ({str(error).splitlines()[0]})"
        ) from error
    # 2. Run the block. If a connection is lost, another process has ended first.
    try:
        yield World(rank, size)
    except (distributed.DistError, RuntimeError) as error:
        if isinstance(error, distributed.DistError) or "gloo" in str(error):
            raise RankError(f"rank {rank}: another process ended; see its message") from error
        raise
    finally:
        distributed.destroy_process_group()


def evaluate_part(
    env: PackingEnv,
    policy: TensorDictModuleBase,
    num_instances: int,
    world: World,
    *,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Tensor]:
    """Evaluate in several processes, each on its ``world.part``; return the metrics of all.

    ``env`` starts at this process's first instance (``row_offset``); the policy is the same in all
    processes.

    Returns:
        Metrics by name, ``[num_instances]`` float64 on the host, the same in every process.
    """
    check_instances(env, num_instances)
    # 1. Play. A process without instances plays one anyway, so that it also sends a message.
    own = len(world.part(num_instances))
    metrics = evaluate(env, policy, max(1, own), should_stop=should_stop).metrics
    # 2. Gather all parts, padded to one size, in the order of the instances.
    room = torch.zeros(len(metrics), -(-num_instances // world.size), dtype=torch.float64)
    room[:, :own] = torch.stack(list(metrics.values()))[:, :own]
    whole = world.gather(room).transpose(0, 1).flatten(1)[:, :num_instances]
    return dict(zip(metrics, whole, strict=True))


def own_device(device: torch.device | str, size: int) -> torch.device | None:
    """Return the GPU of this process, given by ``LOCAL_RANK``; None on a CPU.

    Raises:
        ConfigError: The device has an index, so all processes would share it, or there are too few
            GPUs.
    """
    chosen = torch.device(device)
    if chosen.type != "cuda":
        return None
    # 1. Each process uses a GPU of its own.
    if chosen.index is not None:
        raise ConfigError(
            f"device={device} puts all {size} processes on one GPU; use device=cuda, which gives "
            "each process the GPU of its LOCAL_RANK"
        )
    # 2. The launcher numbers the processes of each machine.
    local, count = _variable("LOCAL_RANK"), torch.cuda.device_count()
    if local >= count:
        raise ConfigError(
            f"device=cuda: process {local} of this machine has no GPU, because the machine has "
            f"{count}; start torchrun with --nproc-per-node {max(count, 1)} or less, or use "
            "device=cpu"
        )
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def _required(name: str, default: str | None = None) -> str:
    """Return an environment variable that ``torchrun`` sets."""
    value = os.environ.get(name, default)
    if value is None:
        raise ConfigError(
            f"WORLD_SIZE asks for several processes, but {name} is not set; start them with "
            "torchrun, or unset WORLD_SIZE"
        )
    return value


def _variable(name: str, default: str | None = None) -> int:
    value = _required(name, default)
    if not value.isdecimal():
        raise ConfigError(f"{name}={value!r} must be a number, as torchrun sets it")
    return int(value)
