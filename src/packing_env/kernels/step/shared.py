"""Compiled parts for one row, used by the steps on whole cells and on heightmaps.

Sums and quotients are computed as in `core.metrics`, so that rounding is the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from packing_env.kernels.compiled.jit import jit
from packing_env.kernels.compiled.tables import Template, clear, copy, flat, reader, rows, table
from packing_env.kernels.layout import NUM_METRICS
from packing_env.kernels.step.entries import (
    Ahead,
    Counts,
    Items,
    Lengths,
    Observations,
    Outcome,
    Pool,
    State,
    Tensors,
)

_WORD = 0xFFFFFFFF


as_state, as_items, as_pool, as_counts, as_lengths, as_observations, as_outcome, as_ahead = map(
    reader, (State, Items, Pool, Counts, Lengths, Observations, Outcome, Ahead)
)


class Constants:
    """Constants of the steps of one batch, in the form that compiled code reads.

    Attributes:
        batch: Number of rows.
        shape: Cells of the container along x and y.
        counts: `Counts`.
        tables: Tables of `State`, `Items`, `Pool`, `Counts` and `Lengths`.
        observations: Function that makes tables of `Observations`.
        outcome: Function that makes tables of `Outcome`.
        ahead: Function that makes tables of `Ahead`.
        scratch: Memory of the kernels, which every step overwrites.
    """

    def __init__(
        self,
        state: Tensors,
        items: Tensors,
        pool: Tensors,
        counts: Sequence[int],
        lengths: Sequence[float],
        scratch: dict[Any, Any],
    ) -> None:
        self.counts, self.scratch = Counts(*counts), scratch
        entries: dict[Any, Any] = {
            State: state,
            Items: items,
            Pool: pool,
            Counts: counts,
            Lengths: lengths,
        }
        self._alive = entries  # the tables hold only addresses
        self.tables = tuple(table(layout, values) for layout, values in entries.items())
        # Tables of the entries that each step fills: only their addresses change.
        now, kinds = State(*state), Items(*items)
        self.batch, *self.shape = now.heightmap.shape
        orientations, slots = kinds.peak.shape[1], now.queue.shape[1]
        sizes = {
            "B": self.batch,
            "XY": math.prod(self.shape),
            "S": slots,
            "F": kinds.item_features.shape[1],
            "RF": kinds.orientation_features.shape[1],
            "RUV": kinds.bottom[0].numel(),
            "A": math.prod(-(-side // self.counts.stride) for side in self.shape),
            "L": self.counts.visible,
            "R": orientations,
            "2R": 2 * orientations,
            "LR": self.counts.visible * orientations,
            "K": self.counts.metrics,
            "metrics": NUM_METRICS,
        }
        self.observations, self.outcome, self.ahead = (
            Template(layout, sizes) for layout in (Observations, Outcome, Ahead)
        )


@jit
def lattice(state, items, counts):
    """Return the shape of a row's mask, ``(L, R, Xs, Ys)``."""
    _, length, width = state.heightmap.shape
    xs, ys = -(-length // counts.stride), -(-width // counts.stride)
    return counts.visible, items.peak.shape[1], xs, ys


@jit
def decode(action, row, shape, stride):
    """Return the index of a row's action, and its (slot, orientation, x, y).

    The action is the index or the four numbers: see `core.orientation.decode_placement`. The index
    is -1 if the action is out of range. ``shape`` comes from :func:`lattice`.
    """
    # An index is taken apart in 32 bits, twice as fast as in 64.
    slots, orientations, xs, ys = shape
    if action.shape[1] == 1:
        index = action[row, 0]
        known = 0 <= index < slots * orientations * xs * ys
        among = np.uint32(index if known else 0)  # a mask has fewer than 2^32 places
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
    """Return whether a placement is legal according to the state; index -1 is illegal."""
    return index >= 0 and (state.legal.shape[1] == 0 or state.legal[row, index])


@jit
def keep_legality(state, row, mask):
    """Store the next legality of a row in the state; in a terminated row everything is legal."""
    legal, flags, over = state.legal[row], flat(mask[row]), state.terminated[row]
    for k in range(legal.size):
        legal[k] = over | flags[k]


@jit
def note(state, row, legal, outcome):
    """Count a decision; return whether to carry it out (if legal, and the row is unfinished)."""
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
    # The following slots move up; the last one takes the next item of the episode.
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
    # 1. The placement, as a line of the record.
    slot, orientation, x, y = placement
    position, packed = state.queue[row, slot], state.items_packed[row]
    entry = state.placement[row, packed]
    entry[0], entry[1], entry[2], entry[3] = position, orientation, x, y
    state.placement_z[row, packed] = rest
    state.placement_support[row, packed] = np.float32(ratio)
    state.packed[row, position] = True
    # 2. The queue.
    _take_from_queue(state, row, slot)
    # 3. The sums from which metrics are computed.
    state.items_packed[row] = packed + 1
    state.stable_items[row] += stable
    state.support_sum[row] += ratio
    state.volume[row] += volume


@jit
def _quotient(numerator, denominator):
    """Return the quotient, or 0 if the denominator is not positive."""
    return numerator / denominator if denominator > 0 else 0.0


@jit
def measure(state, row, peak, filled, lengths, measured):
    """Compute a row's metrics in the order of `core.metrics.measure`.

    ``peak`` is the highest point and ``filled`` the volume under the heightmap, float64.
    """
    # The metrics are in the order of their names.
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

    ``playable`` says whether any placement is legal. With ``ends_mask``, the mask of a terminated
    row becomes all True. Rows that are only truncated keep their mask.
    """
    # 1. Flags of rows that were not finished before.
    if outcome.live[row]:
        stuck = not playable or state.items_packed[row] >= state.num_items[row]
        state.terminated[row] = stuck or (counts.illegal_ends and not outcome.legal[row])
        state.truncated[row] = state.step[row] >= counts.step_limit
    terminated, truncated = state.terminated[row], state.truncated[row]
    # 2. The observed flags, and the mask of a terminated row.
    observations.terminated[row], observations.truncated[row] = terminated, truncated
    observations.done[row] = terminated or truncated
    if terminated and counts.ends_mask:
        mask = flat(observations.mask[row])
        for k in range(mask.size):
            mask[k] = True


@jit
def _philox(seed, first, second):
    """Return the first word of `core.random.philox` with two counters, as int64."""
    # Philox 4x32 with 10 rounds (Salmon et al., SC 2011).
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
    """Start a row's next episode, except ``reward_sum``: see `core.transition.begin`.

    Only the records of the last episode are cleared.
    """
    # 1. The instance: the next one in order, or one drawn from the row's random stream.
    packed = state.items_packed[row]
    state.episode[row] += 1
    episode, stream = state.episode[row], state.row[row]
    if sequential:
        index = (stream + episode * state.row.size) % pool.num_items.size
    else:
        index = (_philox(state.seed[row], episode, stream) * pool.num_items.size) >> 32
    # 2. Its items, and the queue.
    state.num_items[row] = pool.num_items[index]
    copy(pool.item_id[index], state.item_id[row])
    for k in range(state.queue.shape[1]):
        state.queue[row, k] = k
    # 3. An empty container and record.
    clear(state.heightmap[row])
    clear(rows(state.placement[row], 0, packed))
    clear(rows(state.placement_z[row], 0, packed))
    clear(rows(state.placement_support[row], 0, packed))
    clear(state.packed[row])
    # 4. Counts, sums and flags.
    state.items_packed[row] = state.stable_items[row] = state.illegal_actions[row] = 0
    state.overflow[row] = state.step[row] = 0
    state.volume[row] = state.support_sum[row] = 0
    state.terminated[row] = state.truncated[row] = False
