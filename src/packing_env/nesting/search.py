"""The search of a nest: fill greedily, take overlapping parts apart, and keep every part removable.

1. *Fill*: parts go one by one to the free place that is nearest to a corner of the container.
   In an empty container this is repeated with other weights of the axes; the best is kept.
2. *Add*: one more part is put in, and parts that overlap move until none do
   (`packing_env.kernels.nests.overlaps_numba.separate`). Threads try this with different parts.
3. *Refine*: finer voxels contain less empty space. The parts keep their places; what has room now
   is put in, and step 2 goes on.
4. *Lower*: if all parts are packed and the height counts, the lid is lowered and the parts are
   separated again.

In every accepted nest, the parts can leave one after the other, each along an axis.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from packing_env.kernels.nests.bits_numba import Filled, best_place, occupy
from packing_env.kernels.nests.overlaps_numba import measure, separate
from packing_env.nesting.bits import Blocked
from packing_env.nesting.levels import Array, Level, usable_cores
from packing_env.nesting.pieces import Piece, leaving, to_nest, to_pieces

_LOGGER = logging.getLogger("packing_env.nesting")

CORNER = (1.0, 0.3, 0.1)
"""Weights of x, y and z in the distance to the corner to which parts go first; of z, y and x if the
height counts."""
SIDEWAYS = (0.05, 0.45)
"""Range of the weight of y in later fillings, and of the ratio of those of z and y."""
FILLINGS, FILL_SHARE = 10, 0.1
"""Number of fillings, and the share of the time after which no other one is begun."""
DRAWS = (60, 60)
"""Random places and near places for each move."""
FIRST_DRAWS = (1000, 60)
"""Random places and near places for the first move of a piece that was put in."""
PATIENCE, PATIENCE_LOWER = 12, 40
"""An attempt is given up after this many rounds without less overlap. The second number is larger,
because under a lower lid few other attempts are possible."""
LITTLE = 0.015
"""Overlap in all, as a share of a mean piece, with which an attempt goes on for longer."""
LOWER = 0.03
"""Share of the height by which the lid is lowered first."""


class NestSearch:
    """A nest that grows.

    Attributes:
        level: The voxels.
        pieces: The packed pieces.
        left: How many pieces of each part are not packed.
        tried: Number of nests that were compared.
    """

    def __init__(
        self,
        level: Level,
        volumes: Sequence[float],
        left: Sequence[int],
        *,
        interlocking: bool = False,
        lowest: bool = False,
        seed: int = 0,
    ) -> None:
        self.level, self.left = level, list(left)
        self.pieces: list[Piece] = []
        self.tried = 0
        self._volumes, self._interlocking, self._lowest = volumes, interlocking, lowest
        self._random = np.random.default_rng(seed)
        self._failures = np.zeros(len(volumes))
        self._threads = usable_cores()
        self._halt = np.zeros(1, np.int8)

    @property
    def volume(self) -> float:
        """Volume of the packed pieces."""
        return self._volume(self.pieces)

    def _volume(self, pieces: Sequence[Piece]) -> float:
        return sum(self._volumes[piece.part] for piece in pieces)

    @property
    def height(self) -> int:
        """Voxels from the floor to the highest one."""
        return max((self._top(piece) for piece in self.pieces), default=0)

    def _top(self, piece: Piece) -> int:
        return piece.place[2] + int(self.level.size[piece.row][2])

    # ------------------------------------------------------------------ fill

    def fill(self, until: float) -> None:
        """Put in what has room, the largest parts first; keep the best of several fillings."""
        share = time.perf_counter() + FILL_SHARE * max(0.0, until - time.perf_counter())
        possible = sum(n for part, n in enumerate(self.left) if self.level.rows[part])
        best, pieces, weights = list(self.pieces), list(self.pieces), self._weights(*CORNER)
        try:
            for _ in range(1 if self.pieces else FILLINGS):
                pieces = list(self.pieces)
                self._fill(pieces, weights, until)
                self.tried += 1
                best = max(best, pieces, key=self._volume)
                if len(best) == possible or time.perf_counter() > share:
                    break
                y, z = self._random.uniform(*SIDEWAYS, 2)
                weights = self._weights(1.0, y, y * z)
        finally:  # also if the user interrupts it
            self._accept(max(best, pieces, key=self._volume))

    def _weights(self, *sideways: float) -> Array:
        """Return the weights of x, y and z; where the height counts, the largest is that of z."""
        return np.array(sideways[::-1] if self._lowest else sideways)

    def _fill(self, pieces: list[Piece], weights: Array, until: float) -> None:
        """Append what has room; every piece can leave past those before it."""
        # 1. Mark what is occupied.
        level = self.level
        filled = level.filled()
        for piece in self.pieces:
            occupy(filled, level.bits[piece.row], *piece.place)
        # 2. Add pieces of each part until one has no room.
        order = sorted(range(len(self.left)), key=lambda part: -self._volumes[part])
        with ThreadPoolExecutor(self._threads) as pool:
            for part in order:
                if not self.left[part] or not level.rows[part]:
                    continue
                if time.perf_counter() > until and pieces:
                    return
                rows = [
                    (row, Blocked(level.container - level.size[row], level.size[row]))
                    for row in level.rows[part]
                ]
                for _ in range(self.left[part]):
                    if time.perf_counter() > until and pieces:
                        return
                    best = self._best(pool, part, filled, rows, weights)
                    if best is None:
                        break
                    pieces.append(best)
                    occupy(filled, level.bits[best.row], *best.place)
                    for _, blocked in rows:
                        blocked.expire(best.place, level.size[best.row])

    def _best(
        self,
        pool: ThreadPoolExecutor,
        part: int,
        filled: Filled,
        rows: Sequence[tuple[int, Blocked]],
        weights: Array,
    ) -> Piece | None:
        """Return the piece nearest to the corner over all rotations of a part."""
        least = np.full(1, np.inf)  # of all rotations: none is searched further than this

        def place(entry: tuple[int, Blocked]) -> Array:
            (row, blocked), result, level = entry, np.full(4, np.inf), self.level
            best_place(
                filled, level.bits[row], level.runs[row], level.size[row], level.container,
                weights, self._interlocking, blocked.places, blocked.stale, least, result,
            )  # fmt: skip
            return result

        results = list(pool.map(place, rows))
        best = min(range(len(results)), key=lambda k: results[k][0])
        score, x, y, z = results[best]
        if not math.isfinite(score):
            return None
        return Piece(part, rows[best][0], (int(x), int(y), int(z)))

    # ------------------------------------------------------------------ add

    def add(self, until: float) -> None:
        """Add pieces as long as there is time."""
        while any(self._open()) and time.perf_counter() < until:
            self._first_success(self._with_another, until)

    def _open(self) -> list[bool]:
        """Return which parts are left and fit into the container at all."""
        return [n > 0 and bool(self.level.rows[part]) for part, n in enumerate(self.left)]

    def _with_another(self, seed: int) -> list[Piece] | None:
        """Return the pieces with one more, or with a larger one in place of another."""
        # 1. Choose the part: large ones first, unless they failed before.
        random = np.random.default_rng(seed)
        open_parts = np.array(self._open())
        failures = self._failures - self._failures[open_parts].min()
        likely = np.where(open_parts, self._volumes, 0.0) * 0.5 ** failures.clip(0.0, 60.0)
        part = int(random.choice(len(likely), p=likely / likely.sum()))
        pieces = list(self.pieces)
        smaller = [
            k for k, piece in enumerate(pieces) if self._volumes[piece.part] < self._volumes[part]
        ]
        if smaller and random.random() < 0.5 * min(1.0, self._failures[part] / 2):
            del pieces[int(random.choice(smaller))]
        # 2. Put it in at random, and take the pieces apart.
        row = int(random.choice(self.level.rows[part]))
        room = self.level.container - self.level.size[row]
        x, y, z = (int(random.integers(n + 1)) for n in room)
        pieces.append(Piece(part, row, (x, y, z)))
        apart = self._apart(pieces, seed, self.level.container, added=True)
        if apart:
            self._failures[part] /= 2
        elif not self._halt[0]:
            self._failures[part] += 1
        return apart

    def _apart(
        self,
        pieces: Sequence[Piece],
        seed: int,
        container: Array,
        patience: int = PATIENCE,
        added: bool = False,
    ) -> list[Piece] | None:
        """Return the pieces where none overlap and each can leave, or None if that failed.

        If the last one was added, it moves first.
        """
        nest = to_nest(self.level, pieces, container)
        count = len(nest.part)
        overlap, weights = np.zeros((count, count), np.int64), np.ones((count, count))
        shapes, halt = self.level.shapes, self._halt
        mean = sum(self._volumes[piece.part] for piece in pieces) / max(1, len(pieces))
        little = int(LITTLE * mean / self.level.cell**3)
        measure(shapes, nest, overlap)
        if added:
            others = nest._replace(fixed=np.array([count - 1]))
            separate(shapes, others, overlap, weights, np.array(FIRST_DRAWS), 1, 0, seed, halt)
        draws = np.array(DRAWS)
        if not separate(shapes, nest, overlap, weights, draws, patience, little, seed, halt):
            return None
        steps = leaving(self.level, to_pieces(nest))
        locked = any(step.way is None for step in steps)
        if locked and not self._interlocking:
            return None
        return [step.piece for step in steps]

    def _first_success(self, attempt: Callable[[int], list[Piece] | None], until: float) -> bool:
        """Run an attempt with several seeds at once; accept the first nest that succeeds."""
        self._halt[0] = 0
        seeds = [int(seed) for seed in self._random.integers(2**31, size=self._threads)]
        accepted = False
        with ThreadPoolExecutor(self._threads) as pool:
            futures = [pool.submit(attempt, seed) for seed in seeds]
            try:
                while not all(future.done() for future in futures):
                    time.sleep(0.002)
                    succeeded = any(
                        future.done() and future.result() is not None for future in futures
                    )
                    if succeeded or time.perf_counter() > until:
                        self._halt[0] = 1
            finally:
                self._halt[0] = 1
        self.tried += len(futures)
        for pieces in (future.result() for future in futures):
            if pieces is not None and not accepted:
                accepted = True
                self._accept(pieces)
        return accepted

    def _accept(self, pieces: Sequence[Piece]) -> None:
        for piece in self.pieces:
            self.left[piece.part] += 1
        self.pieces = list(pieces)
        for piece in self.pieces:
            self.left[piece.part] -= 1
        _LOGGER.info("%d parts, %.4g m^3", len(self.pieces), self.volume)

    # ------------------------------------------------------------------ refine, lower

    def refine(self, level: Level, until: float) -> None:
        """Change to other voxels; take out pieces that cannot be separated there.

        If there is no time for this, the nest stays as it is.
        """
        coarse, pieces = self.level, []
        for piece in self.pieces:
            pose = coarse.pose(piece.row, np.array(piece.place))
            row, place = level.nearest(piece.part, pose)
            if row >= 0:
                at = int(place[0]), int(place[1]), int(place[2])
                pieces.append(Piece(piece.part, row, at))
        refined = False
        try:
            self.level = level
            while not refined:
                refined = self._first_success(
                    lambda seed: self._apart(pieces, seed, level.container, PATIENCE_LOWER), until
                )
                if time.perf_counter() > until or not pieces:
                    break
                if not refined:
                    pieces.remove(min(pieces, key=lambda piece: self._volumes[piece.part]))
        finally:  # also if the user interrupts it
            if not refined:
                self.level = coarse

    def lower(self, until: float) -> None:
        """Lower the lid as long as there is time; no lid is below the tallest part."""
        least = max(
            min(int(self.level.size[row][2]) for row in self.level.rows[piece.part])
            for piece in self.pieces
        )
        step, swap = max(1, int(LOWER * self.height)), False
        while time.perf_counter() < until and self.height > least:
            lid = max(least, self.height - step)
            container = np.array([*self.level.container[:2], lid])

            def attempt(
                seed: int, lid: int = lid, box: Array = container, swap: bool = swap
            ) -> Any:
                pieces = self._swapped(seed) if swap else self.pieces
                below = [self._below(piece, lid) for piece in pieces]
                return self._apart(below, seed, box, PATIENCE_LOWER)

            # After a failure, attempts begin with two parts exchanged, and differ more.
            swap = not self._first_success(attempt, until)
            if swap:
                step = max(1, step // 2)

    def _swapped(self, seed: int) -> list[Piece]:
        """Return the pieces after two of different parts, often large ones, changed places."""
        random = np.random.default_rng(seed)
        pieces = list(self.pieces)
        volumes = np.array([self._volumes[piece.part] for piece in pieces])
        first = int(random.choice(len(pieces), p=volumes / volumes.sum()))
        volumes[[piece.part == pieces[first].part for piece in pieces]] = 0.0
        if volumes.any():
            second = int(random.choice(len(pieces), p=volumes / volumes.sum()))
            for a, b in ((first, second), (second, first)):
                pieces[a] = self._moved(self.pieces[a], self.pieces[b])
        return pieces

    def _moved(self, piece: Piece, to: Piece) -> Piece:
        """Return a piece with its middle where that of another one is, inside of the container."""
        size = self.level.size[piece.row]
        place = np.array(to.place) + (self.level.size[to.row] - size) // 2
        x, y, z = (int(k) for k in place.clip(0, self.level.container - size))
        return Piece(piece.part, piece.row, (x, y, z))

    def _below(self, piece: Piece, lid: int) -> Piece:
        """Return a piece moved down, and turned if it must, until it is under the lid."""
        row = piece.row
        if self.level.size[row][2] > lid:
            row = next(r for r in self.level.rows[piece.part] if self.level.size[r][2] <= lid)
        place = np.minimum(piece.place, np.array([*self.level.container[:2], lid])
                           - self.level.size[row])  # fmt: skip
        return Piece(piece.part, row, (int(place[0]), int(place[1]), int(place[2])))
