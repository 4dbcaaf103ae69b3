"""Base of losses on transitions, with targets, executed actions and weighted means."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from jaxtyping import Float
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor, nn
from torchrl.objectives import LossModule


def with_executed_action(batch: TensorDictBase) -> TensorDictBase:
    """Return the transitions with ``action`` set to the placement that was carried out.

    Critics of continuous actions evaluate this placement, not the point that the actor chose.
    """
    return batch.copy().set("action", batch.get("executed_action"))


def n_step_target(
    batch: TensorDictBase, future: Float[Tensor, " B"], gamma: float
) -> Float[Tensor, " B"]:
    """Return ``r + gamma^m * future``, or only ``r`` if the episode terminated.

    Args:
        batch: Transitions, see :class:`TransitionLoss`.
        future: Value of the state reached after m decisions.
        gamma: Discount per decision.
    """
    reward, discount = reward_and_discount(batch, gamma)
    return reward + discount * future


def reward_and_discount(
    batch: TensorDictBase, gamma: float | Tensor
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Return the rewards, and the factors of the next values: ``gamma^m``, 0 if terminated."""
    following = batch.get("next")
    steps = batch.get("steps_to_next_obs", None)
    alive = (~following.get("terminated").flatten()).float()
    discount = gamma if steps is None else gamma ** steps.flatten().float()
    return following.get("reward").flatten(), alive * discount


class TransitionLoss(LossModule):
    """Base of losses that bootstrap from the state that a transition reaches.

    A batch ``[B]`` holds transitions. The root holds the state, ``action`` and the number of
    decisions ``steps_to_next_obs`` (1 if missing). ``next`` holds the state reached, ``terminated``
    and ``reward [B, 1]``, the discounted sum over these decisions. Truncated states are
    bootstrapped.

    ``loss(batch)`` returns scalars with graphs, and ``q``, the mean value of the actions taken.
    Rows are weighted by ``priority_weight [B]`` if the batch has it. The call sets ``td_error [B]``
    in the batch; these are the new priorities. TorchRL's updaters move the target parameters
    (``SoftUpdate(loss, tau=...)``).
    """

    gamma: Tensor
    value_network: Any
    value_network_params: Any
    target_value_network_params: Any

    def keep_gamma(self, gamma: float, network: nn.Module) -> None:
        """Keep the discount per decision as a buffer on the network's device."""
        device = next(network.parameters()).device
        self.register_buffer("gamma", torch.tensor(gamma, device=device))

    def keys_read(self, states: list[NestedKey]) -> list[NestedKey]:
        """Return the entries that a batch must hold if the networks read ``states``."""
        following = (*states, "reward", "terminated")
        below = (key if isinstance(key, tuple) else (key,) for key in following)
        return [*states, "action", *(("next", *key) for key in below)]

    def online(self) -> AbstractContextManager[Any]:
        """Return a context in which the value network has its online parameters."""
        return self.value_network_params.to_module(self.value_network)

    def target(self) -> AbstractContextManager[Any]:
        """Return a context in which the value network has its target parameters."""
        return self.target_value_network_params.to_module(self.value_network)


def mean_loss(losses: Float[Tensor, " B"], weight: Tensor | None = None) -> Float[Tensor, ""]:
    """Return the mean of the losses, weighted by the importance weights of a prioritized sample."""
    return losses.mean() if weight is None else (losses * weight).mean()
