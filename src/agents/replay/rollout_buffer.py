"""`Rollout`: the last decisions of the current policy, on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch._subclasses.fake_tensor import FakeTensorMode

from agents.replay.compact import FLAGS, RebuildMaps
from packing_env import PackingEnv
from packing_env.memory import check_memory, num_bytes
from packing_env.values import Count, read


class Rollout:
    """The last ``horizon`` decisions of every row, ``[B, T]``, compact.

    States are stored without the entries that :class:`RebuildMaps` recomputes. An agent rebuilds
    them for one minibatch at a time (``RebuildMaps.expand``). Entries that a policy writes in
    addition to its actions (``action_log_prob``, ``state_value``) are stored unchanged. For a
    finished row, ``next`` holds its true terminal state. Storage is allocated at the first
    :meth:`extend`, when the policy's entries are known, and never moves. Nothing is copied to the
    host.

    Args:
        env: The environment; its rows must be the rows of every ``extend``.
        horizon: ``T``, decisions per row.
        keep: Additional entries of a state to store unchanged.

    Raises:
        ParameterError: ``horizon`` is not positive, or the states do not fit into the free memory.
    """

    on_policy = True

    def __init__(
        self, env: PackingEnv, horizon: Count = 32, keep: tuple[NestedKey, ...] = ()
    ) -> None:
        self.horizon = read("replay.horizon", int(horizon), Count)
        # Compute the size of a row on fake tensors before anything is allocated.
        self.num_rows = env.batch_size.numel()
        self.maps = RebuildMaps(env, keep=keep)
        self._left_out = ("observation", "next", "metrics", *env.mode.mask_keys, *FLAGS)
        with FakeTensorMode():
            layout = self._compact(env.fake_tensordict().reshape(-1)[:1])
        self.bytes_per_transition = num_bytes(layout.values(True, True))
        per_step = self.bytes_per_transition * self.num_rows
        check_memory(
            f"replay.horizon={self.horizon} of {self.num_rows} rows",
            self.num_bytes,
            env.device,
            lambda free: f"use replay.horizon={free // per_step} or less, or fewer env.num_envs",
        )
        self._storage: TensorDictBase | None = None
        self._cursor = 0

    @property
    def num_bytes(self) -> int:
        """Memory of the states in bytes, without the policy's entries."""
        return self.bytes_per_transition * self.horizon * self.num_rows

    @property
    def full(self) -> bool:
        """True once every decision of the rollout is stored; known without reading the device."""
        return self._cursor == self.horizon

    def extend(self, transition: TensorDictBase) -> None:
        """Add one step of every row; after a complete rollout this starts the next one.

        Args:
            transition: Root and ``next`` of one step, ``[B]`` or the environment's batch shape.
        """
        if transition.dim() > 1:
            transition = transition.reshape(-1)
        if len(transition) != self.num_rows:
            raise ValueError(
                f"the rollout has {self.num_rows} rows, but got a batch of {len(transition)}"
            )
        self._put(self._compact(transition))

    def _put(self, step: TensorDictBase) -> None:
        if self._storage is None:
            shape = (self.num_rows, self.horizon)
            self._storage = step[:, None].expand(shape).apply(torch.zeros_like)
        if self.full:
            self._cursor = 0
        self._storage[:, self._cursor] = step
        self._cursor += 1

    def take(self) -> TensorDictBase:
        """Return the rollout ``[B, T]``, a view of the storage, which ``extend`` overwrites.

        Raises:
            ValueError: The rollout is not complete yet.
        """
        if self._storage is None or not self.full:
            raise ValueError(f"the rollout holds {self._cursor} of {self.horizon} steps")
        self._cursor = 0
        return self._storage

    def state_dict(self) -> dict[str, Any]:
        """Return the steps stored so far; there are none between two rollouts."""
        if self._storage is None or not self._cursor:
            return {"cursor": 0, "steps": {}}
        steps = self._storage[:, : self._cursor].clone()
        return {"cursor": self._cursor, "steps": steps.flatten_keys("/").to_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, in a buffer of the same layout."""
        self._cursor = 0
        if not state["cursor"]:
            return
        saved = TensorDict(dict(state["steps"]), [self.num_rows, int(state["cursor"])])
        for step in saved.unflatten_keys("/").unbind(1):
            self._put(step)

    def _compact(self, transition: TensorDictBase) -> TensorDict:
        written: Any = transition.exclude(*self._left_out)
        return self.maps.inv(transition).update(written)
