"""`C51Loss`: cross-entropy between return distributions on fixed atoms."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from tensordict import TensorDictBase
from torch import Tensor

from agents.objectives.bootstrap import BootstrapLoss
from agents.objectives.transitions import reward_and_discount


class C51Loss(BootstrapLoss):
    """Categorical distributional Q-learning (C51), double, for n-step returns.

    Bellemare et al., "A distributional perspective on reinforcement learning", ICML 2017, algorithm
    1; double and n-step as in Hessel et al., "Rainbow", AAAI 2018. Priorities are those of Rainbow:
    the Kullback-Leibler divergence of the two distributions.

    The loss equals TorchRL's ``DistributionalDQNLoss`` (a test compares them), with three
    differences. The projection copies nothing to the host. Illegal actions are masked in the
    expected values. If their log-probabilities were masked, their expectation would be 0, the
    maximum on a negative support. Only two distributions per row are evaluated: that of the action
    taken, and that of the greedy next action.

    Args:
        network: Network that writes the expected returns, ``action_value [*batch, A]``. It has the
            atoms ``support [atoms]``, equally spaced and ascending, and a method ``log_probs_of(
            tensordict, action)``, which returns their log-probabilities for one action per row,
            ``[B, atoms]``.
        gamma: See :class:`BootstrapLoss`.
        double: See :class:`BootstrapLoss`.
    """

    def compare(
        self, batch: TensorDictBase, following: TensorDictBase, action: Int[Tensor, " B"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return cross-entropies, divergences and expected returns of the actions taken."""
        support = self.value_network.support
        with torch.no_grad(), self.target():
            chance = self.value_network.log_probs_of(following, action).exp()
        reward, discount = reward_and_discount(batch, self.gamma)
        returns = reward[:, None] + discount[:, None] * support
        target = project(chance, returns, support)
        with self.online():
            log_probs = self.value_network.log_probs_of(batch, batch.get("action"))
        losses = -torch.linalg.vecdot(target, log_probs)
        divergence = losses.detach() + torch.xlogy(target, target).sum(-1)
        return losses, divergence.clamp(min=0), log_probs.detach().exp() @ support


def project(
    chance: Float[Tensor, "B atoms"],
    returns: Float[Tensor, "B atoms"],
    support: Float[Tensor, " atoms"],
) -> Float[Tensor, "B atoms"]:
    """Project the probability of each return onto the atoms next to it.

    The formula is ``sum over j of [1 - |clip(T z_j) - z_i| / dz] clipped to [0, 1], times p_j``
    (Bellemare et al., ICML 2017, equation 7). The projection preserves mass and, for returns on the
    support, their mean. Returns beyond the ends of the support count as its ends. No indexed sums
    are used, so the result is deterministic.
    """
    step = (support[-1] - support[0]) / (len(support) - 1)
    inside = returns.clamp(support[0], support[-1])
    distance = (inside[:, None, :] - support[:, None]).abs() / step
    return torch.linalg.vecdot((1 - distance).clamp(min=0), chance[:, None, :])
