"""Observations of rows of the batch, compiled for the CPU: see `core.observation`.

They are those of the rows ``first <= row < stop``. Unrequested observations are empty, and stay so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from packing_env.kernels.compiled.jit import addresses_of, jit, kernel
from packing_env.kernels.step.entries import Tensors
from packing_env.kernels.step.shared import (
    begin,
    clear_line,
    copy_line,
    keep_legality,
    observations_at,
)

_ZERO, _ONE = np.float32(0), np.float32(1)


@jit
def observe_share(metres, height, observed):
    """Write heights over the container's, in [0, 1]."""
    for k in range(observed.size):
        share = metres[k] / height
        share = share if share > _ZERO else _ZERO
        observed[k] = share if share < _ONE else _ONE


@jit
def _observe_items(state, items, row, left, height, observations):
    """Write what is observed of a row's visible items; feature ``left`` is the number left."""
    remaining = state.num_items[row] - state.items_packed[row]
    for slot in range(state.queue.shape[1]):
        there = slot < remaining
        item = state.item_id[row, state.queue[row, slot]] if there else np.int64(-1)
        if observations.item_id.size:
            observations.item_id[row, slot] = item
        if observations.item_features.size:
            features = observations.item_features[row, slot]
            if there:
                copy_line(items.item_features[item], features)
                features[left] = items.remaining[remaining]
            else:
                clear_line(features)
        if observations.orientation_features.size:
            turned = observations.orientation_features[row, slot]
            if there:
                copy_line(items.orientation_features[item], turned)
            else:
                clear_line(turned)
        if observations.top.size:
            top, bottom = observations.top[row, slot], observations.bottom[row, slot]
            if there:
                observe_share(items.top[item].reshape(-1), height, top)
                observe_share(items.bottom[item].reshape(-1), height, bottom)
            else:
                clear_line(top)
                bottom[:] = _ONE


@jit
def observe(state, items, first, stop, counts, lengths, outcome, observations):
    """Write all but what the search for placements has written: heights, items and metrics."""
    height = np.float32(lengths.height)
    if observations.heightmap.size:
        metres, observed = state.heightmap[first:stop], observations.heightmap[first:stop]
        observe_share(metres.reshape(-1), height, observed.reshape(-1))
    if observations.heights.size:
        metres = state.heightmap[first:stop].reshape(-1)
        copy_line(metres, observations.heights[first:stop].reshape(-1))
    for row in range(first, stop):
        _observe_items(state, items, row, counts.remaining, height, observations)
    for m in range(outcome.after.shape[0]):
        copy_line(outcome.after[m, first:stop], observations.metrics[m, first:stop])


@jit
def _observe_floor(state, items, row, stride, observations):
    """Write legality in an empty container: see `core.feasibility.empty_container_maps`."""
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
    begin(state, row, pool, counts.sequential)
    observations.terminated[row] = observations.truncated[row] = observations.done[row] = False
    if observations.heightmap.size:
        clear_line(observations.heightmap[row])
    if observations.heights.size:
        clear_line(observations.heights[row])
    height = np.float32(lengths.height)
    _observe_items(state, items, row, counts.remaining, height, observations)
    _observe_floor(state, items, row, counts.stride, observations)


@jit
def _repeat(source, first, stop, target):
    """Copy these rows, if there are any."""
    if target.size:
        copy_line(source[first:stop].reshape(-1), target[first:stop].reshape(-1))


@jit
def reset_finished(state, pool, items, first, stop, counts, lengths, observations, start):
    """Reset finished rows, and write what is observed then; other rows stay as observed."""
    for m in range(start.metrics.shape[0]):
        copy_line(observations.metrics[m, first:stop], start.metrics[m, first:stop])
    _repeat(observations.heightmap, first, stop, start.heightmap)
    _repeat(observations.heights, first, stop, start.heights)
    _repeat(observations.item_id, first, stop, start.item_id)
    _repeat(observations.item_features, first, stop, start.item_features)
    _repeat(observations.orientation_features, first, stop, start.orientation_features)
    _repeat(observations.top, first, stop, start.top)
    _repeat(observations.bottom, first, stop, start.bottom)
    _repeat(observations.drop_height, first, stop, start.drop_height)
    _repeat(observations.mask, first, stop, start.mask)
    for row in range(first, stop):
        start.terminated[row] = start.truncated[row] = start.done[row] = False
        if observations.done[row]:
            _reset_row(state, pool, items, row, counts, lengths, start)
            start.metrics[:, row] = 0


@kernel
def _reset(state, rows, pool, items, places, counts, lengths):
    """Reset the rows that are marked."""
    observations = observations_at(places, state, items, counts)
    for row in range(rows.size):
        if rows[row]:
            _reset_row(state, pool, items, row, counts, lengths, observations)
            keep_legality(state, row, observations.mask)


def reset(constant: Any, rows: Tensor, observations: Tensors, metrics: Tensors) -> None:
    """Run `packing_env.kernels.step.reset_rows`."""
    if not all(tensor.is_contiguous() for tensor in observations):
        raise ValueError("the observations of a reset must be contiguous")
    state, items, pool, counts, lengths = constant
    chosen = rows.numpy()
    _reset(state, chosen, pool, items, addresses_of(observations), counts, lengths)
    for values in metrics:
        values.numpy()[chosen] = 0
