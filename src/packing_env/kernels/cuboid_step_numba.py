"""The operations of `kernels.cuboid_step` compiled for the CPU.

Rows are handled in the blocks of `kernels.cuboid_numba`: each row of a block takes its decision,
then the maps of the block are found from heights that are still in the L1 cache, and then each row
is shown. Sums and quotients are written as in `core.metrics`, so that they round alike.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from packing_env.kernels import cuboid_flat_numba as flat
from packing_env.kernels import cuboid_loops as loops
from packing_env.kernels import cuboid_rest_numba as single
from packing_env.kernels import cuboid_step as names
from packing_env.kernels.compiled_cpu import jit, run
from packing_env.kernels.cuboid_eager import RULES
from packing_env.kernels.cuboid_numba import (
    LANES,
    find_maps,
    make_room,
    num_blocks,
    tables_of,
    task_of,
)


def _entries(name: str, fields: Sequence[str]) -> Any:
    """A tuple of arrays or numbers that compiled code reads by name."""
    return namedtuple(name, fields)


State = _entries("State", names.STATE)
Items = _entries("Items", names.ITEMS)
Shown = _entries("Shown", names.SHOWN)
Outcome = _entries("Outcome", names.OUTCOME)
Counts = _entries("Counts", names.COUNTS)
Lengths = _entries("Lengths", names.LENGTHS)


Found = namedtuple(
    "Found",
    "levels highest total rest count item stable asked live playable move size raised edges",
)
"""What is known of the rows of a block: ``levels [lanes, ...]`` heights in cells, a container's in
one line with zeros behind it (see `kernels.cuboid_flat_numba`), the highest and the sum of them; of
the placements (``move [lanes, 4]``: slot, orientation, x, y; -1 where it is none) the rest height,
the supporting cells and the item; of the item that is looked at its ``size [lanes, 1, 3]`` and
``raised [lanes, ...]``, its rest height + 1 at each place of the lattice, 0 where it may not be;
scratch memory."""


@jit
def _room_of_rows(shape, window, lanes):  # type: ignore[no-untyped-def]
    whole = np.zeros((5, lanes), np.int64)
    flags = np.zeros((4, lanes), np.bool_)
    line = flat.padded(shape[0] * shape[1])
    return Found(
        np.zeros((lanes, line + window[1] - 1), np.uint8),
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
def _read_levels(heights, first, cell, found):  # type: ignore[no-untyped-def]
    """Heights in cells, and the highest and the sum of each row."""
    line = found.raised.shape[1]
    for lane in range(min(found.live.size, heights.shape[0] - first)):
        row, levels = first + lane, found.levels
        for k in range(heights.shape[1]):
            levels[lane, k] = np.uint8(np.int32(heights[row, k] / cell))
        peak, under = np.uint8(0), np.uint32(0)
        for k in range(line):
            level = levels[lane, k]
            peak = level if level > peak else peak
        for k in range(line):
            under += np.uint32(levels[lane, k])
        found.highest[lane], found.total[lane] = peak, under


@jit
def _decode(state, action, first, shape, stride, found):  # type: ignore[no-untyped-def]
    """The placement of each row, from its index or from its four; see `names.advance_cuboids`.

    Items are looked up in a loop of their own, where many reads wait for memory at once.
    """
    _, turns, xs, ys = shape
    for lane in range(min(found.live.size, action.shape[0] - first)):
        row, move = first + lane, found.move
        if action.shape[1] == 1:
            index = action[row, 0]
            plane, place = index // (xs * ys), index % (xs * ys)
            move[lane, 0], move[lane, 1] = plane // turns, plane % turns
            move[lane, 2], move[lane, 3] = place // ys, place % ys
            known = 0 <= index < shape[0] * turns * xs * ys
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


@jit
def _clear(line):  # type: ignore[no-untyped-def]
    for k in range(line.size):
        line[k] = 0


@jit
def _copy(source, target):  # type: ignore[no-untyped-def]
    for k in range(target.size):
        target[k] = source[k]


@jit
def _ratio(numerator, denominator):  # type: ignore[no-untyped-def]
    return numerator / denominator if denominator > 0 else 0.0


@jit
def _measure(state, first, found, lengths, measured):  # type: ignore[no-untyped-def]
    """The metrics: see `core.metrics.measure`, whose order this is."""
    for lane in range(min(found.live.size, measured.shape[1] - first)):
        row = first + lane
        volume, packed = state.volume[row], np.float64(state.items_packed[row])
        peak = found.highest[lane] * lengths.cell
        under = found.total[lane] * lengths.cell * lengths.cell_area
        measured[0, row] = volume / (lengths.base * lengths.height)
        measured[1, row] = _ratio(volume, lengths.base * peak)
        measured[2, row] = _ratio(volume, under)
        measured[3, row] = _ratio(np.float64(state.stable_items[row]), packed)
        measured[4, row] = packed
        measured[5, row] = np.float64(state.items_packed[row] == state.num_items[row])
        measured[6, row] = peak / lengths.height
        measured[7, row] = _ratio(state.support_sum[row], packed)
        measured[8, row] = np.float64(state.illegal_actions[row])
        measured[9, row] = np.float64(state.overflow[row])


@jit
def _move(found, lane):  # type: ignore[no-untyped-def]
    move = found.move
    return move[lane, 0], move[lane, 1], move[lane, 2], move[lane, 3]


@jit
def _examine(state, items, first, counts, found):  # type: ignore[no-untyped-def]
    """Where the chosen items come to rest, and whether they may: see `core.feasibility.examine`."""
    batch, length, width = state.heightmap.shape
    for lane in range(min(found.live.size, batch - first)):
        row, level = first + lane, found.levels[lane]
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
        window = (x, y, w, h)
        rest = single.find_rest(level, width, window)
        if rest + items.cuboid[item, turn, 2] > counts.height:
            continue
        count = single.count_support(level, width, window, rest)
        carried = (level, width, window, rest, count, found.edges)
        asked = single.stands(counts.rule, carried)
        found.rest[lane], found.count[lane] = rest, count
        found.asked[lane] = asked
        found.stable[lane] = asked and single.stands(counts.metric_rule, carried)


@jit
def _commit(state, items, first, lengths, found):  # type: ignore[no-untyped-def]
    """Put the items down where that is legal and the row unfinished."""
    width = state.heightmap.shape[2]
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
        behind = state.queue[row, slot:]
        for k in range(behind.size - 1):
            behind[k] = behind[k + 1]
        ratio = np.float64(found.count[lane]) / np.float64(w * h)
        state.placement[row, packed, 0], state.placement[row, packed, 1] = position, turn
        state.placement[row, packed, 2], state.placement[row, packed, 3] = x, y
        state.placement_z[row, packed] = np.float32(rest * lengths.cell)
        state.placement_support[row, packed] = np.float32(ratio)
        state.packed[row, position] = True
        state.items_packed[row] = packed + 1
        state.stable_items[row] += found.stable[lane]
        state.support_sum[row] += ratio
        state.volume[row] += items.volume[item]
        top = rest + items.cuboid[item, turn, 2]
        found.highest[lane] = max(found.highest[lane], top)
        metres, level = np.float32(top * lengths.cell), np.uint8(top)
        under = found.total[lane]
        for u in range(x, x + w):
            for v in range(y, y + h):
                under += top - found.levels[lane, u * width + v]
                found.levels[lane, u * width + v] = level
                state.heightmap[row, u, v] = metres
        found.total[lane] = under


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
            box, size = (length, width, counts.height), found.size
            for lane in range(min(found.live.size, state.step.size - first)):
                w, h, d = size[lane, 0, 0], size[lane, 0, 1], size[lane, 0, 2]
                sides = (np.int64(w), np.int64(h), np.int64(d))
                flat.find_rest(found.levels, lane, sides, box, room_of_one, found.raised)
        else:
            find_maps(room, found.size, 0, 0, task, tables)
            loops.gather_rows(room.raised, room.stable, found.raised)
        seen = (items.drop_height, *lines)
        loops.write_shown(found.raised, first, p, places, seen, found.playable)


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


@jit
def _show_heights(heightmap, first, stop, height, shown):  # type: ignore[no-untyped-def]
    """The heightmaps as they are observed."""
    metres, over = heightmap[first:stop].reshape(-1), shown[first:stop].reshape(-1)
    for k in range(metres.size):
        share = metres[k] / height
        over[k] = share if share < np.float32(1) else np.float32(1)


@jit
def _show_items(state, items, shown, first, stop, left):  # type: ignore[no-untyped-def]
    """What is observed of the visible items, feature ``left`` by the number of items left."""
    for row in range(first, stop):
        remaining = state.num_items[row] - state.items_packed[row]
        for slot in range(shown.item_id.shape[1]):
            item = state.item_id[row, state.queue[row, slot]]
            shown.item_id[row, slot] = item if slot < remaining else -1
        for slot in range(shown.item_features.shape[1]):
            item = state.item_id[row, state.queue[row, slot]] if slot < remaining else -1
            for f in range(shown.item_features.shape[2]):
                value = items.item_features[item, f] if item >= 0 else np.float32(0)
                shown.item_features[row, slot, f] = value
            if item >= 0:
                shown.item_features[row, slot, left] = items.remaining[remaining]
        for slot in range(shown.orientation_features.shape[1]):
            item = state.item_id[row, state.queue[row, slot]] if slot < remaining else -1
            table, none = items.orientation_features, np.float32(0)
            for turn in range(shown.orientation_features.shape[2]):
                for f in range(shown.orientation_features.shape[3]):
                    value = table[item, turn, f] if item >= 0 else none
                    shown.orientation_features[row, slot, turn, f] = value


@jit
def _show_metrics(after, first, stop, measured):  # type: ignore[no-untyped-def]
    """The metrics as they are observed, in single precision."""
    for m in range(after.shape[0]):
        double, single = after[m, first:stop], measured[m, first:stop]
        for k in range(single.size):
            single[k] = np.float32(double[k])


@jit
def _repeat(source, first, stop, target):  # type: ignore[no-untyped-def]
    """Copy these rows, if there are any."""
    if target.size:
        _copy(source[first:stop].reshape(-1), target[first:stop].reshape(-1))


@jit
def _start(state, pool, in_turn, items, shown, first, stop, counts, start):  # type: ignore[no-untyped-def]
    """Begin the next episode in finished rows, and show it there; elsewhere all stays as shown."""
    for m in range(shown.metrics.shape[0]):
        _copy(shown.metrics[m, first:stop], start.metrics[m, first:stop])
    _repeat(shown.mask, first, stop, start.mask)
    _repeat(shown.heightmap, first, stop, start.heightmap)
    _repeat(shown.item_id, first, stop, start.item_id)
    _repeat(shown.item_features, first, stop, start.item_features)
    _repeat(shown.orientation_features, first, stop, start.orientation_features)
    _repeat(shown.drop_height, first, stop, start.drop_height)
    for row in range(first, stop):
        start.terminated[row] = start.truncated[row] = start.done[row] = False
        if shown.done[row]:
            _begin(state, row, pool, in_turn)
            start.metrics[:, row] = 0
            _show_start(state, items, start, row, counts)


@jit
def _step(state, action, items, shown, start, outcome, renewal, numbers, tables, begin, stop):  # type: ignore[no-untyped-def]
    """One decision in the blocks begin <= block < stop of rows of the batch.

    Where ``start`` has rows, finished rows begin their next episode.
    """
    batch, length, width = state.heightmap.shape
    shape = shown.mask.shape[1:]
    counts, lengths, task = numbers
    window, lanes = (counts.across, counts.along), min(LANES, batch)
    rooms = (
        make_room((length, width), shape[2:], task, lanes, tables[2]),
        flat.make_room((length, width), window),
    )
    found = _room_of_rows((length, width), window, lanes)
    heights = state.heightmap.reshape(batch, length * width)
    places = shape[2] * shape[3]
    mask = shown.mask.reshape(batch, shape[0] * shape[1] * places)
    asked = len(shown.drop_height)
    lines = (shown.drop_height.reshape(asked, mask.shape[1] if asked else 0), mask)
    for block in range(begin, stop):
        first, last = block * lanes, min((block + 1) * lanes, batch)
        _read_levels(heights, first, np.float32(lengths.cell), found)
        _measure(state, first, found, lengths, outcome.before)
        _decode(state, action, first, shape, counts.stride, found)
        _examine(state, items, first, counts, found)
        _commit(state, items, first, lengths, found)
        _measure(state, first, found, lengths, outcome.after)
        for row in range(first, last):
            outcome.asked[row] = found.asked[row - first]
            outcome.live[row] = found.live[row - first]
        _find_places(state, items, first, counts, rooms, tables, task, places, lines, found)
        _end(state, first, counts, found, mask, shown)
        if shown.heightmap.size:
            height = np.float32(lengths.height)
            _show_heights(state.heightmap, first, last, height, shown.heightmap)
        _show_items(state, items, shown, first, last, counts.remaining)
        _show_metrics(outcome.after, first, last, shown.metrics)
        if start.done.size:
            _start(state, *renewal, items, shown, first, last, counts, start)


_WORD = 0xFFFFFFFF


@jit
def _philox(seed, first, second):  # type: ignore[no-untyped-def]
    """The first word of `core.random.philox` with two counters; int64, as it is there."""
    c0, c1, c2, c3 = first, second, np.int64(0), np.int64(0)
    k0, k1 = seed & _WORD, (seed >> 32) & _WORD
    for _ in range(10):
        one, other = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1 = ((other >> 32) & _WORD) ^ c1 ^ k0, other & _WORD
        c2, c3 = ((one >> 32) & _WORD) ^ c3 ^ k1, one & _WORD
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return c0


@jit
def _begin(state, row, pool, in_turn):  # type: ignore[no-untyped-def]
    """The next episode of one row: see `core.transition.begin`."""
    instances, lengths = pool
    state.episode[row] += 1
    episode, stream = state.episode[row], state.row[row]
    if in_turn:
        index = (stream + episode * state.row.size) % lengths.size
    else:
        index = (_philox(state.seed[row], episode, stream) * lengths.size) >> 32
    state.num_items[row] = lengths[index]
    for k in range(state.queue.shape[1]):
        state.item_id[row, k], state.queue[row, k] = instances[index, k], k
    _clear(state.heightmap[row].reshape(-1))
    _clear(state.placement[row].reshape(-1))
    _clear(state.placement_z[row])
    _clear(state.placement_support[row])
    _clear(state.packed[row])
    _clear(state.reward_sum[row])
    state.items_packed[row] = state.stable_items[row] = state.illegal_actions[row] = 0
    state.overflow[row] = state.step[row] = 0
    state.volume[row] = state.support_sum[row] = 0
    state.terminated[row] = state.truncated[row] = False


@jit
def _show_floor(state, items, shown, row, counts):  # type: ignore[no-untyped-def]
    """Legality in an empty container: see `core.feasibility.empty_container_maps`."""
    length, width = state.heightmap.shape[1:]
    for slot in range(shown.mask.shape[1]):
        item = state.item_id[row, slot]
        for turn in range(shown.mask.shape[2]):
            w, h = items.cuboid[item, turn, 0], items.cuboid[item, turn, 1]
            may = items.on_floor[item, turn] and slot < state.num_items[row]
            mask = shown.mask[row, slot, turn]
            for i in range(mask.shape[0]):
                for j in range(mask.shape[1]):
                    inside = i * counts.stride + w <= length and j * counts.stride + h <= width
                    mask[i, j] = may and inside
            if shown.drop_height.size:
                heights = shown.drop_height[row, slot, turn]
                for i in range(mask.shape[0]):
                    for j in range(mask.shape[1]):
                        heights[i, j] = items.drop_height[1 if mask[i, j] else 0]


@jit
def _show_start(state, items, shown, row, counts):  # type: ignore[no-untyped-def]
    """What is seen of a row's episode that has just begun."""
    shown.terminated[row] = shown.truncated[row] = shown.done[row] = False
    if shown.heightmap.size:
        _clear(shown.heightmap[row].reshape(-1))
    _show_items(state, items, shown, row, row + 1, counts.remaining)
    _show_floor(state, items, shown, row, counts)


