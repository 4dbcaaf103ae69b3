"""`ACIQNLoss`: a deterministic actor, and a critic of implicit quantiles."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule, TensorDictParams
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives import LossModule

from agents.objectives.iqn import quantile_huber
from agents.objectives.transitions import mean_loss, under_next


class ACIQNLoss(LossModule):
    """The deterministic policy gradient through a distributional critic, for n-step returns.

    The critic learns the distribution of the return by quantile regression: N levels of the action
    taken against N' levels of the target actor's next action, all uniform in [0, 1] (Dabney et al.,
    ICML 2018, equations 2 and 3), in place of the atoms of Barth-Maron et al., ICLR 2018 (D4PG).
    The actor follows the gradient of the mean of the critic's quantiles at K levels uniform in
    [0, c] (Silver et al., ICML 2014): that of the conditional value at risk at level c, the mean of
    the worst share c of the returns; for c = 1, that of their mean.

    A batch ``[B]`` holds transitions: the state at the root with ``action``, and in ``next`` the
    state reached, ``reward [B, 1]`` (for several decisions, their discounted sum) and
    ``terminated``; ``steps_to_next_obs`` at the root is the number of decisions in between (without
    it, one). With ``risk=None`` also the levels, ``risk [B, 1]`` at the root and in ``next``.

    ``loss(batch)`` returns ``loss_value`` and ``loss_actor``, scalars with graphs (their rows
    weighted by ``priority_weight [B]`` if the batch has it), and ``q``, the mean value of the
    actions taken; in the batch it sets ``td_error [B]``, the magnitude of the difference of the
    means. Neither loss has a gradient for the other's network. Target parameters are moved by
    TorchRL's updaters (``SoftUpdate(loss, tau=...)``).

    Args:
        actor_network: Writes ``action [B, D]``.
        value_network: Reads ``action`` and ``tau [B, N]``, writes ``quantile_value [B, N]``.
        gamma: Discount per decision.
        risk: c, in (0, 1]; None: a level per row.
        num_taus: N.
        num_target_taus: N'.
        num_actor_taus: K.
        kappa: Difference at which the quantile Huber loss turns from quadratic to linear.
    """

    @dataclass
    class _AcceptedKeys:
        """Entries of a batch; see :meth:`set_keys`."""

        action: NestedKey = "action"
        tau: NestedKey = "tau"
        quantile_value: NestedKey = "quantile_value"
        risk: NestedKey = "risk"
        reward: NestedKey = "reward"
        terminated: NestedKey = "terminated"
        steps_to_next_obs: NestedKey = "steps_to_next_obs"
        priority: NestedKey = "td_error"
        priority_weight: NestedKey = "priority_weight"

    tensor_keys: _AcceptedKeys
    default_keys = _AcceptedKeys
    out_keys = ("loss_value", "loss_actor", "q")

    actor_network: TensorDictModule
    actor_network_params: TensorDictParams
    target_actor_network_params: TensorDictParams
    value_network: TensorDictModule
    value_network_params: TensorDictParams
    target_value_network_params: TensorDictParams
    gamma: Tensor

    def __init__(
        self,
        actor_network: Any,
        value_network: Any,
        *,
        gamma: float,
        risk: float | None = 1.0,
        num_taus: int = 8,
        num_target_taus: int = 8,
        num_actor_taus: int = 8,
        kappa: float = 1.0,
    ) -> None:
        super().__init__()
        if risk is not None and not 0 < risk <= 1:
            raise ValueError(f"risk={risk} must lie in (0, 1]; 1 is the plain mean")
        self.convert_to_functional(actor_network, "actor_network", create_target_params=True)
        self.convert_to_functional(value_network, "value_network", create_target_params=True)
        self.num_taus, self.num_target_taus = num_taus, num_target_taus
        self.num_actor_taus, self.kappa, self.risk = num_actor_taus, kappa, risk
        device = next(value_network.parameters()).device
        self.register_buffer("gamma", torch.tensor(gamma, device=device))

    @property
    def in_keys(self) -> list[NestedKey]:
        """Entries that a batch must hold."""
        keys = self.tensor_keys
        critic = [key for key in self.value_network.in_keys if key not in (keys.action, keys.tau)]
        states = list(dict.fromkeys([*self.actor_network.in_keys, *critic]))
        following = [*states, keys.reward, keys.terminated]
        return [*states, keys.action, *(under_next(key) for key in following)]

    def _forward_value_estimator_keys(self, **kwargs: Any) -> None:
        """Ignore the keys: without a value estimator, the return is bootstrapped here."""

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
        tau = torch.rand(len(action), self.num_taus, device=device)
        with self.value_network_params.to_module(self.value_network):
            found = self._quantiles(batch, action, tau)
        value = found.detach().mean(-1)
        batch.set(keys.priority, (wanted.mean(-1) - value).abs())
        return quantile_huber(found, wanted, tau, self.kappa), value

    def loss_actor(self, batch: TensorDictBase) -> Tensor:
        """Return minus the value at risk of the actor's own actions, ``[B]``."""
        with self.actor_network_params.to_module(self.actor_network):
            action = self._act(batch)
        tau = torch.rand(len(action), self.num_actor_taus, device=action.device)
        level = batch.get(self.tensor_keys.risk) if self.risk is None else self.risk
        with self.value_network_params.detach().to_module(self.value_network):
            return -self._quantiles(batch, action, tau * level).mean(-1)

    @torch.no_grad()
    def _wanted(self, batch: TensorDictBase) -> Float[Tensor, "B M"]:
        """Return samples of the target return of the actions taken."""
        keys = self.tensor_keys
        following = batch.get("next")
        reward = following.get(keys.reward).view(-1, 1)
        tau = torch.rand(len(reward), self.num_target_taus, device=reward.device)
        with self._target("actor"):
            action = self._act(following)
        with self._target("value"):
            future = self._quantiles(following, action, tau)
        steps = batch.get(keys.steps_to_next_obs, None)
        discount = self.gamma if steps is None else self.gamma ** steps.view(-1, 1)
        alive = (~following.get(keys.terminated)).view(-1, 1).float()
        return reward + discount * alive * future

    def _target(self, name: str) -> AbstractContextManager[Any]:
        """Return a context in which a network has its target parameters."""
        parameters = getattr(self, f"target_{name}_network_params")
        return parameters.to_module(getattr(self, f"{name}_network"))

    def _act(self, state: TensorDictBase) -> Float[Tensor, "B D"]:
        observed = state.select(*self.actor_network.in_keys)
        return self.actor_network(observed).get(self.tensor_keys.action)

    def _quantiles(self, state: TensorDictBase, action: Tensor, tau: Tensor) -> Tensor:
        keys = self.tensor_keys
        observed = state.select(*self.value_network.in_keys, strict=False)
        observed.set(keys.action, action).set(keys.tau, tau)
        return self.value_network(observed).get(keys.quantile_value)
