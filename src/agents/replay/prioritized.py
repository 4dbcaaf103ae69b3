"""`DevicePrioritizedSampler`: prioritized sampling in plain tensor operations, on any device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torchrl.data.replay_buffers.samplers import PrioritizedSampler, Sampler
from torchrl.data.replay_buffers.storages import Storage

from agents.process_group import least
from packing_env.types import ParameterError
from packing_env.values import Count, NonNegative, Positive, Whole, read


class DevicePrioritizedSampler(PrioritizedSampler):
    """Sampler that draws transition i with probability ``p_i^alpha / sum over k of p_k^alpha``.

    Proportional prioritization of Schaul et al., "Prioritized experience replay", ICLR 2016:
    priorities are ``p_i = |delta_i| + eps`` (section 3.3), and draws are stratified over the batch
    (appendix B.2.1). New transitions get the largest priority so far (algorithm 1; 1 before the
    first update). Importance weights ``(N P(i))^-beta`` correct the bias (section 3.4); beta
    changes linearly with the frames. Weights are divided by the largest weight *of the batch*, so
    they only scale an update down. (With the largest weight of the buffer, a single transition of
    priority eps would scale all updates down to almost nothing.) If several processes learn
    together, each draws from its own buffer, and the largest weight is taken over all batches.

    This class replaces TorchRL's ``PrioritizedSampler`` in any TorchRL buffer. It needs no C++
    extension and copies nothing to the host. Shapes depend only on the batch size, and all memory
    stays in place, so drawing and updating can be captured in a CUDA graph.

    The powers of the priorities are stored in rows, together with the sum of each row. A draw finds
    its row, then its entry in the row; each step is a cumulative sum and a binary search. An update
    recomputes the sums of the changed rows in float64, so that they do not drift. If an index
    occurs several times in an update, the largest priority counts. A priority that is not finite is
    replaced by the largest so far.

    Args:
        max_capacity: Capacity of the storage.
        alpha: Exponent of the priorities; 0 draws uniformly.
        beta: Exponent of the weights, at frame 0.
        eps: Constant that is added to every priority, so that every transition can be drawn.
        beta_end: Exponent of the weights after ``beta_frames`` frames.
        beta_frames: Length of this schedule in frames, see :meth:`set_frames`; None keeps ``beta``.
        device: Device of the priorities; None means the device of the storage.
        reduction: How a TorchRL buffer reduces several priorities to one.
    """

    def __init__(
        self,
        max_capacity: Count,
        alpha: NonNegative = 0.6,
        beta: NonNegative = 0.4,
        eps: Positive = 1e-6,
        *,
        beta_end: NonNegative = 1.0,
        beta_frames: Whole | None = None,
        device: torch.device | str | None = None,
        reduction: str = "max",
    ) -> None:
        Sampler.__init__(self)  # the constructor of PrioritizedSampler needs the extension
        for name, value in (("alpha", alpha), ("beta", beta), ("beta_end", beta_end)):
            read(name, value, NonNegative)
        read("eps", eps, Positive)
        if beta_frames is not None:
            beta_frames = read("beta_frames", int(beta_frames), Whole)
        self._max_capacity = read("max_capacity", int(max_capacity), Count)
        self._alpha, self._eps = float(alpha), float(eps)
        self.beta_start, self.beta_end, self.beta_frames = float(beta), float(beta_end), beta_frames
        self.reduction = reduction
        self._beta = self.beta_start
        self._device = None if device is None else torch.device(device)
        # Rows are narrow, because a draw scans one row per element and all row sums once.
        self._shift = max(3, self._max_capacity.bit_length() // 2 - 5)
        self._width = 1 << self._shift
        self._allocate(self._device or torch.device("cpu"))
        self.set_frames(0)

    def _allocate(self, device: torch.device) -> None:
        # One spare entry follows those of the buffer; it receives writes outside the buffer. All
        # states are tensors at fixed addresses, so a recorded graph can read and write them.
        num_rows = -(-(self._max_capacity + 1) // self._width)
        self._powers = torch.zeros(num_rows * self._width, dtype=torch.float64, device=device)
        self._spare = self._powers[self._max_capacity]
        self._rows = self._powers.view(num_rows, self._width)
        self._sums = torch.zeros(num_rows, dtype=torch.float64, device=device)
        self._top = torch.zeros((), dtype=torch.float64, device=device)
        self._last = torch.full((), -1, dtype=torch.int64, device=device)
        self._exponent = torch.full((), -self._beta, dtype=torch.float64, device=device)

    def _empty(self) -> None:
        for state in (self._powers, self._sums, self._top):
            state.zero_()
        self._last.fill_(-1)

    def _maybe_init_from_storage(self, storage: Storage | None) -> None:
        """Move to the storage's device, unless one was given."""
        device = None if storage is None else storage.device
        if self._device is None and isinstance(device, torch.device) and device != self.device:
            state = self.state_dict()
            self._allocate(device)
            self.load_state_dict(state)

    # ------------------------------------------------------------------ schedules

    def set_frames(self, frames: int) -> None:
        """Set beta to its value after ``frames`` environment frames, in closed form."""
        if self.beta_frames is not None:
            share = min(1.0, frames / self.beta_frames) if self.beta_frames else 1.0
            self.beta = self.beta_start + share * (self.beta_end - self.beta_start)

    @property
    def beta(self) -> float:
        """The current exponent of the weights."""
        return self._beta

    @beta.setter
    def beta(self, value: float) -> None:
        self._beta = float(value)
        self._exponent.fill_(-self._beta)

    def _retransform_priority_trees(self, old_alpha: float, new_alpha: float) -> None:
        """Keep the priorities when alpha changes; alpha = 0 makes all equal permanently."""
        if old_alpha:
            filled = self._powers > 0
            self._powers.copy_(torch.where(filled, self._powers ** (new_alpha / old_alpha), 0.0))
            self._sums.copy_(self._rows.sum(1))

    # ------------------------------------------------------------------ draws

    @property
    def device(self) -> torch.device:
        """The device of the priorities."""
        return self._powers.device

    def sample(self, storage: Storage, batch_size: int) -> tuple[Any, dict[str, Tensor]]:
        """Draw indices and their weights.

        Returns:
            The indices ``[n]`` (a tuple of them for a storage of several axes), and
            ``priority_weight [n]`` float32.

        Raises:
            RuntimeError: The storage is empty.
        """
        if len(storage) == 0:
            raise RuntimeError("the replay is empty: nothing can be drawn from it")
        self._maybe_init_from_storage(storage)
        index, weight = self.draw(batch_size)
        where = index if storage.ndim == 1 else torch.unravel_index(index, storage.shape)
        return where, {"priority_weight": weight}

    def draw(self, size: int) -> tuple[Int[Tensor, " n"], Float[Tensor, " n"]]:
        """Draw flat indices and their weights: the device part of :meth:`sample`."""
        index = self._indices(size)
        chance = self._powers[index] / self._sums.sum()
        return index, ((chance / least(chance.amin())) ** self._exponent).float()

    def _indices(self, size: int) -> Int[Tensor, " n"]:
        """Draw one index from each of ``size`` equal shares of the sum."""
        # 1. Draw a point in each share of the total.
        ends = torch.nn.functional.pad(self._sums.cumsum(0), (1, 0))
        uniform = torch.rand(size, dtype=torch.float64, device=self.device, generator=self._rng)
        mass = (uniform + torch.arange(size, device=self.device)) * (ends[-1] / size)
        # 2. Find its row, then its entry in the row.
        row = torch.searchsorted(ends[1:], mass, right=True).clamp_(max=len(self._sums) - 1)
        inside = self._rows.index_select(0, row).cumsum(1)
        rest = (mass - ends[row])[:, None]
        place = torch.searchsorted(inside, rest, right=True).squeeze(1)
        # After a rounding error the index may exceed the row: use the last entry of the row, or the
        # last filled one.
        index = row * self._width + place.clamp_(max=self._width - 1)
        return torch.minimum(index, self._last).clamp_(max=self._max_capacity - 1)

    # ------------------------------------------------------------------ updates

    @property
    def default_priority(self) -> Float[Tensor, ""]:
        """The priority of new transitions."""
        return torch.where(self._top > 0, self._top, 1.0)

    def add(self, index: Any) -> None:
        """Ignore the call: the writer calls :meth:`mark_update`."""

    def extend(self, index: Any) -> None:
        """Ignore the call: the writer calls :meth:`mark_update`."""

    def mark_update(self, index: Any, *, storage: Storage | None = None) -> None:
        """Give newly written transitions the largest priority so far."""
        self._maybe_init_from_storage(storage)
        slot = self._slots(index, storage)
        self._write(slot, self._power(self.default_priority).expand(slot.shape))

    def update_priority(self, index: Any, priority: Any, *, storage: Storage | None = None) -> None:
        """Set the priorities of transitions; indices outside the buffer are ignored.

        Args:
            index: ``[n]``, or ``[n, axes]`` for a storage of several axes.
            priority: Absolute TD error, ``[n]``, or one for all; alpha and eps are applied here.
            storage: The storage; required if it has several axes.
        """
        self._maybe_init_from_storage(storage)
        slot = self._slots(index, storage)
        magnitude = torch.as_tensor(priority, device=self.device).detach().double().abs()
        magnitude = magnitude.reshape(-1).expand(slot.shape)
        counts = magnitude.isfinite() & (slot < self._max_capacity)
        magnitude = torch.where(counts, magnitude, self._top)
        torch.maximum(self._top, magnitude.amax(), out=self._top)
        self._write(slot, self._power(magnitude))

    def _slots(self, index: Any, storage: Storage | None) -> Int[Tensor, " n"]:
        """Return flat entries of the buffer; an index outside it becomes the spare entry."""
        index = torch.as_tensor(index, dtype=torch.int64, device=self.device)
        if index.dim() > 1:
            if storage is None:
                raise ValueError(f"an index of shape {tuple(index.shape)} needs storage=STORAGE")
            index, *columns = index.unbind(-1)
            for size, column in zip(storage.shape[1:], columns, strict=True):
                inside = (column >= 0) & (column < size)
                index = torch.where(inside, index * size + column, -1)
        index = index.reshape(-1) if index.dim() != 1 else index
        return index.clamp(-1, self._max_capacity).remainder_(self._max_capacity + 1)

    def _power(self, priority: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return (priority + self._eps).pow_(self._alpha)

    def _write(self, slot: Int[Tensor, " n"], power: Float[Tensor, " n"]) -> None:
        self._powers.scatter_reduce_(0, slot, power, "amax", include_self=False)
        self._spare.zero_()
        row = slot >> self._shift
        self._sums.scatter_(0, row, self._rows.index_select(0, row).sum(1))
        inside = torch.where(slot < self._max_capacity, slot, -1)
        torch.maximum(self._last, inside.amax(), out=self._last)

    # ------------------------------------------------------------------ saving

    def state_dict(self) -> dict[str, Any]:
        """Return priorities, sums and exponents, as tensors and numbers."""
        numbers = {"alpha": self._alpha, "beta": self._beta, "eps": self._eps}
        return numbers | {name: tensor.clone() for name, tensor in self._tensors().items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, in place; the capacity must be the same."""
        if len(state_dict["powers"]) != self._max_capacity:
            raise ParameterError(
                f"{len(state_dict['powers'])} priorities were saved, but this sampler has "
                f"{self._max_capacity}; give it the same capacity"
            )
        self._alpha, self._eps = float(state_dict["alpha"]), float(state_dict["eps"])
        self.beta = state_dict["beta"]
        for name, tensor in self._tensors().items():
            tensor.copy_(state_dict[name])

    def _tensors(self) -> dict[str, Tensor]:
        powers = self._powers[: self._max_capacity]
        return {"powers": powers, "sums": self._sums, "top": self._top, "last": self._last}

    def dumps(self, path: str | Path) -> None:
        """Write :meth:`state_dict` to ``sampler.pt`` in a folder."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(self.state_dict(), folder / "sampler.pt")

    def loads(self, path: str | Path) -> None:
        """Restore what :meth:`dumps` wrote."""
        file = Path(path) / "sampler.pt"
        self.load_state_dict(torch.load(file, map_location=self.device, weights_only=True))
