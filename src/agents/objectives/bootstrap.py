"""Base of the losses that bootstrap return distributions of discrete actions."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from tensordict import TensorDict, TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs.utils import ExplorationType

from agents.networks.readouts.noisy import reset_noise
from agents.objectives.transitions import TransitionKeys, TransitionLoss, mean_loss


@dataclass(frozen=True)
class Target:
    """The state to bootstrap from.

    Attributes:
        state: State reached, ``[B]``.
        action: Greedy legal action there.
        reward: Discounted sum of rewards up to it.
        discount: Factor of its value: ``gamma`` to the number of decisions, 0 if terminated.
    """

    state: TensorDictBase
    action: Int[Tensor, " B"]
    reward: Float[Tensor, " B"]
    discount: Float[Tensor, " B"]


class BootstrapLoss(TransitionLoss):
    """Base of losses that compare an action's return with the reward plus the next return.

    Batches of replays that keep it hold ``legal_mask`` in ``next`` (else ``action_mask``), the
    actions to bootstrap from. ``loss(batch)`` returns ``loss`` and ``q``, see
    :class:`TransitionLoss`. Noisy layers draw new noise for both networks in each call; it is on
    under every exploration type.

    Args:
        network: Writes ``action_value``, and has the method for single actions that the subclass
            calls.
        gamma: Discount per decision.
        double: Choose the next action with the online network (van Hasselt et al., AAAI 2016).
        delay_value: Whether to keep target parameters apart from the online ones.
    """

    @dataclass
    class _AcceptedKeys(TransitionKeys):
        """Entries of a batch; see :meth:`set_keys`."""

        action_value: NestedKey = "action_value"
        action_mask: NestedKey = "action_mask"
        legal_mask: NestedKey = "legal_mask"

    tensor_keys: _AcceptedKeys
    default_keys = _AcceptedKeys
    out_keys = ("loss", "q")
    # not MEAN: the noise of a network is part of the learned function
    deterministic_sampling_mode = ExplorationType.RANDOM

    def __init__(
        self, network: Any, *, gamma: float, double: bool = True, delay_value: bool = True
    ) -> None:
        super().__init__()
        self.convert_to_functional(network, "value_network", create_target_params=delay_value)
        self.double, self.delay_value = double, delay_value
        self.keep_gamma(gamma, network)

    @property
    def in_keys(self) -> list[NestedKey]:
        """Entries that a batch must hold."""
        return self.keys_read(self.value_network.in_keys)

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Return the loss of a batch of transitions."""
        keys = self.tensor_keys
        with self.online(), torch.no_grad():
            reset_noise(self.value_network)
        if self.delay_value:
            with self.target(), torch.no_grad():
                reset_noise(self.value_network)
        losses, priority, value = self.compare(tensordict, self._target(tensordict))
        tensordict.set(keys.priority, priority.detach())
        loss = mean_loss(losses, tensordict.get(keys.priority_weight, None))
        return TensorDict({"loss": loss, "q": value.detach().mean()})

    @abstractmethod
    def compare(self, batch: TensorDictBase, target: Target) -> tuple[Tensor, Tensor, Tensor]:
        """Return losses, priorities and values of the actions taken, each ``[B]``."""

    @torch.no_grad()
    def _target(self, batch: TensorDictBase) -> Target:
        """Return the states that the transitions reach, with the greedy actions there."""
        keys = self.tensor_keys
        following = self.next_state(batch)
        mask = following.get(keys.action_mask)
        with self.online() if self.double else self.target():
            value = self.value_network(following.clone(False)).get(keys.action_value)
        action = value.masked_fill(~mask, -torch.inf).argmax(-1)
        return Target(following, action, *self.reward_and_discount(batch))

    def next_state(self, batch: TensorDictBase) -> TensorDictBase:
        """Return a shallow copy of ``next``, with the mask to bootstrap under."""
        keys = self.tensor_keys
        following = batch.get("next").clone(False)
        legal = following.get(keys.legal_mask, None)
        return following if legal is None else following.set(keys.action_mask, legal)
