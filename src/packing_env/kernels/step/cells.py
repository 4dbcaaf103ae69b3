"""A step on cuboids of whole cells, compiled for the CPU: one pass over the batch.

Rows are handled in the blocks of `kernels.cuboids.numba`. First each row of a block takes its
decision. Then the maps of the block are computed, while its heights are still in the L1 cache.
Finally, each row is observed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from packing_env.kernels.compiled import bytes as vectors
from packing_env.kernels.compiled import stability_rules as rules
from packing_env.kernels.compiled.jit import jit, kernel, run
from packing_env.kernels.compiled.stable import NONE, stands
from packing_env.kernels.compiled.tables import allocate, flat, reader, table, zeros
from packing_env.kernels.cuboids import loops
from packing_env.kernels.cuboids.numba import LANES, Search, as_search, find_maps, new_search
from packing_env.kernels.layout import HALF_CELL
from packing_env.kernels.step import lines, shared
from packing_env.kernels.step.entries import MASK, Tensors, declare_entries
from packing_env.kernels.step.lines import Columns, as_columns, new_columns
from packing_env.kernels.step.observe import observe, reset_finished

_CACHE_LINE = 64
"""Number of bytes of a cache line, which is prefetched as a whole."""

Block = declare_entries(
    "Block",
    """
    levels     uint8    lanes pitch
    highest    int64    lanes
    total      int64    lanes
    item       int64    lanes
    legal      bool     lanes
    placement  int64    lanes 4
    playable   bool     lanes
    size       int32    lanes 3
    raised     uint8    lanes line
    edges      float64  2 U+2
    """,
)
"""Memory for the rows (lanes) of a block.

- ``levels``: heights in cells; the heights of a container are one line, followed by zeros (see
  `step.lines`). ``highest`` and ``total``: the maximum and the sum of each line;
- ``item``, ``legal``, ``placement``: the decision, where a placement is (slot, orientation, x, y);
- ``playable``: whether any placement is legal after the decision;
- ``size``: the sides of the item in the current search. ``raised``: its rest height + 1 at each
  place of the lattice, 0 if illegal;
