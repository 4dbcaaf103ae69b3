"""The specification of the candidate generators, in plain loops.

Placements are ``(slot, orientation, x, y)``, where x and y are the lower corner of the item's
window in cells (whole steps for boxes). Proposals may be illegal or repeated. Cuboids are passed as
``sizes[slot][orientation] = (w, h, d)`` and boxes as ``(x0, y0, z0, x1, y1, z1)``, both in whole
steps. ``None`` is padding, for items and orientations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from packing_env.reference.boxes import Box, Size, drop
from packing_env.reference.maps import lid, lid_tolerance

Placement = tuple[int, int, int, int]
Index = tuple[int, ...]
Sizes = Sequence[Sequence[Size | None]]
Rectangle = tuple[int, int, int, int]
AnySize = TypeVar("AnySize")


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


# ------------------------------------------------------------------------- from the heightmap


def is_level(heightmap: np.ndarray, cell: tuple[int, int], axis: int, move: int) -> bool:
    """Test if a cell is as high as its neighbour; never true at a wall."""
    other = neighbour(cell, axis, move, heightmap.shape)
    return other is not None and bool(heightmap[other] == heightmap[cell])


def grow(
    heightmap: np.ndarray, cell: tuple[int, int], axes: tuple[int, int], both_ways: bool
) -> Rectangle:
    """Expand a rectangle over cells that are not higher, along one axis, then the other."""
    lower, upper = [*cell], [cell[0] + 1, cell[1] + 1]
    floor = heightmap[cell]

    def free() -> bool:
        window = heightmap[lower[0] : upper[0], lower[1] : upper[1]]
        return bool((window <= floor).all())

    for axis in axes:
        while upper[axis] < heightmap.shape[axis]:
            upper[axis] += 1
            if not free():
                upper[axis] -= 1
                break
        while both_ways and lower[axis] > 0:
            lower[axis] -= 1
            if not free():
                lower[axis] += 1
                break
    return lower[0], lower[1], upper[0], upper[1]


def heightmap_spaces(heightmap: np.ndarray, height: float) -> list[tuple[np.float32, Rectangle]]:
    """Return floor and rectangle ``(x0, y0, x1, y1)`` of all spaces, by floor, y0, x0, y1, x1.

    A lower corner is a cell whose height differs from both neighbours at smaller x and at smaller
    y; its spaces grow to greater x and y. A corner is a cell whose height differs from some
    neighbour in x and some neighbour in y; its spaces grow to both sides.
    """
    spaces = set()
    for x, y in np.ndindex(*heightmap.shape):
        cell, floor = (x, y), np.float32(heightmap[x, y])
        if not floor < np.float32(height - lid_tolerance(height)):
            continue
        before = [not is_level(heightmap, cell, axis, -1) for axis in (0, 1)]
        behind = [not is_level(heightmap, cell, axis, +1) for axis in (0, 1)]
        for axes in ((0, 1), (1, 0)):
            if all(before):
                spaces.add((floor, grow(heightmap, cell, axes, False)))
            if all(a or b for a, b in zip(before, behind, strict=True)):
                spaces.add((floor, grow(heightmap, cell, axes, True)))
    return sorted(spaces, key=lambda s: (s[0], s[1][1], s[1][0], s[1][3], s[1][2]))


def empty_maximal_spaces(
    heightmap: np.ndarray,
    height: float,
    items: Sequence[Sequence[tuple[int, int, np.float32] | None]],
    capacity: int,
) -> tuple[list[Placement], int]:
    """Propose, at the lower corner of every space, every item that fits into the space.

    Args:
        heightmap: ``[X, Y]`` metres.
        height: Height of the container, metres.
        items: ``(w, h, peak)`` per item and orientation.
        capacity: Largest number of spaces to use.

    Returns:
        The placements, and the number of spaces left out.
    """
    spaces = heightmap_spaces(heightmap, height)
    proposals = []
    for floor, (x0, y0, x1, y1) in spaces[:capacity]:
        for slot, orientation, (w, h, peak) in each(items):
            if x1 - x0 >= w and y1 - y0 >= h and np.float32(floor + peak) <= lid(height):
                proposals.append((slot, orientation, x0, y0))
    return proposals, max(0, len(spaces) - capacity)


# ----------------------------------------------------------------------- from packed boxes


def each(sizes: Sequence[Sequence[AnySize | None]]) -> Iterator[tuple[int, int, AnySize]]:
    """Yield every item in every orientation, without padding."""
    for slot, orientations in enumerate(sizes):
        for orientation, size in enumerate(orientations):
            if size is not None:
                yield slot, orientation, size


def moved(point: Size, axis: int, boxes: Sequence[Box]) -> Size:
    """Move a point to smaller coordinates until it meets the far side of a box or the wall."""
    others = [other for other in range(3) if other != axis]
    stops = [0]
    for box in boxes:
        holds = all(box[other] <= point[other] < box[other + 3] for other in others)
        if holds and box[axis + 3] <= point[axis]:
            stops.append(box[axis + 3])
    x, y, z = (max(stops) if a == axis else point[a] for a in range(3))
    return x, y, z


def extreme_points(
    boxes: Sequence[Box], sizes: Sizes, container: tuple[int, int]
) -> list[Placement]:
    """Propose all items at the origin and the six extreme points of each box, by z, y, x.

    Crainic, Perboli and Tadei, INFORMS J. Computing, 2008, but here each point is projected onto
    all other boxes, including those packed later.
    """
    points = [(0, 0, 0)]
    for x0, y0, z0, x1, y1, z1 in boxes:
        points += [moved((x1, y0, z0), axis, boxes) for axis in (1, 2)]
        points += [moved((x0, y1, z0), axis, boxes) for axis in (0, 2)]
        points += [moved((x0, y0, z1), axis, boxes) for axis in (0, 1)]
    points.sort(key=lambda p: (p[2], p[1], p[0]))
    return [
        (slot, orientation, x, y)
        for x, y, _ in points
        for slot, orientation, _ in each(sizes)
        if x < container[0] and y < container[1]
    ]


def events(boxes: Sequence[Box], level: int, axis: int, container: Size) -> list[tuple[int, bool]]:
    """Return the coordinates ``(at, is_end)`` along an axis where an item may begin or end."""
    length = container[axis]
    coordinates = {(0, False), (length, True)} if level == 0 else set()
    for box in boxes:
        low, high = box[axis], box[axis + 3]
        if box[5] == level:
            coordinates |= {(low, False), (high, True)}
        if box[2] == level:
            coordinates |= {(high, False), (low, True)} - {(length, False), (0, True)}
    return sorted(coordinates)


def event_points(
    boxes: Sequence[Box], sizes: Sizes, container: Size, capacity: int
) -> tuple[list[Placement], int]:
    """Propose items flush with an x-event and a y-event of a level, with no box in the way.

    Returns:
        The placements, and the number of pairs of events that exceed ``capacity``.
    """
    levels = sorted({0} | {box[5] for box in boxes if box[5] < container[2]})
    pairs = [
        (level, one, other)
        for level in levels
        for one in events(boxes, level, 0, container)
        for other in events(boxes, level, 1, container)
    ]
    proposals = []
    for level, (at_x, ends_x), (at_y, ends_y) in pairs[:capacity]:
        for slot, orientation, size in each(sizes):
            x, y = at_x - ends_x * size[0], at_y - ends_y * size[1]
            inside = 0 <= x <= container[0] - size[0] and 0 <= y <= container[1] - size[1]
            if inside and drop(boxes, (x, y), size)[2] <= level:
                proposals.append((slot, orientation, x, y))
    return proposals, max(0, len(pairs) - capacity)


# ------------------------------------------------------- from lists of empty maximal spaces


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


def split_space_corners(spaces: Sequence[Box], sizes: Sizes) -> list[Placement]:
    """Propose the four lower corners of every space that the item fits into."""
    return [
        (slot, orientation, x, y)
        for space in spaces
        for slot, orientation, size in each(sizes)
        if fits(space, size)
        for y in (space[1], space[4] - size[1])
        for x in (space[0], space[3] - size[0])
    ]


def split_space_drops(spaces: Sequence[Box], sizes: Sizes) -> list[Placement]:
    """Propose the lower corner of every space by z, y, x, even if the item does not fit."""
    ordered = sorted(spaces, key=lambda space: (space[2], space[1], space[0]))
    return [
        (slot, orientation, space[0], space[1])
        for space in ordered
        for slot, orientation, _ in each(sizes)
    ]
