"""Deep deterministic policy gradient: the whole algorithm.

It follows Lillicrap et al., ICLR 2016, with TorchRL's ``DDPGLoss`` and ``SoftUpdate``. n-step
targets are as in Barth-Maron et al., ICLR 2018 (D4PG): the replay sums the rewards, and the loss
reads the number of decisions. The critic's loss is TorchRL's default, smooth L1; the paper uses the
squared error.
"""

from __future__ import annotations

from collections.abc import Callable

from tensordict import TensorDictBase
from torch import Tensor
from torchrl.objectives import DDPGLoss

from agents.algorithms.base import ContinuousLearner
from agents.algorithms.optimization import GatedUpdate
from agents.algorithms.settings import ActionNoise, ActorCriticOptimization, Exploration, OffPolicy
from agents.networks import ContinuousActorCritic
from agents.objectives.transitions import with_executed_action
from agents.options import option_groups
from agents.policies.continuous import ContinuousPolicy
from packing_env.envs import PackingEnv


class DDPG(ContinuousLearner):
    """DDPG: a policy, trained by one gradient step of critic and actor per update.

    Args:
        env: Determines the shapes.
        network: Function that takes the environment and returns the builder of actor and critic.
        learning: ``gamma``, ``n_steps``, ``batch_size`` and ``target_rate``.
        optimization: ``lr``, ``actor_lr`` and their schedule.
        noise: Schedule of the Gaussian noise.
        exploration: Schedule of the share of uniform random actions.
    """

    @option_groups
    def __init__(
        self,
        env: PackingEnv,
        *,
        network: Callable[[PackingEnv], ContinuousActorCritic] = ContinuousActorCritic,
        learning: OffPolicy = OffPolicy(),
        optimization: ActorCriticOptimization = ActorCriticOptimization(),
        noise: ActionNoise = ActionNoise(),
        exploration: Exploration = Exploration(epsilon_end=0.1, epsilon_frames=15_000),
    ) -> None:
        self.gamma, self.n_steps = learning.gamma, learning.n_steps
        self.batch_size = learning.batch_size
        builder = network(env)
        self.actor, self.critic = builder.actor(), builder.critic()
        self.policy = ContinuousPolicy(
            self.actor,
            action_spec=env.action_spec,
            noise=noise.schedule,
            epsilon=exploration.schedule,
        )
        self.objective = DDPGLoss(
            self.actor,
            self.critic,
            loss_function="smooth_l1",
            delay_actor=True,
            delay_value=True,
            reduction="none",
        )
        self.objective.make_value_estimator(gamma=learning.gamma)
        self.targets = GatedUpdate(self.objective, tau=learning.target_rate)
        self.optimizer = optimization.adam(self.critic.parameters(), optimization.lr)
        self.actor_optimizer = optimization.adam(self.actor.parameters(), optimization.actor_lr)
        self.to(env.device)

    def update(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """Take one step of the critic, then one of the actor."""
        valued = with_executed_action(batch)
        losses, outputs = self.objective.loss_value(valued)
        batch.set("td_error", outputs["td_error"].sqrt())
        loss = losses.mean()
        step = self.optimizer.step(loss)
        actor_loss = self.objective.loss_actor(valued)[0].mean()
        actor_step = self.actor_optimizer.step(actor_loss)
        report = self.finish(loss, actor_loss, [step, actor_step])
        return report | {"q": outputs["pred_value"].detach().mean()}
