"""Rainbow, whole.

Hessel et al., "Rainbow: combining improvements in deep reinforcement learning", AAAI 2018:
categorical return distributions (Bellemare et al., ICML 2017), double (van Hasselt et al., AAAI
2016), dueling (Wang et al., ICML 2016), n-step targets (Sutton, Machine Learning 1988), noisy
layers instead of random actions (Fortunato et al., ICLR 2018), and prioritized replay (Schaul et
al., ICLR 2016), which is the replay's part: this agent says how far off each transition was.
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
from agents.networks.noisy import reset_noise
from agents.networks.readout import ActionNetwork, CategoricalReadout
from agents.objectives import C51Loss
from agents.policies.policy_wrapper import EpsilonSchedule, PolicyWrapper
from agents.training.states import module_state
from packing_env.envs import PackingEnv


class NoisyPolicy(PolicyWrapper):
    """Acts on expected returns; where it explores, with new noise for every batch of decisions.

    All rows of a batch share one draw of the noise, as the transitions of an update do.
    """

    def action_values(self, tensordict: TensorDictBase) -> Tensor:
        """``[*batch, A]`` float32."""
        if self._exploring():
            reset_noise(self.network)
        return super().action_values(tensordict)


class Rainbow:
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
        v_min: Lowest return that the distributions can show: no less than what an episode can give,
            or everything below is taken for this.
        v_max: Highest, likewise.
        num_atoms: Atoms between them.
        mixture: Distributions that the placements of a map mix, see :class:`CategoricalReadout`;
            ``None``: every action has one of its own.
        noisy: Whether noisy layers explore.
        sigma: Initial scale of their noise.
        epsilon_start: Share of random legal actions at frame 0, besides the noise.
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
        v_min: float = -1.0,
        v_max: float = 1.5,
        num_atoms: int = 51,
        mixture: int | None = 4,
        noisy: bool = True,
        sigma: float = 0.5,
        epsilon_start: float = 0.0,
        epsilon_end: float = 0.0,
        epsilon_frames: int = 0,
    ) -> None:
        self.gamma, self.n_steps, self.batch_size = gamma, n_steps, batch_size
        self.lr, self.lr_end, self.lr_frames = lr, lr_end, lr_frames
        readout = partial(
            CategoricalReadout,
            v_min=v_min,
            v_max=v_max,
            num_atoms=num_atoms,
            mixture=mixture,
            noisy=noisy,
            sigma=sigma,
        )
        self.network = network(env, readout=readout)
        self.policy = NoisyPolicy(
            self.network, epsilon=EpsilonSchedule(epsilon_start, epsilon_end, epsilon_frames)
        ).to(env.device)
        self.objective = C51Loss(self.network, gamma=gamma, double=double)
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
