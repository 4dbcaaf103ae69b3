"""The specification of episodes that are more than placements on a lattice of height maps.

:class:`ListedEpisode` confines an agent to a list of placements. :class:`BoxEpisode` packs cuboids
as integer boxes; what a box may do is in :mod:`packing_env.reference.boxes`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from packing_env.reference import boxes
from packing_env.reference.boxes import Box
from packing_env.reference.maps import FLOAT, Episode, Item, Placement, Rules

Place = tuple[int, int, int, int]
"""Slot of the item, orientation, x, y."""


class ListedEpisode(Episode):
    """An episode that remembers where items were put; a list may say where they can be.

    Attributes:
        places: Per packed item: position in the instance, orientation, x, y.
        listed: What may be chosen from, best first; an illegal action is projected to the first of
            it. ``None``: everything on the lattice.
        following: What may be chosen from after the decision.
        fallback: Whether the episode goes on as long as anything on the lattice is legal, listed or
            not.
    """

    def __init__(
        self, grid: tuple[int, int], items: list[Item], rules: Rules, *, fallback: bool = True
    ) -> None:
        super().__init__(grid, items, rules)
        self.places: list[Place] = []
        self.listed: list[Place] | None = None
        self.following: list[Place] | None = None
        self.fallback = fallback

    def any_legal(self, num_orientations: int) -> bool:
        """Whether a listed placement, or with ``fallback`` any, is legal."""
        if self.following is None or self.fallback:
            return super().any_legal(num_orientations)
        return any(self.check(*place).legal for place in self.following)

    def nearest(self, slot: int, orientation: int, x: int, y: int, num_orientations: int) -> Place:
        """What an illegal action is projected to: the first of the list."""
        if self.listed is None:
            return super().nearest(slot, orientation, x, y, num_orientations)
        return self.listed[0] if self.listed else (slot, orientation, x, y)

    def place(self, slot: int, orientation: int, x: int, y: int, found: Placement) -> None:
        """Put the item down and remember where."""
        self.places.append((self.queue[slot], orientation, x, y))
        super().place(slot, orientation, x, y, found)

    def boxes(self) -> list[Box]:
        """The packed items as boxes in cells; only where all items are cuboids of whole cells."""
        found = []
        for (position, orientation, x, y), rest in zip(self.places, self.rest, strict=True):
            item = self.items[position]
            top, bottom = item.top[orientation], item.bottom[orientation]
            assert top is not None
            assert bottom is not None
            w, h = (np.argwhere(np.isfinite(bottom)).max(0) + 1).tolist()
            z, d = (round(float(height) / self.rules.cell) for height in (rest, top.max()))
            found.append((x, y, z, x + w, y + h, z + d))
        return found


@dataclass
class BoxItem:
    """A cuboid.

    Attributes:
        sizes: Per orientation the rotated sides ``(w, h, d)`` in units; ``None`` for padding.
        volume: m^3.
    """

    sizes: list[tuple[int, int, int] | None]
    volume: float


class BoxEpisode(ListedEpisode):
    """One episode of cuboids as integer boxes.

    Lengths of boxes and of the container are whole units. The heightmap is a raster of cells of
    ``units_per_cell`` units: a box raises every cell that it touches with positive area, so the
    raster is never lower than the boxes. It decides nothing.

    Args:
        grid: ``(X, Y)`` cells.
        items: The instance, in the order in which items are offered.
        rules: Constants of the task.
        unit: Metres.
    """

    items: list[BoxItem]

    def __init__(
        self, grid: tuple[int, int], items: list[BoxItem], rules: Rules, *, unit: float
    ) -> None:
        super().__init__(grid, items, rules, fallback=False)  # type: ignore[arg-type]
        self.unit = unit
        self.units_per_cell = round(rules.cell / unit)
        self.container = (
            grid[0] * self.units_per_cell,
            grid[1] * self.units_per_cell,
            math.floor(rules.height / unit + 1e-6),
        )
        self.packed_boxes: list[Box] = []

    def boxes(self) -> list[Box]:
        """The packed boxes in packing order, units."""
        return self.packed_boxes

    def metres(self, units: int) -> np.float32:
        """A height in metres, as the nearest float32."""
        return FLOAT(units * self.unit)

    def check(self, slot: int, orientation: int, x: int, y: int) -> Placement:
        """The placement of the ``slot``-th visible item with its lower corner at ``(x, y)``."""
        if not 0 <= slot < len(self.visible()):
            return Placement(False, FLOAT(np.inf))
        sizes = self.items[self.visible()[slot]].sizes
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
            support_ratio=boxes.support_ratio(self.packed_boxes, box),
        )

    def fits_unrotated(self, size: tuple[int, int, int] | None, x: int, y: int) -> bool:
        """Whether the lower corner may be there: with range "pct", the unrotated item would fit."""
        if self.rules.candidate_range == "container" or size is None:
            return True
        return x <= self.container[0] - size[0] and y <= self.container[1] - size[1]

    def place(self, slot: int, orientation: int, x: int, y: int, found: Placement) -> None:
        """Put the box down, raise the raster under it, and take the item off the queue."""
        position = self.queue.pop(slot)
        size = self.items[position].sizes[orientation]
        assert size is not None
        box = boxes.drop(self.packed_boxes, (x, y), size)
        steps = self.units_per_cell
        for i, j in np.ndindex(*self.heightmap.shape):
            cell = (i * steps, j * steps, 0, (i + 1) * steps, (j + 1) * steps, 1)
            if boxes.base_overlap(box, cell):
                self.heightmap[i, j] = max(self.heightmap[i, j], self.metres(box[5]))
        self.packed_boxes.append(box)
        self.places.append((position, orientation, x, y))
        self.packed.append(position)
        self.rest.append(found.z)
        self.stable.append(found.stable)
        self.support.append(found.support_ratio)
