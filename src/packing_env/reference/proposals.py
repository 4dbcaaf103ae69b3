"""The specification of the candidate generators, in plain loops.

Placements are ``(slot, orientation, x, y)``, x and y the lower corner of the item's window in
cells (whole steps for boxes). What they propose may be illegal or repeated. Cuboids are given as
``sizes[slot][orientation] = (w, h, d)``, boxes as ``(x0, y0, z0, x1, y1, z1)``, both in whole
steps; ``None`` stands for an orientation or an item that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

Placement = tuple[int, int, int, int]
Size = tuple[int, int, int]
Box = tuple[int, int, int, int, int, int]
Sizes = Sequence[Sequence[Size | None]]
Rectangle = tuple[int, int, int, int]


# ------------------------------------------------------------ from the maps of all placements


def lattice(shape: tuple[int, ...], step: int = 1) -> Iterator[tuple[tuple[int, ...], Placement]]:
    """Every index into maps ``[L, R, Xs, Ys]`` in order, and the placement it stands for."""
    for place in np.ndindex(*shape):
        slot, orientation, i, j = place
        yield place, (slot, orientation, i * step, j * step)


def all_placements(shape: tuple[int, ...], step: int = 1) -> list[Placement]:
    """Every place of the lattice."""
    return [placement for _, placement in lattice(shape, step)]


def lowest_first(found: list[tuple[tuple[int, ...], Placement]], z: np.ndarray) -> list[Placement]:
    """By rest height, ties in the order of the lattice."""
    return [placement for _, placement in sorted(found, key=lambda one: float(z[one[0]]))]


def neighbour(place: tuple[int, ...], axis: int, move: int, shape: tuple[int, ...]) -> tuple | None:
    """The place one lattice step along axis 2 (x) or 3 (y); None outside the lattice."""
    moved = list(place)
    moved[axis] += move
    return tuple(moved) if 0 <= moved[axis] < shape[axis] else None


def corner_points(z: np.ndarray, legal: np.ndarray, step: int = 1) -> list[Placement]:
    """Legal placements that can slide neither to smaller x nor to smaller y, lowest first.

    One step that way they would leave the container or rest higher.
    """
    found = []
    for place, placement in lattice(z.shape, step):
        before = [neighbour(place, axis, -1, z.shape) for axis in (2, 3)]
        stuck = [other is None or z[other] > z[place] for other in before]
        if legal[place] and all(stuck):
            found.append((place, placement))
    return lowest_first(found, z)


def level_set_vertices(
    z: np.ndarray, legal: np.ndarray, cell: float, step: int = 1
) -> list[Placement]:
    """Legal placements whose level differs from one neighbour's in x and one's in y, lowest first.

    The level is ``floor(z / cell + 1e-6)``; what is illegal or outside differs from all levels.
    """

    def level(place: tuple | None) -> int:
        if place is None or not legal[place]:
            return -1
        return int(np.floor(np.float64(z[place]) / cell + 1e-6))

    found = []
    for place, placement in lattice(z.shape, step):
        differs = [
            any(level(neighbour(place, axis, move, z.shape)) != level(place) for move in (-1, 1))
            for axis in (2, 3)
        ]
        if legal[place] and all(differs):
            found.append((place, placement))
    return lowest_first(found, z)


# ------------------------------------------------------------------------- from the heightmap


def is_level(heightmap: np.ndarray, cell: tuple[int, int], axis: int, move: int) -> bool:
    """Whether a cell is as high as its neighbour; a wall is another height."""
    other = [*cell]
    other[axis] += move
    inside = 0 <= other[axis] < heightmap.shape[axis]
    return bool(inside and heightmap[tuple(other)] == heightmap[cell])


def grow(heightmap: np.ndarray, cell: tuple[int, int], axes: tuple, both_ways: bool) -> Rectangle:
    """The rectangle that grows from a cell over cells no higher, along one axis, then the other."""
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
    return (*lower, *upper)


def heightmap_spaces(heightmap: np.ndarray, height: float) -> list[tuple[np.float32, Rectangle]]:
    """Floor and rectangle ``(x0, y0, x1, y1)`` of every space, by floor, y0, x0, y1, x1.

    A lower corner, level with neither neighbour before it, grows to greater x and y. Any corner,
    not level with some neighbour in x and some in y, grows to both sides.
    """
    found = set()
    for cell in np.ndindex(*heightmap.shape):
        if not heightmap[cell] < np.float32(height - 1e-6):
            continue
        before = [not is_level(heightmap, cell, axis, -1) for axis in (0, 1)]
        behind = [not is_level(heightmap, cell, axis, +1) for axis in (0, 1)]
        for axes in ((0, 1), (1, 0)):
            if all(before):
                found.add((heightmap[cell], grow(heightmap, cell, axes, False)))
            if all(a or b for a, b in zip(before, behind, strict=True)):
                found.add((heightmap[cell], grow(heightmap, cell, axes, True)))
    return sorted(found, key=lambda s: (s[0], s[1][1], s[1][0], s[1][3], s[1][2]))


def empty_maximal_spaces(
    heightmap: np.ndarray,
    height: float,
    items: Sequence[Sequence[tuple[int, int, np.float32] | None]],
    capacity: int,
) -> tuple[list[Placement], int]:
    """Every item ``(w, h, peak)`` that fits at the lower corner of every space; spaces left out."""
    lid = np.float32(height + 1e-6)
    spaces = heightmap_spaces(heightmap, height)
    found = []
    for floor, (x0, y0, x1, y1) in spaces[:capacity]:
        for slot, orientation, (w, h, peak) in each(items):
            if x1 - x0 >= w and y1 - y0 >= h and np.float32(floor + peak) <= lid:
                found.append((slot, orientation, x0, y0))
    return found, max(0, len(spaces) - capacity)


# ----------------------------------------------------------------------- from the packed boxes


def each(sizes: Sequence[Sequence]) -> Iterator[tuple[int, int, tuple]]:
    """Every item in every orientation that is there."""
    for slot, turned in enumerate(sizes):
        for orientation, size in enumerate(turned):
            if size is not None:
                yield slot, orientation, size


def moved(point: tuple[int, int, int], axis: int, boxes: Sequence[Box]) -> tuple[int, int, int]:
    """A point moved to smaller coordinates until it meets the far side of a box, or the wall."""
    others = [other for other in range(3) if other != axis]
    stops = [0]
    for box in boxes:
        holds = all(box[other] <= point[other] < box[other + 3] for other in others)
        if holds and box[axis + 3] <= point[axis]:
            stops.append(box[axis + 3])
    return tuple(max(stops) if a == axis else point[a] for a in range(3))


def extreme_points(
    boxes: Sequence[Box], sizes: Sizes, container: tuple[int, int]
) -> list[Placement]:
    """All items at the origin and the six extreme points of each box, by z, y, x.

    Crainic, Perboli and Tadei, INFORMS J. Computing, 2008; each box sees all others.
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


