"""Soft actor-critic: the whole algorithm.

It follows Haarnoja et al., ICML 2018, with two critics and a learned temperature as in "Soft
actor-critic algorithms and applications" (2018), by TorchRL's ``SACLoss`` and ``SoftUpdate``.
n-step targets omit the entropy of the intermediate decisions. The critics' loss is TorchRL's
default, smooth L1; the paper uses the squared error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensordict import TensorDictBase
from torch import Tensor
from torchrl.modules import ProbabilisticActor
from torchrl.objectives import SACLoss

from agents.algorithms.base import ContinuousLearner
from agents.algorithms.optimization import GatedAdam, GatedUpdate
from agents.algorithms.settings import ActorCriticOptimization, Exploration, OffPolicy
from agents.networks import ContinuousActorCritic
from agents.objectives.transitions import with_executed_action
from agents.options import option_groups
from agents.policies.continuous import ContinuousPolicy, TanhGaussian
from packing_env.envs import PackingEnv
from packing_env.values import NonNegative, Positive


@dataclass(frozen=True)
class Temperature:
    """The learned weight of the entropy.

    Attributes:
        alpha_lr: Adam's learning rate of the logarithm of the temperature.
        alpha: Initial temperature: the value of a unit of entropy, in rewards.
        target_entropy: Entropy in the box [-1, 1]^D at which the temperature aims; None means -D.
    """

    alpha_lr: NonNegative = 1e-2
    alpha: Positive = 1e-3
    target_entropy: float | None = None


class SAC(ContinuousLearner):
    """SAC: a policy, trained by one gradient step of critics, actor and temperature per update.

    While exploring, an action is drawn from the policy's distribution; otherwise it is the tanh of
    the distribution's mean.

    Args:
        env: Determines the shapes.
        network: Function that takes the environment and returns the builder of actor and critics.
        learning: ``gamma``, ``n_steps``, ``batch_size`` and ``target_rate``.
        optimization: ``lr`` of the critics, ``actor_lr`` and their schedule.
        temperature: Start, target and learning rate of the temperature.
        exploration: Schedule of the share of uniform actions.
    """

    parts = (*ContinuousLearner.parts, "alpha_optimizer")

    @option_groups
    def __init__(
        self,
        env: PackingEnv,
        *,
        network: Callable[[PackingEnv], ContinuousActorCritic] = ContinuousActorCritic,
        learning: OffPolicy = OffPolicy(),
        optimization: ActorCriticOptimization = ActorCriticOptimization(),
        temperature: Temperature = Temperature(),
        exploration: Exploration = Exploration(epsilon_end=0.1, epsilon_frames=15_000),
    ) -> None:
        self.gamma, self.n_steps = learning.gamma, learning.n_steps
        self.batch_size = learning.batch_size
        builder = network(env)
        self.actor = builder.actor(stochastic=True)
        self.policy = ContinuousPolicy(
            self.actor,
            action_spec=env.action_spec,
            epsilon=exploration.schedule,
            distribution=TanhGaussian,
        )
        target_entropy = temperature.target_entropy
        if target_entropy is None:
            target_entropy = -float(env.action_spec.shape[-1])
        distribution = ProbabilisticActor(
            self.actor,
            in_keys=["loc", "scale"],
            out_keys=["action"],
            distribution_class=TanhGaussian,
            return_log_prob=True,
        )
        # With these options the loss is per row, and nothing is copied to the host.
        self.objective = SACLoss(
            distribution,
            [builder.critic(), builder.critic()],
            num_qvalue_nets=2,
            alpha_init=temperature.alpha,
            target_entropy=target_entropy,
            reduction="none",
            scalar_output_mode="exclude",
            deactivate_vmap=True,
        )
        self.objective.make_value_estimator(gamma=learning.gamma)
        self.targets = GatedUpdate(self.objective, tau=learning.target_rate)
        critics = self.objective.qvalue_network_params.parameters()
        self.optimizer = optimization.adam(critics, optimization.lr)
        self.actor_optimizer = optimization.adam(self.actor.parameters(), optimization.actor_lr)
        self.alpha_optimizer = GatedAdam(
            [self.objective.log_alpha],
            lr=temperature.alpha_lr,
            max_grad_norm=optimization.max_grad_norm,
        )
        self.to(env.device)

    def update(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """Take one step of critics, actor and temperature."""
        valued = with_executed_action(batch)
        # 1. Critics.
        losses, outputs = self.objective.qvalue_v2_loss(valued)
        batch.set("td_error", outputs["td_error"])
        loss = losses.mean()
        steps = [self.optimizer.step(loss)]
        # 2. Actor.
        losses, outputs = self.objective.actor_loss(valued)
        actor_loss = losses.mean()
        steps.append(self.actor_optimizer.step(actor_loss))
        # 3. Update the temperature from the log-probabilities of the actor's actions.
        alpha_loss = self.objective.alpha_loss(outputs["log_prob"]).mean()
        steps.append(self.alpha_optimizer.step(alpha_loss))
        return self.finish(loss, actor_loss, steps) | {
            "alpha": self.objective.log_alpha.detach().exp(),
            "entropy": -outputs["log_prob"].mean(),
        }
