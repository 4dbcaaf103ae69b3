"""A step on cuboids of whole cells, compiled for the CPU: one pass over the batch.

Rows are handled in the blocks of `kernels.cuboids.numba`: each row of a block takes its decision,
then the maps of the block are found from heights that are still in the L1 cache, and then each row
is observed.
"""

from __future__ import annotations

from collections import namedtuple
from functools import cache
from typing import Any

import numpy as np
from torch import Tensor

from packing_env.kernels.compiled import bytes as vectors
from packing_env.kernels.compiled import stability_rules as rules
from packing_env.kernels.compiled.jit import addresses_of, jit, jit_arrays, kernel, run
from packing_env.kernels.compiled.stable import NONE, stands
from packing_env.kernels.cuboids import loops
from packing_env.kernels.cuboids.numba import (
    LANES,
    find_maps,
    make_buffers,
    num_blocks,
    tables_of,
    task_of,
)
from packing_env.kernels.layout import HALF_CELL
from packing_env.kernels.stability_rules import NAMES
from packing_env.kernels.step import lines, shared
from packing_env.kernels.step.entries import MASK, Counts, Observations, Tensors
from packing_env.kernels.step.observe import observe, reset_finished

_ENTRIES = len(Observations._fields)

_CACHE_LINE = 64
"""Bytes that are fetched at once."""

Block = namedtuple("Block", "levels highest total item legal placement playable size raised edges")
"""Memory of the rows of a block (lanes).

- ``levels [lanes, ...]``: heights in cells, each container's in one line with zeros behind it (see
  `step.lines`); ``highest`` and ``total`` are their maximum and their sum;
- ``item``, ``legal``, ``placement [lanes, 4]``: the decision, (slot, orientation, x, y);
- ``playable``: whether any placement is legal next;
- ``size [lanes, 3]``: the item that is searched; ``raised [lanes, ...]``: its rest height + 1 at
  each place of the lattice, 0 where illegal;
- ``edges``: those of `compiled.stable`.
"""


@jit_arrays
def _make_block(shape, window, lanes):
    """Return the memory of a block."""
    line = lines.padded(shape[0] * shape[1])
    pitch = line + window[1] - 1
    levels = np.zeros(lanes * pitch + vectors.WIDTH, np.uint8)
    return Block(
        levels[: lanes * pitch].reshape(lanes, pitch),
        np.zeros(lanes, np.int64),
        np.zeros(lanes, np.int64),
        np.zeros(lanes, np.int64),
        np.zeros(lanes, np.bool_),
        np.zeros((lanes, 4), np.int64),
        np.zeros(lanes, np.bool_),
        np.zeros((lanes, 3), np.int32),
        np.zeros((lanes, line), np.uint8),
        np.zeros((2, window[0] + 2), np.float64),
    )


@jit
def _read(heightmap, first, cell, block):
    """Read heights in cells, and the highest and the sum of each row."""
    heights, levels = heightmap.reshape(-1), block.levels.reshape(-1)
    cells, line = heightmap[0].size, block.raised.shape[1]
    for lane in range(min(block.item.size, heightmap.shape[0] - first)):
        # Unsigned, as an index that could be negative is checked in every iteration.
        source, here = np.uint64((first + lane) * cells), np.uint64(lane * block.levels.shape[1])
        for place in range(cells):
            k = np.uint64(place)
            levels[here + k] = np.uint8(np.int32(heights[source + k] / cell))
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
    """Find the placement and the item of each row's action, and look up whether it is legal.

    Legality and items are looked up in a loop of their own, so that many reads wait for memory at
    once. It also fetches the memory that is written later: what is legal next, four numbers of the
    record, and one of each of three other entries.
    """
    num_actions = state.legal.shape[1]
    for lane in range(min(block.item.size, action.shape[0] - first)):
        index, slot, orientation, x, y = shared.decode(action, first + lane, shape, stride)
        placement = block.placement[lane]
        placement[0], placement[1], placement[2], placement[3] = slot, orientation, x, y
        block.item[lane] = index
        flags = state.legal.ctypes.data + (first + lane) * num_actions
        for line in range(0, num_actions, _CACHE_LINE):
            vectors.fetch(flags + line)
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
def _stands(rule, levels, near, window, top, count, edges):
    """Evaluate a stability rule on ``count`` cells as high as ``top`` under a cuboid.

    The window's first cell is ``levels[near]``, ``window`` its sides and the container's width.
    """
    w, h, width = window
    area = w * h
    if rule == NONE or count == area:  # every rule accepts support by all cells
        return True
    in_hull = 2 * count > area  # on one side of a line through the centre lie half at most
    if rules.HULLS[rule] and not in_hull:
        lines.find_edges(levels.ctypes.data + near, window, top, edges)
    far = near + (w - 1) * width
    corners = (levels[near], levels[near + h - 1], levels[far], levels[far + h - 1])
    com = (HALF_CELL * w, HALF_CELL * h)
    return stands(rule, count, area, corners, top, 0, in_hull, edges, (w, h), com)


@jit
def _commit(state, items, lane, row, counts, lengths, buffers, block):
    """Put a row's item down: see `core.transition.decide`."""
    width, move, item = state.heightmap.shape[2], block.placement[lane], block.item[lane]
    placement = (move[0], move[1], move[2], move[3])
    cuboid, x, y = items.cuboid[item, move[1]], move[2], move[3]
    w, h = np.int64(cuboid[0]), np.int64(cuboid[1])
    levels, near, window = block.levels[lane], x * width + y, (w, h, width)
    corner = levels.ctypes.data + near
    rest, count = lines.find_ground(corner, window, buffers)
    stable = _stands(counts.metric_rule, levels, near, window, rest, count, block.edges)
    top, ratio, volume = rest + cuboid[2], np.float64(count) / np.float64(w * h), items.volume[item]
    z = np.float32(rest * lengths.cell)
    shared.record(state, row, placement, z, ratio, stable, volume)
    block.highest[lane] = max(block.highest[lane], top)
    block.total[lane] += top * w * h - lines.cover(corner, window, buffers, top)
    metres = np.float32(top * lengths.cell)
    for u in range(x, x + w):
        for v in range(y, y + h):
            state.heightmap[row, u, v] = metres


