"""The ground of geometry ``"boxes"``: a list of integer boxes, and their raster as heightmap."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core.cuboids import boxes
from packing_env.core.ground import Ground, Landing, Resting, unrotated_fits
from packing_env.core.orientation import Placement
from packing_env.types import State


class BoxGround(Ground):
    """The rules of geometry ``"boxes"``; there is no map of all placements."""

    description = "integer boxes"

    def legal_on_floor(self) -> Bool[Tensor, "M R"]:
        """Return which orientations are below the lid; on the floor every rule holds."""
        return self.catalogue["orientation_mask"] & (self.catalogue["peak"] <= self.params.lid)

    def judge(
        self,
        state: State,
        item_id: Int[Tensor, "B K"],
        place: Placement,
        there: Bool[Tensor, "B K"],
    ) -> tuple[Float[Tensor, "B K"], Bool[Tensor, "B K"]]:
        """Return rest height (metres) and legality of placements; padding is not ``there``."""
        # 1. Padding is a box without sides, which is never legal.
        there = there & place.valid
        size = torch.where(
            there[..., None], self.catalogue["cuboid"][item_id, place.orientation], 0
        )
        lower = torch.stack((place.x, place.y), -1).int()
        z, legal = boxes.judge(state["boxes"], lower, size, self.params)
        # 2. The range of lower corners.
        if self.params.candidate_range == "pct":
            unrotated = self.catalogue["size"][item_id, 0]
            there = there & unrotated_fits(place.x, place.y, unrotated, self.params)
        return boxes.metres(z, self.params), legal & there

    def at_rest(self, state: State, item_id: Int[Tensor, " B"], placement: Placement) -> Resting:
        """Return rest height and support of one legal placement per row."""
        # Use the functions for lists, with one placement per row.
        listed, packed = placement.listed(), state["boxes"]
        lower = torch.stack((listed.x, listed.y), -1).int()
        size = self.catalogue["cuboid"][item_id[:, None], listed.orientation]
        z = kernels.box_drop(packed, lower, size)
        stable = kernels.box_stable(packed, lower, size, z, self.params.stability_metric)
        ratio = boxes.support_ratio(packed, lower, size, z)
        return Resting(boxes.metres(z, self.params)[:, 0], stable[:, 0], ratio[:, 0])

    def commit(self, state: State, item: Landing) -> State:
        """Return the raised raster; `core.transition` adds the box to the list of boxes."""
        box = boxes.box_at(item, self.catalogue, self.params)
        raised = boxes.raise_heightmap(state["heightmap"], box, item.carried, self.params)
        return {"heightmap": raised}
