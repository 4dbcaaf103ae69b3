"""Implicit quantile networks, whole.

Dabney et al., "Implicit quantile networks for distributional reinforcement learning", ICML 2018,
with double selection (van Hasselt et al., AAAI 2016) and n-step targets (Sutton, Machine Learning
1988). What is chosen by is the mean of the returns, or of their worst share (CVaR).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tensordict import TensorDictBase
from torch import Tensor
from torchrl.objectives import SoftUpdate

from agents.algorithms.optimization import GatedAdam
from agents.networks import ScoreMaps
from agents.networks.quantile import QuantileReadout, Risk
from agents.networks.readout import ActionNetwork
from agents.objectives import IQNLoss
from agents.policies.policy_wrapper import EpsilonSchedule, PolicyWrapper
from agents.training.states import module_state
from packing_env.envs import PackingEnv


class IQN:
    """The agent: a policy, and one gradient step at a time.

    Args:
        env: Sets the shapes; nothing of it is kept.
        network: Builds the network from the environment and a readout (``readout=``).
        gamma: Discount per decision.
        n_steps: Rewards summed before bootstrapping; the replay accumulates them.
        batch_size: Transitions per update.
        lr: Adam's learning rate at the start.
        lr_end: Learning rate after ``lr_frames`` frames, reached linearly.
        lr_frames: Frames of that schedule; ``None`` keeps ``lr``.
        adam_eps: Added to the root of Adam's second moment.
        target_rate: Share of the online network that enters the target network per update.
        max_grad_norm: Gradients are scaled down to this norm.
        double: Choose the next action with the online network.
        num_taus: Levels of the action taken per update, N.
        num_target_taus: Levels of the next one, N'.
        num_samples: Levels that an action is judged by, K.
        num_cosines: Of the embedding of a level.
        kappa: Where the quantile Huber loss turns from quadratic to linear.
        risk: The CVaR level that actions are chosen at: a number in (0, 1], None for the mean; or
            where the level of each row stands, or what computes it, see :class:`QuantileReadout`.
            ``"support"``: the support ratio of what is packed so far, so that the less firmly it
            stands, the more the worst returns count. A replay that keeps no such levels bootstraps
            at level 1.
        epsilon_start: Share of random legal actions at frame 0.
        epsilon_end: Their share after ``epsilon_frames`` frames.
        epsilon_frames: Length of the linear schedule in frames.
    """

    action_modes = ("placement", "candidate")
    network_role = "action values"

    def __init__(
        self,
        env: PackingEnv,
        *,
        network: Callable[..., ActionNetwork] = ScoreMaps,
        gamma: float = 0.95,
        n_steps: int = 3,
        batch_size: int = 64,
        lr: float = 1e-3,
        lr_end: float = 1e-4,
        lr_frames: int | None = None,
        adam_eps: float = 1.5e-4,
        target_rate: float = 0.02,
        max_grad_norm: float = 10.0,
        double: bool = True,
        num_taus: int = 8,
        num_target_taus: int = 8,
        num_samples: int = 32,
        num_cosines: int = 64,
        kappa: float = 1.0,
        risk: Risk = None,
        epsilon_start: float = 1.0,
        epsilon_end: float = 0.02,
        epsilon_frames: int = 10_000,
    ) -> None:
        self.gamma, self.n_steps, self.batch_size = gamma, n_steps, batch_size
        self.lr, self.lr_end, self.lr_frames = lr, lr_end, lr_frames
        readout = partial(
            QuantileReadout, num_cosines=num_cosines, num_samples=num_samples, risk=risk
        )
        self.network = network(env, readout=readout)
        self.policy = PolicyWrapper(
            self.network, epsilon=EpsilonSchedule(epsilon_start, epsilon_end, epsilon_frames)
        ).to(env.device)
        self.objective = IQNLoss(
            self.network,
            gamma=gamma,
            double=double,
            num_taus=num_taus,
            num_target_taus=num_target_taus,
            kappa=kappa,
            level_key=self.network.readout.level_key,
        )
        self.targets = SoftUpdate(self.objective, tau=target_rate)
        self.optimizer = GatedAdam(
            self.network.parameters(), lr=lr, max_grad_norm=max_grad_norm, eps=adam_eps
        )

    def set_frames(self, frames: int) -> None:
        """Move every schedule to this frame."""
        self.policy.set_frames(frames)
        if self.lr_frames is not None:
            done = min(1.0, frames / self.lr_frames)
            self.optimizer.set_lr(self.lr + done * (self.lr_end - self.lr))

    def update(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """One gradient step on a batch of transitions; device scalars, nothing is read back."""
        found = self.objective(batch)
        step = self.optimizer.step(found.get("loss"))
        self.targets.step()
        return {"loss": found.get("loss").detach(), "q": found.get("q"), **step}

    def copy_to_targets(self) -> None:
        """Make the target network equal to the online one."""
        self.targets = SoftUpdate(self.objective, eps=self.targets.eps)  # copies as it is made

    def state_dict(self) -> dict[str, Any]:
        """Networks, target and optimizer."""
        return {
            "policy": module_state(self.policy),
            "objective": dict(self.objective.state_dict()),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self.policy.load_state_dict(state["policy"])
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
