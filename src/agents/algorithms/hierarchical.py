"""A manager and a worker, each trained by masked double Q-learning: the whole algorithm.

Huang et al., "Planning Irregular Object Packing via Hierarchical Reinforcement Learning", RA-L
2023. In stage 1 a worker learns to place items, which come largest first. In stage 2 a manager
learns the order of the items. Both learn together: the worker in every update, the manager in every
fourth update. Double Q-learning is that of van Hasselt et al., AAAI 2016. The paper does not state
the discount, the exploration, the target network or the length of the stages.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torch.nn import functional
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.algorithms.base import Learner
from agents.algorithms.optimization import GatedAdam, follow, worst
from agents.algorithms.settings import Exploration, OffPolicy
from agents.networks import HierarchicalNetworks
from agents.networks.hierarchical.manager import ManagerNetwork
from agents.objectives.transitions import mean_loss, n_step_target
from agents.options import option_groups
from agents.policies.hierarchical import MANAGER, MANAGER_MASK, WORKER, HierarchicalPolicy
from agents.policies.sampling import at, best
from packing_env.envs import PackingEnv
from packing_env.values import Count, NonNegative, Positive, Whole

LEGAL_MASK = ("manager", "legal_mask")
Report = tuple[dict[str, Tensor], dict[str, Tensor]]


@dataclass(frozen=True)
class Stages:
    """The two stages of training.

    Attributes:
        stage1_frames: Frames of stage 1; afterwards the manager orders the items and learns.
        manager_every: Number of updates of stage 2 per update of the manager.
        lr: Adam's learning rate in stage 1.
        lr_joint: Adam's learning rate of both levels in stage 2.
    """

    stage1_frames: Whole = 50_000
    manager_every: Count = 4
    lr: Positive = 1e-3
    lr_joint: NonNegative = 1e-4


class Hierarchical(Learner):
    """Manager and worker: a policy of two levels, and the update that trains both.

    Args:
        env: Determines the shapes, and provides the rules that compute the maps of a chosen item.
        network: Builds the two networks from the environment.
        max_grad_norm: Largest norm of the gradient of each level; larger gradients are scaled down.
        learning: ``gamma`` and ``n_steps`` of both levels, ``batch_size`` and ``target_rate``.
        stages: Length and learning rates of the stages.
        exploration: Schedule of epsilon of both levels; it starts at frame 0 for the worker, and
            with stage 2 for the manager.
    """

    action_modes = ("hierarchical",)
    network_role = "manager and worker"
    parts = ("policy", "target", "optimizers", "joint_updates")

    @option_groups
    def __init__(
        self,
        env: PackingEnv,
        *,
        network: Callable[[PackingEnv], HierarchicalNetworks] = HierarchicalNetworks,
        max_grad_norm: Positive = 10.0,
        learning: OffPolicy = OffPolicy(batch_size=128, target_rate=0.01),
        stages: Stages = Stages(),
        exploration: Exploration = Exploration(),
    ) -> None:
        self.gamma, self.n_steps = learning.gamma, learning.n_steps
        self.batch_size = learning.batch_size
        self.target_rate, self.stages = learning.target_rate, stages
        self.networks = networks = network(env)
        self.policy = HierarchicalPolicy(
            env, networks, epsilon=exploration.schedule, stage1_frames=stages.stage1_frames
        )
        self.target = copy.deepcopy(networks).requires_grad_(False)
        self.optimizers = {
            level: GatedAdam(part.parameters(), lr=stages.lr, max_grad_norm=max_grad_norm)
            for level, part in (("worker", networks.worker), ("manager", networks.manager))
        }
        self.joint_updates = 0
        self.to(env.device)
        self.set_frames(0)

    @property
    def stage(self) -> int:
        """Stage: 1 (largest item first, only the worker learns) or 2 (both levels learn)."""
        return self.policy.stage

    @property
    def update_kind(self) -> tuple[int, bool]:
        """The stage, and whether the manager learns in the next update."""
        due = self.stage == 2 and self.joint_updates % self.stages.manager_every == 0
        return self.stage, due

    def copy_to_targets(self) -> None:
        """Make the target networks equal to the online ones."""
        follow(list(self.target.parameters()), list(self.networks.parameters()), 1.0)

    def count_update(self) -> None:
        """Count an update of stage 2."""
        self.joint_updates += self.stage == 2

    def set_frames(self, frames: int) -> None:
        """Set every schedule, and the stage, to its value after this many frames."""
        super().set_frames(frames)
        if self.stage == 2:
            self.networks.manager.refresh()
        for optimizer in self.optimizers.values():
            optimizer.set_lr(self.stages.lr if self.stage == 1 else self.stages.lr_joint)

    def update(self, batch: TensorDictBase) -> dict[str, Tensor]:
        """Update the worker; in stage 2 also update the manager every ``manager_every``-th time.

        The reported ``loss`` is the worker's.
        """
        following = self.following(batch)
        report, step = self.update_worker(batch, following)
        _, manager_learns = self.update_kind
        self.count_update()
        if not manager_learns:
            return report | step
        of_manager, other = self.update_manager(batch, following)
        return report | of_manager | worst([step, other])

    def update_worker(self, batch: TensorDictBase, following: TensorDictBase) -> Report:
        """Take a gradient step of the worker; return loss and value, and the step's scalars."""
        loss, value, step = self._learn("worker", batch, self.worker_loss(batch, following))
        return {"loss": loss, "q": value}, step

    def update_manager(self, batch: TensorDictBase, following: TensorDictBase) -> Report:
        """Take a gradient step of the manager, as :meth:`update_worker` does."""
        loss, value, step = self._learn("manager", batch, self.manager_loss(batch, following))
        return {"manager_loss": loss, "manager_q": value}, step

    def worker_loss(
        self, batch: TensorDictBase, following: TensorDictBase
    ) -> tuple[Tensor, Tensor]:
        """Return smooth L1 losses ``[B]`` of the worker's TD errors, and its values ``[B]``.

        The target is ``r + gamma Q_target(s', i', argmax_p Q(s', i', p))``, where p ranges over the
        legal placements of the item ``i'`` chosen in s' (:meth:`following`). The method sets
        ``td_error [B]``, the absolute errors, in the batch.
        """
        with torch.no_grad():
            scores = self.networks.worker(following.clone(False)).get(("worker", "action_value"))
            chosen = best(scores, following.get(("worker", "action_mask")))
            future = self.target.worker.value_of(following, chosen)
            target = n_step_target(batch, future, self.gamma)
        whole = self.policy.maps(batch.clone(False))
        value = self.networks.worker.value_of(whole, batch.get(WORKER))
        batch.set("td_error", (value.detach() - target).abs())
        return functional.smooth_l1_loss(value, target, reduction="none"), value

    def manager_loss(
        self, batch: TensorDictBase, following: TensorDictBase
    ) -> tuple[Tensor, Tensor]:
        """Return losses and values of the manager, as :meth:`worker_loss` does.

        The target is ``r + gamma Q_target(s', argmax_i Q(s', i))``; ``following`` holds that item.
        """
        value = _item_value(self.networks.manager, batch)
        with torch.no_grad():
            future = _item_value(self.target.manager, following)
            target = n_step_target(batch, future, self.gamma)
        return functional.smooth_l1_loss(value, target, reduction="none"), value

    @torch.no_grad()
    def following(self, batch: TensorDictBase) -> TensorDictBase:
        """Return the next states, with the item that would be chosen there, and its maps.

        In stage 1 the largest legal item is chosen, in stage 2 the online manager's best legal one.
        """
        states = batch.get("next").clone(False)
        states.set(MANAGER_MASK, states.get(LEGAL_MASK, states.get(MANAGER_MASK)))
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            return self.policy.maps(self.policy.choose_item(states))

    def _learn(
        self, level: str, batch: TensorDictBase, losses_and_values: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Take a gradient step; return the mean loss and value, and the step's scalars."""
        losses, value = losses_and_values
        loss = mean_loss(losses, batch.get("priority_weight", None))
        step = self.optimizers[level].step(loss)
        target, online = (getattr(n, level).parameters() for n in (self.target, self.networks))
        follow(target, online, self.target_rate, step["skipped"])
        return loss.detach(), value.detach().mean(), step


def _item_value(manager: ManagerNetwork, batch: TensorDictBase) -> Tensor:
    value = manager(batch.clone(False)).get(("manager", "action_value"))
    return at(value, batch.get(MANAGER))
