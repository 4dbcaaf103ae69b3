"""Greedy filling: each part goes to the free place nearest to a corner of the container."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from packing_env.kernels.nests.bits_numba import Filled, best_place, occupy
from packing_env.nesting.bits import Blocked
from packing_env.nesting.levels import Array, Level
from packing_env.nesting.pieces import Piece


class Greedy:
    """Greedy filling: the largest parts come first, each as near as possible to a corner."""

    def __init__(
        self, level: Level, volumes: Sequence[float], interlocking: bool, threads: int
    ) -> None:
        self.level, self._volumes = level, volumes
        self._interlocking, self._threads = interlocking, threads

    def fill(self, pieces: list[Piece], left: Sequence[int], weights: Array, until: float) -> bool:
        """Append pieces for which there is room; each can leave while the earlier pieces stay.

        Args:
            pieces: The pieces so far.
            left: Number of pieces of each part to pack.
            weights: ``[3]``, weights of the axes in the distance to the corner.
            until: When to stop; at least one piece is placed.

        Returns:
            Whether all parts were tried.
        """
        # 1. Mark what is occupied.
        level = self.level
        filled = level.filled()
        for piece in pieces:
            occupy(filled, level.bits[piece.row], *piece.place)
        # 2. Add pieces of each part until one has no room.
        order = sorted(range(len(left)), key=lambda part: -self._volumes[part])
        with ThreadPoolExecutor(self._threads) as pool:
            for part in order:
                if not left[part] or not level.rows[part]:
                    continue
                if time.perf_counter() > until and pieces:
                    return False
                rows = [
                    (row, Blocked(level.container - level.size[row], level.size[row]))
                    for row in level.rows[part]
                ]
                for _ in range(left[part]):
                    if time.perf_counter() > until and pieces:
                        return False
                    best = self._best(pool, part, filled, rows, weights)
                    if best is None:
                        break
                    pieces.append(best)
                    occupy(filled, level.bits[best.row], *best.place)
                    for _, blocked in rows:
                        blocked.expire(best.place, level.size[best.row])
        return True

    def _best(
        self,
        pool: ThreadPoolExecutor,
        part: int,
        filled: Filled,
        rows: Sequence[tuple[int, Blocked]],
        weights: Array,
    ) -> Piece | None:
        """Return the piece nearest to the corner over all rotations of a part."""
        least = np.full(1, np.inf)  # the best score of all rotations, which ends their searches

        def place(entry: tuple[int, Blocked], loose: bool) -> Array:
            (row, blocked), result, level = entry, np.full(4, np.inf), self.level
            best_place(
                filled, level.bits[row], level.runs[row], level.size[row], level.container,
                weights, self._interlocking, loose, blocked.places, blocked.stale, least, result,
            )  # fmt: skip
            return result

        # The way out of a cavity with a narrow mouth may begin away from its walls.
        for loose in (False, True):
            results = list(pool.map(partial(place, loose=loose), rows))
            best = min(range(len(results)), key=lambda k: results[k][0])
            score, x, y, z = results[best]
            if math.isfinite(score):
                return Piece(part, rows[best][0], (int(x), int(y), int(z)))
        return None
