"""Placed parts, and the order in which they leave a nest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from packing_env.kernels.nests.obstacles_numba import find_obstacles
from packing_env.kernels.nests.overlaps_numba import Nest
from packing_env.nesting.levels import Array, Level

WAYS = ("+x", "-x", "+y", "-y", "+z", "-z")
"""Directions in which a part may leave, in the order of `find_obstacles`."""
_PREFERRED = (4, 0, 1, 2, 3, 5)
"""Indices of these directions in the order in which they are tried: upwards first."""


@dataclass(frozen=True)
class Piece:
    """A placed part: its index, its row in the level, and its lower corner in voxels."""

    part: int
    row: int
    place: tuple[int, int, int]


@dataclass(frozen=True)
class Leaving:
    """A piece and its way out once all later pieces have left; None means interlocked."""

    piece: Piece
    way: str | None


def to_nest(level: Level, pieces: Sequence[Piece], container: Array, fixed: bool = True) -> Nest:
    """Return the pieces as arrays; with ``fixed``, the room that stays empty comes first."""
    if fixed and level.bits[-1].any():
        empty = Piece(len(level.rows) - 1, len(level.bits) - 1, (0, 0, 0))
        pieces = [empty, *pieces]
    else:
        fixed = False
    return Nest(
        np.array([piece.part for piece in pieces], np.int64),
        np.array([piece.row for piece in pieces], np.int64),
        np.array([piece.place for piece in pieces], np.int64).reshape(-1, 3),
        container.astype(np.int64),
        np.array([int(fixed)], np.int64),
    )


def to_pieces(nest: Nest) -> list[Piece]:
    """Return the pieces that can move."""
    first = int(nest.fixed[0])
    rows = list(zip(nest.part, nest.shape, nest.place, strict=True))[first:]
    return [
        Piece(int(part), int(row), (int(place[0]), int(place[1]), int(place[2])))
        for part, row, place in rows
    ]


def leaving(level: Level, pieces: Sequence[Piece]) -> list[Leaving]:
    """Return the pieces with their ways out; the last piece leaves first.

    They are taken out one after the other, each along an axis without obstacles. Interlocked pieces
    come first.
    """
    # 1. Find the pieces that block others on their way out, along each axis.
    nest = to_nest(level, pieces, level.container, fixed=False)
    obstacle = np.zeros((len(WAYS), len(pieces), len(pieces)), bool)
    find_obstacles(level.shapes, nest, obstacle)
    # 2. Take out a piece without obstacles, as long as there is one.
    remaining = np.ones(len(pieces), bool)
    number = obstacle.sum(2)  # number of obstacles, for each way and piece
    taken: list[Leaving] = []
    while remaining.any():
        free = np.argwhere((number[list(_PREFERRED)] == 0) & remaining)
        if not len(free):
            break
        way, piece = (int(index) for index in free[0])
        taken.append(Leaving(pieces[piece], WAYS[_PREFERRED[way]]))
        remaining[piece] = False
        number -= obstacle[:, :, piece]
    locked = [Leaving(pieces[int(k)], None) for k in np.flatnonzero(remaining)]
    return [*locked, *reversed(taken)]
