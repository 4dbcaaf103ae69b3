"""The beam search of container loading, in threads that a deadline or an interrupt stops."""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

from packing_env.kernels.loading.arrays_numba import Beam, Blocks, Room, Rules, Scratch
from packing_env.kernels.loading.arrays_numba import Problem as Loading
from packing_env.plan.loading.compiled import compiled
from packing_env.plan.loading.places import Places
from packing_env.plan.loading.problem import MOST_BLOCKS, BoxType, LoadRules, Problem
from packing_env.plan.loading.rules import (
    compiled_rules,
    entries,
    flat_first,
    in_order,
    in_stages,
    initial_spaces,
    join_limits,
    joined_rules,
)
from packing_env.plan.loading.strips import floor_strips

_LOGGER = logging.getLogger("packing_env.plan.loading")
_MANY = 50_000
"""Number of boxes from which long stages are logged."""
WIDEST = 4096
"""Largest width of a beam; the arrays of its successors take half a gigabyte."""
_FILL = 0.98
"""Smallest share of its cuboid that a block has to fill."""
_MOST_KINDS = 16
"""Largest number of different boxes in a block."""
_FEWEST_SPACES, _MOST_SPACES = 512, 8192
"""Bounds on how many empty cuboids of a load are kept; further cuboids are dropped."""
_ALL_SPACES = 1 << 22
"""Largest number of empty cuboids of a beam."""
_MOST_PLACED = 1 << 18
"""Largest number of blocks in a load."""
_LENGTH_BITS = 14
"""Binary logarithm of the size of the table of longest sums of box sides."""
_SLICES = 8
"""Parts of a beam per thread."""

Arrays = tuple[np.ndarray, ...]


