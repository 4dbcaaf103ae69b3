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

from packing_env.kernels import cuboid_loops as loops
from packing_env.kernels import cuboid_rest_numba as single
from packing_env.kernels import cuboid_step as names
from packing_env.kernels.compiled_cpu import _jit, _run
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
Move = _entries("Move", names.MOVE)
Items = _entries("Items", names.ITEMS)
Shown = _entries("Shown", names.SHOWN)
Outcome = _entries("Outcome", names.OUTCOME)
Counts = _entries("Counts", names.COUNTS)
Lengths = _entries("Lengths", names.LENGTHS)


Found = namedtuple("Found", "levels highest total rest count stable asked live edges")
"""What is known of the rows of a block: ``levels [lanes, X * Y]`` heights in cells, the highest and
the sum of them, and of the placements the rest height and the supporting cells; scratch memory."""


@_jit
def _room_of_rows(shape, across, lanes):  # type: ignore[no-untyped-def]
    whole = np.zeros((4, lanes), np.int64)
    flags = np.zeros((3, lanes), np.bool_)
    levels = np.zeros((lanes, shape[0] * shape[1]), np.uint8)
    edges = np.zeros((2, across + 2), np.int64)
    return Found(
        levels, whole[0], whole[1], whole[2], whole[3], flags[0], flags[1], flags[2], edges
    )


@_jit
def _read_levels(heightmap, first, cell, levels, highest, total):  # type: ignore[no-untyped-def]
    """Heights in cells, and the highest and the sum of each row."""
    for lane in range(min(levels.shape[0], heightmap.shape[0] - first)):
        metres, level = heightmap[first + lane].reshape(-1), levels[lane]
        for k in range(level.size):
            level[k] = np.uint8(metres[k] / cell)
        peak, under = np.uint8(0), np.uint32(0)
        for k in range(level.size):
            peak = max(peak, level[k])
        for k in range(level.size):
            under += np.uint32(level[k])
        highest[lane], total[lane] = peak, under


@_jit
def _ratio(numerator, denominator):  # type: ignore[no-untyped-def]
    return numerator / denominator if denominator > 0 else 0.0


@_jit
def _measure(state, first, highest, total, lengths, measured):  # type: ignore[no-untyped-def]
    """The metrics: see `core.metrics.measure`, whose order this is."""
    for lane in range(min(highest.size, measured.shape[1] - first)):
        row = first + lane
        volume, packed = state.volume[row], np.float64(state.items_packed[row])
        peak, under = highest[lane] * lengths.cell, total[lane] * lengths.cell * lengths.cell_area
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


@_jit
def _examine(state, move, items, first, counts, found):  # type: ignore[no-untyped-def]
    """Where the chosen items come to rest, and whether they may: see `core.feasibility.examine`."""
    batch, length, width = state.heightmap.shape
    edges = found.edges
    for lane in range(min(found.live.size, batch - first)):
        row, level = first + lane, found.levels[lane]
        found.live[lane] = not (state.terminated[row] or state.truncated[row])
        found.asked[lane] = found.stable[lane] = False
        slot, turn = move.slot[row], move.orientation[row]
        there = slot < state.num_items[row] - state.items_packed[row]
        item = state.item_id[row, state.queue[row, slot]]
        if not (there and move.valid[row] and items.orientation_mask[item, turn]):
            continue
        x, y = move.x[row], move.y[row]
        w, h = np.int64(items.cuboid[item, turn, 0]), np.int64(items.cuboid[item, turn, 1])
        if x + w > length or y + h > width:
            continue
        window = (x, y, w, h)
        rest = single.find_rest(level, width, window)
        if rest + items.cuboid[item, turn, 2] > counts.height:
            continue
        count = single.find_support(level, width, window, rest, edges)
        asked = single.stands(counts.rule, level, width, window, rest, count, edges)
        stable = single.stands(counts.metric_rule, level, width, window, rest, count, edges)
        found.rest[lane], found.count[lane] = rest, count
        found.asked[lane], found.stable[lane] = asked, asked and stable


