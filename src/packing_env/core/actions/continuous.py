"""Action mode ``continuous``: a point in [-1, 1]^D, moved to the nearest legal placement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core.actions.base import Actions, LatticeMode, Masks
from packing_env.core.actions.spaces import Box, Key
from packing_env.core.lists import any_from
from packing_env.core.orientation import Placement
from packing_env.types import Catalogue, PackingParams, State

_TICKS = 256
"""Ticks per interval of an axis. Coordinates are rounded to whole ticks, so distances are whole
numbers, and equal on every device.
"""


class ContinuousMode(LatticeMode):
    """``action [B, D]`` in [-1, 1]: x, y, orientation and item; D = 3 if one item is visible.

    Each axis is divided into as many equal intervals as there are values. The action for a value is
    the centre of its interval. Each point of the box is moved to a legal placement, so every point
    is legal. The nearest item with a legal placement is chosen first, then the nearest such
    orientation of the item, then the nearest such lattice point. Ties go to the lower index.
    ``executed_action [B, D]`` reports the action of the placement that was carried out; it is zero
    if there was none.
    """

    def __init__(self, params: PackingParams, catalogue: Catalogue) -> None:
        super().__init__(params, catalogue)
        self.num_components = 3 if params.num_visible == 1 else 4
        box = Box((self.num_components,), -1.0, 1.0)
        self.action_spaces = {"action": box}
        self.mask_spaces = {}
        self.report_spaces = {"executed_action": box}

    def masks_of(self, legal: Bool[Tensor, "B L R Xs Ys"]) -> dict[Key, Bool[Tensor, "B A"]]:
        """Return no masks: every point of the box is legal."""
        return {}

    def random(self, masks: Masks, batch_size: Sequence[int]) -> dict[Key, Tensor]:
        """Draw actions uniformly in the box."""
        shape = (*batch_size, self.num_components)
        return {"action": 2 * torch.rand(shape, device=self.catalogue["peak"].device) - 1}

    def decode(self, actions: Actions, state: State) -> Placement:
        """Return the nearest legal placement; NaN (read as 0) and points outside are not valid."""
        # 1. Points outside the box are moved to its boundary and marked.
        action = actions["action"]
        inside = (action.abs() <= 1).all(-1)  # False for NaN
        point = action.nan_to_num(nan=0.0).clamp(-1, 1)
        # 2. The nearest item with a legal placement, then its nearest orientation with one. If
        #    nothing is legal, the placement is arbitrary.
        legal, step = self.legal_in(state), self.params.grid_step
        xs, ys = legal.shape[-2:]
        x, y, orientation_axis, *item = point.unbind(-1)
        rows = torch.arange(len(point), device=point.device)
        slot = _nearest(item[0], any_from(legal, 2)) if item else torch.zeros_like(rows)
        of_item = legal[rows, slot] if item else legal[:, 0]
        orientation_id = _nearest(orientation_axis, any_from(of_item, 2))
        plane = of_item[rows, orientation_id]
        # 3. The nearest legal lattice point of that plane.
        across, along = _gaps(x, xs)[:, :, None], _gaps(y, ys)[:, None, :]
        distance = across * across + along * along
        place = _lowest(distance.flatten(1), plane.flatten(1))
        x_id, y_id = torch.div(place, ys, rounding_mode="floor"), place % ys
        return Placement(slot, orientation_id, x_id * step, y_id * step, inside)

    def encode(self, placement: Placement, state: State | None = None) -> dict[Key, Tensor]:
        """Return ``action [B, D]``, the centre of the placement's intervals; NaN if impossible."""
        good = self.expressible(placement)
        return {"action": torch.where(good[..., None], self._centre(placement), torch.nan)}

    def _centre(self, placement: Placement) -> Float[Tensor, "*rows D"]:
        slot, orientation_id, x, y = self.indices(placement)
        items, orientations, xs, ys = self.shape
        axes = ((x, xs), (y, ys), (orientation_id, orientations), (slot, items))
        centres = [interval_centre(index, size) for index, size in axes[: self.num_components]]
        return torch.stack(centres, -1)

    def report(self, carried: Bool[Tensor, " B"], placement: Placement | None) -> dict[Key, Tensor]:
        """Return ``executed_action [B, D]``."""
        if placement is None:
            shape = (len(carried), self.num_components)
            return {"executed_action": carried.new_zeros(shape, dtype=torch.float32)}
        return {"executed_action": torch.where(carried[:, None], self._centre(placement), 0.0)}

    def project(self, placement: Placement, state: State) -> Placement:
        """Return the placement itself, because it is already the nearest one to the action."""
        return replace(placement, valid=torch.ones_like(placement.valid))


def interval_centre(index: Int[Tensor, "*rows"], size: int) -> Float[Tensor, "*rows"]:
    """Return the centre of one of ``size`` equal intervals of [-1, 1]."""
    return (kernels.divide((2 * index + 1).double(), size) - 1).float()


def _gaps(at: Float[Tensor, " B"], size: int) -> Int[Tensor, "B A"]:
    """Return the distances of a point of [-1, 1] to the centres of ``size`` intervals, in ticks."""
    # Points and centres of intervals are whole ticks, so distances are exact.
    tick = ((at.double() + 1) * (size * _TICKS / 2)).round().long() - _TICKS // 2
    return torch.arange(size, device=at.device) * _TICKS - tick[:, None]


def _nearest(at: Float[Tensor, " B"], legal: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
    """Return the legal interval whose centre is nearest to a point of [-1, 1]."""
    return _lowest(_gaps(at, legal.shape[1]).abs(), legal)


def _lowest(cost: Int[Tensor, "B A"], legal: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
    """Return the index of the legal entry of lowest cost; ties go to the lower index."""
    return torch.where(legal, cost, torch.iinfo(cost.dtype).max).argmin(1)