- ``edges``: the edges of `compiled.stable`.
"""

as_block = reader(Block)


def _new_block(shape: Sequence[int], counts: Any, lanes: int) -> list[Tensor]:
    """Return the memory of a block, padded so that a vector after the last line can be read."""
    # Lines are whole vectors; the search along y reads up to a window beyond the last cell.
    line = lines.padded(shape[0] * shape[1])
    pitch = line + counts.along - 1
    sizes = {"lanes": lanes, "pitch": pitch, "line": line, "U": counts.across}
    levels = zeros(lanes * pitch + vectors.WIDTH)[: lanes * pitch].view(lanes, pitch)
    return list(allocate(Block, sizes)._replace(levels=levels))


@jit
def _read(heightmap, first, cell, block):
    """Fill in the heights in cells, and the maximum and the sum of each row."""
    heights, levels = flat(heightmap), flat(block.levels)
    cells, line = heightmap[0].size, block.raised.shape[1]
    for lane in range(min(block.item.size, heightmap.shape[0] - first)):
        # Unsigned, because signed indices would be checked for negative values in every iteration.
        source, here = np.uint64((first + lane) * cells), np.uint64(lane * block.levels.shape[1])
        for place in range(cells):
            k = np.uint64(place)
            levels[here + k] = np.uint8(np.int32(heights[source + k] / cell))
        # Whole vectors are read; the zeros after a line change neither the maximum nor the sum.
        peak, under = np.uint8(0), np.uint32(0)
        for place in range(line):
            level = levels[here + np.uint64(place)]
            peak = level if level > peak else peak
        for place in range(line):
            under += np.uint32(levels[here + np.uint64(place)])
        block.highest[lane], block.total[lane] = peak, under


@jit
def _measure(state, first, block, lengths, measured):
    """Compute the metrics of each row from its heights in cells."""
    for lane in range(min(block.item.size, measured.shape[1] - first)):
        peak = block.highest[lane] * lengths.cell
        filled = block.total[lane] * lengths.cell * lengths.cell_area
        shared.measure(state, first + lane, peak, filled, lengths, measured)


@jit
def _decode(state, action, first, shape, stride, block):
    """Find the placement and the item of each row's action, and whether it is legal.

    Legality and items are looked up in a second loop, so that many reads wait for memory at the
    same time. The first loop also prefetches memory that is written later: the next legality, the
    four numbers of the record, and one number of each of three other entries.
    """
    num_actions = state.legal.shape[1]
    # 1. Compute the placements by arithmetic alone.
    for lane in range(min(block.item.size, action.shape[0] - first)):
        index, slot, orientation, x, y = shared.decode(action, first + lane, shape, stride)
        placement = block.placement[lane]
        placement[0], placement[1], placement[2], placement[3] = slot, orientation, x, y
        block.item[lane] = index
        # Prefetch this row's legality: the next loop reads it, the end of the step writes it.
        flags = state.legal.ctypes.data + (first + lane) * num_actions
        for line in range(0, num_actions, _CACHE_LINE):
            vectors.fetch(flags + line)
    # 2. Legality and items.
    for lane in range(min(block.item.size, action.shape[0] - first)):
        row = first + lane
        block.legal[lane] = shared.is_legal(state, row, block.item[lane])
        slot = block.placement[lane, 0] if block.legal[lane] else np.int64(0)
        block.item[lane] = state.item_id[row, state.queue[row, slot]]
        entry = row * state.placement.shape[1] + state.items_packed[row]
        vectors.fetch(state.placement.ctypes.data + 32 * entry)
        vectors.fetch(state.placement_z.ctypes.data + 4 * entry)
        vectors.fetch(state.placement_support.ctypes.data + 4 * entry)
        vectors.fetch(state.packed.ctypes.data + entry)


@jit
def _find_ground(levels, near, window):
    """Return the highest cell of a window, and the number of cells at this height.

    ``levels[near]`` is the window's first cell; ``window`` holds its sides and the container's
    width.
    """
    w, h, width = window
    top, count = np.uint8(0), np.int64(0)
    for u in range(w):
        first = np.uint64(near + u * width)
        for v in range(h):
            level = levels[first + np.uint64(v)]
            count = (np.int64(0) if level > top else count) + np.int64(level >= top)
            top = level if level > top else top
    return np.int64(top), count


@jit
def _find_edges(levels, near, window, top, edges):
    """Write the edges of the cells at height ``top``; see `compiled.stable`."""
    # The edges of a window row without such cells stay -inf.
    w, h, width = window
    edges[:] = -np.inf
    for u in range(w):
        first = np.uint64(near + u * width)
        for v in range(h):
            if levels[first + np.uint64(v)] == top:
                edges[0, u + 1] = v + 1
                edges[1, u + 1] = max(edges[1, u + 1], np.float64(-v))


@jit
def _stands(rule, levels, near, window, top, count, edges):
    """Return whether a cuboid is stable if ``count`` of the cells under it are at level ``top``."""
    w, h, width = window
    area = w * h
    # 1. Results that do not need a hull.
    if rule == NONE or count == area:  # every rule accepts support by all cells
        return True
    in_hull = 2 * count > area  # half of them at most lie on one side of the centre
    # 2. For a rule with a hull: the edges of the supporting cells.
    if rules.HULLS[rule] and not in_hull:
        _find_edges(levels, near, window, top, edges)
    far = near + (w - 1) * width
    corners = (levels[near], levels[near + h - 1], levels[far], levels[far + h - 1])
    com = (HALF_CELL * w, HALF_CELL * h)
    return stands(rule, count, area, corners, top, 0, in_hull, edges, (w, h), com)


@jit
def _commit(state, items, lane, row, counts, lengths, block):
    """Commit a row's placement: see `core.transition.decide`."""
    # 1. Find the item, and the window under it.
    width, move, item = state.heightmap.shape[2], block.placement[lane], block.item[lane]
    placement = (move[0], move[1], move[2], move[3])
    cuboid, x, y = items.cuboid[item, move[1]], move[2], move[3]
    w, h = np.int64(cuboid[0]), np.int64(cuboid[1])
    levels, near, window = block.levels[lane], x * width + y, (w, h, width)
    # 2. Rest height and support. The placement is legal, so its window is inside the container.
    rest, count = _find_ground(levels, near, window)
    stable = _stands(counts.metric_rule, levels, near, window, rest, count, block.edges)
    top, ratio, volume = rest + cuboid[2], np.float64(count) / np.float64(w * h), items.volume[item]
    # 3. Record it.
    z = np.float32(rest * lengths.cell)
    shared.record(state, row, placement, z, ratio, stable, volume)
    # 4. Raise the window, here and in the state's heights, which are in metres.
    level, metres, covered = np.uint8(top), np.float32(top * lengths.cell), np.int64(0)
    heights = flat(state.heightmap[row])
    for u in range(w):
        first = np.uint64(near + u * width)
        for v in range(h):
            k = first + np.uint64(v)
            covered += np.int64(levels[k])
            levels[k], heights[k] = level, metres
    block.highest[lane] = max(block.highest[lane], top)
    block.total[lane] += top * w * h - covered