@_jit
def _commit(state, move, items, first, lengths, found):  # type: ignore[no-untyped-def]
    """Put the items down where that is legal and the row unfinished."""
    width = state.heightmap.shape[2]
    for lane in range(min(found.live.size, state.step.size - first)):
        row, asked, live = first + lane, found.asked[lane], found.live[lane]
        state.step[row] += live
        state.illegal_actions[row] += live and not asked
        if not (live and asked):
            continue
        slot, turn, x, y = move.slot[row], move.orientation[row], move.x[row], move.y[row]
        position, packed, rest = state.queue[row, slot], state.items_packed[row], found.rest[lane]
        item = state.item_id[row, position]
        w, h = np.int64(items.cuboid[item, turn, 0]), np.int64(items.cuboid[item, turn, 1])
        behind = state.queue[row, slot:]
        for k in range(behind.size - 1):
            behind[k] = behind[k + 1]
        ratio = np.float64(found.count[lane]) / np.float64(w * h)
        record = state.placement[row, packed]
        record[0], record[1], record[2], record[3] = position, turn, x, y
        state.placement_z[row, packed] = np.float32(rest * lengths.cell)
        state.placement_support[row, packed] = np.float32(ratio)
        state.packed[row, position] = True
        state.items_packed[row] = packed + 1
        state.stable_items[row] += found.stable[lane]
        state.support_sum[row] += ratio
        state.volume[row] += items.volume[item]
        top = rest + items.cuboid[item, turn, 2]
        found.highest[lane] = max(found.highest[lane], top)
        metres = np.float32(top * lengths.cell)
        under = found.total[lane]
        for u in range(x, x + w):
            heights = state.heightmap[row, u, y : y + h]
            levels = found.levels[lane, u * width + y : u * width + y + h]
            for v in range(levels.size):
                under += top - levels[v]
                levels[v] = top
                heights[v] = metres
        found.total[lane] = under


