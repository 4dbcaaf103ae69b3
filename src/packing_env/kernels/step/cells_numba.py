"""The operations of `kernels.step.cells` compiled for the CPU.

Rows are handled in the blocks of `kernels.cuboids.numba`: each row of a block takes its decision,
then the maps of the block are found from heights that are still in the L1 cache, and then each row
is shown. Sums and quotients are written as in `core.metrics`, so that they round alike.
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from packing_env.kernels.compiled import bytes as vectors
from packing_env.kernels.compiled.jit import addresses_of, array_at, jit, jit_arrays, kernel, run
from packing_env.kernels.cuboids import loops
from packing_env.kernels.cuboids.numba import (
    LANES,
    find_maps,
    make_buffers,
    num_blocks,
    tables_of,
    task_of,
)
from packing_env.kernels.rules import NAMES as RULES
from packing_env.kernels.step import cells as names
from packing_env.kernels.step import cells_flat as flat
from packing_env.kernels.step import cells_rest as single
from packing_env.kernels.step.cells_show import (
    Items,
    Shown,
    entries_at,
    show_heights,
    show_items,
    show_metrics,
    show_next,
    show_places,
    show_start,
)
from packing_env.kernels.step.shared import (
    State,
    as_arrays,
    begin_episode,
    entries,
    quotient,
    take_from_queue,
)

Outcome = entries("Outcome", names.OUTCOME, __name__)
_ENTRIES = len(names.SHOWN)
_MASK, _METRICS = names.SHOWN.index("mask"), names.SHOWN.index("metrics")
Counts = entries("Counts", names.COUNTS, __name__)
Lengths = entries("Lengths", names.LENGTHS, __name__)

Found = namedtuple(
    "Found",
    "levels highest total rest count item stable asked live playable move size raised edges",
)
"""What is known of the rows of a block: ``levels [lanes, ...]`` heights in cells, a container's in
one line with zeros behind it (see `kernels.step.cells_flat`), the highest and the sum of them; of
the placements (``move [lanes, 4]``: slot, orientation, x, y; -1 where it is none) the rest height,
the supporting cells and the item; of the item that is looked at its ``size [lanes, 1, 3]`` and
``raised [lanes, ...]``, its rest height + 1 at each place of the lattice, 0 where it may not be;
scratch memory."""


@jit_arrays
def _outcome_at(places, batch):  # type: ignore[no-untyped-def]
    return Outcome(
        array_at(places[0], (batch,), np.bool_),
        array_at(places[1], (batch,), np.bool_),
        array_at(places[2], (names.NUM_METRICS, batch), np.float64),
        array_at(places[3], (names.NUM_METRICS, batch), np.float64),
    )


@jit_arrays
def _room_of_rows(shape, window, lanes):  # type: ignore[no-untyped-def]
    whole = np.zeros((5, lanes), np.int64)
    flags = np.zeros((4, lanes), np.bool_)
    line = flat.padded(shape[0] * shape[1])
    pitch = line + window[1] - 1
    levels = np.zeros(lanes * pitch + vectors.WIDTH, np.uint8)
    return Found(
        levels[: lanes * pitch].reshape(lanes, pitch),
        whole[0],
        whole[1],
        whole[2],
        whole[3],
        whole[4],
        flags[0],
        flags[1],
        flags[2],
        flags[3],
        np.zeros((lanes, 4), np.int64),
        np.zeros((lanes, 1, 3), np.int32),
        np.zeros((lanes, line), np.uint8),
        np.zeros((2, window[0] + 2), np.int64),
    )


@jit
def _read_levels(heightmap, first, cell, found):  # type: ignore[no-untyped-def]
    """Heights in cells, and the highest and the sum of each row."""
    heights, levels = heightmap.reshape(-1), found.levels.reshape(-1)
    cells, line = heightmap[0].size, found.raised.shape[1]
    for lane in range(min(found.live.size, heightmap.shape[0] - first)):
        source, here = np.uint64((first + lane) * cells), np.uint64(lane * found.levels.shape[1])
        for place in range(cells):
            k = np.uint64(place)
            levels[here + k] = np.uint8(np.int32(heights[source + k] / cell))
        peak, under = np.uint8(0), np.uint32(0)
        for place in range(line):
            level = levels[here + np.uint64(place)]
            peak = level if level > peak else peak
        for place in range(line):
            under += np.uint32(levels[here + np.uint64(place)])
        found.highest[lane], found.total[lane] = peak, under


@jit
def _decode(state, action, first, shape, stride, found):  # type: ignore[no-untyped-def]
    """The placement of each row, from its index or from its four; see `names.advance_cuboids`.

    Items are looked up in a loop of their own, where many reads wait for memory at once, and so
    does what `_commit` will write: four numbers of the record, one of each of three others.
    """
    _, turns, xs, ys = shape
    for lane in range(min(found.live.size, action.shape[0] - first)):
        row, move = first + lane, found.move
        if action.shape[1] == 1:
            index = action[row, 0]
            known = 0 <= index < shape[0] * turns * xs * ys
            among = np.uint32(index if known else 0)  # a mask of 2^32 places fits nowhere
            plane, place = among // np.uint32(xs * ys), among % np.uint32(xs * ys)
            move[lane, 0], move[lane, 1] = plane // np.uint32(turns), plane % np.uint32(turns)
            move[lane, 2], move[lane, 3] = place // np.uint32(ys), place % np.uint32(ys)
        else:
            known = True
            for k in range(4):
                move[lane, k] = action[row, k]
                known = known and 0 <= action[row, k] < shape[k]
        move[lane, 2] *= stride
        move[lane, 3] *= stride
        if not known:
            move[lane, 0] = -1
    for lane in range(min(found.live.size, action.shape[0] - first)):
        row = first + lane
        found.item[lane] = state.item_id[row, state.queue[row, max(0, found.move[lane, 0])]]
        record = row * state.placement.shape[1] + state.items_packed[row]
        vectors.fetch(state.placement.ctypes.data + 32 * record)
        vectors.fetch(state.placement_z.ctypes.data + 4 * record)
        vectors.fetch(state.placement_support.ctypes.data + 4 * record)
        vectors.fetch(state.packed.ctypes.data + record)


@jit
def _measure(state, first, found, lengths, measured):  # type: ignore[no-untyped-def]
    """The metrics: see `core.metrics.measure`, whose order this is."""
    for lane in range(min(found.live.size, measured.shape[1] - first)):
        row = first + lane
        volume, packed = state.volume[row], np.float64(state.items_packed[row])
        peak = found.highest[lane] * lengths.cell
        under = found.total[lane] * lengths.cell * lengths.cell_area
        measured[0, row] = volume / (lengths.base * lengths.height)
        measured[1, row] = quotient(volume, lengths.base * peak)
        measured[2, row] = quotient(volume, under)
        measured[3, row] = quotient(np.float64(state.stable_items[row]), packed)
        measured[4, row] = packed
        measured[5, row] = np.float64(state.items_packed[row] == state.num_items[row])
        measured[6, row] = peak / lengths.height
        measured[7, row] = quotient(state.support_sum[row], packed)
        measured[8, row] = np.float64(state.illegal_actions[row])
        measured[9, row] = np.float64(state.overflow[row])


@jit
def _move(found, lane):  # type: ignore[no-untyped-def]
    move = found.move
    return move[lane, 0], move[lane, 1], move[lane, 2], move[lane, 3]


@jit
def _examine(state, items, first, counts, room, found):  # type: ignore[no-untyped-def]
    """Where the chosen items come to rest, and whether they may: see `core.feasibility.examine`."""
    batch, length, width = state.heightmap.shape
    levels = found.levels.reshape(-1)
    line, pitch = levels.ctypes.data, found.levels.shape[1]
    for lane in range(min(found.live.size, batch - first)):
        row = first + lane
        found.live[lane] = not (state.terminated[row] or state.truncated[row])
        found.asked[lane] = found.stable[lane] = False
        slot, turn, x, y = _move(found, lane)
        if not 0 <= slot < state.num_items[row] - state.items_packed[row]:
            continue
        item = found.item[lane]
        if not items.orientation_mask[item, turn]:
            continue
        w, h = np.int64(items.cuboid[item, turn, 0]), np.int64(items.cuboid[item, turn, 1])
        if x + w > length or y + h > width:
            continue
        corner = lane * pitch + x * width + y
        rest, count = flat.find_ground(line + corner, (w, h, width), room)
        if rest + items.cuboid[item, turn, 2] > counts.height:
            continue
        carried = (levels, width, (corner, w, h), rest, count, found.edges)
        asked = single.stands(counts.rule, carried)
        found.rest[lane], found.count[lane] = rest, count
        found.asked[lane] = asked
        found.stable[lane] = asked and single.stands(counts.metric_rule, carried)


@jit
def _commit(state, items, first, lengths, room, found):  # type: ignore[no-untyped-def]
    """Put the items down where that is legal and the row unfinished."""
    width = state.heightmap.shape[2]
    line, pitch = found.levels.ctypes.data, found.levels.shape[1]
    for lane in range(min(found.live.size, state.step.size - first)):
        row, asked, live = first + lane, found.asked[lane], found.live[lane]
        state.step[row] += live
        state.illegal_actions[row] += live and not asked
        if not (live and asked):
            continue
        slot, turn, x, y = _move(found, lane)
        position, packed, rest = state.queue[row, slot], state.items_packed[row], found.rest[lane]
        item = found.item[lane]
        w, h = np.int64(items.cuboid[item, turn, 0]), np.int64(items.cuboid[item, turn, 1])
        ratio = np.float64(found.count[lane]) / np.float64(w * h)
        state.placement[row, packed, 0], state.placement[row, packed, 1] = position, turn
        state.placement[row, packed, 2], state.placement[row, packed, 3] = x, y
        state.placement_z[row, packed] = np.float32(rest * lengths.cell)
        state.placement_support[row, packed] = np.float32(ratio)
        state.packed[row, position] = True
        take_from_queue(state, row, slot)
        state.items_packed[row] = packed + 1
        state.stable_items[row] += found.stable[lane]
        state.support_sum[row] += ratio
        state.volume[row] += items.volume[item]
        top = rest + items.cuboid[item, turn, 2]
        found.highest[lane] = max(found.highest[lane], top)
        corner = line + lane * pitch + x * width + y
        under = flat.cover(corner, (w, h, width), room, top)
        found.total[lane] += top * w * h - under
        metres = np.float32(top * lengths.cell)
        for u in range(x, x + w):
            for v in range(y, y + h):
                state.heightmap[row, u, v] = metres


@jit
def _list_sizes(state, items, first, p, size):  # type: ignore[no-untyped-def]
    """size[lane] = sides of the l-th visible item in orientation r, p = l * R + r; 0 for none."""
    slot, turn = p // items.cuboid.shape[1], p % items.cuboid.shape[1]
    for lane in range(size.shape[0]):
        row = first + lane
        size[lane, 0, 0] = size[lane, 0, 1] = size[lane, 0, 2] = 0
        if row < state.step.size and slot < state.num_items[row] - state.items_packed[row]:
            item = state.item_id[row, state.queue[row, slot]]
            for side in range(3):
                size[lane, 0, side] = items.cuboid[item, turn, side]


@jit
def _find_rest(found, rows, container, room):  # type: ignore[no-untyped-def]
    """Where the items of ``found.size`` come to rest if no rule is asked for."""
    lines, pitch = found.levels.ctypes.data, found.levels.shape[1]
    raised, apart, size = found.raised.ctypes.data, found.raised.shape[1], found.size
    for lane in range(rows):
        w, h, d = size[lane, 0, 0], size[lane, 0, 1], size[lane, 0, 2]
        sides = (np.int64(w), np.int64(h), np.int64(d))
        flat.find_rest(lines + lane * pitch, sides, container, room, raised + lane * apart)


@jit
def _find_places(state, items, first, counts, rooms, tables, task, places, lines, found):  # type: ignore[no-untyped-def]
    """Show where each visible item may be put and comes to rest; note who can put one anywhere."""
    length, width = state.heightmap.shape[1:]
    room, room_of_one = rooms
    found.playable[:] = False
    by_row = counts.rule == 0 and counts.stride == 1
    if not by_row:
        loops.fill_ground_from_levels(found.levels, width, room.step, room.ground)
    for p in range(lines[1].shape[1] // places):
        _list_sizes(state, items, first, p, found.size)
        if by_row:
            container = (length, width, counts.height)
            _find_rest(found, min(found.live.size, state.step.size - first), container, room_of_one)
        else:
            find_maps(room, found.size, 0, 0, task, tables)
            loops.gather_rows(room.raised, room.stable, found.raised)
        seen = (items.drop_height, *lines)
        show_places(found.raised, first, p, places, seen, found.playable)


@jit
def _end(state, first, counts, found, mask, shown):  # type: ignore[no-untyped-def]
    """Whether this decision was the episode's last: see `core.transition.advance`."""
    for lane in range(min(found.live.size, state.step.size - first)):
        row = first + lane
        if found.live[lane]:
            stuck = not found.playable[lane] or state.items_packed[row] >= state.num_items[row]
            stuck = stuck or (counts.illegal_ends and not found.asked[lane])
            state.terminated[row] = stuck
            state.truncated[row] = state.step[row] >= counts.step_limit
        terminated, truncated = state.terminated[row], state.truncated[row]
        shown.terminated[row], shown.truncated[row] = terminated, truncated
        shown.done[row] = terminated or truncated
        if terminated or truncated:
            for k in range(mask.shape[1]):
                mask[row, k] = True


