"""A step on items of any shape, compiled for the CPU: before and after the maps of placements.

Rows are handled one by one. Between :func:`decide` and :func:`observe_places` come the maps of all
placements, by the kernels and rules that everyone uses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from packing_env.kernels.compiled.jit import (
    INF,
    addresses_of,
    array_at,
    jit,
    jit_arrays,
    jit_ordered,
    kernel,
    run,
)
from packing_env.kernels.compiled.stable import find_support, stands
from packing_env.kernels.step import shared
from packing_env.kernels.step.entries import Ahead, Observations, Tensors
from packing_env.kernels.step.observe import observe, reset_finished

_OBSERVED, _AHEAD = len(Observations._fields), len(Ahead._fields)


@jit_arrays
def _ahead_at(places, state, items, counts):
    """Return `Ahead` by the addresses of its entries, all axes of a slot in one."""
    batch, surface = state.heightmap.shape[0], items.bottom[0].size
    visible, orientations = counts.visible, items.peak.shape[1]
    return Ahead(
        array_at(places[0], (batch, visible, orientations), np.int64),
        array_at(places[1], (batch if places[1] else 0, visible, surface), np.float32),
        array_at(places[2], (batch, visible, orientations), np.float32),
        array_at(places[3], (batch, visible, 2 * orientations), np.int64),
        array_at(places[4], (batch, visible, 2 * orientations), np.int64),
    )


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
    peak = np.float64(_highest_of(state.heightmap[row].reshape(-1)))
    shared.measure(state, row, peak, under[row] * lengths.cell_area, lengths, measured)


@jit
def _find_rest(heightmap, bottom, x, y):
    """Return the rest height of an item with lower corner (x, y); +inf if it sticks out."""
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
    """Return the levels of the window's corner cells; -inf outside the footprint."""
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
    """Return (rest height, stable, support ratio) of a legal placement: see `feasibility.at_rest`.

    ``place`` is (lower surface, x, y, centre of mass, window).
    """
    bottom, x, y, com, size = place
    rest = _find_rest(heightmap, bottom, x, y)
    tolerance = np.float32(lengths.tolerance)
    bar = rest - tolerance
    count, area = find_support(heightmap, bottom, x, y, bar, edges)
    levels = _corner_levels(heightmap, bottom, x, y, size)
    rule = counts.metric_rule
    stable = stands(rule, count, area, levels, bar, tolerance, False, edges, size, com)
    return rest, stable, np.float64(count) / np.float64(max(area, 1))


@jit
def _raise(heightmap, top, x, y, rest):
    """Put the item down: see `core.heightmap.raise_window`."""
    for u in range(min(top.shape[0], heightmap.shape[0] - x)):
        for v in range(min(top.shape[1], heightmap.shape[1] - y)):
            heightmap[x + u, y + v] = max(heightmap[x + u, y + v], rest + top[u, v])


@jit
def _list_ahead(state, items, row, ahead):
    """List the orientations of a row's visible items."""
    orientations = items.peak.shape[1]
    for slot in range(ahead.peak.shape[1]):
        there = slot < state.num_items[row] - state.items_packed[row]
        item = state.item_id[row, state.queue[row, slot]] if there else np.int64(0)
        for orientation in range(orientations):
            plane = item * orientations + orientation
            ahead.plane[row, slot, orientation] = plane if there else -1
        if ahead.bottom.size and there:
            shared.copy_line(items.bottom[item].reshape(-1), ahead.bottom[row, slot])
        elif ahead.bottom.size:
            ahead.bottom[row, slot][:] = INF
        shared.copy_line(items.peak[item], ahead.peak[row, slot])
        shared.copy_line(items.com[item].reshape(-1), ahead.com[row, slot])
        shared.copy_line(items.size[item].reshape(-1), ahead.size[row, slot])


@jit
def _decide_row(state, action, items, row, shape, counts, lengths, edges, outcome):
    """Take one decision: see `core.transition.decide`."""
    index, slot, orientation, x, y = shared.decode(action, row, shape, counts.stride)
    if not shared.note(state, row, shared.is_legal(state, row, index), outcome):
        return
    heightmap, item = state.heightmap[row], state.item_id[row, state.queue[row, slot]]
    com, size = items.com[item, orientation], items.size[item, orientation]
    place = (items.bottom[item, orientation], x, y, com, size)
    rest, stable, ratio = _find_contact(heightmap, place, counts, lengths, edges)
    _raise(heightmap, items.top[item, orientation], x, y, rest)
    placement, volume = (slot, orientation, x, y), items.volume[item]
    shared.record(state, row, placement, rest, ratio, stable, volume)


