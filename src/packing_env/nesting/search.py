"""The search of a nest: fill greedily, take overlapping parts apart, and keep every part removable.

1. *Fill*: parts go one by one to the free place that is nearest to a corner of the container.
   In an empty container this is repeated with other weights of the axes; the best is kept.
2. *Sketch*: steps 1, 3 and 4 are done in coarse voxels, which takes a small part of the time. The
   parts of this nest are then separated in fine voxels.
3. *Add*: one more part is put in, and parts that overlap move until none do
   (`packing_env.kernels.nests.overlaps_numba.separate`). Threads try this with different parts.
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
from dataclasses import dataclass

import numpy as np

from packing_env.kernels.nests.overlaps_numba import measure, separate
from packing_env.nesting.greedy import Greedy
from packing_env.nesting.levels import Array, Level, Sketch, usable_cores
from packing_env.nesting.pieces import Piece, leaving, to_nest, to_pieces

_LOGGER = logging.getLogger("packing_env.nesting")

CORNER = (1.0, 0.3, 0.1)
"""Weights of x, y and z in the distance to the corner, in the first filling. If the height counts,
they are the weights of z, y and x."""
SIDEWAYS = (0.05, 0.45)
"""Range of the weight of y in later fillings, and of the ratio of the weights of z and y."""
TRIAL, SKETCHED_TRIAL, SKETCH = 200.0, 40.0, 0.4
"""Seconds until the search begins again, without and with coarse voxels; share of the time for
coarse voxels.
"""
FILLINGS, FILL_SHARE = 10, 0.1
"""Number of fillings, and the share of the time after which none is begun."""
DRAWS = (60, 60), (1000, 60)
"""Numbers of random and of near places for each move, and for the first move of a new piece."""
COLUMNS = (2, 2), (100, 8)
"""The same numbers with tables of depths: each random place is then tried at all heights."""
PATIENCE, PATIENCE_LOWER, PATIENCE_TABULATED = 12, 40, 1000
"""An attempt ends after this many rounds without less overlap. The second number applies under a
lowered lid, where few other attempts are possible, and the third with tables for fine voxels."""
LITTLE = 0.015
"""An attempt goes on for longer if the shared volume is at most this share of a mean piece."""
LOWER, RAISE = 0.03, 0.02
"""Shares of the height by which the lid is lowered first, and raised if coarse pieces overlap."""
FAILURES, KEPT = 4, 20
"""Failures in a thread before the lid is lowered by less, and number of failed nests kept."""


@dataclass(frozen=True, eq=False)
class _Failed:
    """Pieces that could not be separated.

    Attributes:
        pieces: The pieces.
        troubles: Overlap of each piece with the others; if none overlap, whether it is interlocked.
    """

    pieces: list[Piece]
    troubles: Array


class NestSearch:
    """A nest that grows.

    Attributes:
        level: The voxels.
        pieces: The packed pieces.
        left: How many pieces of each part are not packed.
        tried: Number of nests that were compared.
        tried_all: Whether every part was tried in some filling.
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
        self.tried, self.tried_all = 0, False
        self._volumes, self._interlocking, self._lowest = volumes, interlocking, lowest
        self._random = np.random.default_rng(seed)
        self._failures = np.zeros(len(volumes))
        self._threads = usable_cores()
        self._greedy = Greedy(level, volumes, interlocking, self._threads)
        self._failed: list[_Failed] = []  # least overlap first
        self._halt = np.zeros(1, np.int8)

    @property
    def volume(self) -> float:
        """Volume of the packed pieces."""
        return self._volume(self.pieces)

    def _volume(self, pieces: Sequence[Piece]) -> float:
        return sum(self._volumes[piece.part] for piece in pieces)

    @property
    def height(self) -> int:
        """Height of the nest above the floor, in voxels."""
        return max((self._top(piece) for piece in self.pieces), default=0)

    def _top(self, piece: Piece) -> int:
        return piece.place[2] + int(self.level.size[piece.row][2])

    def search(self, until: float, sketch: Sketch | None = None) -> None:
        """Search until a time: start several times, then continue with the best nest."""
        self.fill(until, FILLINGS if sketch is None else 1)
        if not (self._lowest or any(self._open())):
            return  # no nest is better than one of all parts
        spare = max(0.0, until - time.perf_counter())
        trial = TRIAL if sketch is None else SKETCHED_TRIAL
        trials = max(0 if sketch is None or not spare else 1, int(spare / trial) - 1)
        for _ in range(trials):
            self._try(sketch, time.perf_counter() + spare / (trials + 1))
        if sketch is not None and time.perf_counter() < until:
            self.fill(until)
        self._improve(until)

    def _improve(self, until: float) -> None:
        self.add(until)
        if self._lowest and self.pieces and not any(self.left):
            self.lower(until)

    # ------------------------------------------------------------------ fill

    def fill(self, until: float, fillings: int = FILLINGS) -> None:
        """Pack parts while there is room, the largest first; keep the best of several fillings."""
        share = time.perf_counter() + FILL_SHARE * max(0.0, until - time.perf_counter())
        possible = sum(n for part, n in enumerate(self.left) if self.level.rows[part])
        best, pieces, weights = list(self.pieces), list(self.pieces), self._weights(*CORNER)
        try:
            for _ in range(1 if self.pieces else fillings):
                pieces = list(self.pieces)
                self.tried_all |= self._greedy.fill(pieces, self.left, weights, until)
                self.tried += 1
                best = max(best, pieces, key=self._volume)
                if len(best) == possible or time.perf_counter() > share:
                    break
                y, z = self._random.uniform(*SIDEWAYS, 2)
                weights = self._weights(1.0, y, y * z)
        finally:  # also if the user interrupts it
            self._accept(max(best, pieces, key=self._volume))

    def _weights(self, *sideways: float) -> Array:
        """Return the weights of x, y and z; if the height counts, z has the largest weight."""
        return np.array(sideways[::-1] if self._lowest else sideways)

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
        # 2. Put it at a random place, and separate the pieces.
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
        """Return the pieces moved so that none overlap and each can leave; None if that failed.

        With ``added``, the last piece moves first.
        """
        nest = to_nest(self.level, pieces, container)
        count = len(nest.part)
        overlap, weights = np.zeros((count, count)), np.ones((count, count))
        shapes, halt = self.level.shapes, self._halt
        mean = self._volume(pieces) / max(1, len(pieces))
        measure(shapes, nest, overlap)
        tabulated = bool(shapes.depths.size)
        draws, first_draws = np.array(COLUMNS if tabulated else DRAWS)
        little = 0 if tabulated else int(LITTLE * mean / self.level.cell**3)
        if added:
            others = nest._replace(fixed=np.array([count - 1]))
            separate(shapes, others, overlap, weights, first_draws, 1, 0, seed, halt)
        if not separate(shapes, nest, overlap, weights, draws, patience, little, seed, halt):
            fixed = int(nest.fixed[0])
            self._failed.append(_Failed(to_pieces(nest), overlap.sum(1)[fixed:]))
            return None
        steps = leaving(self.level, to_pieces(nest))
        locked = np.array([step.way is None for step in steps])
        if locked.any() and not self._interlocking:
            self._failed.append(_Failed([step.piece for step in steps], locked))
            return None
        return [step.piece for step in steps]

    def _first_success(
        self, attempt: Callable[[int], list[Piece] | None], until: float, attempts: int = 1
    ) -> bool:
        """Run attempts in several threads, each with its own seed; accept the first success."""
        self._halt[0] = 0
        seeds = self._random.integers(2**31, size=attempts * self._threads).tolist()
        accepted = False
        with ThreadPoolExecutor(self._threads) as pool:
            futures = [pool.submit(attempt, seed) for seed in seeds]
            try:
                while not all(future.done() for future in futures):
                    time.sleep(0.002)
                    succeeded = any(each.done() and each.result() is not None for each in futures)
                    if succeeded or time.perf_counter() > until:
                        self._halt[0] = 1
            finally:
                self._halt[0] = 1
                pool.shutdown(cancel_futures=True)
        begun = [future for future in futures if not future.cancelled()]
        self.tried += len(begun)
        for pieces in (future.result() for future in begun):
            if pieces is not None and not accepted:
                accepted = True
                self._accept(pieces)
        self._failed = sorted(self._failed, key=lambda nest: nest.troubles.sum())[:KEPT]
        return accepted

    def _accept(self, pieces: Sequence[Piece]) -> None:
        self._failed.clear()
        for piece in self.pieces:
            self.left[piece.part] += 1
        self.pieces = list(pieces)
        for piece in self.pieces:
            self.left[piece.part] -= 1
        _LOGGER.info("%d parts, %.4g m^3", len(self.pieces), self.volume)

    # ------------------------------------------------------------------ sketch

    def _try(self, sketch: Sketch | None, until: float) -> None:
        """Search from the beginning; take over the nest if it is better than this one."""
        trial = self._empty(self.level)
        try:
            if sketch is not None:
                trial.sketch(sketch, until)
            if time.perf_counter() < until:
                trial.fill(until)
                trial._improve(until)
        finally:  # also if the user interrupts it
            self.tried += trial.tried
            if self._improves(trial.pieces, trial.height):
                self._accept(trial.pieces)

    def _empty(self, level: Level) -> NestSearch:
        """Return a search for the same parts with another seed and nothing packed."""
        left = list(self.left)
        for piece in self.pieces:
            left[piece.part] += 1
        return NestSearch(
            level,
            self._volumes,
            left,
            interlocking=self._interlocking,
            lowest=self._lowest,
            seed=int(self._random.integers(2**31)),
        )

    def sketch(self, sketch: Sketch, until: float) -> None:
        """Begin with a nest in coarse voxels, whose parts are then separated in fine ones.

        If all parts are packed and the height counts, the lid begins low, and is raised after each
        failure. With the lid at the top, the smallest inseparable part is taken out instead.
        """
        coarse, now = self._empty(sketch.level), time.perf_counter()
        coarse.search(now + SKETCH * max(0.0, until - now), sketch.coarser)
        self.tried += coarse.tried
        pieces = [self._refined(piece, sketch) for piece in coarse.pieces]
        lowers = self._lowest and not any(coarse.left)
        lid = top = int(self.level.container[2])
        if lowers:
            lid = min(top, max(self._tallest(pieces), coarse.height * sketch.factor))
        while pieces and time.perf_counter() < until and not self._under(lid, until, pieces):
            for failed in self._failed[:1]:
                pieces = failed.pieces
                if lid < top:
                    lid = min(top, lid + max(1, int(RAISE * lid)))
                else:
                    troubled = [pieces[k] for k in np.flatnonzero(failed.troubles)]
                    pieces.remove(min(troubled, key=lambda piece: self._volumes[piece.part]))
            self._failed.clear()

    def _refined(self, piece: Piece, sketch: Sketch) -> Piece:
        """Return a coarse piece in fine voxels."""
        room = self.level.container - self.level.size[piece.row]
        place = sketch.place(piece.row, piece.place).clip(0, room)
        return Piece(piece.part, piece.row, (int(place[0]), int(place[1]), int(place[2])))

    def _improves(self, pieces: Sequence[Piece], lid: int) -> bool:
        """Return whether these pieces under a lid are a better nest than the present one."""
        more = self._volume(pieces) - self.volume
        if math.isclose(more, 0.0, abs_tol=1e-9 * self.volume):
            return self._lowest and lid < self.height
        return more > 0.0

    # ------------------------------------------------------------------ lower

    def lower(self, until: float) -> None:
        """Lower the lid as long as there is time; no lid is below the tallest part.

        After a failure, an attempt begins with one of the failed nests of least overlap, in which
        two parts are swapped.
        """
        least = self._tallest(self.pieces)
        step = max(1, int(LOWER * self.height))
        while time.perf_counter() < until and self.height > least:
            lid = max(least, self.height - step)
            step = step if self._under(lid, until) else max(1, step // 2)

    def _tallest(self, pieces: Sequence[Piece]) -> int:
        """Return the least height of the tallest part, in voxels."""
        return max((self.level.least_height(piece.part) for piece in pieces), default=0)

    def _begin(self, seed: int) -> list[Piece]:
        if not self._failed:
            return self.pieces
        random = np.random.default_rng(seed)
        rank = int(abs(random.normal()) * len(self._failed) / 4)
        return self._swapped(self._failed[min(rank, len(self._failed) - 1)].pieces, random)

    def _under(self, lid: int, until: float, pieces: Sequence[Piece] | None = None) -> bool:
        """Separate pieces under a lid, by default those of `_begin`; return whether it worked."""
        container = np.array([*self.level.container[:2], lid])
        patient = self.level.shapes.depths.size and not self.level.coarse
        patience = PATIENCE_TABULATED if patient else PATIENCE_LOWER

        def attempt(seed: int) -> list[Piece] | None:
            below = [self._below(piece, lid) for piece in pieces or self._begin(seed)]
            return self._apart(below, seed, container, patience)

        return self._first_success(attempt, until, 1 if pieces else FAILURES)

    def _swapped(self, nest: Sequence[Piece], random: np.random.Generator) -> list[Piece]:
        """Return the pieces with two of them swapped; they are of different parts, often large."""
        pieces = list(nest)
        volumes = np.array([self._volumes[piece.part] for piece in pieces])
        first = int(random.choice(len(pieces), p=volumes / volumes.sum()))
        volumes[[piece.part == pieces[first].part for piece in pieces]] = 0.0
        if volumes.any():
            second = int(random.choice(len(pieces), p=volumes / volumes.sum()))
            for a, b in ((first, second), (second, first)):
                pieces[a] = self._moved(nest[a], nest[b])
        return pieces

    def _moved(self, piece: Piece, to: Piece) -> Piece:
        """Return a piece moved to the middle of another piece, and then into the container."""
        size = self.level.size[piece.row]
        place = np.array(to.place) + (self.level.size[to.row] - size) // 2
        x, y, z = (int(k) for k in place.clip(0, self.level.container - size))
        return Piece(piece.part, piece.row, (x, y, z))

    def _below(self, piece: Piece, lid: int) -> Piece:
        """Return a piece moved down below the lid, and turned if necessary."""
        row = piece.row
        if self.level.size[row][2] > lid:
            row = next(r for r in self.level.rows[piece.part] if self.level.size[r][2] <= lid)
        place = np.minimum(piece.place, [*self.level.container[:2], lid] - self.level.size[row])
        return Piece(piece.part, row, (int(place[0]), int(place[1]), int(place[2])))
