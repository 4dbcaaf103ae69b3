"""The specification of an episode of cuboids that are kept as integer boxes.

The rules for one box are in :mod:`packing_env.reference.boxes`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from packing_env.reference import boxes
from packing_env.reference.boxes import Box
from packing_env.reference.episode import Episode, Placement, Rules
from packing_env.reference.maps import FLOAT


@dataclass
class BoxItem:
    """One cuboid with its sides per orientation.

    Attributes:
        sizes: Per orientation the rotated sides ``(w, h, d)`` in units; ``None`` for padding.
        volume: m^3.
    """

    sizes: list[tuple[int, int, int] | None]
    volume: float


class BoxEpisode(Episode):
    """One episode of cuboids as integer boxes.

    Boxes and container are measured in whole units. The heightmap is a raster with cells of
    ``units_per_cell`` units: a box raises every cell that it overlaps with positive area, so the
    raster is never lower than the boxes. It is only observed; no rule reads it.

    Args:
        grid: ``(X, Y)`` cells.
        items: The instance, in the order in which items are offered.
        rules: Constants of the task.
        unit: Metres.
    """

    def __init__(
        self, grid: tuple[int, int], items: list[BoxItem], rules: Rules, *, unit: float
    ) -> None:
        super().__init__(grid, items, rules, fallback=False)
        self.unit = unit
        self.units_per_cell = round(rules.cell / unit)
        x, y = (cells * self.units_per_cell for cells in grid)
        self.container = x, y, math.floor(rules.height / unit + 1e-6)
        self.packed_boxes: list[Box] = []

    def boxes(self) -> list[Box]:
        """Return the packed boxes in packing order, in units."""
        return self.packed_boxes

    def metres(self, units: int) -> np.float32:
        """Convert a height to metres, as the nearest float32."""
        return FLOAT(units * self.unit)

    def check(self, slot: int, orientation: int, x: int, y: int) -> Placement:
        """Examine the placement of the ``slot``-th visible item, lower corner at ``(x, y)``."""
        visible = self.visible()
        sizes = self.items[visible[slot]].sizes if 0 <= slot < len(visible) else []
        size = sizes[orientation] if 0 <= orientation < len(sizes) else None
        if size is None:
            return Placement(False, FLOAT(np.inf))
        box = boxes.drop(self.packed_boxes, (x, y), size)
        z = self.metres(box[2])
        rule = self.rules.stability
        if not boxes.is_legal(rule, self.packed_boxes, (x, y), size, self.container):
            return Placement(False, z)
        return Placement(
            legal=self.fits_unrotated(sizes[0], x, y),
            z=z,
            stable=boxes.is_stable(self.rules.stability_metric, self.packed_boxes, box),
            support_ratio=boxes.meet(self.packed_boxes, box).touch.support_ratio,
        )

    def fits_unrotated(self, size: tuple[int, int, int] | None, x: int, y: int) -> bool:
        """Test if the lower corner is allowed; with range "pct" the unrotated item must fit too."""
        if self.rules.candidate_range == "container" or size is None:
            return True
        return x <= self.container[0] - size[0] and y <= self.container[1] - size[1]

    def raise_heightmap(
        self, position: int, orientation: int, x: int, y: int, z: np.float32
    ) -> None:
        """Put the box down and raise the raster to it."""
        size = self.items[position].sizes[orientation]
        assert size is not None
        box = boxes.drop(self.packed_boxes, (x, y), size)
        steps = self.units_per_cell
        first, last = (box[0] // steps, box[1] // steps), (-(-box[3] // steps), -(-box[4] // steps))
        window = self.heightmap[first[0] : last[0], first[1] : last[1]]
        np.maximum(window, self.metres(box[5]), out=window)
        self.packed_boxes.append(box)
