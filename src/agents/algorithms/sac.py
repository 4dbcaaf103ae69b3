"""Soft actor-critic, whole.

Haarnoja et al., ICML 2018, with two critics and a learned temperature as in "Soft actor-critic
algorithms and applications" (2018), by TorchRL's ``SACLoss`` and ``SoftUpdate``. In n-step targets
the entropy of the decisions in between is left out. The critics' errors enter by their smooth L1
loss, TorchRL's default, where the paper has the square.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tensordict import TensorDictBase
from torch import Tensor
from torchrl.modules import ProbabilisticActor
from torchrl.objectives import SACLoss, SoftUpdate

from agents.algorithms.learned_action import check_learn_from, learned, worst
from agents.algorithms.optimization import GatedAdam
from agents.networks import ContinuousActorCritic
from agents.policies.continuous import ContinuousPolicy, TanhGaussian
from agents.policies.policy_wrapper import EpsilonSchedule, schedule_share
from agents.training.states import module_state
from packing_env.envs import PackingEnv


class SAC:
    """The agent: a policy, and one gradient step of critics, actor and temperature at a time.

    While exploring, an action is drawn from the policy's distribution; otherwise it is the tanh of
    the distribution's mean.

    Args:
        env: Sets the shapes; nothing of it is kept.
        network: Builds what makes the actor and the critics from the environment.
        gamma: Discount per decision.
        n_steps: Rewards summed before bootstrapping; the replay accumulates them.
        batch_size: Transitions per update.
        lr: Adam's learning rate of the critics.
        actor_lr: That of the actor.
        lr_end: Share of both that is left after ``lr_frames`` frames, reached linearly.
        lr_frames: Frames of that schedule; ``None`` keeps both.
        alpha_lr: That of the logarithm of the temperature.
        alpha: The temperature at the start: what a unit of entropy is worth, in rewards.
        target_entropy: Entropy that the temperature is steered to, in the box [-1, 1]^D;
            ``None``: -D.
        target_rate: Share of the online critics that enters the target critics per update.
        max_grad_norm: Gradients are scaled down to this norm.
        learn_from: Which action the critics value: ``"executed"``, the one that the environment
            carried out, or ``"asked"``, the one that the actor gave.
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
        alpha_lr: float = 1e-2,
        alpha: float = 1e-3,
        target_entropy: float | None = None,
        lr_end: float = 0.1,
        lr_frames: int | None = None,
        target_rate: float = 0.02,
        max_grad_norm: float = 10.0,
        learn_from: str = "executed",
        epsilon_start: float = 1.0,
        epsilon_end: float = 0.1,
        epsilon_frames: int = 15_000,
    ) -> None:
        self.gamma, self.n_steps, self.batch_size = gamma, n_steps, batch_size
        self.lr, self.actor_lr = lr, actor_lr
        self.lr_end, self.lr_frames = lr_end, lr_frames
        self.learn_from = check_learn_from(learn_from)
        made = network(env)
        components = env.action_spec.shape[-1]
        self.actor = made.actor(stochastic=True)
        self.policy = ContinuousPolicy(
            self.actor,
            epsilon=EpsilonSchedule(epsilon_start, epsilon_end, epsilon_frames),
            distribution=TanhGaussian,
        ).to(env.device)
        distribution = ProbabilisticActor(
            self.actor,
            in_keys=["loc", "scale"],
            out_keys=["action"],
            distribution_class=TanhGaussian,
            return_log_prob=True,
        )
        self.objective = SACLoss(
            distribution,
            [made.critic(), made.critic()],
            num_qvalue_nets=2,
            alpha_init=alpha,
            target_entropy=-float(components) if target_entropy is None else target_entropy,
            reduction="none",
            scalar_output_mode="exclude",
            deactivate_vmap=True,
        ).to(env.device)
        self.objective.make_value_estimator(gamma=gamma)
        self.targets = SoftUpdate(self.objective, tau=target_rate)
        critics = self.objective.qvalue_network_params.parameters()
        self.optimizer = GatedAdam(critics, lr=lr, max_grad_norm=max_grad_norm)
        self.actor_optimizer = GatedAdam(
            self.actor.parameters(), lr=actor_lr, max_grad_norm=max_grad_norm
        )
        self.alpha_optimizer = GatedAdam(
            [self.objective.log_alpha], lr=alpha_lr, max_grad_norm=max_grad_norm
        )

    def set_frames(self, frames: int) -> None:
        """Move every schedule to this frame."""
        self.policy.set_frames(frames)
        if self.lr_frames is not None:
            left = 1 + schedule_share(frames, self.lr_frames) * (self.lr_end - 1)
            self.optimizer.set_lr(left * self.lr)
            self.actor_optimizer.set_lr(left * self.actor_lr)

    def update(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """One step of critics, actor and temperature; device scalars, nothing is read back."""
        seen = learned(batch, self.learn_from)
        losses, found = self.objective.qvalue_v2_loss(seen)
        batch.set("td_error", found["td_error"])
        loss = losses.mean()
        steps = [self.optimizer.step(loss)]
        losses, found = self.objective.actor_loss(seen)
        actor_loss = losses.mean()
        steps.append(self.actor_optimizer.step(actor_loss))
        alpha_loss = self.objective.alpha_loss(found["log_prob"]).mean()
        steps.append(self.alpha_optimizer.step(alpha_loss))
        self.targets.step()
        return {
            "loss": loss.detach(),
            "actor_loss": actor_loss.detach(),
            "alpha": self.objective.log_alpha.detach().exp(),
            "entropy": -found["log_prob"].mean(),
            **worst(*steps),
        }

    def state_dict(self) -> dict[str, Any]:
        """Networks, targets, temperature and optimizers."""
        return {
            "policy": module_state(self.policy),
            "objective": dict(self.objective.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "actor_optimizer": self.actor_optimizer.state_dict(),
            "alpha_optimizer": self.alpha_optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self.policy.load_state_dict(state["policy"])
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.actor_optimizer.load_state_dict(state["actor_optimizer"])
        self.alpha_optimizer.load_state_dict(state["alpha_optimizer"])