@jit
def _renew(state, rows, pool, in_turn, items, shown, metrics, counts):  # type: ignore[no-untyped-def]
    """The next episode in the rows that are marked."""
    for row in range(rows.size):
        if rows[row]:
            _begin(state, row, pool, in_turn)
            for values in metrics:
                values[row, 0] = 0
            _show_start(state, items, shown, row, counts)


def _arrays(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in tensors]


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
        State(*_arrays(state)),
        Items(*_arrays(items)),
        tuple(_arrays(pool)),
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
    """See `packing_env.kernels.cuboid_step`; ``constant`` is what :func:`constants` made."""
    state, items, pool, numbers, tables = constant
    seen, (counts, _, _) = Shown(*_arrays(shown)), numbers
    arguments = (
        state,
        action.numpy(),
        items,
        seen,
        Shown(*_arrays(start)),
        Outcome(*_arrays(outcome)),
        (pool, in_turn),
        numbers,
        tables,
    )
    work = seen.mask.size * (counts.across + counts.along)
    run(_step, arguments, num_blocks(seen.mask.shape[0]), work)


def cuboid_renew(
    constant: tuple[Any, ...],
    rows: Tensor,
    shown: Sequence[Tensor],
    metrics: Sequence[Tensor],
    in_turn: bool,
) -> None:
    """Likewise."""
    state, items, pool, (counts, _, _), _ = constant
    seen, measured = Shown(*_arrays(shown)), tuple(_arrays(metrics))
    _renew(state, rows.numpy(), pool, in_turn, items, seen, measured, counts)