@kernel
def _step(state, action, items, places_of, shape, renewal, numbers, tables, begin, stop):  # type: ignore[no-untyped-def]
    """One decision in the blocks begin <= block < stop of rows of the batch.

    ``places_of`` is where in memory the entries of what is shown lie, then those of the start and
    of the outcome, 0 for none; ``shape`` that of a row's mask, and how many metrics there are.
    Where the start has entries, finished rows begin their next episode.
    """
    batch, length, width = state.heightmap.shape
    shown = entries_at(places_of, 0, state, items, shape)
    start = entries_at(places_of, _ENTRIES, state, items, shape)
    outcome = _outcome_at(places_of[2 * _ENTRIES :], batch)
    shape = shape[:4]
    counts, lengths, task = numbers
    window, lanes = (counts.across, counts.along), min(LANES, batch)
    rooms = (
        make_buffers((length, width), shape[2:], task, lanes, tables[2]),
        flat.make_room((length, width), window),
    )
    found = _room_of_rows((length, width), window, lanes)
    places = shape[2] * shape[3]
    mask = shown.mask.reshape(batch, shape[0] * shape[1] * places)
    asked = len(shown.drop_height)
    lines = (shown.drop_height.reshape(asked, mask.shape[1] if asked else 0), mask)
    for block in range(begin, stop):
        first, last = block * lanes, min((block + 1) * lanes, batch)
        _read_levels(state.heightmap, first, np.float32(lengths.cell), found)
        _measure(state, first, found, lengths, outcome.before)
        _decode(state, action, first, shape, counts.stride, found)
        _examine(state, items, first, counts, rooms[1], found)
        _commit(state, items, first, lengths, rooms[1], found)
        _measure(state, first, found, lengths, outcome.after)
        for row in range(first, last):
            outcome.asked[row] = found.asked[row - first]
            outcome.live[row] = found.live[row - first]
        _find_places(state, items, first, counts, rooms, tables, task, places, lines, found)
        _end(state, first, counts, found, mask, shown)
        if shown.heightmap.size:
            height = np.float32(lengths.height)
            show_heights(state.heightmap, first, last, height, shown.heightmap)
        show_items(state, items, shown, first, last, counts.remaining)
        show_metrics(outcome.after, first, last, shown.metrics)
        if start.done.size:
            show_next(state, *renewal, items, shown, first, last, counts, start)


