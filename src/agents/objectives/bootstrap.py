"""Base of the losses that bootstrap return distributions of discrete actions."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Int
from tensordict import TensorDict, TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs.utils import ExplorationType

from agents.networks.readouts.noisy import reset_noise
from agents.objectives.transitions import TransitionLoss, mean_loss


class BootstrapLoss(TransitionLoss):
    """Base of losses that compare an action's return with the reward plus the next return.

    ``legal_mask`` in ``next`` says which next actions are legal; without it, ``action_mask`` does.
    ``loss(batch)`` returns ``loss`` and ``q``, see :class:`TransitionLoss`. In each call, noisy
    layers draw new noise for both networks; the noise is on under every exploration type.

    Args:
        network: Network that writes ``action_value``. It also has the method for single actions
            that the subclass calls.
        gamma: Discount per decision.
        double: Whether the online network chooses the next action (van Hasselt et al., AAAI 2016).
    """

    out_keys = ("loss", "q")
    # Not MEAN, because the noise of a network is part of the learned function.
    deterministic_sampling_mode = ExplorationType.RANDOM

    def __init__(self, network: Any, *, gamma: float, double: bool = True) -> None:
        super().__init__()
        self.convert_to_functional(network, "value_network", create_target_params=True)
        self.double = double
        self.keep_gamma(gamma, network)

    @property
    def in_keys(self) -> list[NestedKey]:
        """Entries that a batch must hold."""
        return self.keys_read(self.value_network.in_keys)

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Return the loss of a batch of transitions."""
        for context in (self.online, self.target):
            with context(), torch.no_grad():
                reset_noise(self.value_network)
        following, action = self.next_choice(tensordict)
        losses, priority, value = self.compare(tensordict, following, action)
        tensordict.set("td_error", priority.detach())
        loss = mean_loss(losses, tensordict.get("priority_weight", None))
        return TensorDict({"loss": loss, "q": value.detach().mean()})

    @abstractmethod
    def compare(
        self, batch: TensorDictBase, following: TensorDictBase, action: Int[Tensor, " B"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return losses, priorities and values of the actions taken, each ``[B]``.

        Args:
            batch: Transitions.
            following: The next states.
            action: Greedy legal actions in the next states.
        """

    @torch.no_grad()
    def next_choice(self, batch: TensorDictBase) -> tuple[TensorDictBase, Int[Tensor, " B"]]:
        """Return the next states of the transitions, and the greedy legal actions there."""
        following = self.next_state(batch)
        mask = following.get("action_mask")
        with self.online() if self.double else self.target():
            value = self.value_network(following.clone(False)).get("action_value")
        return following, value.masked_fill(~mask, -torch.inf).argmax(-1)

    def next_state(self, batch: TensorDictBase) -> TensorDictBase:
        """Return a shallow copy of ``next``, with the mask of actions to bootstrap from."""
        following = batch.get("next").clone(False)
        legal = following.get("legal_mask", None)
        return following if legal is None else following.set("action_mask", legal)
