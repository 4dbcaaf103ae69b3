"""Rollouts: environment and policy, step by step, on the device.

Both collectors return the same transitions for the same seed and actions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from packing_env.envs import PackingEnv

SCRATCH = ("action_value",)
"""Entries of policies that are as large as the action space and that no replay needs."""


class DeviceCollector:
    """A source of transitions that reads nothing back from the device.

    Finished rows restart automatically. The caller owns the result of :meth:`step`.

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
        """Take one decision in every row: root and ``next`` entries, ``[*batch_size]``."""
        # The policy's entries become part of the transition, except those as large as the action
        # space.
        root = self.env.reset() if self._root is None else self._root
        with set_exploration_type(ExplorationType.RANDOM):
            root = self.policy(root)
        transition, following = self.env.step_and_maybe_reset(root.exclude(*SCRATCH))
        self._root = following
        return transition

    def redraw(self, number: int) -> None:
        """Replace the training instances by those of pool ``number``."""
        self.env.redraw(number)

    def state_dict(self) -> dict[str, Any]:
        """Return the environment's state, which is empty before the first step."""
        return {} if self._root is None else self._saved().to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        # Without a state, the next step starts new episodes.
        self._root = None
        if state:
            # Saved tensors may lie on another device.
            saved = TensorDict(dict(state), self.env.batch_size, device=self.env.device)
            self._root = self._restored(saved)

    def close(self) -> None:
        """Do nothing: no process was started."""

    def _saved(self) -> TensorDictBase:
        return self.env.get_state()

    def _restored(self, state: TensorDictBase) -> TensorDictBase:
        return self.env.reset(state, set_state=True)


class TorchRLCollector(DeviceCollector):
    """A source of the same transitions, driven by ``torchrl.collectors.Collector``.

    The collector shares the policy's module, so its weights are always up to date.
    """

    def __init__(self, env: PackingEnv, policy: TensorDictModuleBase) -> None:
        from torchrl.collectors import Collector

        # One batch is one decision in every row, so the trainer's loop stays the same.
        super().__init__(env, policy)
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
        """Take one decision in every row: root and ``next`` entries, ``[*batch_size]``."""
        # The collector adds a time axis of length 1.
        self._root = next(self._batches).exclude(*SCRATCH)[..., 0]
        return self._root

    def close(self) -> None:
        """Close TorchRL's collector; the environment stays open."""
        self._collector.shutdown(close_env=False)

    def _restored(self, state: TensorDictBase) -> TensorDictBase:
        root = super()._restored(state)
        self._collector._carrier.update(root)  # Collector.reset would start new episodes
        return root
