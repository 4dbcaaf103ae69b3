"""A step on items of any shape, compiled for the CPU: the parts before and after the maps.

Rows are processed one by one. Between :func:`decide` and :func:`observe_places`, the general
kernels and rules compute the maps of all placements.
"""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from packing_env.kernels.compiled.jit import (
    INF,
    jit,
    jit_ordered,
    kernel,
    run,
)
from packing_env.kernels.compiled.stable import find_support, stands
from packing_env.kernels.compiled.tables import copy, flat
from packing_env.kernels.step import shared
from packing_env.kernels.step.entries import Tensors
from packing_env.kernels.step.observe import observe, reset_finished


@jit_ordered
def _highest_of(values):
    """Return the maximum, at least 0."""
    highest = np.float32(0)
    for k in range(values.size):
        highest = max(highest, values[k])
    return highest


@jit
def _measure(state, row, under, lengths, measured):
    """Compute a row's metrics; ``under`` is the sum of its heights, metres."""
    peak = np.float64(_highest_of(flat(state.heightmap[row])))
    shared.measure(state, row, peak, under[row] * lengths.cell_area, lengths, measured)


@jit
def _find_rest(heightmap, bottom, x, y):
    """Return the rest height of an item at lower corner (x, y); +inf outside the container."""
    # The largest gap of all cells; the window may be larger than the container.
    rest = -INF
    for u in range(bottom.shape[0]):
        for v in range(bottom.shape[1]):
            low = bottom[u, v]
            if low == INF:
                continue
            if x + u >= heightmap.shape[0] or y + v >= heightmap.shape[1]:
                return INF
            rest = max(rest, heightmap[x + u, y + v] - low)
    return rest


@jit
def _corner_levels(heightmap, bottom, x, y, size):
    """Return ground minus lower surface at the window's corners; -inf outside the footprint."""
    # The window's last cells; an empty window is read at its first cell.
    u, v = max(size[0] - 1, 0), max(size[1] - 1, 0)
    far_x, far_y = min(x + u, heightmap.shape[0] - 1), min(y + v, heightmap.shape[1] - 1)
    return (
        heightmap[x, y] - bottom[0, 0],
        heightmap[far_x, y] - bottom[u, 0],
        heightmap[x, far_y] - bottom[0, v],
        heightmap[far_x, far_y] - bottom[u, v],
    )


@jit
def _find_contact(heightmap, place, counts, lengths, edges):
    """Return (rest height, stable, support ratio) of a legal placement: see `Ground.at_rest`.

    ``place`` is (lower surface, x, y, centre of mass, window).
    """
    # 1. The rest height, and the level (bar) that a cell must reach to support.
    bottom, x, y, com, size = place
    rest = _find_rest(heightmap, bottom, x, y)
    tolerance = np.float32(lengths.tolerance)
    bar = rest - tolerance
    # 2. The supporting cells, and the result of the metric's rule.
    count, area = find_support(heightmap, bottom, x, y, bar, edges)
    levels = _corner_levels(heightmap, bottom, x, y, size)
    rule = counts.metric_rule
    stable = stands(rule, count, area, levels, bar, tolerance, False, edges, size, com)
    return rest, stable, np.float64(count) / np.float64(max(area, 1))


@jit
def _raise(heightmap, top, x, y, rest):
    for u in range(min(top.shape[0], heightmap.shape[0] - x)):
        for v in range(min(top.shape[1], heightmap.shape[1] - y)):
            heightmap[x + u, y + v] = max(heightmap[x + u, y + v], rest + top[u, v])


@jit
def _list_ahead(state, items, row, ahead):
    """List the orientations of a row's visible items."""
    # Slots without an item get surface index -1.
    orientations = items.peak.shape[1]
    for slot in range(ahead.peak.shape[1]):
        there = slot < state.num_items[row] - state.items_packed[row]
        item = state.item_id[row, state.queue[row, slot]] if there else np.int64(0)
        for orientation in range(orientations):
            plane = item * orientations + orientation
            ahead.plane[row, slot, orientation] = plane if there else -1
        copy(items.peak[item], ahead.peak[row, slot])
        copy(items.com[item], ahead.com[row, slot])
        copy(items.size[item], ahead.size[row, slot])


@jit
def _decide_row(state, action, items, row, shape, counts, lengths, edges, outcome):
    """Carry out one decision; see `core.transition.decide`."""
    # 1. Decode and look up; an illegal placement leaves the row unchanged.
    index, slot, orientation, x, y = shared.decode(action, row, shape, counts.stride)
    if not shared.note(state, row, shared.is_legal(state, row, index), outcome):
        return
    # 2. Find the item's surface, its rest height and its stability.
    heightmap, item = state.heightmap[row], state.item_id[row, state.queue[row, slot]]
    com, size = items.com[item, orientation], items.size[item, orientation]
    place = (items.bottom[item, orientation], x, y, com, size)
    rest, stable, ratio = _find_contact(heightmap, place, counts, lengths, edges)
    # 3. Commit and record.
    _raise(heightmap, items.top[item, orientation], x, y, rest)
    placement, volume = (slot, orientation, x, y), items.volume[item]
    shared.record(state, row, placement, rest, ratio, stable, volume)