class Search:
    """The blocks of a problem, and the best load so far; the clock starts now.

    Attributes:
        best: Volume of the best load, or its value if boxes have values; -1 before the first load.
        tried: Number of completed loads.
        progress: Called at every better load with :attr:`best` as a share of the container.

    Args:
        problem: The boxes; the search limits their counts.
        pool: Threads.
        threads: Number of threads.
        seconds: Time after which the threads stop.
    """

    def __init__(
        self, problem: Problem, pool: ThreadPoolExecutor, threads: int, seconds: float
    ) -> None:
        self._deadline = time.monotonic() + seconds
        self._blocks_compiled, self._compiled = compiled("blocks_numba"), compiled("numba")
        self._rules_compiled, self._spaces_compiled = map(compiled, ("rules_numba", "spaces_numba"))
        self._tables = compiled("tables_numba")
        self._problem, self._pool, self._threads = problem, pool, threads
        self._halt = np.zeros(1, np.int8)
        container = np.array(problem.container)
        sides = np.array([s for kind in problem.orientations for s in kind])
        shift = max(max(problem.container).bit_length() - _LENGTH_BITS, 0)
        useful = self._useful(sides, shift)
        reached = [int(row[c >> shift]) for row, c in zip(useful, problem.container, strict=True)]
        problem.limit(math.prod(problem.container if shift else reached))
        self._counts = np.array(problem.counts, np.int32)
        self._most = min(int(self._counts.sum(dtype=np.int64)), _MOST_PLACED)
        self._grid_blocks = self._grids(sides)
        blocks = self._ranked(self._grid_blocks)
        rules = compiled_rules(problem, self._repeats, self._sides)
        before = np.array(problem.before, np.int64).reshape(-1, 6)
        self._entries = entries(rules, self._counts, self._most) + len(before)
        nothing = np.zeros(0, np.int32)
        lengths = np.array([np.sort(kind).min(0) for kind in problem.orientations])
        room = Room(container, before, nothing, useful, shift, sides.min(0), lengths)
        self._loading = Loading(blocks, rules, room)
        self._set_order()
        self.best, self._plan = -1.0, np.zeros((0, 7), np.int64)
        self.tried = 0
        self.progress: Callable[[float], None] | None = None

    def run(self, width: int) -> None:
        """Find a first load, then search with wider and wider beams until the time is up.

        Raises:
            KeyboardInterrupt: ``best`` and :meth:`boxes` then describe the best load so far.
        """
        number = int(self._counts.sum(dtype=np.int64))
        if number > _MANY:
            _LOGGER.info("first load of up to %s boxes", f"{number:,}")
        self._expand(self._root(), 1, math.inf)
        ways = self._try_stages()
        if self._searches():
            self._join()
        beam = 1
        while beam <= width and sum(self._search_like(way, beam) for way in ways):
            beam *= 2

    def _try_stages(self) -> list[Rules]:
        """Complete a first load in stages; return the rules to search with, the best first.

        Without stages, boxes that go out first may fill small spaces deep in the container, and
        block the way of all boxes that have to come in before them.
        """
        unstaged = self._loading.rules
        ways = [unstaged]
        for rules in in_stages(unstaged):
            best = self.best
            if best < self._problem.whole:
                self._loading = self._loading._replace(rules=rules)
                self._expand(self._root(), 1, math.inf)
            if self.best > best:
                ways = [rules, unstaged]
        self._loading = self._loading._replace(rules=unstaged)
        return ways

    def _search_like(self, way: Rules, width: int) -> bool:
        """Search with one width in the stages of some rules, as :meth:`_search` does."""
        if not self._searches():
            return False
        rules = self._loading.rules._replace(stages=way.stages, stage=way.stage)
        self._loading = self._loading._replace(rules=rules)
        return self._search(width)

    def _searches(self) -> bool:
        """Return whether there is time and a better load may exist."""
        self._halt[0] = time.monotonic() >= self._deadline
        return self.best < self._problem.whole and not self._halt[0]

    def _useful(self, sides: np.ndarray, shift: int) -> np.ndarray:
        """Return the longest sum of box sides up to each length, for each axis."""
        container = self._problem.container
        table = np.zeros((3, (max(container) >> shift) + 1), np.int64)
        for axis, longest in enumerate(container):
            lengths = np.unique(sides[:, axis])
            row = self._blocks_compiled.reachable_lengths(lengths, longest, shift)
            table[axis, : len(row)] = row
        return table

    def _grids(self, sides: np.ndarray) -> Blocks:
        self._repeats = self._problem.grids()
        kind, orientation, repeats = self._repeats[:, 0], self._repeats[:, 1], self._repeats[:, 2:]
        first = np.cumsum([0, *map(len, self._problem.orientations)])
        self._sides = sides[first[kind] + orientation]
        number = repeats.prod(-1)
        columns = min(len(self._counts), _MOST_KINDS)
        kinds = np.full((len(kind), columns), -1, np.int32)
        amounts = np.zeros_like(kinds)
        kinds[:, 0], amounts[:, 0] = kind, number
        volume = number * np.array(self._problem.volumes)[kind]
        return Blocks(self._sides * repeats, kinds, amounts, volume, volume)

    def _ranked(self, blocks: Blocks) -> Blocks:
        """Return blocks with their worth; values of boxes replace volumes."""
        number = blocks.amounts.sum(-1, dtype=np.int64)
        if self._problem.values is None:
            return blocks._replace(worth=blocks.volume * number**-0.2)
        values = np.append(self._problem.values, 0.0)[blocks.types]  # type -1: no box
        value = (values * blocks.amounts).sum(-1)
        dense = value / blocks.volume  # prefer the smaller of equal values
        return blocks._replace(volume=value, worth=value * dense * number**-0.2)

    def _join(self) -> None:
        most = max(MOST_BLOCKS, len(self._repeats))
        blocks = Blocks(*(np.resize(part, (most, *part.shape[1:])) for part in self._grid_blocks))
        parts, end = np.zeros((most, 3), np.int32), len(self._repeats)
        for share, limits in join_limits(self._problem, self._loading.rules, _FILL):
            room = end + int(share * (most - end))
            table = self._tables.table_of(Blocks(*(part[:room] for part in blocks)))
            join = partial(self._blocks_compiled.join_blocks, table, parts, end, limits, self._halt)
            (end,) = self._carry_out([join], self._deadline)
        self._parts, blocks = parts[:end], Blocks(*(part[:end] for part in blocks))
        blocks = self._ranked(blocks)
        self._loading = self._loading._replace(
            blocks=blocks, rules=joined_rules(self._loading.rules, self._parts, blocks)
        )
        self._set_order()

    def _set_order(self) -> None:
        """Order the blocks by descending worth."""
        blocks, flat = self._loading.blocks, flat_first(self._loading.rules)
        order = np.lexsort((blocks.sides[:, 2] * flat, -blocks.worth)).astype(np.int32)
        self._loading = self._loading._replace(room=self._loading.room._replace(order=order))

    def _problem_tables(self) -> Loading:
        return self._tables.problem_tables(self._loading)

    def _new_memory(self, width: int) -> tuple[Any, ...]:
        """Return the memory in which a thread completes one load at a time."""
        most, order = self._most, self._loading.room.order
        scratch = Scratch(
            spaces=np.zeros((self._num_spaces(1), 7), np.int64),
            placed=np.zeros((most, 7), np.int64),
            left=np.zeros_like(self._counts),
            active=np.zeros_like(order),
            rest=np.zeros_like(order),
            near=np.zeros((6, most + 1), np.int32),
            low=np.zeros(3, np.int64),
            one=np.zeros((1, 4), np.int64),
            rank=np.zeros(1),
            value=np.zeros(width),
        )
        pile = self._rules_compiled.new_pile(self._entries)
        return scratch, pile, self._spaces_compiled.new_cutting()

    def _carry_out(self, calls: Sequence[Callable[[], Any]], deadline: float) -> list[Any]:
        """Call functions in threads; set ``halt`` at a deadline."""
        running = [self._pool.submit(call) for call in calls]
        try:
            left = max(deadline - time.monotonic(), 0.0)
            if wait(running, timeout=min(left, threading.TIMEOUT_MAX)).not_done:
                self._halt[0] = 1
            return [call.result() for call in running]
        finally:  # an interrupt stops the threads, too
            self._halt[0] |= sys.exc_info()[0] is not None
            wait(running)

    def _search(self, width: int) -> bool:
        """Search with one width; keep the best load; return whether states were dropped."""
        beam = self._root()
        narrowed = False
        while self._searches():
            chosen, current, total = self._expand(beam, width, self._deadline)
            if self._halt[0]:
                return True
            best = _distinct(current.ravel(), total.ravel(), width)
            if not len(best):
                break
            narrowed |= len(best) == width or bool((total[:, width - 1 :] >= 0).any())
            after = self._new_beam(len(best), beam.placed.shape[1] + 1)
            choices = chosen.reshape(-1, 4)[best]
            cutting = self._spaces_compiled.new_cutting()
            before, extended, memory = map(self._tables.table_of, (beam, after, cutting))
            parents = best // chosen.shape[1]
            self._compiled.extend(
                self._problem_tables(), before, parents, choices, extended, memory
            )
            beam = after
        return narrowed

    def _expand(self, beam: Beam, width: int, deadline: float) -> Arrays:
        """Return the successors of a beam with the best completions; keep the best load."""
        # 1. Memory for the successors, and a record of the best load for each slice of the rows.
        rows, number = len(beam.volume), min(width, len(self._loading.room.order))
        successors = (
            np.zeros((rows, number, 4), np.int64),
            np.zeros((rows, number)),
            np.full((rows, number), -1.0),
        )
        slices = min(rows, _SLICES * self._threads)
        edges = [rows * k // slices for k in range(slices + 1)]
        records = [
            (np.empty((self._most, 7), np.int64), np.zeros(1, np.int64), np.full(1, self.best))
            for _ in range(slices)
        ]
        memories = [self._new_memory(number) for _ in range(slices)]
        table_of = self._tables.table_of
        expand = partial(self._compiled.expand, self._problem_tables(), table_of(beam), successors)
        calls = [
            partial(expand, record, tuple(map(table_of, memory)), part, self._halt)
            for record, memory, part in zip(records, memories, pairwise(edges), strict=True)
        ]
        # 2. Expand the slices in threads; after an interrupt, too, keep the best load so far.
        try:
            self._carry_out(calls, deadline)
        finally:
            self.tried += int((successors[2] >= 0).sum())
            before = self.best
            for placed, number_placed, volume in records:
                if volume[0] > self.best:
                    self.best, self._plan = float(volume[0]), placed[: number_placed[0]].copy()
            if self.progress is not None and self.best > before:
                self.progress(self.best / math.prod(self._problem.container))
        return successors

    def _num_spaces(self, rows: int) -> int:
        """Return how many spaces each load of a beam has room for."""
        return max(min(4 * self._most, _MOST_SPACES, _ALL_SPACES // rows), _FEWEST_SPACES)

    def _new_beam(self, rows: int, placed: int) -> Beam:
        return Beam(
            spaces=np.zeros((rows, self._num_spaces(rows), 7), np.int64),
            num_spaces=np.zeros(rows, np.int64),
            placed=np.zeros((rows, placed, 7), np.int64),
            num_placed=np.zeros(rows, np.int64),
            left=np.zeros((rows, len(self._counts)), np.int32),
            volume=np.zeros(rows),
        )

    def _root(self) -> Beam:
        empty = initial_spaces(self._problem, self._sides)
        beam, rules = self._new_beam(len(empty), 0), self._loading.rules
        beam.left[:] = self._counts
        gap = np.array([*self._problem.gap] * 2)
        spaced = np.maximum(self._loading.room.before + gap * np.array([0, 0, 0, 1, 1, 1]), 0)
        cutting = self._spaces_compiled.new_cutting()
        for row, space in enumerate(empty):
            beam.spaces[row, 0] = *space, rules.active
            beam.num_spaces[row] = self._spaces_compiled.cut_spaces(
                self._problem_tables(), beam.spaces[row], spaced, self._tables.table_of(cutting)
            )
        return beam

    def boxes(self) -> np.ndarray:
        """Return kind, orientation and corner of the boxes of the best load, ``[N, 5]``.

        Without rules, the boxes are lowered onto each other, the lowest first. With rules, the
        boxes are in the order of packing.

        Raises:
            KeyboardInterrupt: Not all boxes have been lowered.
        """
        grids, corners = self._placed_grids()
        rules = self._loading.rules
        number = self._repeats[grids, 2:].prod(-1)
        if number.sum() > _MANY:
            _LOGGER.info("places of %s boxes", f"{number.sum():,}")
        if rules.active:
            load = in_order(self._problem, self._repeats[:, 0], grids, corners, rules)
            return np.concatenate([self._repeats[load[:, 0], :2], load[:, 1:]], 1)
        # 1. Take the grids apart.
        grid = np.repeat(grids, number)
        step = np.arange(len(grid)) - np.repeat(np.cumsum(number) - number, number)
        along_y, along_z = self._repeats[grid, 3], self._repeats[grid, 4]
        steps = np.stack([step // along_z // along_y, step // along_z % along_y, step % along_z], 1)
        corners = np.repeat(corners, number, 0) + steps * self._sides[grid]
        # 2. Lower the boxes, the lowest first.
        order = np.lexsort(corners.T)
        grid, corners = grid[order], np.ascontiguousarray(corners[order])
        sides = self._sides[grid]
        strips = floor_strips(corners[:, :2], sides[:, :2])
        lower = self._blocks_compiled.lower_boxes
        self._halt[0] = 0
        self._carry_out([lambda: lower(corners, sides, strips, self._halt)], math.inf)
        return np.concatenate([self._repeats[grid, :2], corners], 1)

    def _placed_grids(self) -> Arrays:
        """Return the grids of the best load ``[G]`` and their lower corners ``[G, 3]``."""
        pending = [(int(row[6]), row[:3].tolist()) for row in self._plan[::-1]]
        sides, first = self._loading.blocks.sides, len(self._repeats)
        grids, corners = [], []
        while pending:
            block, corner = pending.pop()
            if block < first:
                grids.append(block)
                corners.append(corner)
                continue
            one, other, axis = self._parts[block].tolist()
            beside = list(corner)
            beside[axis] += int(sides[one, axis])
            pending += [(other, beside), (one, corner)]  # the first part comes first
        return np.array(grids, np.int64), np.array(corners, np.int64).reshape(-1, 3)


@cache
def compile_kernels() -> None:
    """Compile the kernels, or load them from the cache; no search then waits for them."""
    types = [BoxType([(1, 1, 1)], 2), BoxType([(1, 2, 2)], 1)]
    with ThreadPoolExecutor(1) as pool:
        for rules in (None, LoadRules("com_hull")):  # only loads without rules lower boxes
            problem = Problem((2, 2, 2), types, rules)
            search = Search(problem, pool, 1, math.inf)
            problem.whole = math.inf  # continue although the first load is complete
            search.run(2)
            search.boxes()
    Places(problem).with_one_more(np.zeros((0, 4), np.int64), 0)


def _distinct(current: np.ndarray, total: np.ndarray, width: int) -> np.ndarray:
    """Return the successors with the largest completions; drop repeated pairs of volumes."""
    order = np.flatnonzero(total >= 0)
    order = order[np.argsort(-total[order], kind="stable")]
    pairs = np.stack([current[order], total[order]])
    alike = np.lexsort(pairs)
    changes = (np.diff(pairs[:, alike]) != 0).any(0)
    firsts = alike[np.concatenate([[True], changes])] if len(alike) else alike
    return order[np.sort(firsts)[:width]]
