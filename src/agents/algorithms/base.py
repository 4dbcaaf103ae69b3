"""Interface between the training loop and an agent, and the base of the algorithms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torchrl.objectives import LossModule

from agents.algorithms.optimization import GatedAdam, GatedUpdate, worst
from agents.objectives.bootstrap import BootstrapLoss


@runtime_checkable
class Agent(Protocol):
    """A policy and the update that trains it.

    If ``conf/agent/NAME.yaml`` names a class with these methods, ``packing train agent=NAME``
    trains it. The class is called with the environment as its first argument. Two class attributes
    are optional. ``action_modes`` lists the modes that the agent supports (default: all).
    ``on_policy = True`` means that it learns from rollouts of its current policy (default: from a
    replay). :class:`Learner` implements everything except ``update``.

    Attributes:
        policy: Policy that writes the actions for a batch of observations.
        batch_size: Transitions per update.
    """

    policy: TensorDictModuleBase
    batch_size: int

    def update(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """Train on a sample of the replay, or on a rollout ``[B, T]``.

        A sample may hold ``priority_weight [B]``, the importance weights of a prioritized sampler;
        an agent that sets ``td_error [B]`` in it provides the new priorities.

        Returns:
            Scalars on the device; nothing is copied to the host. The loop checks that ``loss`` is
            finite. Agents that skip non-finite updates add ``skipped`` (0 or 1) and
            ``skipped_in_a_row``, as :class:`agents.algorithms.optimization.GatedAdam` returns them.
        """

    def set_frames(self, frames: int) -> None:
        """Set schedules, such as the exploration rate, to their values after this many frames."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that training changes: tensors, numbers, lists and mappings of them."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""


class Learner:
    """Base of the algorithms: saves, moves and schedules the parts that a subclass names.

    A part is a module, a :class:`~agents.algorithms.optimization.GatedAdam`, a tensor, a number or
    a mapping of these. It is saved under the attribute's name.

    Attributes:
        parts: Names of the attributes that training changes, in the order of saving and loading.
        policy: See :class:`Agent`.
        batch_size: See :class:`Agent`.
    """

    parts: tuple[str, ...]
    policy: TensorDictModuleBase
    batch_size: int

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every part, by its name."""
        return {name: _state(getattr(self, name)) for name in self.parts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; tensors keep their memory."""
        for name in self.parts:
            if isinstance(part := getattr(self, name), (int, float)):
                setattr(self, name, state[name])
            else:
                _load(part, state[name])

    def to(self, device: torch.device | str | None) -> None:
        """Move every part to a device; parts that are already there stay unchanged."""
        for name in self.parts:
            part = getattr(self, name)
            if isinstance(part, Tensor):
                setattr(self, name, part.to(device))
            for inner in _stateful(part):
                inner.to(device)

    def set_frames(self, frames: int) -> None:
        """Set the schedules of all parts to their values after this many environment frames."""
        for name in self.parts:
            for inner in _stateful(getattr(self, name)):
                getattr(inner, "set_frames", lambda _: None)(frames)


class ReturnsLearner(Learner):
    """Base of agents that learn return distributions; an update is one gradient step.

    Attributes:
        objective: The loss, which holds online and target parameters.
        targets: Updates the target parameters.
        optimizer: Updates the online parameters.
    """

    action_modes = ("placement", "candidate")
    network_role = "action values"
    network_arguments = ("readout",)
    parts = ("policy", "objective", "optimizer")
    objective: BootstrapLoss
    targets: GatedUpdate
    optimizer: GatedAdam

    def update(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """Take one gradient step on a batch of transitions."""
        outputs = self.objective(batch)
        step = self.optimizer.step(outputs.get("loss"))
        self.targets.follow(step)
        return {"loss": outputs.get("loss").detach(), "q": outputs.get("q"), **step}

    def copy_to_targets(self) -> None:
        """Make the target network equal to the online one."""
        self.targets = GatedUpdate(self.objective, eps=self.targets.eps)  # the constructor copies


class ContinuousLearner(Learner):
    """Base of agents with continuous actions; actor and critics have separate optimizers."""

    action_modes = ("continuous",)
    network_role = "continuous actor and critic"
    parts: tuple[str, ...] = ("policy", "objective", "optimizer", "actor_optimizer")
    objective: LossModule
    targets: GatedUpdate

    def copy_to_targets(self) -> None:
        """Make the target networks equal to the online ones."""
        self.targets = GatedUpdate(self.objective, eps=self.targets.eps)  # the constructor copies

    def finish(
        self, loss: Tensor, actor_loss: Tensor, steps: list[dict[str, Tensor]]
    ) -> dict[str, Tensor]:
        """Move the targets after the steps of an update; return losses and step results."""
        step = worst(steps)
        self.targets.follow(step)
        return {"loss": loss.detach(), "actor_loss": actor_loss.detach(), **step}


def _stateful(part: Any) -> Iterator[nn.Module | GatedAdam]:
    if isinstance(part, (nn.Module, GatedAdam)):
        yield part
    elif isinstance(part, Mapping):
        for inner in part.values():
            yield from _stateful(inner)


def _state(part: Any) -> Any:
    if isinstance(part, Mapping):
        return {name: _state(inner) for name, inner in part.items()}
    return part if isinstance(part, (Tensor, int, float)) else dict(part.state_dict())


def _load(part: Any, state: Any) -> None:
    if isinstance(part, Mapping):
        for name, inner in part.items():
            _load(inner, state[name])
    elif isinstance(part, Tensor):
        part.copy_(state)
    else:
        part.load_state_dict(state)
