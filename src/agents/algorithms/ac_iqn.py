"""An actor with an implicit-quantile critic (AC-IQN): the whole algorithm.

The actor proposes placements, and the critic chooses among them (Neumann et al., "Greedy
actor-critic", ICLR 2023). The critic learns the distribution of each return by implicit quantiles
(Dabney et al., "Implicit quantile networks", ICML 2018). It compares mean returns or, for a
risk-averse agent, the mean of the worst share of the returns (CVaR).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from agents.algorithms.base import ContinuousLearner
from agents.algorithms.optimization import GatedUpdate
from agents.algorithms.settings import (
    ActionNoise,
    ActorCriticOptimization,
    Exploration,
    OffPolicy,
    Quantiles,
)
from agents.networks import ContinuousActorCritic
from agents.networks.continuous import Critic, Proposer
from agents.networks.readouts.quantile import QuantileReadout
from agents.networks.readouts.values import flattened
from agents.objectives import ACIQNLoss
from agents.objectives.transitions import mean_loss, with_executed_action
from agents.options import option_groups
from agents.policies.continuous import ContinuousPolicy
from packing_env.envs import PackingEnv
from packing_env.values import Count


@dataclass(frozen=True)
class ActorQuantiles(Quantiles):
    """Quantile regression of returns, and the quantile levels at which actions are compared.

    Attributes:
        num_actor_taus: Number of quantile levels at which an action is evaluated, K.
    """

    num_actor_taus: Count = 8


class CriticsChoice(TensorDictModuleBase):
    """A policy that chooses the actor's proposal with the highest value under the critic.

    Args:
        actor: Proposes placements.
        critic: Evaluates the proposals at its readout's risk level.
        count: Number of proposals.
    """

    def __init__(self, actor: Proposer, critic: Critic, count: int) -> None:
        super().__init__()
        assert critic.readout is not None
        self.actor, self.critic, self.readout, self.count = actor, critic, critic.readout, count
        self.in_keys = [*actor.in_keys, *critic.readout.in_keys]  # the critic reads the same maps
        self.out_keys = ["action"]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action."""
        batch, observed = flattened(tensordict, self.actor.in_keys)
        proposals = self.actor.propose(observed, self.count, draw=False)
        tau = self.readout.taus(tensordict)
        value = self.critic.compare(observed, proposals.action, tau)
        action = proposals.point_of(proposals.best(value))
        return tensordict.set("action", action.unflatten(0, batch))


class ACIQN(ContinuousLearner):
    """AC-IQN: a policy, trained by one gradient step of critic and actor per update.

    Args:
        env: Determines the shapes.
        network: Function that takes the environment and returns the builder of actor and critic.
        num_proposals: Number of placements that the actor proposes.
        learning: ``gamma``, ``n_steps``, ``batch_size`` and ``target_rate``.
        quantiles: Quantile levels of the regression and of the comparison of actions, and ``risk``,
            the CVaR level at which actions are chosen. If ``risk`` is not fixed, batches without
            risk levels get uniform random ones.
        optimization: ``lr`` of the critic, ``actor_lr`` and their schedule.
        noise: Schedule of the Gaussian noise.
        exploration: Schedule of the share of uniform random actions.
    """

    @option_groups
    def __init__(
        self,
        env: PackingEnv,
        *,
        network: Callable[[PackingEnv], ContinuousActorCritic] = ContinuousActorCritic,
        num_proposals: Count = 32,
        learning: OffPolicy = OffPolicy(),
        quantiles: ActorQuantiles = ActorQuantiles(),
        optimization: ActorCriticOptimization = ActorCriticOptimization(),
        noise: ActionNoise = ActionNoise(),
        exploration: Exploration = Exploration(epsilon_end=0.1, epsilon_frames=15_000),
    ) -> None:
        self.gamma, self.n_steps = learning.gamma, learning.n_steps
        self.batch_size = learning.batch_size
        builder = network(env)
        self.readout = QuantileReadout(
            builder.size.width,
            num_cosines=quantiles.num_cosines,
            num_samples=quantiles.num_actor_taus,
            risk=quantiles.risk,
        )
        self.critic = builder.critic(self.readout)
        self.varies_risk = self.readout.level_key is not None
        self.actor = builder.proposer()
        self.policy = ContinuousPolicy(
            CriticsChoice(self.actor, self.critic, num_proposals),
            action_spec=env.action_spec,
            noise=noise.schedule,
            epsilon=exploration.schedule,
        )
        self.objective = ACIQNLoss(
            self.actor,
            self.critic,
            gamma=learning.gamma,
            risk=None if self.varies_risk else self.readout.risk,
            num_actor_taus=quantiles.num_actor_taus,
            num_proposals=num_proposals,
            regression=quantiles,
        )
        self.targets = GatedUpdate(self.objective, tau=learning.target_rate)
        self.optimizer = optimization.adam(self.critic.parameters(), optimization.lr)
        self.actor_optimizer = optimization.adam(self.actor.parameters(), optimization.actor_lr)
        self.to(env.device)

    def update(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """Take one step of the critic, then one of the actor."""
        valued = with_executed_action(batch)
        if self.varies_risk:
            self._set_levels(valued)
        weight = batch.get("priority_weight", None)
        # 1. Critic.
        losses, value = self.objective.loss_value(valued)
        batch.set("td_error", valued.get("td_error"))
        loss = mean_loss(losses, weight)
        step = self.optimizer.step(loss)
        # 2. Actor.
        actor_loss = mean_loss(self.objective.loss_actor(valued), weight)
        actor_step = self.actor_optimizer.step(actor_loss)
        return self.finish(loss, actor_loss, [step, actor_step]) | {"q": value.mean()}

    def _set_levels(self, batch: TensorDictBase) -> None:
        """Set risk levels at the root and in ``next``; a drawn level is the same in both."""
        drawn = torch.rand(len(batch), 1, device=batch.get("action").device)
        following = batch.get("next").copy()
        for state in (batch, following):
            known = state.get(self.readout.level_key, None) is not None
            level = self.readout.levels(state) if known else None
            state.set("risk", drawn if level is None else level[:, None])
        batch.set("next", following)