@jit
def _decide(state, items, first, counts, lengths, block, outcome):
    for lane in range(min(block.item.size, state.step.size - first)):
        if shared.note(state, first + lane, block.legal[lane], outcome):
            _commit(state, items, lane, first + lane, counts, lengths, block)


@jit
def _list_sizes(state, items, first, p, size):
    """Write the sides of each row's p-th plane (item and orientation); 0 without an item."""
    slot, orientation = p // items.cuboid.shape[1], p % items.cuboid.shape[1]
    for lane in range(size.shape[0]):
        row, sides = first + lane, size[lane]
        sides[0] = sides[1] = sides[2] = 0
        if row < state.step.size and slot < state.num_items[row] - state.items_packed[row]:
            item = state.item_id[row, state.queue[row, slot]]
            for side in range(3):
                sides[side] = items.cuboid[item, orientation, side]


@jit
def _write_places(block, first, p, lookup, observations):
    """Write legality and rest heights of each row's p-th plane, and note whether any is legal."""
    mask, drop_height = observations.mask, observations.drop_height
    levels, heights, flags = flat(block.raised), flat(drop_height), flat(mask)
    _, planes, places = mask.shape
    for lane in range(min(block.item.size, mask.shape[0] - first)):
        here = np.uint64(lane * block.raised.shape[1])
        there = np.uint64(((first + lane) * planes + p) * places)
        if places >= vectors.WIDTH:
            source = levels.ctypes.data + np.int64(here)
            target = flags.ctypes.data + np.int64(there)
            block.playable[lane] |= lines.mark_legal(source, places, target)
        else:
            for place in range(places):
                k = np.uint64(place)
                flags[there + k] = levels[here + k] != 0
                block.playable[lane] |= levels[here + k] != 0
        for place in range(places if drop_height.size else 0):
            k = np.uint64(place)
            heights[there + k] = lookup[levels[here + k]]


@jit
def _find_in_lines(state, items, first, counts, columns, block, observations):
    """Find the rest heights of each visible item, row by row, without a stability rule."""
    _, length, width = state.heightmap.shape
    container, rows = (length, width, counts.height), min(block.item.size, state.step.size - first)
    block.playable[:] = False
    for p in range(observations.mask.shape[1]):
        _list_sizes(state, items, first, p, block.size)
        for lane in range(rows):
            size = block.size[lane]
            sides = (np.int64(size[0]), np.int64(size[1]), np.int64(size[2]))
            line, raised = block.levels[lane].ctypes.data, block.raised[lane].ctypes.data
            lines.find_rest(line, sides, container, columns, raised)
        _write_places(block, first, p, items.drop_height, observations)


@jit
def _find_in_maps(
    state, items, first, counts, search, with_hulls, with_corners, block, observations
):
    """Find rest heights and stability of each visible item, for all rows of the block at once."""
    width = state.heightmap.shape[2]
    step = (counts.stride, search.columns, search.lanes)
    loops.fill_ground(block.levels, width, step, search.ground)
    block.playable[:] = False
    for p in range(observations.mask.shape[1]):
        _list_sizes(state, items, first, p, block.size)
        find_maps(search, block.size, width, counts, with_hulls, with_corners)
        loops.gather_rows(search.raised, search.stable, block.raised)
        _write_places(block, first, p, items.drop_height, observations)


