"""`DeviceReplay`: transitions in a ring on the device, compact inside, whole outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import PrioritizedSampler, RandomSampler, Sampler
from torchrl.data.replay_buffers.writers import RoundRobinWriter

from agents.replay.compact import RebuildMaps
from agents.replay.n_step import NStep
from packing_env import PackingEnv
from packing_env.types import ParameterError

_MARGIN = 0.9
"""Share of the free memory that a replay may take."""


class DeviceReplay:
    """Replay of one environment's transitions, on the environment's device.

    ``extend`` takes what ``env.step_and_maybe_reset`` returned, makes it compact
    (:class:`RebuildMaps`), turns it into n-step transitions (:class:`NStep`) and writes B rows to a
    TorchRL storage that is allocated once, here. ``sample`` gives whole transitions again: root
    observation and ``action``; ``discount`` and ``steps_to_next_obs``; and in ``next`` the n-step
    ``reward``, the observation and the flags. A target is ``reward + discount * value(next)``, with
    the maximum in ``value`` taken under ``("next", "legal_mask")``.

    Nothing is read back to the host: how full the ring is follows from the number of calls.

    Args:
        env: The environment; its rows must be the rows of every ``extend``.
        capacity: Transitions kept; the oldest are overwritten.
        n_steps: Longest reward window.
        gamma: Discount per step.
        sampler: A TorchRL sampler; uniform with replacement if None. A ``PrioritizedSampler`` gets
            new priorities through :meth:`update_priority`.
        rebuild: Observations to compute again for a sample; None for all that were dropped.

    Raises:
        ParameterError: The transitions would not fit into the free memory, or fewer than one step
            of the environment would.
    """

    def __init__(
        self,
        env: PackingEnv,
        capacity: int,
        *,
        n_steps: int = 1,
        gamma: float = 0.99,
        sampler: Sampler | None = None,
        rebuild: tuple[str, ...] | None = None,
    ) -> None:
        self.capacity = int(capacity)
        self.num_rows = env.batch_size.numel()
        if self.capacity < self.num_rows:
            raise ParameterError(
                f"replay.capacity={capacity} is less than one step of {self.num_rows} environments"
            )
        self.maps = RebuildMaps(env, rebuild)
        self.n_step = NStep(n_steps, gamma)
        layout = _layout(env, self.maps)
        self.bytes_per_transition = _num_bytes(layout)
        _check_memory(self, env.device)
        self.buffer = TensorDictReplayBuffer(
            storage=LazyTensorStorage(self.capacity, device=env.device, compilable=True),
            sampler=RandomSampler() if sampler is None else sampler,
            writer=RoundRobinWriter(compilable=True),
            compilable=True,
        )
        self._allocate(layout, env.device)

    @property
    def num_bytes(self) -> int:
        """Memory of the ring and of the steps held back for n-step returns."""
        return self.bytes_per_transition * (self.capacity + self.n_step.n_steps * self.num_rows)

    def _allocate(self, layout: TensorDictBase, device: torch.device) -> None:
        """Let the storage take its memory now rather than in the middle of a run."""
        row = layout.apply(lambda x: torch.zeros(x.shape, dtype=x.dtype, device=device))
        self.buffer.extend(row)
        self.buffer.empty()

    def __len__(self) -> int:
        return len(self.buffer)

    def extend(self, transition: TensorDictBase) -> Tensor | None:
        """Add one step of every row.

        Args:
            transition: Root and ``next`` of one step, ``[B]`` or the environment's batch shape.

        Returns:
            Where the rows were written; None while the first windows fill (``n_steps - 1`` calls).
        """
        if transition.dim() > 1:
            transition = transition.reshape(-1)
        ready = self.n_step.push(self.maps.inv(transition))
        return None if ready is None else self.buffer.extend(ready)

    def flush(self) -> None:
        """Write the steps that are held back, with windows that end at the newest step.

        Call it before the environment is reset from outside, so that no window spans the break.
        """
        for ready in self.n_step.flush():
            self.buffer.extend(ready)

    def sample(self, batch_size: int) -> TensorDictBase:
        """Whole transitions, with their ``index`` in the ring."""
        return self.maps(self.buffer.sample(batch_size))

    def update_priority(self, index: Tensor, priority: Tensor) -> None:
        """Give sampled transitions new priorities; a uniform sampler takes no notice."""
        if isinstance(self.buffer.sampler, PrioritizedSampler):
            self.buffer.update_priority(index, priority)

    def state_dict(self) -> dict[str, Any]:
        """The filled part of the ring, the steps held back, and where writing continues."""
        rows = self.buffer[: len(self)].exclude("index") if len(self) else TensorDict()
        return {
            "rows": rows.flatten_keys("/").to_dict(),
            "length": len(self),
            "writer": self.buffer.writer.state_dict(),
            "sampler": self.buffer.sampler.state_dict(),
            "n_step": self.n_step.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state_dict` returned, in a replay of the same layout."""
        length = int(state["length"])
        if length > self.capacity:
            raise ParameterError(
                f"the saved replay holds {length} transitions; replay.capacity={self.capacity}"
            )
        self.buffer.empty()
        if length:
            rows = TensorDict(dict(state["rows"]), [length], device=self.buffer.storage.device)
            self.buffer.extend(rows.unflatten_keys("/"))
        self.buffer.writer.load_state_dict(state["writer"])
        self.buffer.sampler.load_state_dict(state["sampler"])
        self.n_step.load_state_dict(state["n_step"])


def _layout(env: PackingEnv, maps: RebuildMaps) -> TensorDictBase:
    """One stored row, without memory behind it."""
    with FakeTensorMode():
        whole = env.fake_tensordict().reshape(-1)
        return NStep().push(maps.inv(whole))[:1].clone()


def _num_bytes(tensordict: TensorDictBase) -> int:
    return sum(x.numel() * x.element_size() for x in tensordict.values(True, True))


def free_memory(device: torch.device) -> int | None:
    """Bytes that may be allocated on a device; None where this is not known."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if device.type != "cpu" or not meminfo.is_file():
        return None
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) * 1024
    limit, used = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))
    if limit.is_file() and (text := limit.read_text().strip()) != "max":
        free = min(free, int(text) - int(used.read_text()))
    return free


def _check_memory(replay: DeviceReplay, device: torch.device) -> None:
    """Refuse a capacity that cannot fit, before anything is allocated."""
    free = free_memory(device)
    if free is None or replay.num_bytes <= _MARGIN * free:
        return
    fits = int(_MARGIN * free) // replay.bytes_per_transition
    fits -= replay.n_step.n_steps * replay.num_rows
    raise ParameterError(
        f"replay.capacity={replay.capacity} needs {replay.num_bytes / 2**30:.1f} GiB "
        f"({replay.bytes_per_transition} bytes per transition), but {free / 2**30:.1f} GiB are "
        f"free on {device}; use replay.capacity={max(fits, 0)} or less"
    )
