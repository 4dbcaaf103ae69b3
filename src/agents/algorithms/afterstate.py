"""TD(lambda) on the values of afterstates: the whole algorithm.

The next item does not depend on the decision, and the effect of a placement is known exactly. So
``Q(state, placement) = reward + V(heightmap after it)``, and V does not read the item. The sources
are Sutton and Barto, "Reinforcement learning", 2018, sections 6.8 (afterstates) and 12.2
(TD(lambda)). Tesauro, CACM 1995, and Szubert and Jaskowski, CIG 2014, learned games in this way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from tensordict import TensorDictBase
from torch import Tensor
from torch.nn import functional

from agents.algorithms.base import Learner
from agents.algorithms.optimization import minibatches
from agents.algorithms.settings import Exploration, OnPolicy, Optimization
from agents.networks.afterstate_net import AfterstateNet, AfterstateValue
from agents.objectives.gae import backward_scan
from agents.options import option_groups
from agents.policies.afterstate import AfterstatePolicy
from packing_env.envs import PackingEnv
from packing_env.values import Count, Positive, Share


@dataclass(frozen=True)
class Returns:
    """Definition of the returns that the values estimate.

    Attributes:
        gamma: Discount per decision; it can be 1, because every episode ends.
        lam: Decay of the traces per decision.
        scale: Factor of the rewards, chosen so that returns are of order 1.
    """

    gamma: Share = 1.0
    lam: Share = 0.8
    scale: Positive = 10.0


class Afterstate(Learner):
    """A policy by values of afterstates, trained by one update per rollout.

    The target of an afterstate is the lambda-return of the decisions after it: their rewards, and V
    of the afterstates that the acting policy reached. If the next action was random, the target
    uses the best value of the next state instead of the rest of the return, so exploration does not
    lower the target (Watkins' Q(lambda)). The last decision of each row of a rollout is not trained
    on, because its successor is missing.

    Args:
        env: Determines the shapes; its reward must depend on the item alone (``utilization``,
            ``item``).
        network: Builds V from the environment and the number of inputs in addition to the
            heightmap.
        num_candidates: See :class:`packing_env.Afterstates`.
        max_items: See :class:`packing_env.Afterstates`.
        learning: ``epochs`` and ``batch_size``.
        exploration: ``epsilon_start``, ``epsilon_end`` and ``epsilon_frames``.
        returns: ``gamma``, ``lam`` and ``scale``.
        optimization: ``lr``, its schedule, and Adam's other options.
    """

    action_modes = ("placement", "candidate")
    network_role = "afterstate values"
    parts = ("policy", "optimizer")
    on_policy = True

    @option_groups
    def __init__(
        self,
        env: PackingEnv,
        *,
        network: Callable[..., AfterstateValue] = AfterstateNet,
        num_candidates: Count | None = None,
        max_items: Count | None = None,
        learning: OnPolicy = OnPolicy(epochs=2),
        exploration: Exploration = Exploration(0.005, 0.005, 0),
        returns: Returns = Returns(),
        optimization: Optimization = Optimization(lr_end=3e-5, max_grad_norm=5.0),
    ) -> None:
        self.gamma, self.lam = returns.gamma, returns.lam
        self.epochs, self.batch_size = learning.epochs, learning.batch_size
        self.policy = AfterstatePolicy(
            env,
            network,
            num_candidates=num_candidates,
            max_items=max_items,
            scale=returns.scale,
            epsilon=exploration.schedule,
        )
        self.optimizer = optimization.adam(self.policy.parameters())
        self.to(env.device)

    def update(self, rollout: TensorDictBase) -> dict[str, Tensor]:
        """Run all epochs over a rollout ``[B, T]``.

        Returns:
            Means over the gradient steps, on the device; nothing is copied to the host.
        """
        target, known = self.targets(rollout)
        flat = rollout.reshape(-1)
        carried, maps, context = self.policy.afterstate_inputs(flat, flat.get("next"))
        weight = (known.flatten() & carried).float()
        features, target = self.policy.value.features(maps), target.flatten()
        sums: dict[str, Tensor] = {}
        steps = 0
        for rows in minibatches(len(flat), self.batch_size, self.epochs, maps.device):
            loss = self.loss(features[rows], context[rows], target[rows], weight[rows])
            step = self.optimizer.step(loss, weight=weight[rows].sum())
            scalars = {"loss": loss.detach(), **step}
            steps += 1
            for name, value in scalars.items():
                sums[name] = sums[name] + value if name in sums else value
        report = {name: total / steps for name, total in sums.items()}
        report["skipped"] = (sums["skipped"] > 0).float()
        report["skipped_in_a_row"] = scalars["skipped_in_a_row"]
        report["value"] = rollout.get("state_value").mean() / self.policy.scale
        return report

    def loss(self, features: Tensor, context: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """Return the weighted mean squared error of a minibatch."""
        value = self.policy.value.value(features, context, turn=True)
        errors = functional.mse_loss(value, target, reduction="none")
        return (weight * errors).sum() / weight.sum().clamp(min=1.0)

    @torch.no_grad()
    def targets(self, rollout: TensorDictBase) -> tuple[Float[Tensor, "B T"], Bool[Tensor, "B T"]]:
        """Return the target of each decision's afterstate, and where the target is known.

        The target is ``gamma ((1 - lam) q + lam (r + target'))``: ``q`` is the best value of the
        next state, and ``r`` and ``target'`` are reward and target of the decision taken there. If
        that decision was random, the target is ``gamma q``. At the end of an episode it is 0. It is
        unknown for the last decision of a rollout or of a truncated episode; the function then
        returns the afterstate's own value.
        """
        following = rollout.get("next")
        terminated = following.get("terminated").squeeze(-1)
        truncated = following.get("truncated").squeeze(-1)
        explored = rollout.get("explored").squeeze(-1)
        best = rollout.get("state_value").squeeze(-1)
        after = rollout.get("afterstate_value").squeeze(-1)
        reward = self.policy.scale * following.get("reward").squeeze(-1)
        last = torch.zeros_like(terminated)
        last[:, -1] = True
        unknown = (last | truncated) & ~terminated
        follows = self.lam * (~_next(explored)).float()
        inputs = self.gamma * ((1 - follows) * _next(best) + follows * _next(reward))
        inputs = torch.where(terminated, 0.0, torch.where(unknown, after, inputs))
        carry = torch.where(terminated | unknown, 0.0, self.gamma * follows)
        return backward_scan(inputs, carry), ~unknown


def _next(values: Tensor) -> Tensor:
    """Return the values of the next decisions, ``[B, T]``; 0 after the last one."""
    return functional.pad(values[:, 1:], (0, 1))
