"""The specification of parts as sets of voxels, in plain loops.

A container is a ``[X, Y, Z]`` array of bool, True where a voxel is taken; a part is a ``[U, V, W]``
array, True where it is solid. A placement is the voxel ``(x, y, z)`` of the container at which the
part's voxel ``(0, 0, 0)`` lies.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

Voxel = tuple[int, int, int]

DIRECTIONS: tuple[Voxel, ...] = (
    (1, 0, 0),
    (-1, 0, 0),
    (0, 1, 0),
    (0, -1, 0),
    (0, 0, 1),
    (0, 0, -1),
)
"""The six directions along the axes."""


def solid(part: np.ndarray, place: Voxel) -> Iterator[Voxel]:
    """Yield the voxels of the container that a part covers at a placement."""
    for voxel in np.argwhere(part).tolist():
        yield (place[0] + voxel[0], place[1] + voxel[1], place[2] + voxel[2])


def is_inside(container: np.ndarray, voxel: Voxel) -> bool:
    """Test if a voxel lies in the container."""
    return all(0 <= at < length for at, length in zip(voxel, container.shape, strict=True))


def is_free(container: np.ndarray, part: np.ndarray, place: Voxel) -> bool:
    """Test if a part lies inside the container and shares no voxel with it."""
    return all(is_inside(container, v) and not container[v] for v in solid(part, place))


def leaves_towards(container: np.ndarray, part: np.ndarray, place: Voxel, direction: Voxel) -> bool:
    """Test if a part can move straight out of the container without meeting a taken voxel.

    The container's walls do not block it: parts are removed when they have left the machine.
    """
    taken = set(map(tuple, np.argwhere(container).tolist()))
    for distance in range(max(container.shape)):
        x, y, z = (at + distance * step for at, step in zip(place, direction, strict=True))
        if not taken.isdisjoint(solid(part, (x, y, z))):
            return False
    return True


def is_legal(container: np.ndarray, part: np.ndarray, place: Voxel, removable: bool) -> bool:
    """Test if a placement is legal: free, and, if ``removable``, with a straight way out."""
    return is_free(container, part, place) and (
        not removable or any(leaves_towards(container, part, place, d) for d in DIRECTIONS)
    )


def contact(container: np.ndarray, part: np.ndarray, place: Voxel) -> int:
    """Count the faces of a placed part that touch a taken voxel or a side of the container."""
    count = 0
    for x, y, z in solid(part, place):
        for dx, dy, dz in DIRECTIONS:
            beside = (x + dx, y + dy, z + dz)
            count += not is_inside(container, beside) or bool(container[beside])
    return count


def support_ratio(container: np.ndarray, part: np.ndarray, place: Voxel) -> float:
    """Compute the share of a part's columns that stand on the floor or on a taken voxel."""
    held, columns = 0, 0
    for u, v in np.argwhere(part.any(2)).tolist():
        lowest = int(np.argmax(part[u, v]))
        x, y, z = place[0] + u, place[1] + v, place[2] + lowest
        held += z == 0 or bool(container[x, y, z - 1])
        columns += 1
    return held / columns