@kernel
def _advance(
    tables, action, filled, scratch, in_lines, kinds, with_hulls, with_corners, begin, stop
):
    """Carry out one decision in each row of the blocks begin <= block < stop.

    ``tables`` are the tables of `shared.Constants`. ``filled`` are tables of the observations, of
    the observations after resets, and of the outcome. ``scratch`` are tables of `Block`, `Columns`
    and `Search`. If there are observations after resets, finished rows start their next episode.
    The arguments from ``in_lines`` to ``with_corners`` are None if the task does not use that part;
    the part is then not compiled.
    """
    state, items, pool = (
        shared.as_state(tables[0]),
        shared.as_items(tables[1]),
        shared.as_pool(tables[2]),
    )
    counts, lengths = shared.as_counts(tables[3]), shared.as_lengths(tables[4])
    observations, start = shared.as_observations(filled[0]), shared.as_observations(filled[1])
    outcome = shared.as_outcome(filled[2])
    block, columns = as_block(scratch[0]), as_columns(scratch[1])
    shape = shared.lattice(state, items, counts)
    batch, lanes = state.step.size, block.item.size
    # One block at a time: its heights stay in the L1 cache during all phases.
    for index in range(begin, stop):
        first, last = index * lanes, min((index + 1) * lanes, batch)
        # 1. Compute heights in cells, and the metrics before the decision.
        _read(state.heightmap, first, np.float32(lengths.cell), block)
        _measure(state, first, block, lengths, outcome.before)
        # 2. Decode, look up, commit.
        _decode(state, action, first, shape, counts.stride, block)
        _decide(state, items, first, counts, lengths, block, outcome)
        _measure(state, first, block, lengths, outcome.after)
        # 3. Legality of every placement after the decision.
        if in_lines is not None:
            _find_in_lines(state, items, first, counts, columns, block, observations)
        if kinds is not None:
            search = as_search(scratch[2], kinds)
            _find_in_maps(
                state, items, first, counts, search, with_hulls, with_corners, block, observations
            )
        # 4. Flags and observations; finished rows begin their next episode.
        for row in range(first, last):
            playable = block.playable[row - first]
            shared.end(state, row, playable, counts, outcome, observations)
        observe(state, items, first, last, counts, lengths, outcome, observations)
        if start.done.size:
            reset_finished(state, pool, items, first, last, counts, lengths, observations, start)
        # 5. Store the legality in the state.
        mask = start.mask if start.done.size else observations.mask
        for row in range(first, last):
            shared.keep_legality(state, row, mask)


class _Scratch:
    """Memory for one thread's share of the batch.

    Attributes:
        tables: Tables of `Block`, `Columns` and, if it is used, `Search`.
        options: Further arguments of the kernel, from ``in_lines`` on.
    """

    def __init__(self, shape: Sequence[int], counts: Any, lanes: int) -> None:
        window = (counts.across, counts.along)
        self._memory = [_new_block(shape, counts, lanes), new_columns(shape, window)]
        in_lines: bool | None = True
        kinds = None
        if counts.rule != NONE or counts.stride > 1:
            search, kinds = new_search(shape, counts, lanes)
            self._memory.append(search)
            in_lines = None
        self.tables = tuple(map(table, (Block, Columns, Search), self._memory))
        with_hulls, with_corners = (
            True if looks[counts.rule] else None for looks in (rules.HULLS, rules.CORNERS)
        )
        self.options = (in_lines, kinds, with_hulls, with_corners)


def advance(constants: shared.Constants, action: Tensor, *filled: Tensors) -> None:
    """Run `packing_env.kernels.step.advance_cells`."""
    observations, start, outcome = filled
    tables = (
        constants.observations.table(observations),
        constants.observations.table(start),
        constants.outcome.table(outcome),
    )
    counts, lanes = constants.counts, min(LANES, constants.batch)

    def arguments(part: int) -> tuple[Any, ...]:
        scratch = constants.scratch.get((lanes, part))
        if scratch is None:
            scratch = constants.scratch[lanes, part] = _Scratch(constants.shape, counts, lanes)
        return constants.tables, action.numpy(), tables, scratch.tables, *scratch.options

    work = observations[MASK].numel() * (counts.across + counts.along)
    alive = (*observations, *start, *outcome, constants)
    run(_advance, arguments, -(-constants.batch // LANES), work, keep=alive)