@kernel
def _decide(tables, action, under, filled, edges, start, stop):
    """Carry out one decision in the rows start <= row < stop, and list the next orientations.

    ``filled`` are the tables of `Ahead` and `Outcome`; ``edges`` is memory for each row's contact.
    """
    state, items = shared.as_state(tables[0]), shared.as_items(tables[1])
    counts, lengths = shared.as_counts(tables[3]), shared.as_lengths(tables[4])
    ahead, outcome = shared.as_ahead(filled[0]), shared.as_outcome(filled[1])
    shape = shared.lattice(state, items, counts)
    for row in range(start, stop):
        _measure(state, row, under, lengths, outcome.before)
        _decide_row(state, action, items, row, shape, counts, lengths, edges[row], outcome)
        _list_ahead(state, items, row, ahead)


@jit
def _find_places(judged, row, lengths, observations):
    """Write legality and rest heights of a row's placements; return whether any is legal."""
    # A placement outside the container, with a rest height of +inf, is above the lid.
    z, stable, peak = judged
    height, lid, playable = np.float32(lengths.height), np.float32(lengths.lid), False
    for p in range(z.shape[1]):
        heights, top, mask = z[row, p], peak[row, p], observations.mask[row, p]
        for k in range(mask.size):
            mask[k] = heights[k] + top <= lid
        for k in range(mask.size if stable.size else 0):
            mask[k] &= stable[row, p, k]
        for k in range(mask.size):
            playable |= mask[k]
        if observations.drop_height.size:
            observed = observations.drop_height[row, p]
            for k in range(mask.size):
                observed[k] = heights[k] / height if mask[k] else np.float32(1)
    return playable


@kernel
def _observe(tables, judged, under, filled, begin, stop):
    """End episodes that are over, and write observations, in the rows begin <= row < stop.

    ``filled`` are the tables of the observations, of the observations after resets, and of the
    outcome; ``judged`` is the argument of :func:`observe_places`.
    """
    state, items, pool = (
        shared.as_state(tables[0]),
        shared.as_items(tables[1]),
        shared.as_pool(tables[2]),
    )
    counts, lengths = shared.as_counts(tables[3]), shared.as_lengths(tables[4])
    observations, start = shared.as_observations(filled[0]), shared.as_observations(filled[1])
    outcome = shared.as_outcome(filled[2])
    for row in range(begin, stop):
        # 1. Legality, and the flags that depend on it.
        playable = _find_places(judged, row, lengths, observations)
        shared.end(state, row, playable, counts, outcome, observations)
        # 2. Metrics and observations; a finished row begins its next episode.
        _measure(state, row, under, lengths, outcome.after)
        observe(state, items, row, row + 1, counts, lengths, outcome, observations)
        if start.done.size:
            reset_finished(state, pool, items, row, row + 1, counts, lengths, observations, start)
        # 3. Store the legality in the state.
        shared.keep_legality(state, row, start.mask if start.done.size else observations.mask)


@kernel
def _close_lid(z, peak, lid, start, stop):
    """Set +inf above the lid in the planes start <= b * R + r < stop."""
    for p in range(start, stop):
        heights, top = z[p], peak[p]
        for k in range(heights.size):
            heights[k] = heights[k] if heights[k] + top <= lid else INF


def decide(
    constants: shared.Constants, action: Tensor, under: Tensor, ahead: Tensors, outcome: Tensors
) -> None:
    """Run `packing_env.kernels.step.decide_heights`."""
    edges = constants.scratch.get(constants.batch)
    if edges is None:
        edges = np.empty((constants.batch, 2, constants.counts.across + 2), np.float64)
        constants.scratch[constants.batch] = edges
    filled = (constants.ahead.table(ahead), constants.outcome.table(outcome))
    arguments = (constants.tables, action.numpy(), under.numpy(), filled, edges)
    work = len(under) * math.prod(constants.shape)
    run(_decide, arguments, len(under), work, keep=(*ahead, *outcome, constants))


def observe_places(
    constants: shared.Constants, under: Tensor, judged: Tensors, *filled: Tensors
) -> None:
    """Run `packing_env.kernels.step.observe_heights`."""
    observations, start, outcome = filled
    heights, held, peak = (tensor.numpy() for tensor in judged)
    z = heights.reshape(*heights.shape[:2], -1)
    stable = held.reshape(len(held), *z.shape[1:])
    tables = (
        constants.observations.table(observations),
        constants.observations.table(start),
        constants.outcome.table(outcome),
    )
    arguments = (constants.tables, (z, stable, peak), under.numpy(), tables)
    work = sum(map(Tensor.numel, observations))
    run(_observe, arguments, len(under), work, keep=(*observations, *start, *outcome, constants))


def close_lid(z: Tensor, peak: Tensor, lid: float) -> None:
    """Run `packing_env.kernels.step.close_lid`."""
    planes = z.numpy().reshape(peak.numel(), -1)
    arguments = (planes, peak.numpy().reshape(-1), np.float32(lid))
    run(_close_lid, arguments, len(planes), planes.size)