def rest_height(boxes: Sequence[Box], x: int, y: int, size: Size) -> int:
    """The highest top under a base, 0 on the floor."""
    under = [
        box[5]
        for box in boxes
        if box[0] < x + size[0] and x < box[3] and box[1] < y + size[1] and y < box[4]
    ]
    return max(under, default=0)


def events(boxes: Sequence[Box], level: int, axis: int, container: Size) -> list[tuple[int, bool]]:
    """Coordinates ``(at, is_end)`` along an axis where an item may begin or end at a level."""
    length = container[axis]
    found = {(0, False), (length, True)} if level == 0 else set()
    for box in boxes:
        low, high = box[axis], box[axis + 3]
        if box[5] == level:
            found |= {(low, False), (high, True)}
        if box[2] == level:
            found |= {(high, False), (low, True)} - {(length, False), (0, True)}
    return sorted(found)


def event_points(
    boxes: Sequence[Box], sizes: Sizes, container: Size, capacity: int
) -> tuple[list[Placement], int]:
    """Items flush with an x-event and a y-event of a level, and free above it; pairs left out."""
    levels = sorted({0} | {box[5] for box in boxes if box[5] < container[2]})
    pairs = [
        (level, one, other)
        for level in levels
        for one in events(boxes, level, 0, container)
        for other in events(boxes, level, 1, container)
    ]
    found = []
    for level, (at_x, ends_x), (at_y, ends_y) in pairs[:capacity]:
        for slot, orientation, size in each(sizes):
            x, y = at_x - ends_x * size[0], at_y - ends_y * size[1]
            inside = 0 <= x <= container[0] - size[0] and 0 <= y <= container[1] - size[1]
            if inside and rest_height(boxes, x, y, size) <= level:
                found.append((slot, orientation, x, y))
    return found, max(0, len(pairs) - capacity)


# ------------------------------------------------------- from the list of empty maximal spaces


def fits(space: Box, size: Size) -> bool:
    """Whether a cuboid fits into a space."""
    return all(space[a + 3] - space[a] >= size[a] for a in range(3))


def split_spaces(spaces: Sequence[Box], sizes: Sizes) -> list[Placement]:
    """The lower corner of every space that the item fits into."""
    return [
        (slot, orientation, space[0], space[1])
        for space in spaces
        for slot, orientation, size in each(sizes)
        if fits(space, size)
    ]


def split_space_corners(spaces: Sequence[Box], sizes: Sizes) -> list[Placement]:
    """The four lower corners of every space that the item fits into."""
    return [
        (slot, orientation, x, y)
        for space in spaces
        for slot, orientation, size in each(sizes)
        if fits(space, size)
        for y in (space[1], space[4] - size[1])
        for x in (space[0], space[3] - size[0])
    ]


def split_space_drops(spaces: Sequence[Box], sizes: Sizes) -> list[Placement]:
    """The lower corner of every space by z, y, x, whether or not the item fits into it."""
    ordered = sorted(spaces, key=lambda space: (space[2], space[1], space[0]))
    return [
        (slot, orientation, space[0], space[1])
        for space in ordered
        for slot, orientation, _ in each(sizes)
    ]
