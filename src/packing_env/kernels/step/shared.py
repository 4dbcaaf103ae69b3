"""Compiled parts of a step that whole cells and heightmaps share, each for one row of the batch.

Sums and quotients are written as in `core.metrics`, so that they round alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from packing_env.kernels.compiled.jit import array_at, jit, jit_arrays
from packing_env.kernels.layout import NUM_METRICS
from packing_env.kernels.step.entries import (
    MASK,
    Counts,
    Items,
    Lengths,
    Observations,
    Outcome,
    State,
    Tensors,
)

_WORD = 0xFFFFFFFF


def constants(
    state: Tensors, items: Tensors, pool: Tensors, counts: Sequence[int], lengths: Sequence[float]
) -> tuple[Any, ...]:
    """Return what stays the same from step to step, as compiled code reads it.

    The arrays share the memory of the tensors: nothing is read or copied.
    """
    now, table, instances = ([tensor.numpy() for tensor in each] for each in (state, items, pool))
    return State(*now), Items(*table), tuple(instances), Counts(*counts), Lengths(*lengths)


@jit
def lattice(state, items, counts):
    """Return the shape of a row's mask, ``(L, R, Xs, Ys)``."""
    _, length, width = state.heightmap.shape
    xs, ys = -(-length // counts.stride), -(-width // counts.stride)
    return counts.visible, items.peak.shape[1], xs, ys


@jit_arrays
def observations_at(places, state, items, counts):
    """Return the `Observations` by the addresses of their entries, 0 for an empty one.

    All axes of a slot, and the lattice of an orientation, become one: what has many axes takes long
    to compile.
    """
    slots, orientations, xs, ys = lattice(state, items, counts)
    batch, length, width = state.heightmap.shape
    visible, features = state.queue.shape[1], items.item_features.shape[1]
    turned, plane = items.orientation_features.shape[1], (slots * orientations, xs * ys)
    surface = items.bottom[0].size
    rows, flags = batch * (places != 0), batch if places[MASK] else 0
    return Observations(
        array_at(places[0], (rows[0], length * width), np.float32),
        array_at(places[1], (rows[1], visible), np.int64),
        array_at(places[2], (rows[2], visible, features), np.float32),
        array_at(places[3], (rows[3], visible, turned), np.float32),
        array_at(places[4], (rows[4], visible, surface), np.float32),
        array_at(places[5], (rows[5], visible, surface), np.float32),
        array_at(places[6], (rows[6], *plane), np.float32),
        array_at(places[7], (rows[7], *plane), np.bool_),
        array_at(places[8], (flags,), np.bool_),
        array_at(places[9], (flags,), np.bool_),
        array_at(places[10], (flags,), np.bool_),
        array_at(places[11], (counts.metrics, flags), np.float32),
        array_at(places[12], (rows[12], length * width), np.float32),
    )


@jit_arrays
def outcome_at(places, batch):
    """Return the `Outcome` by the addresses of its entries."""
    return Outcome(
        array_at(places[0], (batch,), np.bool_),
        array_at(places[1], (batch,), np.bool_),
        array_at(places[2], (NUM_METRICS, batch), np.float64),
        array_at(places[3], (NUM_METRICS, batch), np.float64),
    )


@jit
def clear_line(line):
    """Fill a line with zeros."""
    for k in range(line.size):
        line[k] = 0


@jit
def copy_line(source, target):
    """Copy as many values as the target takes."""
    for k in range(target.size):
        target[k] = source[k]


@jit
def decode(action, row, shape, stride):
    """Return the index of a row's action, and its (slot, orientation, x, y).

    The action is the index or the four. See `core.orientation.decode_placement`. The index is -1
    where the action is out of range. ``shape`` is from :func:`lattice`.
    """
    slots, orientations, xs, ys = shape
    if action.shape[1] == 1:
        index = action[row, 0]
        known = 0 <= index < slots * orientations * xs * ys
        among = np.uint32(index if known else 0)  # a mask of 2^32 places fits nowhere
        plane, place = among // np.uint32(xs * ys), among % np.uint32(xs * ys)
        slot = np.int64(plane // np.uint32(orientations))
        orientation = np.int64(plane % np.uint32(orientations))
        i, j = np.int64(place // np.uint32(ys)), np.int64(place % np.uint32(ys))
    else:
        slot, orientation, i, j = action[row, 0], action[row, 1], action[row, 2], action[row, 3]
        known = 0 <= slot < slots and 0 <= orientation < orientations
        known = known and 0 <= i < xs and 0 <= j < ys
        index = ((slot * orientations + orientation) * xs + i) * ys + j
    return index if known else -1, slot, orientation, i * stride, j * stride


@jit
def is_legal(state, row, index):
    """Look a placement up in the state; an index of -1 is illegal."""
    return index >= 0 and (state.legal.shape[1] == 0 or state.legal[row, index])


@jit
def keep_legality(state, row, mask):
    """Write into the state which placements are legal next, all in a terminated row."""
    legal, flags, over = state.legal[row], mask[row].reshape(-1), state.terminated[row]
    for k in range(legal.size):
        legal[k] = over | flags[k]


@jit
def note(state, row, legal, outcome):
    """Count a decision; returns whether it is carried out: legal, and the row unfinished."""
    live = not (state.terminated[row] or state.truncated[row])
    outcome.legal[row], outcome.live[row] = legal, live
    state.step[row] += live
    state.illegal_actions[row] += live and not legal
    return live and legal


@jit
def _take_from_queue(state, row, slot):
    """Remove a slot of a row's queue, before its item is counted as packed.

    See `core.orientation.take_from_queue`.
    """
    last = state.queue.shape[1] - 1
    for k in range(slot, last):
        state.queue[row, k] = state.queue[row, k + 1]
    following = state.items_packed[row] + last + 1
    state.queue[row, last] = min(following, state.item_id.shape[1] - 1)


@jit
def record(state, row, placement, rest, ratio, stable, volume):
    """Record a row's item as packed; ``rest`` is its rest height in metres.

    See `core.transition.decide`.
    """
    slot, orientation, x, y = placement
    position, packed = state.queue[row, slot], state.items_packed[row]
    entry = state.placement[row, packed]
    entry[0], entry[1], entry[2], entry[3] = position, orientation, x, y
    state.placement_z[row, packed] = rest
    state.placement_support[row, packed] = np.float32(ratio)
    state.packed[row, position] = True
    _take_from_queue(state, row, slot)
    state.items_packed[row] = packed + 1
    state.stable_items[row] += stable
    state.support_sum[row] += ratio
    state.volume[row] += volume


@jit
def _quotient(numerator, denominator):
    """Return the quotient, 0 where the denominator is 0."""
    return numerator / denominator if denominator > 0 else 0.0


@jit
def measure(state, row, peak, filled, lengths, measured):
    """Compute a row's metrics in the order of `core.metrics.measure`.

    ``peak`` is the highest point and ``filled`` the volume under the heightmap, float64.
    """
    volume, packed = state.volume[row], np.float64(state.items_packed[row])
    measured[0, row] = volume / (lengths.base * lengths.height)
    measured[1, row] = _quotient(volume, lengths.base * peak)
    measured[2, row] = _quotient(volume, filled)
    measured[3, row] = _quotient(np.float64(state.stable_items[row]), packed)
    measured[4, row] = packed
    measured[5, row] = np.float64(state.items_packed[row] == state.num_items[row])
    measured[6, row] = peak / lengths.height
    measured[7, row] = _quotient(state.support_sum[row], packed)
    measured[8, row] = np.float64(state.illegal_actions[row])
    measured[9, row] = np.float64(state.overflow[row])


@jit
def end(state, row, playable, counts, outcome, observations):
    """End a row's episode if this decision was its last: see `core.transition.finish`.

    ``playable`` tells whether any placement is legal. With ``ends_mask`` the mask of terminated
    rows becomes all True; truncated ones keep theirs, in which some action is legal.
    """
    if outcome.live[row]:
        stuck = not playable or state.items_packed[row] >= state.num_items[row]
        state.terminated[row] = stuck or (counts.illegal_ends and not outcome.legal[row])
        state.truncated[row] = state.step[row] >= counts.step_limit
    terminated, truncated = state.terminated[row], state.truncated[row]
    observations.terminated[row], observations.truncated[row] = terminated, truncated
    observations.done[row] = terminated or truncated
    if terminated and counts.ends_mask:
        mask = observations.mask[row].reshape(-1)
        for k in range(mask.size):
            mask[k] = True


@jit
def _philox(seed, first, second):
    """Return the first word of `core.random.philox` with two counters; int64, as it is there."""
    c0, c1, c2, c3 = first, second, np.int64(0), np.int64(0)
    k0, k1 = seed & _WORD, (seed >> 32) & _WORD
    for _ in range(10):
        one, other = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1 = ((other >> 32) & _WORD) ^ c1 ^ k0, other & _WORD
        c2, c3 = ((one >> 32) & _WORD) ^ c3 ^ k1, one & _WORD
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return c0


@jit
def begin(state, row, pool, sequential):
    """Start a row's next episode, all but ``reward_sum``: see `core.transition.begin`.

    Of the records, only those that the last episode made are cleared.
    """
    instances, sizes = pool
    packed = state.items_packed[row]
    state.episode[row] += 1
    episode, stream = state.episode[row], state.row[row]
    if sequential:
        index = (stream + episode * state.row.size) % sizes.size
    else:
        index = (_philox(state.seed[row], episode, stream) * sizes.size) >> 32
    state.num_items[row] = sizes[index]
    copy_line(instances[index], state.item_id[row])
    for k in range(state.queue.shape[1]):
        state.queue[row, k] = k
    clear_line(state.heightmap[row].reshape(-1))
    clear_line(state.placement[row, :packed].reshape(-1))
    clear_line(state.placement_z[row, :packed])
    clear_line(state.placement_support[row, :packed])
    clear_line(state.packed[row])
    state.items_packed[row] = state.stable_items[row] = state.illegal_actions[row] = 0
    state.overflow[row] = state.step[row] = 0
    state.volume[row] = state.support_sum[row] = 0
    state.terminated[row] = state.truncated[row] = False
