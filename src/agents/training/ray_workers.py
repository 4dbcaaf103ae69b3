"""Rollouts for one learner on Ray, on a cluster or on this machine.

``distributed=ray`` starts TorchRL's ``RayCollector``, with one worker per share of the rows, and
sends the weights before each message. Ray pickles the data that it sends between processes of one
user; no pickle is read from a file.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torchrl.collectors import Collector as TorchRLCollector
from torchrl.envs.utils import ExplorationType

from agents.algorithms.base import Collector
from agents.config import imports
from agents.config.folders import ConfigError
from agents.training.distributed import ALONE, World
from agents.training.rollout import SCRATCH
from packing_env import extras
from packing_env.envs import PackingEnv
from packing_env.values import Count, ParameterError, read

_PATIENCE = 30.0
"""Seconds within which the processes of a cluster must end before they are killed."""

OURS = {"address": "local", "_node_ip_address": "127.0.0.1", "include_dashboard": False}
"""Options of a cluster that we start. Anyone who can reach a cluster can run code on it, so ours
listens only on this machine. ``local`` never joins a running cluster, such as one that another user
has registered in Ray's folder.
"""


@contextmanager
def cluster(num_workers: int, address: str | None = None) -> Iterator[Any]:
    """Join a Ray cluster, or start one on this machine and end it afterwards; yield the Ray module.

    ``address`` or the variable ``RAY_ADDRESS`` names a running cluster.
    """
    ray, psutil = (
        extras.require(name, "workers on a cluster (distributed=ray)") for name in ("ray", "psutil")
    )
    # 1. Our own cluster listens only on this machine, and keeps its files in our own folder.
    options: dict[str, Any] = {"address": address, "log_to_driver": False}
    place = None
    ours = is_ours(address)
    if ours:
        options |= {**OURS, "num_cpus": num_workers}
        if not os.environ.get("RAY_TMPDIR"):  # all users share Ray's default folder
            # the paths of its sockets must not exceed 107 characters
            short = "/tmp" if os.path.isdir("/tmp") else None
            place = options["_temp_dir"] = tempfile.mkdtemp(prefix="ray-", dir=short)
    # 2. Remember which processes exist already.
    me = psutil.Process()
    before = set(me.children(recursive=True))
    try:
        ray.init(**options)
        yield ray
    finally:
        # 3. End the cluster, and kill processes that do not end by themselves.
        started = set(me.children(recursive=True)) - before if ours else set()
        rays = [process for process in started if _is_of_ray(process, psutil)]
        ray.shutdown()  # Ray asks them to end, but does not wait for all of them
        for process in psutil.wait_procs(rays, timeout=_PATIENCE)[1]:
            with suppress(psutil.Error):
                process.kill()
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)


def is_ours(address: object) -> bool:
    """Return whether a cluster is started here, because no running one is named."""
    return address is None and not os.environ.get("RAY_ADDRESS")


def _is_of_ray(process: Any, psutil: Any) -> bool:
    """Return whether a process is a running process of Ray."""
    with suppress(psutil.Error):
        # Ray renames its workers, and runs its servers from its own package.
        command = " ".join(process.cmdline())
        return command.startswith("ray::") or f"{os.sep}ray{os.sep}" in command
    return False


class RayWorkers:
    """Workers on Ray that step the rows, each with a copy of the policy.

    Args:
        num_workers: Number of workers; it must divide the number of rows.
        horizon: Number of decisions of every row between two messages; the workers' policy does not
            change between them. For an on-policy agent this is ``replay.horizon``.
        address: Address of a running cluster; None starts one on this machine, and ends it
            afterwards.

    Raises:
        MissingPackageError: Ray is not installed.
    """

    def __init__(self, num_workers: int = 2, horizon: int = 16, address: str | None = None) -> None:
        self.num_workers: int = read("distributed.num_workers", num_workers, Count)
        self.horizon: int = read("distributed.horizon", horizon, Count)
        self.address = address
        extras.check("ray", "rollouts on workers (distributed=ray)")

    @contextmanager
    def joined(self, device: torch.device | str) -> Iterator[World]:
        """Start Ray; if there are several learners, raise a ConfigError."""
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ConfigError(
                "distributed=ray has one learner, but torchrun started several; leave one of the "
                "two out"
            )
        with cluster(self.num_workers, self.address):
            yield ALONE

    def collector(
        self,
        make: Callable[[PackingEnv, TensorDictModuleBase], Collector],
        env: PackingEnv,
        policy: TensorDictModuleBase,
    ) -> Collector:
        """Return a collector whose rows the workers step."""
        return RayRows(env, policy, self.num_workers, self.horizon)


class RayRows:
    """A source of transitions that Ray workers play, for :class:`RayWorkers`.

    Rows have the same random streams as in a single process, so the transitions are the same if the
    policy draws no random numbers.

    Raises:
        ParameterError: The rows cannot be divided evenly, or the policy changes in more than its
            weights.
    """

    def __init__(
        self, env: PackingEnv, policy: TensorDictModuleBase, num_workers: int, horizon: int
    ) -> None:
        # 1. Refuse settings that do not work with several workers.
        rows = env.batch_size.numel()
        if rows % num_workers or env.batch_dims != 1:
            raise ParameterError(
                f"distributed.num_workers={num_workers} must divide the rows of "
                f"env.num_envs={list(env.batch_size)}, along one axis"
            )
        if env.draw != "random":
            raise ParameterError("distributed=ray supports only instances that are drawn at random")
        if hasattr(policy, "stage"):
            raise ParameterError(
                f"distributed=ray sends only weights to its workers, but {type(policy).__name__} "
                "also has stages; use distributed=torchrun"
            )
        import ray
        from torchrl.collectors.distributed import RayCollector

        self.env, self.policy, self._ray = env, policy, ray
        # 2. Each worker gets the streams of its share of the rows.
        share = rows // num_workers
        env.reset()
        start = env.get_state()
        first, seed = int(start["row"][0]), int(start["seed"][0])
        make = partial(
            PackingEnv, env.params, env.catalogue, env.instances, num_envs=share, seed=seed
        )
        self._collector = RayCollector(
            [
                partial(_rows, make, first + share * index, torch.initial_seed() + index)
                for index in range(num_workers)
            ],
            policy,
            frames_per_batch=rows * horizon,
            total_frames=2**62,
            sync=True,
            collector_class=_Worker,
            weight_sync_schemes={},  # TorchRL's method sends only contiguous tensors; see _Worker
            exploration_type=ExplorationType.RANDOM,
            trust_policy=True,
            collector_kwargs={"track_traj_ids": False, "auto_register_policy_transforms": False},
            remote_configs={"num_cpus": 1, "num_gpus": 0},
            ray_init_config={"ignore_reinit_error": True},
        )
        self._batches = iter(self._collector)
        self._waiting: list[TensorDictBase] = []

    def step(self) -> TensorDictBase:
        """Take one decision in every row: root and ``next`` entries, ``[*batch_size]``."""
        # A message holds several decisions of every row; they are returned one by one.
        if not self._waiting:
            self._send_weights()
            with warnings.catch_warnings():  # instead of TorchRL's own method
                warnings.filterwarnings("ignore", "RayCollector iteration started", UserWarning)
                played = next(self._batches)
            batch = played.exclude(*SCRATCH).flatten(0, 1).to(self.env.device)
            self._waiting = list(reversed(batch.unbind(1)))
        return self._waiting.pop()

    def _send_weights(self) -> None:
        # Put the weights into Ray's store once; all workers read them there.
        weights = {name: value.detach().cpu() for name, value in _weights(self.policy).items()}
        sent = self._ray.put(weights)
        self._ray.get(
            [worker.load_weights.remote(sent) for worker in self._collector.remote_collectors]
        )

    def redraw(self, number: int) -> None:
        """Refuse the call, because the workers share one pool."""
        raise ParameterError("trainer.redraw_every is not available with distributed=ray")

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: a resumed run starts new episodes in its rows."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore nothing; see :meth:`state_dict`."""

    def close(self) -> None:
        """End the workers."""
        self._collector.shutdown()


class _Worker(TorchRLCollector):
    """A collector in a Ray worker, whose policy receives its weights unchanged."""

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        for name, value in _weights(self.policy).items():
            value.data.copy_(weights[name])


def _weights(policy: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name, including those that are not saved."""
    return dict(chain(policy.named_parameters(), policy.named_buffers()))


def _rows(make: Callable[..., PackingEnv], row_offset: int, seed: int) -> PackingEnv:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    imports.import_packages()
    return make(row_offset=row_offset)
