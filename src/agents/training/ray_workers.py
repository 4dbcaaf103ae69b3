"""Rollouts on Ray workers, which feed one learner here: ``distributed=ray``.

TorchRL's ``RayCollector`` starts a worker per share of the rows, on this machine or in a cluster;
the weights follow before each message. Ray pickles what it sends between processes of one user;
nothing of it is read from files.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
from agents.config.folders import ConfigError
from agents.training.distributed import ALONE, World
from agents.training.ray_tasks import cluster
from agents.training.rollout import _SCRATCH
from packing_env import extras
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError


class RayWorkers:
    """Workers on Ray that step the rows, each with a copy of the policy.

    Args:
        num_workers: Number of workers; it must divide the number of rows.
        horizon: Decisions of every row between two messages. The policy of the workers is that of
            the last message; for an on-policy agent this is ``replay.horizon``.
        address: Of a running cluster; None starts one on this machine, and ends it again.

    Raises:
        MissingPackageError: Ray is not installed.
    """

    def __init__(self, num_workers: int = 2, horizon: int = 16, address: str | None = None) -> None:
        for name, value in (("num_workers", num_workers), ("horizon", horizon)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ParameterError(f"distributed.{name}={value!r} must be 1 or more")
        extras.check("ray", "rollouts on workers (distributed=ray)")
        self.num_workers, self.horizon, self.address = num_workers, horizon, address

    @contextmanager
    def joined(self, device: torch.device | str) -> Iterator[World]:
        """Start Ray; the learner is a world of one.

        Raises:
            ConfigError: ``torchrun`` started several learners.
        """
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ConfigError(
                "distributed=ray has one learner, and torchrun started several; leave one out"
            )
        with cluster(self.num_workers, self.address):
            yield ALONE

    def collector(
        self,
        make: Callable[[PackingEnv, TensorDictModuleBase], Collector],
        env: PackingEnv,
        policy: TensorDictModuleBase,
    ) -> Collector:
        """Return a collector whose rows are stepped by the workers."""
        return RayRows(env, policy, self.num_workers, self.horizon)


class RayRows:
    """A source of transitions that Ray workers play.

    Rows have the streams that they have in one process: where the policy draws nothing, so do its
    weights, the transitions are the same.

    Args:
        env: The environment; copies of it step its rows.
        policy: Writes ``action``; the workers have copies.
        num_workers: See :class:`RayWorkers`, as ``horizon``.
        horizon: Decisions of every row at a time.

    Raises:
        ParameterError: The rows cannot be divided, or the policy changes by more than its weights.
    """

    def __init__(
        self, env: PackingEnv, policy: TensorDictModuleBase, num_workers: int, horizon: int
    ) -> None:
        rows = env.batch_size.numel()
        if rows % num_workers or env.batch_dims != 1:
            raise ParameterError(
                f"distributed.num_workers={num_workers} must divide the rows of "
                f"env.num_envs={list(env.batch_size)}, along one axis"
            )
        if env.draw != "random":
            raise ParameterError("distributed=ray plays instances drawn at random only")
        if hasattr(policy, "stage"):
            raise ParameterError(
                f"distributed=ray brings weights to its workers, and {type(policy).__name__} has "
                f"stages besides; use distributed=torchrun"
            )
        import ray
        from torchrl.collectors.distributed import RayCollector

        self.env, self.policy, self._ray = env, policy, ray
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
            weight_sync_schemes={},  # TorchRL's sends contiguous tensors only; see _Worker
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
        if not self._waiting:
            self._send_weights()
            with warnings.catch_warnings():  # that its own way of sending weights is not used
                warnings.filterwarnings("ignore", "RayCollector iteration started", UserWarning)
                played = next(self._batches)
            batch = played.exclude(*_SCRATCH).flatten(0, 1).to(self.env.device)
            self._waiting = list(reversed(batch.unbind(1)))
        return self._waiting.pop()

    def _send_weights(self) -> None:
        """Send parameters and buffers to the workers."""
        weights = {name: value.detach().cpu() for name, value in _weights(self.policy).items()}
        sent = self._ray.put(weights)
        self._ray.get(
            [worker.load_weights.remote(sent) for worker in self._collector.remote_collectors]
        )

    def redraw(self, number: int) -> None:
        """Refuse: the workers have one pool."""
        raise ParameterError("trainer.redraw_every is not available with distributed=ray")

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: a resumed run starts new episodes in its rows."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore nothing, see :meth:`state_dict`."""

    def close(self) -> None:
        """End the workers."""
        self._collector.shutdown()


class _Worker(TorchRLCollector):
    """A collector in a Ray worker, whose policy gets its weights as they are."""

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy parameters and buffers into the policy."""
        for name, value in _weights(self.policy).items():
            value.data.copy_(weights[name])


def _weights(policy: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers, those that are not saved included, by name."""
    return dict(chain(policy.named_parameters(), policy.named_buffers()))


def _rows(make: Callable[..., PackingEnv], row_offset: int, seed: int) -> PackingEnv:
    """Build the rows of a worker, in the worker."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    return make(row_offset=row_offset)
