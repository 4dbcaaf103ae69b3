"""Parts of the fused step in Triton: metrics, rewards, observations, and the start of an episode.

They mirror `step.shared` and `step.observe`. Sums and quotients are written as in `core.metrics`,
so that rounding is the same. One program handles one row: it first reads the state, then writes it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton.language as tl

from packing_env.kernels.compiled.scene_triton import part

METRIC_LANES = tl.constexpr(16)
"""Number of lanes for the metrics, of which there are `NUM_METRICS`."""

_LINE = tl.constexpr(128)
"""Number of values that a program writes at once when it fills or copies memory."""


class Task(NamedTuple):
    """Constants and sizes that are compiled in: see `step.entries.Counts`.

    ``heads`` is the number of integers in an action, ``slots`` the number of observed items, and
    ``capacity`` is N. ``features`` and ``turned`` are the lengths of a line of ``item_features``
    and of ``orientation_features``. ``terms`` are indices in `FUSED_TERMS`. Each ``..._lanes`` is
    the size rounded up to a power of two. Programs handle ``points`` placements or ``cells`` cells
    at once.
    """

    heads: Any
    visible: Any
    slots: Any
    orientations: Any
    capacity: Any
    features: Any
    turned: Any
    remaining: Any
    step_limit: Any
    illegal_ends: Any
    sequential: Any
    terms: Any
    num_terms: Any
    slot_lanes: Any
    feature_lanes: Any
    turned_lanes: Any
    xs: Any
    ys: Any
    points: Any
    cells: Any


class Tables(NamedTuple):
    """Tables of constants: see `step.fused.FusedTask`."""

    numbers: Any
    share: Any


class Seen(NamedTuple):
    """Observations to write, named as in `step.entries.Observations`; None if not requested."""

    heightmap: Any
    item_id: Any
    item_features: Any
    orientation_features: Any
    drop_height: Any
    mask: Any
    terminated: Any
    truncated: Any
    done: Any
    metrics: Any


class Row(NamedTuple):
    """Numbers of the state of one row; ``packed`` of its ``of`` items are packed."""

    packed: Any
    of: Any
    volume: Any
    stable: Any
    support: Any
    illegal: Any
    overflow: Any
    step: Any
    terminated: Any
    truncated: Any


@part
def read_row(state, row):
    """Return the numbers of a row."""
    return Row(
        tl.load(state.items_packed + row),
        tl.load(state.num_items + row),
        tl.load(state.volume + row),
        tl.load(state.stable_items + row),
        tl.load(state.support_sum + row),
        tl.load(state.illegal_actions + row),
        tl.load(state.overflow + row),
        tl.load(state.step + row),
        tl.load(state.terminated + row) != 0,
        tl.load(state.truncated + row) != 0,
    )


@part
def write_row(state, row, numbers):
    """Write the numbers of a row that a decision changes."""
    tl.store(state.items_packed + row, numbers.packed)
    tl.store(state.volume + row, numbers.volume)
    tl.store(state.stable_items + row, numbers.stable)
    tl.store(state.support_sum + row, numbers.support)
    tl.store(state.illegal_actions + row, numbers.illegal)
    tl.store(state.step + row, numbers.step)
    tl.store(state.terminated + row, numbers.terminated)
    tl.store(state.truncated + row, numbers.truncated)


@part
def decode(action, row, TASK: tl.constexpr, GRID: tl.constexpr):
    """Return whether a row's action is in range, and its slot, orientation, x and y (or zeros).

    See `step.shared.decode`.
    """
    # An index numbers placements as the mask does; int32 suffices for a legal one.
    places = TASK.xs * TASK.ys
    if TASK.heads == 1:
        index = tl.load(action + row)
        known = (index >= 0) & (index < TASK.visible * TASK.orientations * places)
        among = tl.where(known, index, 0).to(tl.int32)
        plane, place = among // places, among % places
        slot, orientation = plane // TASK.orientations, plane % TASK.orientations
        i, j = place // TASK.ys, place % TASK.ys
    else:
        # Four numbers, each within its axis.
        slot, orientation = tl.load(action + row * 4), tl.load(action + row * 4 + 1)
        i, j = tl.load(action + row * 4 + 2), tl.load(action + row * 4 + 3)
        known = (slot >= 0) & (slot < TASK.visible)
        known = known & (orientation >= 0) & (orientation < TASK.orientations)
        known = known & (i >= 0) & (i < TASK.xs) & (j >= 0) & (j < TASK.ys)
        slot, orientation = tl.where(known, slot, 0).to(tl.int32), tl.where(known, orientation, 0)
        orientation = orientation.to(tl.int32)
        i, j = tl.where(known, i, 0).to(tl.int32), tl.where(known, j, 0).to(tl.int32)
    return known, slot, orientation, i * GRID.stride, j * GRID.stride


@part
def queue_after(queue, slot, packed, carried, TASK: tl.constexpr):
    """Return the positions of the visible items after a decision; see `core.orientation`."""
    # Slots behind the packed item move up; the last one takes the next item of the episode.
    lanes = tl.arange(0, TASK.slot_lanes)
    here = tl.load(queue + lanes, mask=lanes < TASK.slots, other=0)
    behind = tl.load(queue + lanes + 1, mask=lanes + 1 < TASK.slots, other=0)
    following = tl.minimum(packed + TASK.slots, TASK.capacity - 1)
    behind = tl.where(lanes == TASK.slots - 1, following, behind)
    return tl.where(lanes >= tl.where(carried, slot, TASK.slot_lanes), behind, here)


@part
def record(state, row, packed, move, rest, ratio, carried, TASK: tl.constexpr, GRID: tl.constexpr):
    """Record a row's item as packed; see `step.shared.record`.

    ``move`` is (position, orientation, x, y). The kernel writes the counts.
    """
    # The next free line of the record; an illegal action writes nothing.
    entry = row * TASK.capacity + packed
    tl.store(state.placement + entry * 4, move[0], mask=carried)
    tl.store(state.placement + entry * 4 + 1, move[1], mask=carried)
    tl.store(state.placement + entry * 4 + 2, move[2], mask=carried)
    tl.store(state.placement + entry * 4 + 3, move[3], mask=carried)
    tl.store(state.placement_z + entry, rest, mask=carried)
    tl.store(state.placement_support + entry, ratio.to(tl.float32), mask=carried)
    tl.store(state.packed + row * TASK.capacity + move[0], carried, mask=carried)


@part
def quotient(numerator, denominator):
    """Return the quotient, or 0 if the denominator is not positive."""
    # All lanes divide, so none may divide by 0.
    safe = tl.where(denominator > 0, denominator, 1.0)
    return tl.where(denominator > 0, numerator / safe, 0.0)


@part
def measure(numbers, top, filled, lengths):
    """Return the metrics in the order of `core.metrics.NAMES`, one per lane.

    ``top`` is the highest point and ``filled`` the volume under the heightmap, float64. Every
    metric is a quotient, if necessary by 1, so that one division computes all.
    """
    # 1. The lengths, and the counts as float64.
    lane, one = tl.arange(0, METRIC_LANES), tl.full([METRIC_LANES], 1.0, tl.float64)
    base, height = tl.load(lengths + 2), tl.load(lengths + 3)
    count = numbers.packed.to(tl.float64)
    success = (numbers.packed == numbers.of).to(tl.float64)
    # 2. Numerators and denominators by lane; counts are divided by 1, which keeps them.
    upper, lower = tl.where(lane < 3, numbers.volume, 0.0), one
    upper = tl.where(lane == 3, numbers.stable.to(tl.float64), upper)
    upper = tl.where(lane == 4, count, tl.where(lane == 5, success, upper))
    upper = tl.where(lane == 6, top, tl.where(lane == 7, numbers.support, upper))
    upper = tl.where(lane == 8, numbers.illegal.to(tl.float64), upper)
    upper = tl.where(lane == 9, numbers.overflow.to(tl.float64), upper)
    lower = tl.where(lane == 0, base * height, tl.where(lane == 1, base * top, lower))
    lower = tl.where(lane == 2, filled, tl.where(lane == 6, height, lower))
    return quotient(upper, tl.where((lane == 3) | (lane == 7), count, lower))


@part
def metric(measured, INDEX: tl.constexpr):
    """Return one of the metrics."""
    # To extract a lane, sum with all other lanes set to 0.
    lane = tl.arange(0, METRIC_LANES)
    return tl.sum(tl.where(lane == INDEX, measured, 0.0), axis=0)


@part
def _objective(measured):
    """Return `core.rewards.objective`."""
    compactness, pyramidality = metric(measured, 1), metric(measured, 2)
    return 0.75 * compactness + 0.25 * pyramidality + 0.25 * metric(measured, 3)


@part
def reward_term(TERM: tl.constexpr, before, after, legal):
    """Return a term of `core.rewards.TERMS`, by its index in `FUSED_TERMS`."""
    if TERM == 0:
        value = _objective(after) - _objective(before)
    elif TERM == 1:
        value = metric(after, 0) - metric(before, 0)
    elif TERM == 2:
        value = metric(after, 4) - metric(before, 4)
    elif TERM == 3:
        value = metric(before, 6) - metric(after, 6)
    else:
        value = legal.to(tl.float64) - 1.0
    return value


@part
def observe_flags(seen, row, terminated, truncated):
    """Write the flags of a row."""
    tl.store(seen.terminated + row, terminated)
    tl.store(seen.truncated + row, truncated)
    tl.store(seen.done + row, terminated | truncated)


@part
def observe_items(seen, items, row, item, slot, left, TASK: tl.constexpr):
    """Write the observations of the visible items ``item [slots]``, of which ``left`` exist.

    ``slot`` holds the items' numbers; lanes beyond the last slot are padding.
    """
    # Lanes beyond the last slot write nothing; slots without an item write zeros.
    known, there = slot < TASK.slots, slot < left
    line = row * TASK.slots + slot
    if seen.item_id is not None:
        tl.store(seen.item_id + line, tl.where(there, item, -1), mask=known)
    if seen.item_features is not None:
        k = tl.arange(0, TASK.feature_lanes)[None, :]
        real = there[:, None] & (k < TASK.features)
        value = tl.load(
            items.item_features + item[:, None] * TASK.features + k, mask=real, other=0.0
        )  # fmt: skip
        # The feature ``remaining`` depends on the row, all others on the item.
        share = tl.load(items.remaining + left)
        value = tl.where(real & (k == TASK.remaining), share, value)
        target = seen.item_features + line[:, None] * TASK.features + k
        tl.store(target, value, mask=known[:, None] & (k < TASK.features))
    if seen.orientation_features is not None:
        k = tl.arange(0, TASK.turned_lanes)[None, :]
        real = there[:, None] & (k < TASK.turned)
        source = items.orientation_features + item[:, None] * TASK.turned + k
        value = tl.load(source, mask=real, other=0.0)
        target = seen.orientation_features + line[:, None] * TASK.turned + k
        tl.store(target, value, mask=known[:, None] & (k < TASK.turned))


@part
def fill(target, first, count, value):
    """Write a value ``count`` times, starting at ``target + first``."""
    for k in range(0, count, _LINE):
        index = k + tl.arange(0, _LINE)
        tl.store(target + first + index, value, mask=index < count)


@part
def _copy(source, from_, target, to, count):
    """Copy ``count`` numbers."""
    for k in range(0, count, _LINE):
        index = k + tl.arange(0, _LINE)
        value = tl.load(source + from_ + index, mask=index < count)
        tl.store(target + to + index, value, mask=index < count)


@part
def _philox(seed, first, second):
    """Return the first word of `core.random.philox` with two counters, uint32."""
    # The multipliers and Weyl constants of Philox 4x32 (Salmon et al., SC 2011).
    one = tl.full([], 0xD2511F53, tl.uint32)
    other = tl.full([], 0xCD9E8D57, tl.uint32)
    c0, c1 = first.to(tl.uint32), second.to(tl.uint32)
    c2, c3 = c0 * 0, c0 * 0
    k0, k1 = (seed & 0xFFFFFFFF).to(tl.uint32), ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    weyl0, weyl1 = tl.full([], 0x9E3779B9, tl.uint32), tl.full([], 0xBB67AE85, tl.uint32)
    # Ten rounds; the counters' other words are 0.
    for _ in range(0, 10):
        high, low = tl.umulhi(c2, other), c2 * other
        high2, low2 = tl.umulhi(c0, one), c0 * one
        c0, c1, c2, c3 = high ^ c1 ^ k0, low, high2 ^ c3 ^ k1, low2
        k0, k1 = k0 + weyl0, k1 + weyl1
    return c0


@part
def begin(state, reward_sum, pool, row, packed, rows, pool_size, TASK: tl.constexpr, GRID):
    """Start a row's next episode (`core.transition.begin`); return its instance and its length.

    Only the ``packed`` records that the last episode wrote are cleared.
    """
    # 1. The instance: the next in order, or one by the row's random stream.
    episode, stream = tl.load(state.episode + row) + 1, tl.load(state.row + row)
    if TASK.sequential:
        index = (stream + episode * rows) % pool_size
    else:
        word = _philox(tl.load(state.seed + row), episode, stream)
        index = (word.to(tl.int64) * pool_size) >> 32
    num = tl.load(pool[1] + index)
    # 2. Its items, and the queue.
    tl.debug_barrier()  # all threads have read the number of the episode
    tl.store(state.episode + row, episode)
    tl.store(state.num_items + row, num)
    _copy(pool[0], index * TASK.capacity, state.item_id, row * TASK.capacity, TASK.capacity)
    slots = tl.arange(0, TASK.slot_lanes)
    tl.store(state.queue + row * TASK.slots + slots, slots, mask=slots < TASK.slots)
    # 3. An empty container; clear the records that the last episode wrote.
    cells, none = GRID.length * GRID.width, packed * 0
    fill(state.heightmap, row * cells, cells, 0.0)
    fill(state.placement, row * TASK.capacity * 4, packed * 4, none)
    fill(state.placement_z, row * TASK.capacity, packed, 0.0)
    fill(state.placement_support, row * TASK.capacity, packed, 0.0)
    fill(state.packed, row * TASK.capacity, packed * 0 + TASK.capacity, none != 0)
    # 4. The counts, the sums and the flags.
    tl.store(state.items_packed + row, none)
    tl.store(state.stable_items + row, none)
    tl.store(state.illegal_actions + row, none)
    tl.store(state.overflow + row, none)
    tl.store(state.step + row, none)
    tl.store(state.volume + row, 0.0)
    tl.store(state.support_sum + row, 0.0)
    tl.store(state.terminated + row, none != 0)
    tl.store(state.truncated + row, none != 0)
    fill(reward_sum, row * TASK.num_terms, TASK.num_terms, 0.0)
    return index, num


@part
def observe_floor(seen, items, pool, row, index, num, TASK: tl.constexpr, GRID: tl.constexpr):
    """Write the observation of a row's first state; ``index`` is its instance, ``num`` its length.

    See `Ground.empty_maps`.
    """
    # 1. The items, the flags and the empty ground.
    slot = tl.arange(0, TASK.slot_lanes)
    source = pool[0] + index * TASK.capacity
    item = tl.load(source + slot, mask=(slot < TASK.slots) & (slot < num), other=0)
    observe_items(seen, items, row, item, slot, num, TASK)
    observe_flags(seen, row, num < 0, num < 0)
    cells, places = GRID.length * GRID.width, TASK.xs * TASK.ys
    if seen.heightmap is not None:
        fill(seen.heightmap, row * cells, cells, 0.0)
    # 2. Every placement inside the container is legal if the orientation may stand on the floor.
    for plane in range(0, TASK.visible * TASK.orientations):
        there = plane // TASK.orientations < num
        shown = tl.load(source + plane // TASK.orientations, mask=there, other=0)
        pose = shown * TASK.orientations + plane % TASK.orientations
        may = tl.where(there & (tl.load(items.on_floor + pose) != 0), places, 0)
        w, h = tl.load(items.size + pose * 2), tl.load(items.size + pose * 2 + 1)
        for first in range(0, places, TASK.points):
            place = first + tl.arange(0, TASK.points)
            x, y = place // TASK.ys * GRID.stride, place % TASK.ys * GRID.stride
            legal = (place < may) & (x + w <= GRID.length) & (y + h <= GRID.width)
            target = (row * TASK.visible * TASK.orientations + plane) * places + place
            tl.store(seen.mask + target, legal, mask=place < places)
            if seen.drop_height is not None:
                z = tl.where(legal, 0.0, 1.0)
                tl.store(seen.drop_height + target, z, mask=place < places)
