"""The specification of an episode in a powder bed: parts as voxels that may lie anywhere.

The rules for one part are in :mod:`packing_env.reference.voxels`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from packing_env.reference import voxels
from packing_env.reference.episode import Episode, Place, Placement, Rules
from packing_env.reference.maps import FLOAT


@dataclass
class VoxelItem:
    """One part.

    Attributes:
        parts: Per orientation ``[U, V, W]`` bool; ``None`` for padding.
        volume: m^3.
    """

    parts: list[np.ndarray | None]
    volume: float


class VoxelEpisode(Episode):
    """One episode of parts as voxels; a place has a fifth number, the layer.

    Nothing falls, and the powder holds every part, so every part is stable. The heightmap holds the
    upper side of the highest taken voxel of each column.

    Args:
        grid: ``(X, Y)`` cells.
        items: The instance, in the order in which items are offered.
        rules: Constants of the task.
        layers: Cells along the height of the container.
        removable: Whether a part needs a straight way out.
        fallback: See :class:`Episode`.
    """

    def __init__(
        self,
        grid: tuple[int, int],
        items: list[VoxelItem],
        rules: Rules,
        *,
        layers: int,
        removable: bool,
        fallback: bool = True,
    ) -> None:
        super().__init__(grid, items, rules, fallback=fallback)
        self.removable = removable
        self.occupied = np.zeros((*grid, layers), bool)

    def part(self, slot: int, orientation: int) -> np.ndarray | None:
        """Return the voxels of a visible item; ``None`` if it or the orientation is missing."""
        visible = self.visible()
        parts = self.items[visible[slot]].parts if 0 <= slot < len(visible) else []
        return parts[orientation] if 0 <= orientation < len(parts) else None

    def check(self, slot: int, orientation: int, x: int, y: int, layer: int = 0) -> Placement:
        """Examine the placement of a visible item with its lower corner at ``(x, y, layer)``."""
        part, place = self.part(slot, orientation), (x, y, layer)
        if part is None or not voxels.is_legal(self.occupied, part, place, self.removable):
            return Placement(False, FLOAT(np.inf))
        return Placement(
            legal=True,
            z=FLOAT(layer * self.rules.cell),
            stable=True,
            support_ratio=voxels.support_ratio(self.occupied, part, place),
        )

    def lattice(self, num_orientations: int) -> Iterator[Place]:
        """Yield all placements; the first visible item comes first."""
        sides = (range(length) for length in self.occupied.shape)
        return product(range(self.rules.num_visible), range(num_orientations), *sides)

    def raise_heightmap(
        self, position: int, orientation: int, x: int, y: int, z: np.float32
    ) -> None:
        """Add the part's voxels, and raise the heightmap to their upper sides."""
        part = self.items[position].parts[orientation]
        assert part is not None
        layer = round(float(z) / self.rules.cell)
        for i, j, k in voxels.solid(part, (x, y, layer)):
            self.occupied[i, j, k] = True
            top = FLOAT((k + 1) * self.rules.cell)
            self.heightmap[i, j] = max(FLOAT(self.heightmap[i, j]), top)

    def closest(self, num_orientations: int, count: int) -> list[Place]:
        """List the best placements of each item in each orientation, the best of all first.

        Placements are sorted by layer, then by contact (largest first), then as in the lattice.
        """
        ranked: dict[Place, list[tuple[int, int, int, Place]]] = {}
        for order, place in enumerate(self.lattice(num_orientations)):
            slot, orientation, x, y, layer = place
            part = self.part(slot, orientation)
            if part is not None and self.check(slot, orientation, x, y, layer).legal:
                contact = voxels.contact(self.occupied, part, (x, y, layer))
                ranked.setdefault((slot, orientation), [])
                ranked[slot, orientation].append((layer, -contact, order, place))
        each = -(-count // (self.rules.num_visible * num_orientations))
        best = sorted(entry for plane in ranked.values() for entry in sorted(plane)[:each])
        return [place for *_, place in best[:count]]
