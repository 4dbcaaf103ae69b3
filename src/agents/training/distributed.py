"""Processes that learn together: each has its own rows and replay; gradients are averaged.

    torchrun --nproc-per-node 2 -m agents.cli train env.num_envs=64 trainer.frames=1e6

Rank r steps num_envs rows, starting at row r * num_envs, and learns from its own replay. Each
gradient is the mean over the processes, so parameters stay identical. Frames are counted over the
rows of all processes. Rank 0 logs. All processes share the work of evaluations and checkpoints.
:mod:`agents.process_group` sends the messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, distributed
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from agents.config.folders import ConfigError
from agents.process_group import gather, part, processes
from agents.training.evaluate import check_instances, evaluate
from packing_env.envs import PackingEnv
from packing_env.values import Positive


class RankError(RuntimeError):
    """Another process of the job ended or failed."""


@contextmanager
def joined(device: torch.device | str, *, timeout: Positive = 600.0) -> Iterator[None]:
    """Join the processes that ``torchrun`` started; a single process remains alone.

    Args:
        device: Device of the command; on GPUs, each process gets its own.
        timeout: Seconds that a process waits for the others before it fails.

    Raises:
        ConfigError: Several processes cannot share ``device``, or an environment variable is
            missing.
        RankError: Another process failed, or did not join in time.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield
        return
    # 1. Form the process group: CPUs exchange messages by gloo, GPUs by NCCL.
    own, wait = own_device(device), timedelta(seconds=timeout)
    name = f"rank {os.environ.get('RANK')}"
    try:
        server, rank, size = next(iter(rendezvous("env://", timeout=wait)))
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
    except ValueError as error:  # a variable that torchrun sets is missing, or is not a number
        raise ConfigError(f"{error}; use torchrun, or unset WORLD_SIZE") from error
    except distributed.DistError as error:
        raise RankError(
            f"{name}: not all processes joined within distributed.timeout={timeout:g} seconds "
            f"({str(error).splitlines()[0]})"
        ) from error
    # 2. Run the block. A lost connection means that another process ended first.
    try:
        yield
    except (distributed.DistError, RuntimeError) as error:
        if isinstance(error, distributed.DistError) or "gloo" in str(error):
            raise RankError(f"{name}: another process ended; see its message") from error
        raise
    finally:
        distributed.destroy_process_group()


def evaluate_part(
    env: PackingEnv,
    policy: TensorDictModuleBase,
    num_instances: int,
    *,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Tensor]:
    """Evaluate in several processes, each on its part; return the metrics of all.

    ``env`` starts at this process's first instance (``row_offset``), see
    :func:`agents.process_group.part`; the policy is the same in all processes.

    Returns:
        Metrics by name, ``[num_instances]`` float64 on the host, the same in every process.
    """
    check_instances(env, num_instances)
    # 1. Play. A process without instances plays one anyway, so that it also sends a message.
    own, most = len(part(num_instances)), -(-num_instances // processes())
    metrics = evaluate(env, policy, max(1, own), should_stop=should_stop).metrics
    # 2. Gather all parts, padded to one size, in the order of the instances.
    room = torch.zeros(len(metrics), most, dtype=torch.float64)
    room[:, :own] = torch.stack(list(metrics.values()))[:, :own]
    whole = gather(room).transpose(0, 1).flatten(1)[:, :num_instances]
    return dict(zip(metrics, whole, strict=True))


def own_device(device: torch.device | str) -> torch.device | None:
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
            f"device={device} puts all processes on one GPU; use device=cuda, which gives "
            "each process the GPU of its LOCAL_RANK"
        )
    # 2. The launcher numbers the processes of each machine.
    own, count = os.environ.get("LOCAL_RANK", ""), torch.cuda.device_count()
    if not own.isdecimal():
        raise ConfigError(
            f"device=cuda: LOCAL_RANK={own!r} must be the number of this process on its machine; "
            "use torchrun, or set LOCAL_RANK"
        )
    local = int(own)
    if local >= count:
        raise ConfigError(
            f"device=cuda: process {local} of this machine has no GPU, because the machine has "
            f"{count}; start torchrun with --nproc-per-node {max(count, 1)} or less, or use "
            "device=cpu"
        )
    torch.cuda.set_device(local)
    return torch.device("cuda", local)
