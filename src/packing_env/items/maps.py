"""The heightmaps of one item in one orientation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from packing_env.items.rotations import QUARTER_TURN


@dataclass(frozen=True, eq=False)
class ItemMaps:
    """A solid in one orientation, as two surfaces on the container's grid.

    Attributes:
        top: [U, V] float32 upper surface, metres above the lowest point; -inf outside.
        bottom: [U, V] float32 lower surface, minimum 0; +inf outside.
        rotation: [3, 3] float64 from the source frame.
        offset: [3] float64 metres: p_map = rotation @ p_source + offset. The origin of the map
            frame is at the lower corner of the window and at the height of the solid's lowest
            point.
        cell: metres.
        voxels: [U, V, W] the cubes of side `cell` that the solid meets; None if not computed.
    """

    top: Float[Tensor, "U V"]
    bottom: Float[Tensor, "U V"]
    rotation: Float[Tensor, "3 3"]
    offset: Float[Tensor, " 3"]
    cell: float
    voxels: Bool[Tensor, "U V W"] | None = None

    @classmethod
    def of_voxels(
        cls,
        voxels: Bool[Tensor, "U V W"],
        low: Float[Tensor, " 3"],
        rotation: Float[Tensor, "3 3"],
        cell: float,
    ) -> ItemMaps:
        """Return the surfaces of voxels whose lower corner is at `low` of the turned solid."""
        # The highest and the lowest voxel of each column.
        height = torch.arange(1, voxels.shape[2] + 1, dtype=torch.float64, device=voxels.device)
        top = torch.where(voxels, height, -torch.inf).amax(2) * cell
        bottom = torch.where(voxels, height - 1, torch.inf).amin(2) * cell
        return cls(top.float(), bottom.float(), rotation.to(low.dtype), -low, cell, voxels)

    @property
    def footprint(self) -> Bool[Tensor, "U V"]:
        """Cells that the solid overlaps."""
        return torch.isfinite(self.bottom)

    @property
    def size(self) -> tuple[int, int]:
        """Cells of the window along x and y."""
        return self.top.shape[0], self.top.shape[1]

    @property
    def peak(self) -> float:
        """Highest point, metres (a float32 value)."""
        return float(self.top.max())

    @property
    def column_volume(self) -> float:
        """m^3 between the two maps; at least the volume of the solid."""
        column = torch.where(self.footprint, self.top.double() - self.bottom.double(), 0.0)
        return float(column.sum()) * self.cell**2

    def rotated(self, quarter_turns: int) -> ItemMaps:
        """Return the maps, without voxels, after quarter turns (+90 degrees each) about z."""
        rotation, offset = self.rotation, self.offset
        turn = offset.new_tensor(QUARTER_TURN)
        sides = self.size[::-1] if quarter_turns % 4 else self.size
        for k in range(quarter_turns % 4):
            rotation, offset = turn @ rotation, turn @ offset
            offset = offset + offset.new_tensor([sides[k % 2] * self.cell, 0.0, 0.0])
        top, bottom = (torch.rot90(m, quarter_turns) for m in (self.top, self.bottom))
        return ItemMaps(top, bottom, rotation + 0.0, offset, self.cell)