@jit
def _decide(state, items, first, counts, lengths, buffers, block, outcome):
    """Put the items down where that is legal and the row unfinished."""
    for lane in range(min(block.item.size, state.step.size - first)):
        if shared.note(state, first + lane, block.legal[lane], outcome):
            _commit(state, items, lane, first + lane, counts, lengths, buffers, block)


@jit
def _list_sizes(state, items, first, p, size):
    """Write the sides of each row's p-th visible item and orientation, 0 for none."""
    slot, orientation = p // items.cuboid.shape[1], p % items.cuboid.shape[1]
    for lane in range(size.shape[0]):
        row, sides = first + lane, size[lane]
        sides[0] = sides[1] = sides[2] = 0
        if row < state.step.size and slot < state.num_items[row] - state.items_packed[row]:
            item = state.item_id[row, state.queue[row, slot]]
            for side in range(3):
                sides[side] = items.cuboid[item, orientation, side]


@jit
def _find_rest(block, rows, container, buffers):
    """Find where the items of ``block.size`` come to rest if there is no stability rule."""
    for lane in range(rows):
        size = block.size[lane]
        sides = (np.int64(size[0]), np.int64(size[1]), np.int64(size[2]))
        line, raised = block.levels[lane].ctypes.data, block.raised[lane].ctypes.data
        lines.find_rest(line, sides, container, buffers, raised)


@jit
def _write_places(block, first, p, lookup, observations):
    """Write legality and rest heights of each row's p-th map; note where any is legal."""
    mask, drop_height = observations.mask, observations.drop_height
    levels, heights, flags = block.raised.reshape(-1), drop_height.reshape(-1), mask.reshape(-1)
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
def _find_places(state, items, first, counts, buffers, tables, task, block, observations):
    """Find where each visible item may be put and comes to rest."""
    _, length, width = state.heightmap.shape
    of_block, of_row = buffers
    block.playable[:] = False
    by_row = counts.rule == NONE and counts.stride == 1
    if not by_row:
        loops.fill_ground(block.levels, width, of_block.step, of_block.ground)
    for p in range(observations.mask.shape[1]):
        _list_sizes(state, items, first, p, block.size)
        if by_row:
            rows = min(block.item.size, state.step.size - first)
            _find_rest(block, rows, (length, width, counts.height), of_row)
        else:
            find_maps(of_block, block.size, task, tables)
            loops.gather_rows(of_block.raised, of_block.stable, block.raised)
        _write_places(block, first, p, items.drop_height, observations)


@kernel
def _advance(state, action, items, pool, places, counts, lengths, tables, begin, stop):
    """Take one decision in the blocks begin <= block < stop of rows of the batch.

    ``places`` are the addresses of the observations, of those after resets and of the outcome.
    Where there are observations after resets, finished rows start their next episode.
    """
    batch, length, width = state.heightmap.shape
    shape = shared.lattice(state, items, counts)
    observations = shared.observations_at(places, state, items, counts)
    start = shared.observations_at(places[_ENTRIES:], state, items, counts)
    outcome = shared.outcome_at(places[2 * _ENTRIES :], batch)
    window, lanes, (search, task) = (counts.across, counts.along), min(LANES, batch), tables
    buffers = (
        make_buffers((length, width), shape[2:4], task, lanes, search[1]),
        lines.make_buffers((length, width), window),
    )
    block = _make_block((length, width), window, lanes)
    for index in range(begin, stop):
        first, last = index * lanes, min((index + 1) * lanes, batch)
        _read(state.heightmap, first, np.float32(lengths.cell), block)
        _measure(state, first, block, lengths, outcome.before)
        _decode(state, action, first, shape, counts.stride, block)
        _decide(state, items, first, counts, lengths, buffers[1], block, outcome)
        _measure(state, first, block, lengths, outcome.after)
        _find_places(state, items, first, counts, buffers, search, task, block, observations)
        for row in range(first, last):
            playable = block.playable[row - first]
            shared.end(state, row, playable, counts, outcome, observations)
        observe(state, items, first, last, counts, lengths, outcome, observations)
        if start.done.size:
            reset_finished(state, pool, items, first, last, counts, lengths, observations, start)
        mask = start.mask if start.done.size else observations.mask
        for row in range(first, last):
            shared.keep_legality(state, row, mask)


@cache
def _tables(counts: Counts) -> tuple[Any, ...]:
    """Return what the search for placements looks up, and its task."""
    window = (counts.across, counts.along)
    task = task_of(counts.height, window, NAMES[counts.rule], counts.stride)
    return tables_of(*window), task


def advance(constant: Any, action: Tensor, *filled: Tensors) -> None:
    """Run `packing_env.kernels.step.advance_cells`; ``constant`` is from `shared.constants`."""
    state, items, pool, counts, lengths = constant
    observations, start, outcome = filled
    kept = (*observations, *start, *outcome)
    # Of a CPU's tensors: `numpy` shares their memory, nothing is read or copied.
    tables = _tables(counts)
    given = (state, action.numpy(), items, pool, addresses_of(kept), counts, lengths, tables)
    work = observations[MASK].numel() * (counts.across + counts.along)
    run(_advance, given, num_blocks(state.step.size), work, keep=kept)
