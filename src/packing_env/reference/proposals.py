"""The specification of the candidate generators, in plain loops.

Placements are ``(slot, orientation, x, y)``, where x and y are the lower corner of the item's
window in cells (whole steps for boxes). Proposals may be illegal or repeated. Cuboids are passed as
``sizes[slot][orientation] = (w, h, d)`` and boxes as ``(x0, y0, z0, x1, y1, z1)``, both in whole
steps. ``None`` is padding, for items and orientations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from packing_env.reference.boxes import Box, Size

Placement = tuple[int, int, int, int]
Index = tuple[int, ...]
Sizes = Sequence[Sequence[Size | None]]


# ------------------------------------------------------------ from maps of all placements


def placements(places: Iterable[Index], step: int) -> list[Placement]:
    """Convert indices of maps ``[L, R, Xs, Ys]`` to placements."""
    return [(slot, orientation, i * step, j * step) for slot, orientation, i, j in places]


def all_placements(shape: Index, step: int = 1) -> list[Placement]:
    """Return every placement of the lattice."""
    return placements(np.ndindex(*shape), step)


def lowest_first(places: list[Index], z: np.ndarray, step: int) -> list[Placement]:
    """Sort placements by rest height; ties keep the order of the lattice."""
    return placements(sorted(places, key=lambda place: float(z[place])), step)


def neighbour(place: Index, axis: int, move: int, shape: Index) -> Index | None:
    """Return the index after one lattice step along an axis; None if it is outside."""
    moved = list(place)
    moved[axis] += move
    return tuple(moved) if 0 <= moved[axis] < shape[axis] else None


def corner_points(z: np.ndarray, legal: np.ndarray, step: int = 1) -> list[Placement]:
    """Return legal placements that can slide neither to smaller x nor to smaller y, lowest first.

    After a step in either direction they would leave the container or rest higher.
    """
    proposals = []
    for place in np.ndindex(*z.shape):
        before = [neighbour(place, axis, -1, z.shape) for axis in (2, 3)]
        if legal[place] and all(other is None or z[other] > z[place] for other in before):
            proposals.append(place)
    return lowest_first(proposals, z, step)


def level_set_vertices(
    z: np.ndarray, legal: np.ndarray, cell: float, step: int = 1
) -> list[Placement]:
    """Return legal placements where the level changes both along x and along y, lowest first.

    The level is ``floor(z / cell + 1e-6)``. It must differ from the level of at least one neighbour
    in x and of at least one neighbour in y; illegal and outside placements differ from every level.
    """

    def level(place: Index | None) -> int:
        if place is None or not legal[place]:
            return -1
        return int(np.floor(np.float64(z[place]) / cell + 1e-6))

    proposals = []
    for place in np.ndindex(*z.shape):
        differs = [
            any(level(neighbour(place, axis, move, z.shape)) != level(place) for move in (-1, 1))
            for axis in (2, 3)
        ]
        if legal[place] and all(differs):
            proposals.append(place)
    return lowest_first(proposals, z, step)


# ------------------------------------------------------- from lists of empty maximal spaces


def each(sizes: Sizes) -> Iterator[tuple[int, int, Size]]:
    """Yield every item in every orientation, without padding."""
    for slot, orientations in enumerate(sizes):
        for orientation, size in enumerate(orientations):
            if size is not None:
                yield slot, orientation, size


def fits(space: Box, size: Size) -> bool:
    """Test if a cuboid fits into a space."""
    return all(space[a + 3] - space[a] >= size[a] for a in range(3))


def split_spaces(spaces: Sequence[Box], sizes: Sizes) -> list[Placement]:
    """Propose the lower corner of every space that the item fits into."""
    return [
        (slot, orientation, space[0], space[1])
        for space in spaces
        for slot, orientation, size in each(sizes)
        if fits(space, size)
    ]


def split_space_drops(spaces: Sequence[Box], sizes: Sizes) -> list[Placement]:
    """Propose the lower corner of every space, sorted by z, y, x, even if the item does not fit."""
    ordered = sorted(spaces, key=lambda space: (space[2], space[1], space[0]))
    return [
        (slot, orientation, space[0], space[1])
        for space in ordered
        for slot, orientation, _ in each(sizes)
    ]
