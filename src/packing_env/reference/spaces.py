"""The specification of the list of empty maximal spaces, in plain loops.

A space is a box ``(x0, y0, z0, x1, y1, z1)`` of whole steps that overlaps no packed cuboid. The
list starts with the whole container. A new cuboid changes the list in two steps:

1. Every space that overlaps the cuboid with positive volume is removed, in list order. Up to five
   smaller spaces are appended for it, the remainders at smaller x than the cuboid, at greater x, at
   smaller y, at greater y, and above it, in this order. The remainder below it is never appended.
   Neither is a remainder with a side shorter than the smallest side of any item.
2. Then every space that lies inside another space of the list is removed. Two equal spaces would
   both be removed, but this does not occur: a list that starts with the container never contains
   equal spaces.

So unchanged spaces come first, in their old order, and new ones come last. The program of Zhao et
al., ICLR 2022 (PCT), keeps its list this way, and its heuristics break ties by this order.

Remainders below a cuboid are not kept, so every space reaches up to the lid, and there is no space
under an overhang. A cuboid that is dropped where it fits into a space comes to rest on the space's
floor or lower. A cuboid that does not fit and is dropped at the corner of a space may come to rest
at any height.
"""

from __future__ import annotations

from packing_env.reference.boxes import Box, Size

Space = Box


def initial(sides: Size) -> list[Space]:
    """Return the list of an empty container."""
    return [(0, 0, 0, *sides)]


def overlaps(one: Space, other: Space) -> bool:
    """Test if two boxes overlap with positive volume."""
    return all(max(one[a], other[a]) < min(one[a + 3], other[a + 3]) for a in range(3))


def within(inner: Space, outer: Space) -> bool:
    """Test if ``inner`` lies inside ``outer``."""
    return all(inner[a] >= outer[a] and inner[a + 3] <= outer[a + 3] for a in range(3))


def remainders(space: Space, box: Space) -> list[Space]:
    """Return the remainders of a space that the box overlaps, including flat ones."""
    x0, y0, z0, x1, y1, z1 = space
    return [
        (x0, y0, z0, max(box[0], x0), y1, z1),
        (min(box[3], x1), y0, z0, x1, y1, z1),
        (x0, y0, z0, x1, max(box[1], y0), z1),
        (x0, min(box[4], y1), z0, x1, y1, z1),
        (x0, y0, min(box[5], z1), x1, y1, z1),
    ]


def split(spaces: list[Space], box: Space, smallest: int) -> list[Space]:
    """Return the list after ``box`` was placed; ``smallest`` is the shortest side of any item."""
    pieces = [space for space in spaces if not overlaps(space, box)]
    for space in spaces:
        if overlaps(space, box):
            pieces += [
                piece
                for piece in remainders(space, box)
                if all(piece[a + 3] - piece[a] >= smallest for a in range(3))
            ]
    return [
        piece
        for i, piece in enumerate(pieces)
        if not any(i != j and within(piece, other) for j, other in enumerate(pieces))
    ]