@kernel
def _decide(state, action, items, places, under, counts, lengths, start, stop):
    """Take one decision in the rows start <= row < stop, and list what may be placed next.

    ``places`` are the addresses of `Ahead` and `Outcome`.
    """
    shape = shared.lattice(state, items, counts)
    ahead = _ahead_at(places, state, items, counts)
    outcome = shared.outcome_at(places[_AHEAD:], state.step.size)
    edges = np.empty((2, items.bottom.shape[2] + 2), np.float64)
    for row in range(start, stop):
        _measure(state, row, under, lengths, outcome.before)
        _decide_row(state, action, items, row, shape, counts, lengths, edges, outcome)
        _list_ahead(state, items, row, ahead)


@jit
def _find_places(judged, row, height, observations):
    """Write legality and rest heights of a row's placements; returns whether any is legal."""
    z, stable = judged
    playable = False
    for p in range(z.shape[1]):
        heights, holds, mask = z[row, p], stable[row, p], observations.mask[row, p]
        for k in range(mask.size):
            legal = holds[k] & (heights[k] < INF)
            mask[k] = legal
            playable |= legal
        if observations.drop_height.size:
            observed = observations.drop_height[row, p]
            for k in range(mask.size):
                observed[k] = heights[k] / height if mask[k] else np.float32(1)
    return playable


@kernel
def _observe(state, judged, items, pool, under, places, counts, lengths, begin, stop):
    """End rows whose episode is over, and observe, in the rows begin <= row < stop.

    Arguments are those of `step.cells`; ``judged`` are those of :func:`observe_places`.
    """
    observations = shared.observations_at(places, state, items, counts)
    start = shared.observations_at(places[_OBSERVED:], state, items, counts)
    outcome = shared.outcome_at(places[2 * _OBSERVED :], state.step.size)
    for row in range(begin, stop):
        playable = _find_places(judged, row, np.float32(lengths.height), observations)
        shared.end(state, row, playable, counts, outcome, observations)
        _measure(state, row, under, lengths, outcome.after)
        observe(state, items, row, row + 1, counts, lengths, outcome, observations)
        if start.done.size:
            reset_finished(state, pool, items, row, row + 1, counts, lengths, observations, start)
        shared.keep_legality(state, row, start.mask if start.done.size else observations.mask)


@kernel
def _close_lid(z, peak, lid, start, stop):
    """Set +inf above the lid in the planes start <= b * R + r < stop."""
    for p in range(start, stop):
        heights, top = z[p], peak[p]
        for k in range(heights.size):
            heights[k] = heights[k] if heights[k] + top <= lid else INF


@kernel
def _below_lid(z, peak, lid, below, start, stop):
    """Mark what is not above the lid in the planes start <= b * R + r < stop."""
    for p in range(start, stop):
        heights, top, marks = z[p], peak[p], below[p]
        for k in range(heights.size):
            marks[k] = heights[k] + top <= lid


def decide(constant: Any, action: Tensor, under: Tensor, ahead: Tensors, outcome: Tensors) -> None:
    """Run `packing_env.kernels.step.decide_heights`; ``constant`` is from `shared.constants`."""
    state, items, _, counts, lengths = constant
    kept = (*ahead, *outcome)
    given = (state, action.numpy(), items, addresses_of(kept), under.numpy(), counts, lengths)
    run(_decide, given, len(under), ahead[1].numel(), keep=kept)


def observe_places(constant: Any, under: Tensor, judged: Tensors, *filled: Tensors) -> None:
    """Run `packing_env.kernels.step.observe_heights`."""
    state, items, pool, counts, lengths = constant
    observations, start, outcome = filled
    z, stable = (tensor.numpy().reshape(*tensor.shape[:2], -1) for tensor in judged)
    kept = (*observations, *start, *outcome)
    given = (state, (z, stable), items, pool, under.numpy(), addresses_of(kept), counts, lengths)
    run(_observe, given, len(under), sum(map(Tensor.numel, observations)), keep=kept)


def close_lid(z: Tensor, peak: Tensor, lid: float) -> None:
    """Run `packing_env.kernels.step.close_lid`."""
    planes = z.numpy().reshape(peak.numel(), -1)
    arguments = (planes, peak.numpy().reshape(-1), np.float32(lid))
    run(_close_lid, arguments, len(planes), planes.size)


def below_lid(z: Tensor, peak: Tensor, lid: float, below: Tensor) -> None:
    """Run `packing_env.kernels.step.below_lid`."""
    planes, marks = (tensor.numpy().reshape(peak.numel(), -1) for tensor in (z, below))
    arguments = (planes, peak.numpy().reshape(-1), np.float32(lid), marks)
    run(_below_lid, arguments, len(planes), planes.size)
