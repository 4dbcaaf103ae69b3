"""Masked double dueling DQN, whole.

Mnih et al., Nature 2015; double: van Hasselt et al., AAAI 2016; dueling: Wang et al., ICML 2016;
n-step targets: Sutton, Machine Learning 1988. The loss is that of TorchRL's ``DQNLoss`` (a test
holds them equal), with one difference in cost: the values of single actions, Q(s, a) and the
target's Q(s', a'), come from ``network.value_of``, which need not score the other actions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torch.nn import functional

from agents.algorithms.optimization import GatedAdam, follow, mean_loss
from agents.networks import ScoreMaps
from agents.policies.policy_wrapper import EpsilonSchedule, PolicyWrapper
from agents.training.states import module_state
from packing_env.envs import PackingEnv


class QNetwork(Protocol):
    """What DQN needs of a network, besides being an ``nn.Module``."""

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write ``action_value [*batch, A]``."""

    def value_of(self, tensordict: TensorDictBase, action: Tensor) -> Tensor:
        """``action_value`` of one action per row, ``[B]``."""


class DQN:
    """The agent: a policy, and one gradient step at a time.

    Args:
        env: Sets the shapes; nothing of it is kept.
        network: Builds the Q network from the environment; it writes ``action_value``.
        gamma: Discount per decision.
        n_steps: Rewards summed before bootstrapping; the replay accumulates them.
        batch_size: Transitions per update.
        lr: Adam's learning rate at the start.
        lr_end: Learning rate after ``lr_frames`` frames, reached linearly.
        lr_frames: Frames of that schedule; ``None`` keeps ``lr``.
        target_rate: Share of the online network that enters the target network per update.
        max_grad_norm: Gradients are scaled down to this norm.
        double: Choose the next action with the online network.
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
        network: Callable[[PackingEnv], QNetwork] = ScoreMaps,
        gamma: float = 0.95,
        n_steps: int = 3,
        batch_size: int = 64,
        lr: float = 1e-3,
        lr_end: float = 1e-4,
        lr_frames: int | None = None,
        target_rate: float = 0.01,
        max_grad_norm: float = 10.0,
        double: bool = True,
        epsilon_start: float = 1.0,
        epsilon_end: float = 0.02,
        epsilon_frames: int = 10_000,
    ) -> None:
        self.gamma, self.n_steps, self.batch_size = gamma, n_steps, batch_size
        self.target_rate, self.double = target_rate, double
        self.lr, self.lr_end, self.lr_frames = lr, lr_end, lr_frames
        self.network = network(env)
        self.policy = PolicyWrapper(
            self.network, epsilon=EpsilonSchedule(epsilon_start, epsilon_end, epsilon_frames)
        ).to(env.device)
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        self.parameters = list(self.network.parameters())
        self.target_parameters = list(self.target.parameters())
        self.optimizer = GatedAdam(self.parameters, lr=lr, max_grad_norm=max_grad_norm)

    def set_frames(self, frames: int) -> None:
        """Move every schedule to this frame."""
        self.policy.set_frames(frames)
        if self.lr_frames is not None:
            done = min(1.0, frames / self.lr_frames)
            self.optimizer.set_lr(self.lr + done * (self.lr_end - self.lr))

    def loss(self, batch: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Smooth L1 loss ``[B]`` of the (n-step, double) TD error, and the values ``[B]``.

        ``batch`` holds transitions: the state at the root with ``action``, and in ``next`` the
        state reached after ``steps_to_next_obs`` decisions, ``reward`` (the discounted sum up to
        it) and ``terminated``. The mask of a finished row is all True; where the replay kept the
        rules' own (``legal_mask``), truncated rows bootstrap from legal actions only. Sets
        ``td_error [B]``, its magnitude, in the batch.
        """
        following = batch.get("next").clone(False)
        following.set("action_mask", following.get("legal_mask", following.get("action_mask")))
        with torch.no_grad():
            scorer = self.network if self.double else self.target
            scores = scorer(following.clone(False)).get("action_value")
            best = scores.masked_fill(~following.get("action_mask"), -torch.inf).argmax(-1)
            future = self.target.value_of(following, best)
            discount = self.gamma ** batch.get("steps_to_next_obs").squeeze(-1).float()
            alive = (~following.get("terminated").squeeze(-1)).float()
            target = following.get("reward").squeeze(-1) + discount * alive * future
        value = self.network.value_of(batch, batch.get("action"))
        batch.set("td_error", (value.detach() - target).abs())
        return functional.smooth_l1_loss(value, target, reduction="none"), value

    def update(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """One gradient step on a batch of transitions; device scalars, nothing is read back."""
        losses, value = self.loss(batch)
        loss = mean_loss(losses, batch.get("priority_weight", None))
        found = self.optimizer.step(loss)
        follow(self.target_parameters, self.parameters, self.target_rate)
        return {"loss": loss.detach(), "q": value.detach().mean(), **found}

    def copy_to_targets(self) -> None:
        """Make the target network equal to the online one."""
        follow(self.target_parameters, self.parameters, 1.0)

    def state_dict(self) -> dict[str, Any]:
        """Networks, target and optimizer."""
        return {
            "policy": module_state(self.policy),
            "target": module_state(self.target),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self.policy.load_state_dict(state["policy"])
        self.target.load_state_dict(state["target"])
        self.optimizer.load_state_dict(state["optimizer"])
