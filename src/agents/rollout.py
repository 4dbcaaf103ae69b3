"""Rollouts: the environment and a policy, step by step, on the device.

Both collectors give the same transitions for the same seed and actions.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from packing_env.envs import PackingEnv

_SCRATCH = ("action_value",)
"""Written by policies, as wide as the action space, of no use to a replay."""


class DeviceCollector:
    """Steps the environment without reading anything back.

    Finished rows start anew by themselves. What :meth:`step` returns is the caller's.

    Args:
        env: The environment.
        policy: Writes ``action``; it explores (``ExplorationType.RANDOM``).
    """

    def __init__(self, env: PackingEnv, policy: TensorDictModuleBase) -> None:
        self.env = env
        self.policy = policy
        self._root: TensorDictBase | None = None

    @torch.no_grad()
    def step(self) -> TensorDictBase:
        """One decision of every row: root and ``next`` entries, ``[*batch_size]``."""
        root = self.env.reset() if self._root is None else self._root
        with set_exploration_type(ExplorationType.RANDOM):
            root = self.policy(root)
        transition, following = self.env.step_and_maybe_reset(root.exclude(*_SCRATCH))
        self._root = following
        return transition

    def close(self) -> None:
        """Nothing to release."""


class TorchRLCollector:
    """The same, driven by ``torchrl.collectors.Collector``.

    Args:
        env: The environment.
        policy: Writes ``action``; the collector uses this very module, so it is never stale.
    """

    def __init__(self, env: PackingEnv, policy: TensorDictModuleBase) -> None:
        from torchrl.collectors import Collector

        self._collector = Collector(
            env,
            policy,
            frames_per_batch=env.batch_size.numel(),
            total_frames=-1,
            track_traj_ids=False,
            trust_policy=True,
            auto_register_policy_transforms=False,
            exploration_type=ExplorationType.RANDOM,
        )
        self._batches: Iterator[TensorDictBase] = iter(self._collector)

    def step(self) -> TensorDictBase:
        """One decision of every row: root and ``next`` entries, ``[*batch_size]``."""
        return next(self._batches).exclude(*_SCRATCH)[..., 0]

    def close(self) -> None:
        """Shut the collector down; the environment stays open."""
        self._collector.shutdown(close_env=False)
