"""`IQNLoss`: quantile regression at random levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from agents.objectives.bootstrap import BootstrapLoss
from agents.objectives.transitions import reward_and_discount
from agents.options import option_groups
from packing_env.values import Count, NonNegative


@dataclass(frozen=True)
class QuantileRegression:
    """Quantile regression of returns (Dabney et al., ICML 2018, "Implicit quantile networks").

    Attributes:
        num_taus: Number of levels of the action taken per update, N.
        num_target_taus: Number of levels of the next action, N'.
        kappa: Difference at which the quantile Huber loss changes from quadratic to linear, in
            units of returns. A good value is about a tenth of the spread of an action's returns. A
            loss that is quadratic everywhere would learn expectiles, whose tails are too short.
    """

    num_taus: Count = 8
    num_target_taus: Count = 8
    kappa: NonNegative = 0.01

    def compare(
        self,
        quantiles: Float[Tensor, "B N"],
        target: Float[Tensor, "B M"],
        tau: Float[Tensor, "B N"],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return losses, absolute differences of the means, and means of the quantiles."""
        value = quantiles.detach().mean(-1)
        losses = quantile_huber(quantiles, target, tau, self.kappa)
        return losses, (target.mean(-1) - value).abs(), value


class IQNLoss(BootstrapLoss):
    """Implicit quantile regression for n-step returns, optionally double.

    Dabney et al., "Implicit quantile networks for distributional reinforcement learning", ICML
    2018, equations 2 and 3. The loss compares N levels of the action taken with N' levels of the
    greedy next action, all uniform in [0, 1]. The greedy action maximises ``action_value``, so it
    depends on the network's risk level. The priority is the absolute difference of the means,
    because the quantile loss of a random return is greater than 0 even at its minimum.

    Args:
        network: Network that writes ``action_value [*batch, A]`` at its risk level. It has a method
            ``quantiles_of(tensordict, action, tau)``, which returns the quantiles at levels ``tau
            [B, N]`` of one action per row, ``[B, N]``.
        gamma: See :class:`BootstrapLoss`.
        double: See :class:`BootstrapLoss`.
        regression: N, N' and kappa; each field is a keyword.
        level_key: Key of the network's risk levels in a state, if it reads them. If a batch has no
            levels in ``next``, targets are computed at risk level 1.
    """

    @option_groups
    def __init__(
        self,
        network: Any,
        *,
        gamma: float,
        double: bool = True,
        regression: QuantileRegression = QuantileRegression(),
        level_key: NestedKey | None = None,
    ) -> None:
        super().__init__(network, gamma=gamma, double=double)
        self.regression, self.level_key = regression, level_key

    def next_state(self, batch: TensorDictBase) -> TensorDictBase:
        """Return a shallow copy of ``next``, with a mask and risk levels."""
        following = super().next_state(batch)
        if self.level_key is not None and following.get(self.level_key, None) is None:
            following.set(self.level_key, torch.ones(len(following), device=following.device))
        return following

    def compare(
        self, batch: TensorDictBase, following: TensorDictBase, action: Int[Tensor, " B"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return quantile losses, differences of means, and mean returns of the actions taken."""
        reward, discount = reward_and_discount(batch, self.gamma)
        rows, device = len(action), reward.device
        with torch.no_grad(), self.target():
            tau = torch.rand(rows, self.regression.num_target_taus, device=device)
            future = self.value_network.quantiles_of(following, action, tau)
        target = reward[:, None] + discount[:, None] * future
        tau = torch.rand(rows, self.regression.num_taus, device=device)
        with self.online():
            quantiles = self.value_network.quantiles_of(batch, batch.get("action"), tau)
        return self.regression.compare(quantiles, target, tau)


def quantile_huber(
    quantiles: Float[Tensor, "*batch N"],
    target: Float[Tensor, "*batch M"],
    tau: Float[Tensor, "*batch N"],
    kappa: NonNegative = 1.0,
) -> Float[Tensor, "*batch"]:
    """Return the quantile Huber loss, summed over N quantiles and averaged over M samples.

    ``rho(d) = |tau - 1{d < 0}| L(d) / kappa``, with ``L(d) = d^2 / 2`` where ``|d| <= kappa``, else
    ``kappa (|d| - kappa / 2)``, for every difference ``d = target - quantile``. Dabney et al., ICML
    2018, equations 2 and 3; ``kappa = 0`` gives plain quantile regression, ``|tau - 1{d < 0}|
    |d|``.
    """
    difference = target[..., None, :] - quantiles[..., :, None]
    size = difference.abs()
    if kappa > 0:
        size = torch.where(size <= kappa, size.square() / (2 * kappa), size - kappa / 2)
    weight = (tau[..., None] - (difference.detach() < 0).float()).abs()
    return (weight * size).mean(-1).sum(-1)
