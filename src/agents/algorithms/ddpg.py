"""Deep deterministic policy gradient, whole.

Lillicrap et al., ICLR 2016, with TorchRL's ``DDPGLoss`` and ``SoftUpdate``; n-step targets as of
Barth-Maron et al., ICLR 2018 (D4PG): the replay accumulates the rewards, and the loss reads how
many decisions lie between. The critic's error enters by its smooth L1 loss, TorchRL's default,
where the paper has the square.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tensordict import TensorDictBase
from torch import Tensor
from torchrl.objectives import DDPGLoss, SoftUpdate

from agents.algorithms.learned_action import check_learn_from, learned, worst
from agents.algorithms.optimization import GatedAdam
from agents.networks import ContinuousActorCritic
from agents.policies.continuous import ContinuousPolicy, NoiseSchedule
from agents.policies.policy_wrapper import EpsilonSchedule, schedule_share
from agents.training.states import module_state
from packing_env.envs import PackingEnv


class DDPG:
    """The agent: a policy, and one gradient step of critic and actor at a time.

    Args:
        env: Sets the shapes; nothing of it is kept.
        network: Builds what makes the actor and the critic from the environment.
        gamma: Discount per decision.
        n_steps: Rewards summed before bootstrapping; the replay accumulates them.
        batch_size: Transitions per update.
        lr: Adam's learning rate of the critic.
        actor_lr: That of the actor.
        lr_end: Share of both that is left after ``lr_frames`` frames, reached linearly.
        lr_frames: Frames of that schedule; ``None`` keeps both.
        target_rate: Share of the online networks that enters the target networks per update.
        max_grad_norm: Gradients are scaled down to this norm.
        learn_from: Which action the critic values: ``"executed"``, the one that the environment
            carried out, or ``"asked"``, the one that the actor gave (a point whose nearest legal
            placement was carried out).
        noise_start: Standard deviation of the noise at frame 0, in the action's units.
        noise_end: The same after ``noise_frames`` frames.
        noise_frames: Length of the linear schedule in frames.
        epsilon_start: Share of uniformly random actions at frame 0.
        epsilon_end: Their share after ``epsilon_frames`` frames.
        epsilon_frames: Length of that schedule in frames.
    """

    action_modes = ("continuous",)
    network_role = "continuous actor and critic"

    def __init__(
        self,
        env: PackingEnv,
        *,
        network: Callable[[PackingEnv], ContinuousActorCritic] = ContinuousActorCritic,
        gamma: float = 0.95,
        n_steps: int = 3,
        batch_size: int = 64,
        lr: float = 1e-3,
        actor_lr: float = 3e-4,
        lr_end: float = 0.1,
        lr_frames: int | None = None,
        target_rate: float = 0.02,
        max_grad_norm: float = 10.0,
        learn_from: str = "executed",
        noise_start: float = 0.3,
        noise_end: float = 0.1,
        noise_frames: int = 20_000,
        epsilon_start: float = 1.0,
        epsilon_end: float = 0.1,
        epsilon_frames: int = 15_000,
    ) -> None:
        self.gamma, self.n_steps, self.batch_size = gamma, n_steps, batch_size
        self.lr, self.actor_lr = lr, actor_lr
        self.lr_end, self.lr_frames = lr_end, lr_frames
        self.learn_from = check_learn_from(learn_from)
        made = network(env)
        self.actor, self.critic = made.actor(), made.critic()
        self.policy = ContinuousPolicy(
            self.actor,
            noise=NoiseSchedule(noise_start, noise_end, noise_frames),
            epsilon=EpsilonSchedule(epsilon_start, epsilon_end, epsilon_frames),
        ).to(env.device)
        self.objective = DDPGLoss(
            self.actor,
            self.critic,
            loss_function="smooth_l1",
            delay_actor=True,
            delay_value=True,
            reduction="none",
        ).to(env.device)
        self.objective.make_value_estimator(gamma=gamma)
        self.targets = SoftUpdate(self.objective, tau=target_rate)
        self.optimizer = GatedAdam(self.critic.parameters(), lr=lr, max_grad_norm=max_grad_norm)
        self.actor_optimizer = GatedAdam(
            self.actor.parameters(), lr=actor_lr, max_grad_norm=max_grad_norm
        )

    def set_frames(self, frames: int) -> None:
        """Move every schedule to this frame."""
        self.policy.set_frames(frames)
        if self.lr_frames is not None:
            left = 1 + schedule_share(frames, self.lr_frames) * (self.lr_end - 1)
            self.optimizer.set_lr(left * self.lr)
            self.actor_optimizer.set_lr(left * self.actor_lr)

    def update(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """One step of the critic, then one of the actor; device scalars, nothing is read back."""
        seen = learned(batch, self.learn_from)
        losses, found = self.objective.loss_value(seen)
        batch.set("td_error", found["td_error"].sqrt())
        loss = losses.mean()
        steps = [self.optimizer.step(loss)]
        actor_loss = self.objective.loss_actor(seen)[0].mean()
        steps.append(self.actor_optimizer.step(actor_loss))
        self.targets.step()
        return {
            "loss": loss.detach(),
            "actor_loss": actor_loss.detach(),
            "q": found["pred_value"].detach().mean(),
            **worst(*steps),
        }

    def state_dict(self) -> dict[str, Any]:
        """Networks, targets and optimizers."""
        return {
            "policy": module_state(self.policy),
            "objective": dict(self.objective.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "actor_optimizer": self.actor_optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self.policy.load_state_dict(state["policy"])
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.actor_optimizer.load_state_dict(state["actor_optimizer"])
