"""A policy of two levels: one chooses an item, the other places it."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from agents.heuristics.base import largest_first
from agents.networks import HierarchicalNetworks
from agents.policies.policy_wrapper import EpsilonSchedule, PolicyWrapper
from agents.policies.sampling import best
from packing_env import PackingEnv, WorkerMaps

MANAGER, WORKER = ("manager", "action"), ("worker", "action")
MANAGER_MASK = ("manager", "action_mask")
_ITEM_ID = ("observation", "item_id")


class HierarchicalPolicy(TensorDictModuleBase):
    """A policy in which a manager chooses an item and a worker chooses its placement.

    Each level is a :class:`~agents.PolicyWrapper` with its own exploration rate and random draws.
    In the first stage (``learned_order`` is False), the legal item with the largest bounding box is
    chosen; ties go to the first one. The stage is part of ``state_dict``.

    Reads the networks' inputs, ``item_id`` and ``("manager", "action_mask")``; writes
    ``("manager", "action")``, ``("worker", "action")`` and ``chosen_action_value [*batch, 1]`` of
    the worker.

    Args:
        env: Provides the rules and items from which the maps are computed.
        networks: Networks of both levels.
        epsilon: Schedule of each level's exploration rate, starting at the frame at which the level
            starts to act; None means 0.
        stage1_frames: Frames of the first stage.
    """

    priority: Tensor

    def __init__(
        self,
        env: PackingEnv,
        networks: HierarchicalNetworks,
        *,
        epsilon: EpsilonSchedule | None = None,
        stage1_frames: int = 0,
    ) -> None:
        super().__init__()
        self.manager, self.worker = (
            PolicyWrapper(
                network,
                epsilon=epsilon,
                action_key=(level, "action"),
                mask_key=(level, "action_mask"),
                value_key=(level, "action_value"),
                chosen_key=chosen_key,
            )
            for level, network, chosen_key in (
                ("manager", networks.manager, ("manager", "chosen_action_value")),
                ("worker", networks.worker, "chosen_action_value"),
            )
        )
        priority = largest_first(env.catalogue.tensors()["extent"])
        self.register_buffer("priority", priority, persistent=False)
        self.maps = WorkerMaps(env)
        self.stage1_frames = stage1_frames
        self.learned_order = stage1_frames == 0
        needed = [*self.manager.in_keys, *self.maps.in_keys, *self.worker.in_keys]
        written = {*self.maps.out_keys, MANAGER}
        self.in_keys = [key for key in dict.fromkeys(needed) if key not in written]
        self.out_keys = [MANAGER, WORKER, "chosen_action_value"]

    @property
    def stage(self) -> int:
        """1 while the largest item is chosen, 2 afterwards; the stages run different operations."""
        return 1 + self.learned_order

    def set_frames(self, frames: int) -> None:
        """Set the stage and both exploration rates for this frame, in closed form."""
        self.learned_order = frames >= self.stage1_frames
        self.worker.set_frames(frames)
        self.manager.set_frames(frames - self.stage1_frames)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write both actions ``[*batch]``."""
        written = self.worker(self.maps(self.choose_item(tensordict.select(*self.in_keys))))
        for key in self.out_keys:
            tensordict.set(key, written.get(key))
        return tensordict

    def choose_item(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the manager's action: by the learned order, or the largest item first."""
        if self.learned_order:
            return self.manager(tensordict)
        mask = tensordict.get(MANAGER_MASK)
        item_id = tensordict.get(_ITEM_ID)[..., : mask.shape[-1]]
        return tensordict.set(MANAGER, best(self.priority[item_id.clamp(min=0)], mask))

    def get_extra_state(self) -> Tensor:
        """Return whether the learned manager orders the items."""
        return torch.tensor(self.learned_order)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.learned_order = bool(state)
