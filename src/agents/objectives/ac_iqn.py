"""`ACIQNLoss`: an actor that proposes placements, and a critic of implicit quantiles."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from tensordict import TensorDict, TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from agents.networks.continuous import Proposals
from agents.objectives.iqn import QuantileRegression
from agents.objectives.transitions import TransitionLoss, mean_loss, reward_and_discount
from agents.options import option_groups
from packing_env.types import check_integer


class ACIQNLoss(TransitionLoss):
    """Losses of a proposing actor and of a critic of return distributions, for n-step returns.

    The critic learns the distribution of the return by quantile regression (Dabney et al., ICML
    2018, equations 2 and 3). It compares N levels of the action taken with N' levels of the next
    action, all uniform in [0, 1]. The next action is the target actor's proposal with the highest
    value under the target critic. The actor learns by cross-entropy to propose the best of its own
    proposals (Neumann et al., "Greedy actor-critic", ICLR 2023). An action's value is the mean of
    its quantiles at K levels uniform in [0, c]: the conditional value at risk at level c, the mean
    of the worst share c of the returns.

    With ``risk=None`` a batch also holds the levels c, ``risk [B, 1]`` at the root and in ``next``.
    ``loss(batch)`` returns ``loss_value``, ``loss_actor`` and ``q``, see :class:`TransitionLoss`;
    ``td_error`` is the absolute difference of the means. Each loss has gradients only for its own
    network.

    Args:
        actor_network: Network with the method ``propose`` of
            :class:`agents.networks.continuous.Proposer`.
        value_network: Network that reads ``action`` and ``tau [B, N]``, writes ``quantile_value [B,
            N]``, and has the method ``compare`` of :class:`agents.networks.continuous.Critic`.
        gamma: Discount per decision.
        risk: The level c in (0, 1]; None means one level per row.
        num_actor_taus: Number of levels K.
        num_proposals: Number of placements that the actor proposes.
        regression: N, N' and kappa; each field is a keyword.
    """

    out_keys = ("loss_value", "loss_actor", "q")

    actor_network: Any
    actor_network_params: Any
    target_actor_network_params: Any

    @option_groups
    def __init__(
        self,
        actor_network: Any,
        value_network: Any,
        *,
        gamma: float,
        risk: float | None = 1.0,
        num_actor_taus: int = 8,
        num_proposals: int = 32,
        regression: QuantileRegression = QuantileRegression(),
    ) -> None:
        super().__init__()
        if risk is not None and not 0 < risk <= 1:
            raise ValueError(f"risk={risk} must lie in (0, 1]; 1 is the plain mean")
        self.convert_to_functional(actor_network, "actor_network", create_target_params=True)
        self.convert_to_functional(value_network, "value_network", create_target_params=True)
        self.regression, self.num_actor_taus, self.risk = regression, num_actor_taus, risk
        self.num_proposals = check_integer("num_proposals", num_proposals, 1)
        self.keep_gamma(gamma, value_network)

    @property
    def in_keys(self) -> list[NestedKey]:
        """Entries that a batch must hold."""
        critic = [key for key in self.value_network.in_keys if key not in ("action", "tau")]
        return self.keys_read(list(dict.fromkeys([*self.actor_network.in_keys, *critic])))

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Return both losses of a batch of transitions."""
        weight = tensordict.get("priority_weight", None)
        losses, value = self.loss_value(tensordict)
        return TensorDict(
            {
                "loss_value": mean_loss(losses, weight),
                "loss_actor": mean_loss(self.loss_actor(tensordict), weight),
                "q": value.mean(),
            }
        )

    def loss_value(self, batch: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Return quantile losses and mean returns of the actions ``[B]``, and set ``td_error``."""
        action = batch.get("action")
        returns = self._target_returns(batch)
        tau = torch.rand(len(action), self.regression.num_taus, device=action.device)
        with self.online():
            quantiles = self._quantiles(batch, action, tau)
        losses, error, value = self.regression.compare(quantiles, returns, tau)
        batch.set("td_error", error)
        return losses, value

    def loss_actor(self, batch: TensorDictBase) -> Float[Tensor, " B"]:
        """Return the actor's losses: the negative log-probability of its best proposal."""
        critic = self.value_network_params.detach().to_module(self.value_network)
        with self.actor_network_params.to_module(self.actor_network), critic:
            proposals, number = self._choice(batch)
            best = proposals.place.gather(1, number)
        return -proposals.log_share.gather(1, best).squeeze(1)

    @torch.no_grad()
    def _target_returns(self, batch: TensorDictBase) -> Float[Tensor, "B M"]:
        following = batch.get("next")
        reward, discount = reward_and_discount(batch, self.gamma)
        tau = torch.rand(len(reward), self.regression.num_target_taus, device=reward.device)
        target = self.target_actor_network_params.to_module(self.actor_network)
        with target, self.target():
            proposals, number = self._choice(following)
            future = self._quantiles(following, proposals.point_of(number), tau)
        return reward[:, None] + discount[:, None] * future

    def _choice(self, state: TensorDictBase) -> tuple[Proposals, Int[Tensor, "B 1"]]:
        """Return the actor's proposals, and the index of the best one under the critic."""
        observed = [state.get(key) for key in self.actor_network.in_keys]  # also the critic's
        proposals: Proposals = self.actor_network.propose(observed, self.num_proposals, draw=True)
        level = state.get("risk") if self.risk is None else self.risk
        tau = level * torch.rand(len(state), self.num_actor_taus, device=self.gamma.device)
        with torch.no_grad():
            value = self.value_network.compare(observed, proposals.action, tau)
        return proposals, proposals.best(value)

    def _quantiles(self, state: TensorDictBase, action: Tensor, tau: Tensor) -> Tensor:
        observed = state.select(*self.value_network.in_keys, strict=False)
        observed.set("action", action).set("tau", tau)
        return self.value_network(observed).get("quantile_value")
