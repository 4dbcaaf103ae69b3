"""What is seen of rows of cuboids, compiled for the CPU: see `core.observation`.

Rows are addressed in flat arrays by unsigned places: a place that could be negative is looked at in
every round.
"""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.bytes import WIDTH
from packing_env.kernels.compiled.jit import array_at, jit, jit_arrays
from packing_env.kernels.step import cells as names
from packing_env.kernels.step import cells_flat as flat
from packing_env.kernels.step.shared import begin_episode, clear_line, copy_line, entries

Items = entries("Items", names.ITEMS, __name__)
Shown = entries("Shown", names.SHOWN, __name__)


@jit_arrays
def entries_at(places, first, state, items, shape):  # type: ignore[no-untyped-def]
    """What is seen of the state, by where its entries lie in memory, from the first place on.

    Those at 0 have no rows. ``shape`` is that of a row's mask, and how many metrics there are.
    """
    slots, turns, xs, ys, num_metrics = shape
    batch, length, width = state.heightmap.shape
    seen = state.queue.shape[1]
    features, turned = items.item_features.shape[1], items.orientation_features.shape[2]
    place, real = places[first:], 1 if places[first + 5] else 0
    ground, ids = 1 if place[0] else 0, 1 if place[1] else 0
    own, turn, drop = 1 if place[2] else 0, 1 if place[3] else 0, 1 if place[4] else 0
    return Shown(
        array_at(place[0], (ground * batch, length, width), np.float32),
        array_at(place[1], (ids * batch, ids * seen), np.int64),
        array_at(place[2], (own * batch, own * seen, features), np.float32),
        array_at(place[3], (turn * batch, turn * seen, turns, turned), np.float32),
        array_at(place[4], (drop * batch, slots, turns, xs, ys), np.float32),
        array_at(place[5], (real * batch, slots, turns, xs, ys), np.bool_),
        array_at(place[6], (real * batch,), np.bool_),
        array_at(place[7], (real * batch,), np.bool_),
        array_at(place[8], (real * batch,), np.bool_),
        array_at(place[9], (real * num_metrics, real * batch), np.float32),
    )


@jit
def show_places(raised, first, p, places, seen, playable):  # type: ignore[no-untyped-def]
    """Legality and rest heights of the p-th of each row's maps, and who has a legal place.

    ``raised [lanes, ...]`` are rest heights in cells plus 1, 0 where a placement is illegal;
    ``seen`` what is observed of each such height, the maps of those ``[B, ...]`` and the masks.
    """
    observed, drop_height, mask = seen
    levels, heights, flags = raised.reshape(-1), drop_height.reshape(-1), mask.reshape(-1)
    for lane in range(min(raised.shape[0], mask.shape[0] - first)):
        here = np.uint64(lane * raised.shape[1])
        there = np.uint64((first + lane) * mask.shape[1] + p * places)
        if places >= WIDTH:
            at = (levels.ctypes.data + np.int64(here), flags.ctypes.data + np.int64(there))
            playable[lane] |= flat.show_legal(at[0], places, at[1])
        else:
            for place in range(places):
                k = np.uint64(place)
                flags[there + k] = levels[here + k] != 0
                playable[lane] |= levels[here + k] != 0
        for place in range(places if drop_height.size else 0):
            k = np.uint64(place)
            heights[there + k] = observed[levels[here + k]]


@jit
def show_heights(heightmap, first, stop, height, shown):  # type: ignore[no-untyped-def]
    """The heightmaps as they are observed."""
    metres, over = heightmap[first:stop].reshape(-1), shown[first:stop].reshape(-1)
    for k in range(metres.size):
        share = metres[k] / height
        over[k] = share if share < np.float32(1) else np.float32(1)


@jit
def show_items(state, items, shown, first, stop, left):  # type: ignore[no-untyped-def]
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
def show_metrics(after, first, stop, measured):  # type: ignore[no-untyped-def]
    """The metrics as they are observed, in single precision."""
    for m in range(after.shape[0]):
        double, single = after[m, first:stop], measured[m, first:stop]
        for k in range(single.size):
            single[k] = np.float32(double[k])


@jit
def _repeat(source, first, stop, target):  # type: ignore[no-untyped-def]
    """Copy these rows, if there are any."""
    if target.size:
        copy_line(source[first:stop].reshape(-1), target[first:stop].reshape(-1))


@jit
def show_next(state, pool, in_turn, items, shown, first, stop, counts, start):  # type: ignore[no-untyped-def]
    """Begin the next episode in finished rows, and show it there; elsewhere all stays as shown."""
    for m in range(shown.metrics.shape[0]):
        copy_line(shown.metrics[m, first:stop], start.metrics[m, first:stop])
    _repeat(shown.mask, first, stop, start.mask)
    _repeat(shown.heightmap, first, stop, start.heightmap)
    _repeat(shown.item_id, first, stop, start.item_id)
    _repeat(shown.item_features, first, stop, start.item_features)
    _repeat(shown.orientation_features, first, stop, start.orientation_features)
    _repeat(shown.drop_height, first, stop, start.drop_height)
    for row in range(first, stop):
        start.terminated[row] = start.truncated[row] = start.done[row] = False
        if shown.done[row]:
            begin_episode(state, row, pool, in_turn)
            start.metrics[:, row] = 0
            show_start(state, items, start, row, counts)


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
def show_start(state, items, shown, row, counts):  # type: ignore[no-untyped-def]
    """What is seen of a row's episode that has just begun."""
    shown.terminated[row] = shown.truncated[row] = shown.done[row] = False
    if shown.heightmap.size:
        clear_line(shown.heightmap[row].reshape(-1))
    show_items(state, items, shown, row, row + 1, counts.remaining)
    _show_floor(state, items, shown, row, counts)
