"""Manager and worker, each by masked double Q-learning, whole.

Huang et al., "Planning Irregular Object Packing via Hierarchical Reinforcement Learning", RA-L
2023: a worker learns to place items that come in the order of their bounding boxes (stage 1); then
a manager learns the order, and both learn on together, the worker in every update, the manager in
every fourth (stage 2). Double: van Hasselt et al., AAAI 2016. The paper leaves open the discount,
exploration, the target network and the length of the stages.

The values bootstrapped from are computed anew whenever a transition is sampled, by the networks as
they are then; none is stored.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torch.nn import functional
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.algorithms.optimization import GatedAdam, follow, mean_loss
from agents.networks import HierarchicalNetworks
from agents.networks.manager import ManagerNetwork
from agents.policies.hierarchical import (
    MANAGER,
    MANAGER_MASK,
    WORKER,
    WORKER_MASK,
    HierarchicalPolicy,
)
from agents.policies.policy_wrapper import EpsilonSchedule
from packing_env.envs import PackingEnv

LEGAL_MASK = ("manager", "legal_mask")


class Hierarchical:
    """The agent: a policy of two levels, and one update at a time.

    Args:
        env: Sets the shapes, and brings the rules that the maps of a chosen item come from.
        network: Builds the two networks from the environment.
        gamma: Discount per decision, of both levels.
        n_steps: Rewards summed before bootstrapping; the replay accumulates them.
        batch_size: Transitions per update.
        stage1_frames: Frames of stage 1; from then on the manager orders the items and learns.
        manager_every: Updates of stage 2 per update of the manager.
        lr: Adam's learning rate in stage 1.
        lr_joint: That of both levels in stage 2.
        target_rate: Share of a network that enters its target per update of that network.
        max_grad_norm: The gradients of either level are scaled down to this norm.
        epsilon_start: Share of random legal actions when a level begins to learn.
        epsilon_end: Their share after ``epsilon_frames`` frames more.
        epsilon_frames: Length of the linear schedule: the worker's begins at frame 0, the manager's
            with stage 2.
    """

    action_modes = ("hierarchical",)
    network_role = "manager and worker"
    updates_alike = False
    """The manager learns in every ``manager_every``-th update of stage 2."""

    def __init__(
        self,
        env: PackingEnv,
        *,
        network: Callable[[PackingEnv], HierarchicalNetworks] = HierarchicalNetworks,
        gamma: float = 0.95,
        n_steps: int = 3,
        batch_size: int = 128,
        stage1_frames: int = 50_000,
        manager_every: int = 4,
        lr: float = 1e-3,
        lr_joint: float = 1e-4,
        target_rate: float = 0.01,
        max_grad_norm: float = 10.0,
        epsilon_start: float = 1.0,
        epsilon_end: float = 0.02,
        epsilon_frames: int = 10_000,
    ) -> None:
        self.gamma, self.n_steps, self.batch_size = gamma, n_steps, batch_size
        self.manager_every = manager_every
        self.lr, self.lr_joint, self.target_rate = lr, lr_joint, target_rate
        self.networks = network(env)
        epsilon = EpsilonSchedule(epsilon_start, epsilon_end, epsilon_frames)
        self.policy = HierarchicalPolicy(
            env, self.networks, epsilon=epsilon, stage1_frames=stage1_frames
        ).to(env.device)
        self.target = copy.deepcopy(self.networks).requires_grad_(False)
        self.optimizers = {
            level: GatedAdam(
                getattr(self.networks, level).parameters(), lr=lr, max_grad_norm=max_grad_norm
            )
            for level in ("worker", "manager")
        }
        self.joint_updates = 0
        self.set_frames(0)

    @property
    def stage(self) -> int:
        """1: the largest item first, the worker learns; 2: the manager orders, both learn."""
        return self.policy.stage

    def set_frames(self, frames: int) -> None:
        """Move every schedule, the stage among them, to this frame."""
        self.policy.set_frames(frames)
        if self.stage == 2:
            self.networks.manager.refresh()
        for optimizer in self.optimizers.values():
            optimizer.set_lr(self.lr if self.stage == 1 else self.lr_joint)

    def update(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """One step of the worker, in stage 2 every ``manager_every``-th time also of the manager.

        Device scalars, nothing is read back. ``loss`` is the worker's.
        """
        following = self.following(batch)
        weight = batch.get("priority_weight", None)
        losses, value = self.worker_loss(batch, following)
        loss = mean_loss(losses, weight)
        found = [self._step("worker", loss)]
        told = {"loss": loss.detach(), "q": value.detach().mean()}
        if self.stage == 2:
            if self.joint_updates % self.manager_every == 0:
                losses, value = self.manager_loss(batch, following)
                loss = mean_loss(losses, weight)
                found.append(self._step("manager", loss))
                told |= {"manager_loss": loss.detach(), "manager_q": value.detach().mean()}
            self.joint_updates += 1
        return told | {key: torch.stack([f[key] for f in found]).amax(0) for key in found[0]}

    def worker_loss(
        self, batch: TensorDictBase, following: TensorDictBase
    ) -> tuple[Tensor, Tensor]:
        """Smooth L1 loss ``[B]`` of the worker's TD error, and its values ``[B]``.

        ``r + gamma Q_target(s', i', argmax_p Q(s', i', p))``, the maximum over the legal placements
        of the item ``i'`` that ``following`` (see :meth:`following`) has chosen in s'. Sets
        ``td_error [B]``, the error's magnitude, in the batch.
        """
        with torch.no_grad():
            scores = self.networks.worker(following.clone(False)).get(("worker", "action_value"))
            best = scores.masked_fill(~following.get(WORKER_MASK), -torch.inf).argmax(-1)
            target = self._target(batch, self.target.worker.value_of(following, best))
        value = self.networks.worker.value_of(
            self.policy.maps(batch.clone(False)), batch.get(WORKER)
        )
        batch.set("td_error", (value.detach() - target).abs())
        return functional.smooth_l1_loss(value, target, reduction="none"), value

    def manager_loss(
        self, batch: TensorDictBase, following: TensorDictBase
    ) -> tuple[Tensor, Tensor]:
        """The same of the manager's: ``r + gamma Q_target(s', argmax_i Q(s', i))``.

        ``following`` has that item: the manager chose it.
        """
        value = _item_value(self.networks.manager, batch)
        with torch.no_grad():
            target = self._target(batch, _item_value(self.target.manager, following))
        return functional.smooth_l1_loss(value, target, reduction="none"), value

    @torch.no_grad()
    def following(self, batch: TensorDictBase) -> TensorDictBase:
        """The states reached, with the item that would be picked there, and its maps.

        The item is the largest in stage 1, in stage 2 the best of the online manager. Where the
        replay kept the rules' own mask, truncated rows bootstrap from legal items only.
        """
        states = batch.get("next").clone(False)
        states.set(MANAGER_MASK, states.get(LEGAL_MASK, states.get(MANAGER_MASK)))
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            return self.policy.maps(self.policy.choose_item(states))

    def _target(self, batch: TensorDictBase, future: Tensor) -> Tensor:
        """Rewards up to the state reached, and its discounted value unless the episode ended."""
        states = batch.get("next")
        discount = self.gamma ** batch.get("steps_to_next_obs").squeeze(-1).float()
        alive = (~states.get("terminated").squeeze(-1)).float()
        return states.get("reward").squeeze(-1) + discount * alive * future

    def _step(self, level: str, loss: Tensor) -> dict[str, Tensor]:
        """A gradient step of one level, and its target's."""
        found = self.optimizers[level].step(loss)
        online, target = getattr(self.networks, level), getattr(self.target, level)
        follow(list(target.parameters()), list(online.parameters()), self.target_rate)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Networks, targets, optimizers, the stage, and whose turn it is."""
        return {
            "policy": self.policy.state_dict(),
            "target": self.target.state_dict(),
            "optimizers": {level: o.state_dict() for level, o in self.optimizers.items()},
            "joint_updates": self.joint_updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self.policy.load_state_dict(state["policy"])
        self.target.load_state_dict(state["target"])
        for level, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][level])
        self.joint_updates = state["joint_updates"]


def _item_value(manager: ManagerNetwork, batch: TensorDictBase) -> Tensor:
    """The manager's values ``[B]`` of the items that were picked."""
    value = manager(batch.clone(False)).get(("manager", "action_value"))
    return value.gather(-1, batch.get(MANAGER)[:, None]).squeeze(-1)
