"""What the parts of a training loop are to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from packing_env.envs import PackingEnv


@runtime_checkable
class Agent(Protocol):
    """A policy, and one update at a time.

    A class that has these is trained by ``packing train agent=NAME`` once ``conf/agent/NAME.yaml``
    names it. It is built with the environment as its first argument; ``action_modes``, a tuple of
    names on the class, says which action modes it acts in (none given: all), ``on_policy = True``
    on the class that it learns from rollouts of its present policy (none given: from a replay).

    Attributes:
        policy: Writes the actions for a batch of observations.
        batch_size: Transitions per update.
    """

    policy: TensorDictModuleBase
    batch_size: int

    def set_frames(self, frames: int) -> None:
        """Move every schedule to this many environment frames."""
        ...

    def update(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """Learn from a sample of the replay, or from a rollout ``[B, T]``.

        A sample may hold ``priority_weight [B]``, importance weights of a prioritized sampler;
        an agent that sets ``td_error [B]`` in it gives the new priorities.

        Returns:
            Scalars on the device; nothing is read back. ``loss`` among them is what the loop checks
            to be finite. Of an agent that leaves out broken updates, ``skipped`` (0 or 1) and
            ``skipped_in_a_row``, as :class:`agents.algorithms.optimization.GatedAdam` returns them.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes: tensors, numbers, lists and mappings of them."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        ...


class Replay(Protocol):
    """Where transitions are kept."""

    def __len__(self) -> int:
        """How many can be sampled, known without reading the device."""
        ...

    def extend(self, transitions: TensorDictBase) -> Any:
        """Add one environment step: root and ``next`` of every row."""
        ...

    def sample(self, batch_size: int) -> TensorDictBase:
        """Transitions with whole observations, on the device."""
        ...

    def update_priority(self, index: Tensor, priority: Tensor) -> None:
        """New priorities of sampled transitions."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What is kept, and where writing continues."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        ...


class RolloutBuffer(Protocol):
    """Where one rollout is kept, ``[B, T]``."""

    full: bool
    """Whether it is complete; known without reading the device."""

    def extend(self, transitions: TensorDictBase) -> Any:
        """Add one environment step: root and ``next`` of every row."""
        ...

    def take(self) -> TensorDictBase:
        """The rollout, ``[B, T]``; the next ``extend`` begins another."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The part that is there."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        ...


class Collector(Protocol):
    """A source of transitions: one step of every row at a time.

    Attributes:
        env: The environment whose rows are stepped.
    """

    env: PackingEnv

    def step(self) -> TensorDictBase:
        """Root and ``next`` entries, ``[*batch_size]``."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Where the next step begins: tensors, numbers, lists and mappings of them."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        ...

    def close(self) -> None:
        """Release what was started."""
        ...
