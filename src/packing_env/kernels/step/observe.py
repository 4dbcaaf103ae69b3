"""Observations of rows of the batch, compiled for the CPU: see `core.observation`.

Functions write the rows ``first <= row < stop``. Unrequested observations are empty, and nothing is
written to them.
"""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import jit
from packing_env.kernels.compiled.tables import clear, copy, flat, rows
from packing_env.kernels.step.shared import (
    begin,
)

_ZERO, _ONE = np.float32(0), np.float32(1)


@jit
def _copy_rows(source, first, stop, target):
    """Copy the rows first <= row < stop, if the target has rows."""
    if target.shape[0]:
        copy(rows(source, first, stop - first), rows(target, first, stop - first))


@jit
def observe_share(metres, height, observed):
    """Write heights, divided by the container's height, in [0, 1]."""
    for k in range(observed.size):
        share = metres[k] / height
        share = share if share > _ZERO else _ZERO
        observed[k] = share if share < _ONE else _ONE


@jit
def _observe_items(state, items, row, left, height, observations):
    """Write the observations of a row's visible items; ``left`` is the number of items left."""
    # A slot without an item has the index -1, zero features, and surfaces that never bind.
    remaining = state.num_items[row] - state.items_packed[row]
    for slot in range(state.queue.shape[1]):
        there = slot < remaining
        item = state.item_id[row, state.queue[row, slot]] if there else np.int64(-1)
        if observations.item_id.size:
            observations.item_id[row, slot] = item
        if observations.item_features.size:
            features = observations.item_features[row, slot]
            if there:
                copy(items.item_features[item], features)
                # The only feature that depends on the row.
                features[left] = items.remaining[remaining]
            else:
                clear(features)
        if observations.orientation_features.size:
            turned = observations.orientation_features[row, slot]
            if there:
                copy(items.orientation_features[item], turned)
            else:
                clear(turned)
        if observations.top.size:
            top, bottom = observations.top[row, slot], observations.bottom[row, slot]
            if there:
                observe_share(flat(items.top[item]), height, top)
                observe_share(flat(items.bottom[item]), height, bottom)
            else:
                clear(top)
                bottom[:] = _ONE


@jit
def observe(state, items, first, stop, counts, lengths, outcome, observations):
    """Write heights, items and metrics; the search for placements has written the other entries."""
    # Whole lines of many rows at once: heights divided by the container's, and in metres.
    height = np.float32(lengths.height)
    if observations.heightmap.size:
        metres, observed = state.heightmap, observations.heightmap
        of_rows = flat(rows(metres, first, stop - first))
        observe_share(of_rows, height, flat(rows(observed, first, stop - first)))
    _copy_rows(state.heightmap, first, stop, observations.heights)
    # The items of each row; then the metrics, one by one.
    for row in range(first, stop):
        _observe_items(state, items, row, counts.remaining, height, observations)
    for m in range(outcome.after.shape[0]):
        for row in range(first, stop):
            observations.metrics[m, row] = outcome.after[m, row]


@jit
def _observe_floor(state, items, row, stride, observations):
    """Write legality in an empty container: see `core.ground.Ground.empty_maps`."""
    # If an orientation is legal on the floor, all its placements inside the container are.
    _, length, width = state.heightmap.shape
    orientations = items.size.shape[1]
    for p in range(observations.mask.shape[1]):
        slot, orientation = p // orientations, p % orientations
        item, mask, k = state.item_id[row, slot], observations.mask[row, p], 0
        may = items.on_floor[item, orientation] and slot < state.num_items[row]
        w, h = items.size[item, orientation, 0], items.size[item, orientation, 1]
        for x in range(0, length, stride):
            for y in range(0, width, stride):
                mask[k] = may and x + w <= length and y + h <= width
                k += 1
        if observations.drop_height.size:
            heights = observations.drop_height[row, p]
            for k in range(mask.size):
                heights[k] = _ZERO if mask[k] else _ONE


@jit
def _reset_row(state, pool, items, row, counts, lengths, observations):
    """Start a row's next episode, and write its first observation."""
    # 1. The state.
    begin(state, row, pool, counts.sequential)
    observations.terminated[row] = observations.truncated[row] = observations.done[row] = False
    # 2. The empty container, its items, and the legal placements.
    if observations.heightmap.size:
        clear(observations.heightmap[row])
    if observations.heights.size:
        clear(observations.heights[row])
    height = np.float32(lengths.height)
    _observe_items(state, items, row, counts.remaining, height, observations)
    _observe_floor(state, items, row, counts.stride, observations)


@jit
def reset_finished(state, pool, items, first, stop, counts, lengths, observations, start):
    """Reset finished rows, and write the observations of all rows after that."""
    # 1. Copy the observations before resets for all rows.
    for m in range(start.metrics.shape[0]):
        of_metric = rows(start.metrics[m], first, stop - first)
        copy(rows(observations.metrics[m], first, stop - first), of_metric)
    _copy_rows(observations.heightmap, first, stop, start.heightmap)
    _copy_rows(observations.heights, first, stop, start.heights)
    _copy_rows(observations.item_id, first, stop, start.item_id)
    _copy_rows(observations.item_features, first, stop, start.item_features)
    _copy_rows(observations.orientation_features, first, stop, start.orientation_features)
    _copy_rows(observations.top, first, stop, start.top)
    _copy_rows(observations.bottom, first, stop, start.bottom)
    _copy_rows(observations.drop_height, first, stop, start.drop_height)
    _copy_rows(observations.mask, first, stop, start.mask)
    # 2. Overwrite the observations of finished rows.
    for row in range(first, stop):
        start.terminated[row] = start.truncated[row] = start.done[row] = False
        if observations.done[row]:
            _reset_row(state, pool, items, row, counts, lengths, start)
            start.metrics[:, row] = 0