@_jit
def _list_sizes(state, items, first, size):  # type: ignore[no-untyped-def]
    """size[lane, l * R + r] = sides of the l-th visible item in orientation r; 0 for none."""
    turns = items.cuboid.shape[1]
    for lane in range(min(size.shape[0], state.step.size - first)):
        row = first + lane
        remaining = state.num_items[row] - state.items_packed[row]
        for p in range(size.shape[1]):
            item = state.item_id[row, state.queue[row, p // turns]]
            for side in range(3):
                value = items.cuboid[item, p % turns, side]
                size[lane, p, side] = value if p // turns < remaining else 0


@_jit
def _end(state, first, counts, found, playable, shown):  # type: ignore[no-untyped-def]
    """Whether this decision was the episode's last: see `core.transition.advance`."""
    for lane in range(min(found.live.size, state.step.size - first)):
        row = first + lane
        if found.live[lane]:
            stuck = not playable[lane] or state.items_packed[row] >= state.num_items[row]
            stuck = stuck or (counts.illegal_ends and not found.asked[lane])
            state.terminated[row] = stuck
            state.truncated[row] = state.step[row] >= counts.step_limit
        terminated, truncated = state.terminated[row], state.truncated[row]
        shown.terminated[row], shown.truncated[row] = terminated, truncated
        shown.done[row] = terminated or truncated
        if terminated or truncated:
            mask = shown.mask[row].reshape(-1)
            for k in range(mask.size):
                mask[k] = True


@_jit
def _show_heights(heightmap, first, stop, height, shown):  # type: ignore[no-untyped-def]
    """The heightmaps as they are observed."""
    for row in range(first, stop):
        metres, over = heightmap[row].reshape(-1), shown[row].reshape(-1)
        for k in range(metres.size):
            share = metres[k] / height
            over[k] = share if share < np.float32(1) else np.float32(1)


@_jit
def _show_items(state, items, shown, first, stop, left):  # type: ignore[no-untyped-def]
    """What is observed of the visible items, feature ``left`` by the number of items left."""
    for row in range(first, stop):
        remaining = state.num_items[row] - state.items_packed[row]
        for slot in range(shown.item_id.shape[1]):
            item = state.item_id[row, state.queue[row, slot]]
            shown.item_id[row, slot] = item if slot < remaining else -1
        for slot in range(shown.item_features.shape[1]):
            item = state.item_id[row, state.queue[row, slot]]
            for f in range(shown.item_features.shape[2]):
                value = items.remaining[remaining] if f == left else items.item_features[item, f]
                shown.item_features[row, slot, f] = value if slot < remaining else np.float32(0)
        for slot in range(shown.orientation_features.shape[1]):
            item = state.item_id[row, state.queue[row, slot]]
            for turn in range(shown.orientation_features.shape[2]):
                for f in range(shown.orientation_features.shape[3]):
                    value = items.orientation_features[item, turn, f]
                    value = value if slot < remaining else np.float32(0)
                    shown.orientation_features[row, slot, turn, f] = value


@_jit
def _step(state, move, items, shown, outcome, counts, lengths, task, tables, start, stop):  # type: ignore[no-untyped-def]
    """One decision in the blocks start <= block < stop of rows of the batch."""
    batch, length, width = state.heightmap.shape
    _, visible, turns, xs, ys = shown.mask.shape
    lanes = min(LANES, batch)
    room = make_room((length, width), (xs, ys), task, lanes, tables[2])
    found = _room_of_rows((length, width), counts.across, lanes)
    size = np.zeros((lanes, visible * turns, 3), np.int32)
    playable = np.zeros(lanes, np.bool_)
    seen = (items.drop_height, shown.drop_height, shown.mask)
    for block in range(start, stop):
        first, last = block * lanes, min((block + 1) * lanes, batch)
        cell, profile = np.float32(lengths.cell), (found.highest, found.total)
        _read_levels(state.heightmap, first, cell, found.levels, *profile)
        _measure(state, first, *profile, lengths, outcome.before)
        _examine(state, move, items, first, counts, found)
        _commit(state, move, items, first, lengths, found)
        _measure(state, first, *profile, lengths, outcome.after)
        for row in range(first, last):
            outcome.asked[row] = found.asked[row - first]
            outcome.live[row] = found.live[row - first]
            playable[row - first] = False
        _list_sizes(state, items, first, size)
        size[last - first :] = 0
        loops.fill_ground_from_levels(found.levels, width, room.step, room.ground)
        for p in range(visible * turns):
            find_maps(room, size, 0, p, task, tables)
            loops.write_shown(room.raised, room.stable, first, p, *seen, playable)
        _end(state, first, counts, found, playable, shown)
        if shown.heightmap.size:
            height = np.float32(lengths.height)
            _show_heights(state.heightmap, first, last, height, shown.heightmap)
        _show_items(state, items, shown, first, last, counts.remaining)


_WORD = 0xFFFFFFFF


@_jit
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


@_jit
def _clear(line):  # type: ignore[no-untyped-def]
    for k in range(line.size):
        line[k] = 0


@_jit
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


@_jit
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


@_jit
def _renew(state, rows, pool, in_turn, items, shown, metrics, counts, start, stop):  # type: ignore[no-untyped-def]
    """The next episode in those of the rows start <= row < stop that are marked."""
    for row in range(start, stop):
        if not rows[row]:
            continue
        _begin(state, row, pool, in_turn)
        for values in metrics:
            values[row, 0] = 0
        shown.terminated[row] = shown.truncated[row] = shown.done[row] = False
        if shown.heightmap.size:
            _clear(shown.heightmap[row].reshape(-1))
        _show_items(state, items, shown, row, row + 1, counts.remaining)
        _show_floor(state, items, shown, row, counts)


def _arrays(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    return [tensor.detach().numpy() for tensor in tensors]


def cuboid_step(
    state: Sequence[Tensor],
    move: Sequence[Tensor],
    items: Sequence[Tensor],
    shown: Sequence[Tensor],
    outcome: Sequence[Tensor],
    counts: Sequence[int],
    lengths: Sequence[float],
) -> None:
    """See `packing_env.kernels.cuboid_step`."""
    numbers, metres = Counts(*counts), Lengths(*lengths)
    window = (numbers.across, numbers.along)
    task = task_of(numbers.height, window, RULES[numbers.rule], numbers.stride)
    seen, ground = Shown(*_arrays(shown)), State(*_arrays(state))
    work = seen.mask.size * sum(window)
    arguments = (
        ground,
        Move(*_arrays(move)),
        Items(*_arrays(items)),
        seen,
        Outcome(*_arrays(outcome)),
        numbers,
        metres,
        task,
        tables_of(*window, metres.cell),
    )
    _run(_step, arguments, num_blocks(seen.mask.shape[0]), work)


def cuboid_renew(
    state: Sequence[Tensor],
    rows: Tensor,
    pool: Sequence[Tensor],
    in_turn: bool,
    items: Sequence[Tensor],
    shown: Sequence[Tensor],
    metrics: Sequence[Tensor],
    counts: Sequence[int],
) -> None:
    """See `packing_env.kernels.cuboid_renew`."""
    arguments = (
        State(*_arrays(state)),
        rows.numpy(),
        tuple(_arrays(pool)),
        in_turn,
        Items(*_arrays(items)),
        Shown(*_arrays(shown)),
        tuple(_arrays(metrics)),
        Counts(*counts),
    )
    _renew(*arguments, 0, rows.shape[0])
