"""Action mode ``continuous``: a point of a box, snapped to the nearest legal placement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from tensordict import NestedKey
from torch import Tensor
from torchrl.data import Bounded, TensorSpec

from packing_env.core.feasibility import Maps
from packing_env.core.orientation import Placement
from packing_env.envs.action_modes.base import LatticeMode, expressible
from packing_env.types import State

_TICKS = 256
"""A coordinate is rounded to this share of a lattice step, so that distances are whole numbers
and equal on every device."""


class ContinuousMode(LatticeMode):
    """``action [B, D]`` in [-1, 1]: x, y, orientation, and with several visible items the item.

    Each axis is cut into as many equal intervals as it has values; a value's own action is the
    centre of its interval. What a point of the box stands for is the nearest legal placement: the
    nearest item that has one, of that the nearest orientation that has one, of that the nearest
    lattice point in the plane; ties go to the lower index. So every point of the box is legal. What
    was carried out is reported as its own action under ``executed_action [B, D]``, zeros where
    nothing was (an illegal action, a finished row, the start of an episode).
    """

    mask_keys = ()
    report_keys = ("executed_action",)

    @property
    def num_components(self) -> int:
        """``D``: 3, or 4 with several visible items."""
        return 3 if self.params.num_visible == 1 else 4

    def _box(self, batch_size: torch.Size, device: torch.device) -> TensorSpec:
        shape = (*batch_size, self.num_components)
        return Bounded(-1.0, 1.0, shape=shape, dtype=torch.float32, device=device)

    def action_specs(
        self, batch_size: torch.Size, device: torch.device
    ) -> dict[NestedKey, TensorSpec]:
        """``action [B, D]``."""
        return {"action": self._box(batch_size, device)}

    def mask_specs(
        self, batch_size: torch.Size, device: torch.device
    ) -> dict[NestedKey, TensorSpec]:
        """None: every point of the box is legal."""
        return {}

    def masks(self, state: State, maps: Maps | None) -> dict[NestedKey, Tensor]:
        """None."""
        return {}

    def report_specs(
        self, batch_size: torch.Size, device: torch.device
    ) -> dict[NestedKey, TensorSpec]:
        """``executed_action [B, D]``."""
        return {"executed_action": self._box(batch_size, device)}

    def random(
        self, masks: Mapping[NestedKey, Tensor], batch_size: torch.Size
    ) -> dict[NestedKey, Tensor]:
        """Uniform in the box."""
        shape = (*batch_size, self.num_components)
        return {"action": 2 * torch.rand(shape, device=self.catalogue["peak"].device) - 1}

    def place(
        self, actions: Mapping[NestedKey, Tensor], state: State, maps: Callable[[], Maps | None]
    ) -> Placement:
        """The nearest legal placement; NaN (as 0) and what is out of the box are not valid."""
        action = actions["action"]
        found = maps()
        assert found is not None
        inside = (action.abs() <= 1).all(-1)  # False for NaN
        snapped = self._snap(action.nan_to_num(nan=0.0).clamp(-1, 1), found.legal)
        return replace(snapped, valid=inside)

    def _snap(self, action: Float[Tensor, "B D"], legal: Bool[Tensor, "B L R Xs Ys"]) -> Placement:
        """The nearest legal placement; any where nothing is legal."""
        xs, ys = legal.shape[-2:]
        x, y, turn, *item = action.unbind(-1)
        rows = torch.arange(len(action), device=action.device)
        asked = item[0] if item else torch.zeros_like(x)
        slot = _nearest(asked, legal.flatten(2).any(2))
        of_item = legal[rows, slot]
        orientation = _nearest(turn, of_item.flatten(2).any(2))
        plane = of_item[rows, orientation]
        across, along = _gaps(x, xs)[:, :, None], _gaps(y, ys)[:, None, :]
        distance = across * across + along * along
        point = _lowest(distance.flatten(1), plane.flatten(1))
        return self.at(slot, orientation, torch.div(point, ys, rounding_mode="floor"), point % ys)

    def encode(self, placement: Placement, state: State | None = None) -> dict[NestedKey, Tensor]:
        """``action [B, D]``, the centre of the placement's intervals; NaN where it has none."""
        good = expressible(placement, self.params)
        return {"action": torch.where(good[..., None], self._centre(placement), torch.nan)}

    def _centre(self, placement: Placement) -> Float[Tensor, "B D"]:
        slot, turn, x, y = self.indices(placement)
        items, turns, xs, ys = self.shape
        axes = [(x, xs), (y, ys), (turn, turns), (slot, items)][: self.num_components]
        return torch.stack([((2 * i + 1).double() / n - 1).float() for i, n in axes], -1)

    def report(self, carried: Tensor, placement: Placement | None) -> dict[NestedKey, Tensor]:
        """``executed_action [B, D]``."""
        if placement is None:
            shape = (len(carried), self.num_components)
            nowhere = torch.zeros(shape, dtype=torch.float32, device=carried.device)
            return {"executed_action": nowhere}
        centre = self._centre(placement)
        return {"executed_action": torch.where(carried[:, None], centre, 0.0)}

    def project(self, placement: Placement, state: State, maps: Maps | None) -> Placement:
        """It is the nearest to the action inside the box already."""
        return replace(placement, valid=torch.ones_like(placement.valid))


def _gaps(asked: Float[Tensor, " B"], size: int) -> Int[Tensor, "B A"]:
    """From a point of [-1, 1] to the centres of ``size`` intervals, in ticks."""
    at = ((asked.double() + 1) * (size * _TICKS / 2)).round().long() - _TICKS // 2
    return torch.arange(size, device=asked.device) * _TICKS - at[:, None]


def _nearest(asked: Float[Tensor, " B"], legal: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
    """The legal interval whose centre is nearest to a point of [-1, 1]."""
    return _lowest(_gaps(asked, legal.shape[1]).abs(), legal)


def _lowest(cost: Int[Tensor, "B A"], legal: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
    """Index of the legal entry of lowest cost, ties to the lower index."""
    return torch.where(legal, cost, torch.iinfo(cost.dtype).max).argmin(1)
