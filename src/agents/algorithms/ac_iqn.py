"""A deterministic actor with an implicit-quantile critic (AC-IQN), whole.

The deterministic policy gradient (Silver et al., ICML 2014; Lillicrap et al., ICLR 2016) through a
critic of return distributions, as D4PG (Barth-Maron et al., ICLR 2018) has it with atoms and this
with implicit quantiles (Dabney et al., "Implicit quantile networks", ICML 2018). The actor may be
averse to risk: it goes for the mean of the worst share of the returns (CVaR).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.objectives import SoftUpdate

from agents.algorithms.learned_action import check_learn_from, learned, worst
from agents.algorithms.optimization import GatedAdam, mean_loss
from agents.networks import ContinuousActorCritic
from agents.networks.continuous import Actor
from agents.networks.quantile import QuantileReadout, Risk
from agents.objectives import ACIQNLoss
from agents.policies.continuous import ContinuousPolicy, NoiseSchedule
from agents.policies.policy_wrapper import EpsilonSchedule, schedule_share
from agents.training.states import module_state
from packing_env.envs import PackingEnv


class RiskActor(TensorDictModuleBase):
    """An actor, with the risk level of each row looked up for it.

    Args:
        actor: Reads ``risk [*batch, 1]``.
        readout: Says where the levels are.
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
        tensordict.set("risk", level.view(*tensordict.batch_size, 1))
        return self.actor(tensordict)


class ACIQN:
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
            carried out, or ``"asked"``, the one that the actor gave.
        num_taus: Levels of the action taken per update, N.
        num_target_taus: Levels of the next one, N'.
        num_actor_taus: Levels that the actor's action is judged by, K.
        num_cosines: Of the embedding of a level.
        kappa: Where the quantile Huber loss turns from quadratic to linear; in units of returns.
        risk: The CVaR level that the actor aims at: a number in (0, 1], 1 for the mean; or where
            the level of each row stands, or what computes it, as of
            :class:`agents.networks.quantile.QuantileReadout` (``"support"``: from the state). Then
            the actor sees the level, and where a batch does not hold it, it learns from levels
            drawn uniformly: one actor for all levels.
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
        num_taus: int = 8,
        num_target_taus: int = 8,
        num_actor_taus: int = 8,
        num_cosines: int = 64,
        kappa: float = 1.0,
        risk: Risk = 1.0,
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
        self.critic = made.quantile_critic(
            num_cosines=num_cosines, num_samples=num_actor_taus, risk=risk
        )
        self.readout = self.critic.readout
        self.sees_risk = self.readout.level is not None or self.readout.level_key is not None
        self.actor = made.actor(risk=self.sees_risk)
        self.policy = ContinuousPolicy(
            RiskActor(self.actor, self.readout) if self.sees_risk else self.actor,
            noise=NoiseSchedule(noise_start, noise_end, noise_frames),
            epsilon=EpsilonSchedule(epsilon_start, epsilon_end, epsilon_frames),
        ).to(env.device)
        self.objective = ACIQNLoss(
            self.actor,
            self.critic,
            gamma=gamma,
            risk=None if self.sees_risk else self.readout.risk,
            num_taus=num_taus,
            num_target_taus=num_target_taus,
            num_actor_taus=num_actor_taus,
            kappa=kappa,
        ).to(env.device)
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
        if self.sees_risk:
            self._set_levels(seen)
        weight = batch.get("priority_weight", None)
        losses, value = self.objective.loss_value(seen)
        batch.set("td_error", seen.get("td_error"))
        loss = mean_loss(losses, weight)
        steps = [self.optimizer.step(loss)]
        actor_loss = mean_loss(self.objective.loss_actor(seen), weight)
        steps.append(self.actor_optimizer.step(actor_loss))
        self.targets.step()
        return {
            "loss": loss.detach(),
            "actor_loss": actor_loss.detach(),
            "q": value.mean(),
            **worst(*steps),
        }

    def _set_levels(self, batch: TensorDictBase) -> None:
        """Risk levels at the root and in ``next``, the same in both where they are drawn."""
        drawn = torch.rand(len(batch), 1, device=batch.get("action").device)
        key = self.readout.level_key
        following = batch.get("next").copy()
        for state in (batch, following):
            known = key is None or state.get(key, None) is not None
            state.set("risk", self.readout.levels(state)[:, None] if known else drawn)
        batch.set("next", following)

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
