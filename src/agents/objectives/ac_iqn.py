"""`ACIQNLoss`: a deterministic actor, and a critic of implicit quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from tensordict import TensorDict, TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from agents.networks.continuous import Proposals
from agents.objectives.iqn import QuantileRegression
from agents.objectives.transitions import TransitionKeys, TransitionLoss, mean_loss, swapped
from agents.options import option_groups
from packing_env.types import check_integer


class ACIQNLoss(TransitionLoss):
    """Losses of an actor and of a critic of return distributions, for n-step returns.

    The critic learns the distribution of the return by quantile regression: N levels of the action
    taken against N' levels of the target actor's next action, all uniform in [0, 1] (Dabney et al.,
    ICML 2018, equations 2 and 3), in place of the atoms of Barth-Maron et al., ICLR 2018 (D4PG).
    Without proposals, the actor follows the gradient of the mean of the critic's quantiles at K
    levels uniform in [0, c] (Silver et al., ICML 2014): that of the conditional value at risk at
    level c, the mean of the worst share c of the returns; for c = 1, that of their mean.

    With ``risk=None`` a batch holds also the levels, ``risk [B, 1]`` at the root and in ``next``.
    ``loss(batch)`` returns ``loss_value``, ``loss_actor`` and ``q``, see :class:`TransitionLoss`;
    ``td_error`` is the magnitude of the difference of the means. Neither loss has a gradient for
    the other's network.

    With ``num_proposals`` the critic chooses among actions that the actor proposes (Neumann et al.,
    "Greedy actor-critic", ICLR 2023): the target's action is the one that the target critic values
    most among those of the target actor, and the actor learns to propose the best of its own, by
    cross-entropy. No gradient with respect to an action is needed.

    Args:
        actor_network: Writes ``action [B, D]``; with ``num_proposals`` it has the method
            ``propose`` of :class:`agents.networks.continuous.Proposer`, and the value network
            ``compare`` of :class:`agents.networks.continuous.Critic`.
        value_network: Reads ``action`` and ``tau [B, N]``, writes ``quantile_value [B, N]``.
        gamma: Discount per decision.
        risk: c, in (0, 1]; None: a level per row.
        num_actor_taus: K.
        num_proposals: Actions that the actor proposes; 0: it acts itself.
        regression: N, N' and kappa; a keyword for each.
    """

    @dataclass
    class _AcceptedKeys(TransitionKeys):
        """Entries of a batch; see :meth:`set_keys`."""

        tau: NestedKey = "tau"
        quantile_value: NestedKey = "quantile_value"
        risk: NestedKey = "risk"

    tensor_keys: _AcceptedKeys
    default_keys = _AcceptedKeys
    out_keys = ("loss_value", "loss_actor", "q")

    actor_network: Any
    actor_network_params: Any
    target_actor_network_params: Any

    @option_groups(regression=QuantileRegression())
    def __init__(
        self,
        actor_network: Any,
        value_network: Any,
        *,
        gamma: float,
        risk: float | None = 1.0,
        num_actor_taus: int = 8,
        num_proposals: int = 0,
        regression: QuantileRegression,
    ) -> None:
        super().__init__()
        if risk is not None and not 0 < risk <= 1:
            raise ValueError(f"risk={risk} must lie in (0, 1]; 1 is the plain mean")
        self.convert_to_functional(actor_network, "actor_network", create_target_params=True)
        self.convert_to_functional(value_network, "value_network", create_target_params=True)
        self.regression, self.num_actor_taus, self.risk = regression, num_actor_taus, risk
        self.num_proposals = check_integer("num_proposals", num_proposals, 0)
        self.keep_gamma(gamma, value_network)

    @property
    def in_keys(self) -> list[NestedKey]:
        """Entries that a batch must hold."""
        keys = self.tensor_keys
        critic = [key for key in self.value_network.in_keys if key not in (keys.action, keys.tau)]
        return self.keys_read(list(dict.fromkeys([*self.actor_network.in_keys, *critic])))

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Return both losses of a batch of transitions."""
        weight = tensordict.get(self.tensor_keys.priority_weight, None)
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
        keys = self.tensor_keys
        action, device = batch.get(keys.action), batch.get(keys.action).device
        wanted = self._wanted(batch)
        tau = torch.rand(len(action), self.regression.num_taus, device=device)
        with self.online():
            quantiles = self._quantiles(batch, action, tau)
        losses, error, value = self.regression.compare(quantiles, wanted, tau)
        batch.set(keys.priority, error)
        return losses, value

    def loss_actor(self, batch: TensorDictBase) -> Tensor:
        """Return the actor's losses, ``[B]``.

        Minus the value at risk of its own actions; with proposals, minus the logarithm of the share
        of the best.
        """
        online = swapped(self.actor_network_params, self.actor_network)
        with online, swapped(self.value_network_params.detach(), self.value_network):
            if not self.num_proposals:
                return -self._quantiles(batch, self._act(batch), self._levels(batch)).mean(-1)
            proposals = self._propose(batch)
            best = proposals.place.gather(1, self._best(batch, proposals))
        return -proposals.log_share.gather(1, best).squeeze(1)

    @torch.no_grad()
    def _wanted(self, batch: TensorDictBase) -> Float[Tensor, "B M"]:
        """Return samples of the target return of the actions taken."""
        following = batch.get("next")
        reward, discount = self.reward_and_discount(batch)
        tau = torch.rand(len(reward), self.regression.num_target_taus, device=reward.device)
        target = swapped(self.target_actor_network_params, self.actor_network)
        with target, self.target():
            future = self._quantiles(following, self._act(following), tau)
        return reward[:, None] + discount[:, None] * future

    def _act(self, state: TensorDictBase) -> Float[Tensor, "B D"]:
        """Return the actor's actions, or the best of those that it proposes."""
        if self.num_proposals:
            proposals = self._propose(state)
            return proposals.point_of(self._best(state, proposals))
        observed = state.select(*self.actor_network.in_keys)
        return self.actor_network(observed).get(self.tensor_keys.action)

    def _propose(self, state: TensorDictBase) -> Proposals:
        observed = (state.get(key) for key in self.actor_network.in_keys)
        proposals: Proposals = self.actor_network.propose(self.num_proposals, *observed, draw=True)
        return proposals

    @torch.no_grad()
    def _best(self, state: TensorDictBase, proposals: Proposals) -> Int[Tensor, "B 1"]:
        """Return the legal proposal with the highest value at risk."""
        critic = self.value_network
        observed = (state.get(key) for key in critic.encoder.in_keys)
        return proposals.best(critic.compare(proposals.action, self._levels(state), *observed))

    def _levels(self, state: TensorDictBase) -> Float[Tensor, "B K"]:
        level = state.get(self.tensor_keys.risk) if self.risk is None else self.risk
        return level * torch.rand(len(state), self.num_actor_taus, device=self.gamma.device)

    def _quantiles(self, state: TensorDictBase, action: Tensor, tau: Tensor) -> Tensor:
        keys = self.tensor_keys
        observed = state.select(*self.value_network.in_keys, strict=False)
        observed.set(keys.action, action).set(keys.tau, tau)
        return self.value_network(observed).get(keys.quantile_value)
