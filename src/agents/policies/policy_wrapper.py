"""`PolicyWrapper`: masked, vectorised epsilon-greedy over any network of action values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn

from agents.networks.readouts.noisy import explores
from agents.policies.sampling import best, check_scores
from packing_env.kernels import choose_epsilon_greedy


@dataclass(frozen=True)
class LinearSchedule:
    """A value that is linear in the number of environment frames so far.

    Attributes:
        start: Value at frame 0: one number, or one per row (a tensor that broadcasts against the
            leading axes of the batch, e.g. ``[E]`` or ``[E, A]``).
        end: Value from frame ``frames`` on, of the same form.
        frames: Number of frames from ``start`` to ``end``; with 0 the value is always ``end``.
    """

    start: float | Tensor = 0.0
    end: float | Tensor = 0.0
    frames: int = 0
    name: ClassVar[str] = "schedule"
    most: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        bounds = "be 0 or more" if self.most == math.inf else f"lie in [0, {self.most}]"
        for name in ("start", "end"):
            value = torch.as_tensor(getattr(self, name))
            if not bool(((value >= 0) & (value <= self.most)).all()):
                raise ValueError(f"{self.name} {name}={getattr(self, name)} must {bounds}")
        if self.frames < 0:
            raise ValueError(f"{self.name} frames={self.frames} must be 0 or more")

    def add_buffers(self, module: nn.Module) -> None:
        """Register the buffers ``NAME_start``, ``NAME_end`` and ``NAME``, the current value."""
        ends = (torch.as_tensor(end, dtype=torch.float32) for end in (self.start, self.end))
        start, end = torch.broadcast_tensors(*ends)
        module.register_buffer(f"{self.name}_start", start.clone())
        module.register_buffer(f"{self.name}_end", end.clone())
        module.register_buffer(self.name, (start if self.frames else end).clone())

    def move(self, module: nn.Module, frames: int) -> None:
        """Set the current value to the one after this many environment frames, in closed form."""
        value, start, end = (
            module.get_buffer(f"{self.name}{suffix}") for suffix in ("", "_start", "_end")
        )
        value.copy_(start + (end - start) * schedule_share(frames, self.frames))


@dataclass(frozen=True)
class EpsilonSchedule(LinearSchedule):
    """Exploration rate, see :class:`LinearSchedule`."""

    start: float | Tensor = 1.0
    end: float | Tensor = 0.05
    frames: int = 100_000
    name: ClassVar[str] = "epsilon"
    most: ClassVar[float] = 1


def schedule_share(frames: int, length: int) -> float:
    """Return the share of a schedule of ``length`` frames that has passed; 1 if ``length`` is 0."""
    return min(max(frames / length, 0.0), 1.0) if length else 1.0


class PolicyWrapper(TensorDictModuleBase):
    """A policy that chooses legal actions by their values, for any TorchRL loop.

    It works with any network, and any environment whose actions are indices, with or without a
    mask. Batches may have any leading axes (``[B]``, ``[E, A]``); every element has its own random
    draw. Exploration follows TorchRL's ``set_exploration_type``: RANDOM explores; MODE, MEAN and
    DETERMINISTIC choose the best legal action. If no type is set, a module in training mode
    explores. Values are float32, even if the network runs under ``autocast``. Nothing is copied to
    the host.

    Args:
        network: TensorDict module that writes ``action_value [*batch, A]``, under ``value_key``.
        epsilon: Schedule of the exploration rate; with None the policy never explores.
        action_key: Key of the action.
        mask_key: Key of the boolean mask, True = legal; None if every action is legal.
        value_key: Key of the network's output.
        chosen_key: Key of the chosen action's value.
    """

    epsilon: Tensor

    def __init__(
        self,
        network: TensorDictModuleBase,
        *,
        epsilon: EpsilonSchedule | None = None,
        action_key: Any = "action",
        mask_key: Any = "action_mask",
        value_key: Any = "action_value",
        chosen_key: Any = "chosen_action_value",
    ) -> None:
        super().__init__()
        self.network = network
        self.action_key, self.mask_key = action_key, mask_key
        self.value_key, self.chosen_key = value_key, chosen_key
        self._network_keys = list(network.in_keys)
        self.in_keys = self._network_keys + ([] if mask_key is None else [mask_key])
        self.out_keys = [action_key, chosen_key]
        self.explores = epsilon is not None
        self.schedule = epsilon if epsilon is not None else EpsilonSchedule(0.0, 0.0, 0)
        self.schedule.add_buffers(self)

    def set_frames(self, frames: int) -> None:
        """Set the exploration rate to its value after ``frames`` environment frames."""
        self.schedule.move(self, frames)

    def action_values(self, tensordict: TensorDictBase) -> Tensor:
        """Return the action values ``[*batch, A]``, float32; ``tensordict`` is unchanged."""
        (value,) = self.written(tensordict, [self.value_key])
        return value

    def written(self, tensordict: TensorDictBase, keys: Sequence[Any]) -> list[Tensor]:
        """Return the network's outputs under ``keys``, float32; ``tensordict`` is unchanged."""
        entries = self.network(tensordict.select(*self._network_keys))
        return [entries.get(key).float() for key in keys]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the chosen action ``[*batch]`` and its value ``[*batch, 1]``."""
        value = self.action_values(tensordict)
        if self.mask_key is None:
            mask = torch.ones_like(value, dtype=torch.bool)
        else:
            mask = tensordict.get(self.mask_key)
            check_scores(self.network, value, mask)
        if self.explores and explores(self):
            action = self._explore(value, mask)
        else:
            action = best(value, mask)
        chosen = value.gather(-1, action[..., None])
        tensordict.set(self.action_key, action)
        return tensordict.set(self.chosen_key, chosen)

    def _explore(self, value: Tensor, mask: Tensor) -> Tensor:
        """Return each element's best action or, with its exploration rate, a uniform legal one."""
        draw = torch.rand(mask.shape[:-1], device=mask.device)
        place = torch.rand(mask.shape[:-1], device=mask.device, dtype=torch.float64)
        return choose_epsilon_greedy(value, mask, draw, place, trailing(self.epsilon, draw))


def trailing(per_row: Tensor, like: Tensor) -> Tensor:
    """Add trailing axes of size 1 to a value per row, so that it broadcasts against ``like``."""
    return per_row.view(*per_row.shape, *(1,) * (like.dim() - per_row.dim()))
