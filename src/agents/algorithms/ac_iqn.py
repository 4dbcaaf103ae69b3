"""A deterministic actor with an implicit-quantile critic (AC-IQN), whole.

The critic gives return distributions by implicit quantiles (Dabney et al., "Implicit quantile
networks", ICML 2018). The actor proposes actions, and the critic chooses (Neumann et al., "Greedy
actor-critic", ICLR 2023); or it acts itself and follows the deterministic policy gradient (Silver
et al., ICML 2014; Lillicrap et al., ICLR 2016; with atoms: Barth-Maron et al., ICLR 2018). The
choice may be averse to risk: it is then that of the mean of the worst share of the returns (CVaR).
"""

from __future__ import annotations

from collections.abc import Callable

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
    LearnFrom,
    Quantiles,
)
from agents.networks import ContinuousActorCritic
from agents.networks.continuous import Actor, Critic, Proposer
from agents.networks.readouts.quantile import QuantileReadout
from agents.networks.readouts.values import flattened
from agents.objectives import ACIQNLoss
from agents.objectives.transitions import mean_loss, with_valued_action
from agents.options import option_groups
from agents.policies.continuous import ContinuousPolicy
from packing_env.envs import PackingEnv


class RiskActor(TensorDictModuleBase):
    """An actor that is given the risk level of each row.

    Args:
        actor: Reads ``risk [*batch, 1]``.
        readout: Looks up the levels.
    """

    def __init__(self, actor: Actor, readout: QuantileReadout) -> None:
        super().__init__()
        self.actor = actor
        self.__dict__["readout"] = readout  # the critic's, whose parameters are not the policy's
        own = [key for key in actor.in_keys if key != "risk"]
        self.in_keys = list(dict.fromkeys([*own, *readout.in_keys]))
        self.out_keys = actor.out_keys

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action."""
        level = self.readout.levels(tensordict)
        assert level is not None
        tensordict.set("risk", level.view(*tensordict.batch_size, 1))
        return self.actor(tensordict)


class CriticsChoice(TensorDictModuleBase):
    """The most probable proposals of an actor, of which the critic chooses.

    Args:
        actor: Proposes.
        critic: Values the proposals at its readout's risk level.
        count: Number of proposals.
    """

    def __init__(self, actor: Proposer, critic: Critic, count: int) -> None:
        super().__init__()
        assert critic.readout is not None
        self.actor, self.critic, self.readout, self.count = actor, critic, critic.readout, count
        seen = [*actor.in_keys, *critic.encoder.in_keys, *critic.readout.in_keys]
        self.in_keys = list(dict.fromkeys(seen))
        self.out_keys = actor.out_keys

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action."""
        batch, observed = flattened(tensordict, self.actor.in_keys)
        _, seen = flattened(tensordict, self.critic.encoder.in_keys)
        proposals = self.actor.propose(self.count, *observed, draw=False)
        value = self.critic.compare(proposals.action, self.readout.taus(tensordict), *seen)
        action = proposals.point_of(proposals.best(value))
        return tensordict.set(self.out_keys[0], action.unflatten(0, batch))


class ACIQN(ContinuousLearner):
    """AC-IQN: a policy, and one gradient step of critic and actor at a time.

    Args:
        env: Sets the shapes; nothing of it is kept.
        network: Builds the builder of actor and critic from the environment.
        num_actor_taus: Levels at which an action is judged, K.
        num_proposals: Placements that the actor proposes and the critic chooses from. 0: the actor
            acts itself, and learns by the gradient of the critic with respect to its action.
        learning: ``gamma``, ``n_steps``, ``batch_size``, ``target_rate`` and ``learn_from``.
        quantiles: Levels of the regression, and ``risk``, the CVaR level that the actor aims at.
            Where the level is not fixed, an actor that acts itself observes it, and where a batch
            does not hold it, it learns from levels drawn uniformly: one actor for all levels.
        optimization: ``lr`` of the critic, ``actor_lr`` and their schedule.
        noise: Schedule of the Gaussian noise.
        exploration: Schedule of the share of uniform actions.
    """

    @option_groups(
        learning=LearnFrom(),
        quantiles=Quantiles(risk=1.0),
        optimization=ActorCriticOptimization(),
        noise=ActionNoise(),
        exploration=Exploration(epsilon_end=0.1, epsilon_frames=15_000),
    )
    def __init__(
        self,
        env: PackingEnv,
        *,
        network: Callable[[PackingEnv], ContinuousActorCritic] = ContinuousActorCritic,
        num_actor_taus: int = 8,
        num_proposals: int = 0,
        learning: LearnFrom,
        quantiles: Quantiles,
        optimization: ActorCriticOptimization,
        noise: ActionNoise,
        exploration: Exploration,
    ) -> None:
        self.gamma, self.n_steps = learning.gamma, learning.n_steps
        self.batch_size, self.learn_from = learning.batch_size, learning.learn_from
        builder = network(env)
        self.critic = builder.quantile_critic(
            num_cosines=quantiles.num_cosines, num_samples=num_actor_taus, risk=quantiles.risk
        )
        assert self.critic.readout is not None
        self.readout = self.critic.readout
        self.sees_risk = self.readout.level is not None or self.readout.level_key is not None
        self.actor, network_of_policy = self._actor(builder, num_proposals)
        self.policy = ContinuousPolicy(
            network_of_policy,
            action_spec=env.action_spec,
            noise=noise.schedule,
            epsilon=exploration.schedule,
        )
        self.objective = ACIQNLoss(
            self.actor,
            self.critic,
            gamma=learning.gamma,
            risk=None if self.sees_risk else self.readout.risk,
            num_actor_taus=num_actor_taus,
            num_proposals=num_proposals,
            regression=quantiles,
        )
        self.targets = GatedUpdate(self.objective, tau=learning.target_rate)
        self.optimizer = optimization.adam(self.critic.parameters(), optimization.lr)
        self.actor_optimizer = optimization.adam(self.actor.parameters(), optimization.actor_lr)
        self.to(env.device)

    def _actor(
        self, builder: ContinuousActorCritic, num_proposals: int
    ) -> tuple[Proposer, TensorDictModuleBase]:
        """Return the actor, and the network of the policy around it."""
        if num_proposals:
            proposer = builder.proposer()
            return proposer, CriticsChoice(proposer, self.critic, num_proposals)
        actor = builder.actor(risk=self.sees_risk)
        return actor, RiskActor(actor, self.readout) if self.sees_risk else actor

    def update(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """Take one step of the critic, then one of the actor."""
        valued = with_valued_action(batch, self.learn_from)
        if self.sees_risk:
            self._set_levels(valued)
        weight = batch.get("priority_weight", None)
        losses, value = self.objective.loss_value(valued)
        batch.set("td_error", valued.get("td_error"))
        loss = mean_loss(losses, weight)
        step = self.optimizer.step(loss)
        actor_loss = mean_loss(self.objective.loss_actor(valued), weight)
        actor_step = self.actor_optimizer.step(actor_loss)
        return self.finish(loss, actor_loss, step, actor_step) | {"q": value.mean()}

    def _set_levels(self, batch: TensorDictBase) -> None:
        """Set risk levels at the root and in ``next``, equal in both where they are drawn."""
        drawn = torch.rand(len(batch), 1, device=batch.get("action").device)
        key = self.readout.level_key
        following = batch.get("next").copy()
        for state in (batch, following):
            known = key is None or state.get(key, None) is not None
            level = self.readout.levels(state) if known else None
            state.set("risk", drawn if level is None else level[:, None])
        batch.set("next", following)
