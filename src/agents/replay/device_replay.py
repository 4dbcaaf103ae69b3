"""Replays of transitions in a ring buffer on the device, compact (`DeviceReplay`) or whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import PrioritizedSampler, RandomSampler, Sampler
from torchrl.data.replay_buffers.writers import RoundRobinWriter

from agents.process_group import processes
from agents.replay.compact import RebuildMaps
from agents.replay.n_step import NStep
from agents.replay.prioritized import DevicePrioritizedSampler
from packing_env import PackingEnv
from packing_env.memory import check_memory, human, num_bytes
from packing_env.types import ParameterError
from packing_env.values import Count, Share


class DeviceReplay:
    """Replay of one environment's transitions, on the environment's device.

    ``extend`` takes the result of ``env.step_and_maybe_reset``, makes it compact
    (:class:`RebuildMaps`), turns it into n-step transitions (:class:`NStep`), and writes B rows to
    a TorchRL storage. ``sample`` returns whole transitions. The root holds the observation,
    ``action``, ``discount`` and ``steps_to_next_obs``; ``next`` holds the n-step ``reward``, the
    observation and the flags. A target is ``reward + discount * value(next)``, where ``value``
    maximises over the actions in ``("next", "legal_mask")``.

    Nothing is copied to the host: the fill level follows from the number of calls. All memory is
    allocated in the constructor and stays in place.

    Args:
        env: The environment; its rows must be the rows of every ``extend``.
        capacity: Number of transitions that are kept; the oldest are overwritten.
        n_steps: Length of the reward window; a window is shorter if its episode ends.
        gamma: Discount per step.
        sampler: A TorchRL sampler; uniform with replacement if None. A ``PrioritizedSampler`` gets
            new priorities through :meth:`update_priority`, and the schedule of a
            :class:`DevicePrioritizedSampler` follows the frames that were added.
        rebuild: Observations to recompute for a sample; None means all that were dropped.
        keep: Additional entries of a state that samples hold, at the root and in ``next``.

    Raises:
        ParameterError: The transitions do not fit into the free memory, or the capacity is less
            than one step of the environment.
    """

    def __init__(
        self,
        env: PackingEnv,
        capacity: Count,
        *,
        n_steps: Count = 1,
        gamma: Share = 0.99,
        sampler: Sampler | None = None,
        rebuild: tuple[str, ...] | None = None,
        keep: tuple[NestedKey, ...] = (),
    ) -> None:
        self.capacity = int(capacity)
        self.num_rows = env.batch_size.numel()
        if self.capacity < self.num_rows:
            raise ParameterError(
                f"replay.capacity={capacity} is less than one step of {self.num_rows} environments"
            )
        if isinstance(sampler, PrioritizedSampler) and sampler.max_size != self.capacity:
            raise ParameterError(
                f"the sampler is for {sampler.max_size} transitions, but replay.capacity={capacity}"
            )
        # 1. The forms of a transition.
        self.maps = RebuildMaps(env, rebuild, keep)
        self.n_step = NStep(n_steps, gamma)
        self.frames = 0
        # 2. Compute the memory before anything is allocated.
        held, row = self._layout(env)
        self.bytes_per_transition = num_bytes(row.values(True, True))
        self.num_bytes = self.bytes_per_transition * self.capacity
        self.num_bytes += num_bytes(held.values(True, True)) * n_steps * self.num_rows
        self._check_memory(env.device)
        self.buffer = TensorDictReplayBuffer(
            storage=LazyTensorStorage(self.capacity, device=env.device, compilable=True),
            sampler=RandomSampler() if sampler is None else sampler,
            writer=RoundRobinWriter(compilable=True),
            compilable=True,
        )
        # Allocate the storage now rather than in the middle of a run.
        self.buffer.extend(
            row.apply(lambda x: torch.zeros(x.shape, dtype=x.dtype, device=env.device))
        )
        self.buffer.empty()

    # ------------------------------------------------------------------ forms of a transition

    def _stored(self, ready: TensorDictBase) -> TensorDictBase:
        """Return the form in which n-step transitions are stored."""
        return ready

    def _whole(self, stored: TensorDictBase) -> TensorDictBase:
        """Return the form of samples."""
        return self.maps(stored)

    def _layout(self, env: PackingEnv) -> tuple[TensorDictBase, TensorDictBase]:
        """Return one waiting row and one stored row, without allocating memory."""
        with FakeTensorMode(allow_non_fake_inputs=True):
            held = self.maps.inv(env.fake_tensordict().reshape(-1))
            ready = NStep().push(held)
            assert ready is not None  # a window of one step is complete at once
            return held[:1].clone(), self._stored(ready[:1].clone())

    def _check_memory(self, device: torch.device) -> None:
        each = human(self.bytes_per_transition)
        windows = self.num_bytes - self.bytes_per_transition * self.capacity
        check_memory(
            f"replay.capacity={self.capacity} ({each} per transition)",
            self.num_bytes,
            device,
            lambda free: (
                f"use replay.capacity={max((free - windows) // self.bytes_per_transition, 0)} or "
                "less, or a coarser env.grid_step or env.cell"
            ),
        )

    # ------------------------------------------------------------------ use

    def __len__(self) -> int:
        return len(self.buffer)

    def extend(self, transition: TensorDictBase) -> Tensor | None:
        """Add one step of every row.

        Args:
            transition: Root and ``next`` of one step, ``[B]`` or the environment's batch shape.

        Returns:
            Indices of the written rows; None until the first windows are full (``n_steps - 1``
            calls).
        """
        if transition.dim() > 1:
            transition = transition.reshape(-1)
        self.frames += self.num_rows * processes()
        if isinstance(self.buffer.sampler, DevicePrioritizedSampler):
            self.buffer.sampler.set_frames(self.frames)
        ready = self.n_step.push(self.maps.inv(transition))
        return None if ready is None else self.buffer.extend(self._stored(ready))

    def sample(self, batch_size: int) -> TensorDictBase:
        """Draw whole transitions, with their ``index`` in the ring buffer.

        A prioritized sampler adds the importance weights, ``priority_weight [n]``.
        """
        return self._whole(self.buffer.sample(batch_size))

    def update_priority(self, index: Tensor, priority: Tensor) -> None:
        """Set the priorities of sampled transitions to magnitudes of TD errors ``[n]``.

        A uniform sampler ignores them; a prioritized sampler applies its exponent.
        """
        if isinstance(self.buffer.sampler, PrioritizedSampler):
            self.buffer.update_priority(index, priority)

    def state_dict(self) -> dict[str, Any]:
        """Return the filled part of the ring, the waiting steps, and the next write position."""
        rows = self.buffer[: len(self)].exclude("index") if len(self) else TensorDict()
        return {
            "rows": rows.flatten_keys("/").to_dict(),
            "length": len(self),
            "frames": self.frames,
            "writer": self.buffer.writer.state_dict(),
            "sampler": self.buffer.sampler.state_dict(),
            "n_step": self.n_step.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, in a replay of the same layout."""
        length = int(state["length"])
        if length > self.capacity:
            raise ParameterError(
                f"the saved replay holds {length} transitions, but replay.capacity={self.capacity}"
            )
        self.frames = int(state["frames"])
        self.buffer.empty()
        if length:
            rows = TensorDict(dict(state["rows"]), [length], device=self.buffer.storage.device)
            self.buffer.extend(rows.unflatten_keys("/"))
        self.buffer.writer.load_state_dict(state["writer"])
        self.buffer.sampler.load_state_dict(state["sampler"])
        self.n_step.load_state_dict(state["n_step"])


class TorchRLReplay(DeviceReplay):
    """A ``TensorDictReplayBuffer`` over a ``LazyTensorStorage`` of whole transitions.

    Interface and transitions are those of :class:`DeviceReplay`. Maps are computed only once, when
    a transition is written. So samples cost less, but each transition takes the memory of all its
    maps.
    """

    def _stored(self, ready: TensorDictBase) -> TensorDictBase:
        return super()._whole(ready)

    def _whole(self, stored: TensorDictBase) -> TensorDictBase:
        return stored
