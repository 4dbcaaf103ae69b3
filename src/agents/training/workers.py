"""The rows of an environment in several processes; the policy runs in the main process.

Each row has its own random stream, so the transitions equal those of a single process bit for bit.
On a GPU a single process is fastest, because a second process would only take turns with it.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
from collections.abc import Iterable
from functools import partial
from types import FrameType
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torchrl.envs import ParallelEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.training.capture import CapturedCollector, captures
from agents.training.rollout import SCRATCH, DeviceCollector
from packing_env.envs import PackingEnv
from packing_env.values import Count, ParameterError, read

_LOGGER = logging.getLogger("agents.training.workers")
PATIENCE = 60
"""Seconds that a worker continues after SIGTERM, which often goes to a whole process group."""


def device_collector(
    env: PackingEnv,
    policy: TensorDictModuleBase,
    *,
    num_workers: Count = 1,
    allow_secondary_multiprocess: bool = False,
    capture: bool | str = "auto",
) -> DeviceCollector:
    """Build a collector that steps the rows in this process, or in several.

    Args:
        env: The environment.
        policy: Writes ``action``; it explores (``ExplorationType.RANDOM``).
        num_workers: Number of processes; it must divide the number of rows.
        allow_secondary_multiprocess: Whether to use several processes on a GPU too.
        capture: Whether to run policy and step as one CUDA graph (``CapturedCollector``); ``auto``
            does so if possible.

    Raises:
        ParameterError: The rows cannot be divided evenly, or a required graph is impossible.
    """
    read("collector.num_workers", num_workers, Count)
    # 1. On a GPU one process is faster than several.
    if num_workers > 1 and env.device.type != "cpu" and not allow_secondary_multiprocess:
        _LOGGER.warning(
            "collector.num_workers=%d is reduced to 1, because on %s one process is faster; "
            "collector.allow_secondary_multiprocess=true uses several anyway",
            num_workers,
            env.device,
        )
        num_workers = 1
    # 2. Collect the reasons against one CUDA graph of policy and step.
    obstacles = {}
    if env.device.type != "cuda":
        obstacles[f"the environment is on {env.device}"] = "use device=cuda"
    if num_workers > 1:
        obstacles[f"there are {num_workers} processes"] = "use collector.num_workers=1"
    if env.autoreset == "masked":
        obstacles["autoreset=masked splits a step into parts"] = "use env.autoreset=native"
    graph = captures(capture, "collector.capture", obstacles)
    # 3. Choose the collector.
    if num_workers == 1:
        if graph:
            return CapturedCollector(env, policy, required=capture is True)
        return DeviceCollector(env, policy)
    return WorkerCollector(env, policy, num_workers)


class WorkerCollector(DeviceCollector):
    """A source of transitions; ``num_workers`` processes step its rows.

    The policy must not read the environment itself.

    Raises:
        ParameterError: The rows cannot be divided evenly, or instances are drawn sequentially.
    """

    def __init__(self, env: PackingEnv, policy: TensorDictModuleBase, num_workers: int) -> None:
        rows = env.batch_size.numel()
        if rows % num_workers:
            raise ParameterError(
                f"collector.num_workers={num_workers} must divide the {rows} rows of env.num_envs"
            )
        if env.draw != "random":
            raise ParameterError(
                "collector.num_workers > 1 supports only instances that are drawn at random"
            )
        super().__init__(env, policy)
        # Each process builds its share from the task, and receives its part of the state later.
        self._shape = (num_workers, rows // num_workers)
        task = (env.params, env.catalogue, env.instances)
        shard = partial(_Shard, *task, num_envs=self._shape[1], row_offset=0)
        self._shards = ParallelEnv(
            num_workers,
            [partial(shard, index=index, device=env.device) for index in range(num_workers)],
            mp_start_method="spawn",
            num_threads=torch.get_num_threads(),
        )
        self._shards.start()

    @torch.no_grad()
    def step(self) -> TensorDictBase:
        """Take one decision in every row: root and ``next`` entries, ``[*batch_size]``."""
        # 1. The main environment draws the first state, so it equals that of a single process.
        if self._root is None:
            self.env.reset()
            self._root = self._restored(self.env.get_state())
        # 2. One policy acts for all rows, and the processes step their shares.
        with set_exploration_type(ExplorationType.RANDOM):
            root = self.policy(self._root).exclude(*SCRATCH)
        step, following = self._shards.step_and_maybe_reset(root.reshape(self._shape))
        # 3. The next step overwrites the shared memory, so the result is copied.
        self._root = following.reshape(self.env.batch_size).clone()
        return root.set("next", step.get("next").reshape(self.env.batch_size).clone())

    def redraw(self, number: int) -> None:
        """Replace the training instances by those of pool ``number``."""
        super().redraw(number)
        self._shards.exchange(self.env.instances)

    def close(self) -> None:
        """End the processes; the environment stays open."""
        self._shards.close()

    def _saved(self) -> TensorDictBase:
        return self._whole(self._shards.get_state())

    def _restored(self, state: TensorDictBase) -> TensorDictBase:
        """Send every process its part of a state; return the observations."""
        return self._whole(self._shards.restore(state.reshape(self._shape)))

    def _whole(self, parts: Iterable[TensorDictBase]) -> TensorDictBase:
        whole: TensorDictBase = torch.cat(list(parts))
        return whole.reshape(self.env.batch_size)


class _Shard(PackingEnv):
    """Some rows of another environment; in a worker process it ignores Ctrl-C."""

    def __init__(self, *task: Any, index: int, **shell: Any) -> None:
        # ParallelEnv resets finished rows in TorchRL's way; both ways give the same rollouts.
        super().__init__(*task, autoreset="masked", **shell)
        self._index = index
        if multiprocessing.parent_process() is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, _outlive)

    def restore(self, states: TensorDictBase) -> TensorDictBase:
        """Set this shard to its part of ``states [W, B]``; return the observations."""
        return self.reset(states[self._index], set_state=True)


def _outlive(number: int, frame: FrameType | None) -> None:
    """Continue for a limited time, while the main process saves after the same signal."""
    # The alarm ends a worker whose main process has ended.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(PATIENCE)
