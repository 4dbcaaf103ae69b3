"""Action mode ``hierarchical``: a manager picks the item, a worker its placement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from tensordict import NestedKey
from torch import Tensor
from torchrl.data import Bounded, Categorical, Composite, TensorSpec

from packing_env.core.feasibility import Maps
from packing_env.core.orientation import Placement
from packing_env.envs.action_modes.base import LatticeMode, expressible, mask_spec
from packing_env.types import State

MANAGER, WORKER = ("manager", "action"), ("worker", "action")
MANAGER_MASK = ("manager", "action_mask")


class HierarchicalMode(LatticeMode):
    """One step takes two entries; only the manager's has a mask here.

    ``("manager", "action") [B]`` is a visible item; its mask says which have a legal placement.
    ``("worker", "action") [B]`` is ``(orientation * Xs + x) * Ys + y`` for that item; what is legal
    there, :class:`packing_env.WorkerMaps` computes once the item is known, and nothing here keeps
    the maps of all items. After Huang et al., RA-L 2023.

    Two observations serve that: ``heights [B, X, Y]``, the heightmap in metres with no rounding
    between, from which legality comes out bit for bit as the environment judges it; and
    ``placeable [B, L]``, the manager's mask as the rules have it in finished rows too.
    """

    mask_keys = (MANAGER_MASK,)
    masks_suffice = False

    def action_specs(
        self, batch_size: torch.Size, device: torch.device
    ) -> dict[NestedKey, TensorSpec]:
        """The manager's and the worker's entry."""
        items, *places = self.shape
        sizes = {MANAGER: items, WORKER: torch.Size(places).numel()}
        return {
            key: Categorical(size, shape=batch_size, device=device) for key, size in sizes.items()
        }

    def mask_specs(
        self, batch_size: torch.Size, device: torch.device
    ) -> dict[NestedKey, TensorSpec]:
        """The manager's."""
        return {MANAGER_MASK: mask_spec(self.params.num_visible, batch_size, device)}

    def observation_spec(self, batch_size: torch.Size, device: torch.device) -> Composite:
        """``heights [B, X, Y]`` in metres and ``placeable [B, L]``."""
        shape = (*batch_size, *self.params.grid)
        heights = Bounded(0.0, self.params.lid, shape=shape, dtype=torch.float32, device=device)
        placeable = mask_spec(self.params.num_visible, batch_size, device)
        entries = {"heights": heights, "placeable": placeable}
        return Composite(entries, shape=batch_size, device=device)

    def masks(self, state: State, maps: Maps | None) -> dict[NestedKey, Tensor]:
        """Which visible items have a legal placement."""
        return {MANAGER_MASK: _placeable(maps)}

    def observe(self, state: State, maps: Maps | None) -> dict[str, Tensor]:
        """See :meth:`observation_spec`."""
        return {"heights": state["heightmap"].clone(), "placeable": _placeable(maps)}

    def legality(self, seen: Mapping[str, Tensor]) -> dict[NestedKey, Tensor]:
        """``placeable``."""
        return {MANAGER_MASK: seen["placeable"]}

    def place(
        self, actions: Mapping[NestedKey, Tensor], state: State, maps: Callable[[], Maps | None]
    ) -> Placement:
        """Of the manager's item; one of the two out of range makes both illegal."""
        xs, ys = self.params.lattice
        asked = actions[WORKER]
        place = asked.clamp(0, self.num_orientations * xs * ys - 1)
        plane = torch.div(place, ys, rounding_mode="floor")
        turn = torch.div(plane, xs, rounding_mode="floor")
        found = self.at(actions[MANAGER], turn, plane % xs, place % ys)
        return replace(found, valid=found.valid & (place == asked))

    def encode(self, placement: Placement, state: State | None = None) -> dict[NestedKey, Tensor]:
        """Both entries, -1 where there are none."""
        item, turn, x, y = self.indices(placement)
        xs, ys = self.params.lattice
        good = expressible(placement, self.params)
        place = (turn * xs + x) * ys + y
        return {MANAGER: torch.where(good, item, -1), WORKER: torch.where(good, place, -1)}


def _placeable(maps: Maps | None) -> Tensor:
    """``[B, L]``."""
    assert maps is not None
    return maps.legal.flatten(2).any(2)