@kernel
def _renew(state, rows, pool, in_turn, items, shown, metrics, counts):  # type: ignore[no-untyped-def]
    """The next episode in the rows that are marked."""
    for row in range(rows.size):
        if rows[row]:
            begin_episode(state, row, pool, in_turn)
            for values in metrics:
                values[row, 0] = 0
            show_start(state, items, shown, row, counts)


def constants(
    state: Sequence[Tensor],
    items: Sequence[Tensor],
    pool: Sequence[Tensor],
    counts: Sequence[int],
    lengths: Sequence[float],
) -> tuple[Any, ...]:
    """What stays the same from step to step, as compiled code reads it."""
    numbers, metres = Counts(*counts), Lengths(*lengths)
    window = (numbers.across, numbers.along)
    return (
        State(*as_arrays(state)),
        Items(*as_arrays(items)),
        tuple(as_arrays(pool)),
        (numbers, metres, task_of(numbers.height, window, RULES[numbers.rule], numbers.stride)),
        tables_of(*window, metres.cell),
    )


def cuboid_step(
    constant: tuple[Any, ...],
    action: Tensor,
    shown: Sequence[Tensor],
    start: Sequence[Tensor],
    outcome: Sequence[Tensor],
    in_turn: bool,
) -> None:
    """See `packing_env.kernels.step.cells`; ``constant`` is what :func:`constants` made."""
    state, items, pool, numbers, tables = constant
    rows, *lattice = shown[_MASK].shape
    shape = (*lattice, shown[_METRICS].shape[0])
    addresses = addresses_of((*shown, *start, *outcome))
    # Of a CPU's tensors: `numpy` shares their memory, nothing is read or copied.
    given = (state, action.numpy(), items, addresses, shape, (pool, in_turn), numbers, tables)
    work = rows * math.prod(lattice) * (numbers[0].across + numbers[0].along)
    run(_step, given, num_blocks(rows), work, keep=(*shown, *start, *outcome))


def cuboid_renew(
    constant: tuple[Any, ...],
    rows: Tensor,
    shown: Sequence[Tensor],
    metrics: Sequence[Tensor],
    in_turn: bool,
) -> None:
    """Likewise."""
    state, items, pool, (counts, _, _), _ = constant
    seen, measured = Shown(*as_arrays(shown)), tuple(as_arrays(metrics))
    _renew(state, rows.numpy(), pool, in_turn, items, seen, measured, counts)
