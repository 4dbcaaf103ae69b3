"""The operations of `kernels.step.heights` compiled for the CPU: rows one by one, each whole.

Sums and quotients are written as in `core.metrics`, so that they round alike. Functions
take the arrays that they need and no more, and what has many axes comes flat: that is what their
compilation takes time for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from packing_env.kernels.compiled.jit import INF, jit, kernel, run
from packing_env.kernels.step import heights as names
from packing_env.kernels.step import heights_rest as single
from packing_env.kernels.step.heights_show import (
    close_lid,
    copy_rows,
    show_floor,
    show_items,
    show_placements,
)
from packing_env.kernels.step.shared import (
    State,
    as_arrays,
    begin_episode,
    copy_line,
    entries,
    quotient,
    take_from_queue,
)

Items = entries("Items", names.ITEMS, __name__)
Ahead = entries("Ahead", names.AHEAD, __name__)
Shown = entries("Shown", names.SHOWN, __name__)
Outcome = entries("Outcome", names.OUTCOME, __name__)
Counts = entries("Counts", names.COUNTS, __name__)
Lengths = entries("Lengths", names.LENGTHS, __name__)

_LINES = {
    "heightmap": 1,
    "item_features": 2,
    "orientation_features": 2,
    "top": 2,
    "bottom": 2,
    "drop_height": 3,
    "mask": 3,
}
"""From which axis on what is shown comes in one line; the axes item and orientation of the last two
become one."""


@kernel
def _measure(heightmap, volume, support, tally, under, lengths, measured):  # type: ignore[no-untyped-def]
    """The metrics: see `core.metrics.measure`, whose order this is.

    ``tally`` is items packed, items, stable items, illegal actions and overflow.
    """
    packed, items, stable, illegal, overflow = tally
    for row in range(under.size):
        highest = np.float32(0)
        for height in heightmap[row]:
            highest = height if height > highest else highest
        peak, filled = np.float64(highest), under[row] * lengths.cell_area
        number = np.float64(packed[row])
        measured[0, row] = volume[row] / (lengths.base * lengths.height)
        measured[1, row] = quotient(volume[row], lengths.base * peak)
        measured[2, row] = quotient(volume[row], filled)
        measured[3, row] = quotient(np.float64(stable[row]), number)
        measured[4, row] = number
        measured[5, row] = np.float64(packed[row] == items[row])
        measured[6, row] = peak / lengths.height
        measured[7, row] = quotient(support[row], number)
        measured[8, row] = np.float64(illegal[row])
        measured[9, row] = np.float64(overflow[row])


@jit
def _decode(action, shape, stride):  # type: ignore[no-untyped-def]
    """(slot, orientation, x, y) of an index or of four; slot is -1 where they are out of range."""
    visible, turns, xs, ys = shape
    slot, turn, i, j = np.int64(-1), np.int64(0), np.int64(0), np.int64(0)
    if action.size == 1:
        index = action[0]
        if 0 <= index < visible * turns * xs * ys:
            plane, place = index // (xs * ys), index % (xs * ys)
            slot, turn, i, j = plane // turns, plane % turns, place // ys, place % ys
    else:
        turn, i, j = action[1], action[2], action[3]
        inside = 0 <= action[0] < visible and 0 <= turn < turns
        if inside and 0 <= i < xs and 0 <= j < ys:
            slot = action[0]
    return slot, turn, i * stride, j * stride


@jit
def _examine(heightmap, place, peak, rules, limits, edges):  # type: ignore[no-untyped-def]
    """(asked, stable, rest, support ratio) of an item: see `core.feasibility.examine`.

    ``place`` is as for `single.stands`, ``limits`` the lid and the contact's tolerance.
    """
    bottom, x, y = place[0], place[1], place[2]
    lid, tolerance = limits
    rest = single.find_rest(heightmap, bottom, x, y)
    if not rest + peak <= lid:
        return False, False, rest, 0.0
    bar = rest - tolerance
    count, area = single.find_support(heightmap, bottom, x, y, bar, edges)
    found = (count, area, edges)
    asked = single.stands(rules[0], heightmap, place, bar, tolerance, found)
    stable = asked and single.stands(rules[1], heightmap, place, bar, tolerance, found)
    return asked, stable, rest, np.float64(count) / np.float64(max(area, 1))


@jit
def _raise(heightmap, top, x, y, rest):  # type: ignore[no-untyped-def]
    """Put the item down: see `core.heightmap.raise_window`."""
    for u in range(min(top.shape[0], heightmap.shape[0] - x)):
        for v in range(min(top.shape[1], heightmap.shape[1] - y)):
            heightmap[x + u, y + v] = max(heightmap[x + u, y + v], rest + top[u, v])


@kernel
def _step(state, action, items, shape, outcome, counts, lengths, start, stop):  # type: ignore[no-untyped-def]
    """One decision in the rows start <= row < stop: see `core.transition.decide`."""
    edges = np.empty((2, items.bottom.shape[2] + 2), np.float64)
    rules = (counts.rule, counts.metric_rule)
    limits = (np.float32(lengths.lid), np.float32(lengths.tolerance))
    for row in range(start, stop):
        slot, turn, x, y = _decode(action[row], shape, counts.stride)
        packed, heightmap = state.items_packed[row], state.heightmap[row]
        there = 0 <= slot < state.num_items[row] - packed
        position = state.queue[row, max(slot, 0)]
        item = state.item_id[row, position]
        asked, stable, rest, ratio = False, False, INF, 0.0
        if there and items.orientation_mask[item, turn]:
            place = (items.bottom[item, turn], x, y, items.com[item, turn], items.size[item, turn])
            peak = items.peak[item, turn]
            asked, stable, rest, ratio = _examine(heightmap, place, peak, rules, limits, edges)
        live = not (state.terminated[row] or state.truncated[row])
        outcome.asked[row], outcome.live[row] = asked, live
        state.step[row] += live
        state.illegal_actions[row] += live and not asked
        if not (live and asked):
            continue
        _raise(heightmap, items.top[item, turn], x, y, rest)
        take_from_queue(state, row, slot)
        record = state.placement[row, packed]
        record[0], record[1], record[2], record[3] = position, turn, x, y
        state.placement_z[row, packed] = rest
        state.placement_support[row, packed] = np.float32(ratio)
        state.packed[row, position] = True
        state.items_packed[row] = packed + 1
        state.stable_items[row] += stable
        state.support_sum[row] += ratio
        state.volume[row] += items.volume[item]


@kernel
def _list_ahead(queue, surfaces, places, start, stop):  # type: ignore[no-untyped-def]
    """What may be placed next in the rows start <= row < stop.

    ``queue`` is (items, order, number of items, items packed); ``surfaces`` and ``places`` are
    tables ``[M, ...]`` and what becomes of them, ``[B, L, ...]``: see `names.AHEAD`.
    """
    item_id, order, num_items, packed = queue
    (bottom, peak), (planes, bottoms, peaks) = surfaces
    (com, size), (coms, sizes) = places
    turns = peak.shape[1]
    for row in range(start, stop):
        for slot in range(peaks.shape[1]):
            item = np.int64(0)
            there = slot < num_items[row] - packed[row]
            if there:
                item = item_id[row, order[row, slot]]
            for turn in range(turns):
                planes[row, slot, turn] = item * turns + turn if there else -1
            if bottoms.size and there:
                copy_line(bottom[item], bottoms[row, slot])
            elif bottoms.size:
                bottoms[row, slot][:] = INF
            copy_line(peak[item], peaks[row, slot])
            copy_line(com[item], coms[row, slot])
            copy_line(size[item], sizes[row, slot])


@kernel
def _end(state, playable, counts, outcome, done):  # type: ignore[no-untyped-def]
    """Whether this decision was a row's last: see `core.transition.advance`."""
    for row in range(playable.size):
        if outcome.live[row]:
            stuck = not playable[row] or state.items_packed[row] >= state.num_items[row]
            state.terminated[row] = stuck or (counts.illegal_ends and not outcome.asked[row])
            state.truncated[row] = state.step[row] >= counts.step_limit
        done[row] = state.terminated[row] or state.truncated[row]


@kernel
def _renew(state, rows, pool, in_turn):  # type: ignore[no-untyped-def]
    """The next episode in the rows that are marked."""
    for row in range(rows.size):
        if rows[row]:
            begin_episode(state, row, pool, in_turn)


class Constants:
    """What stays the same from step to step, as compiled code reads it.

    Args:
        state: Entries of the state, in the order of the names in `step.heights`.
        items: Likewise.
        pool: Likewise.
        counts: Likewise.
        lengths: Likewise.
    """

    def __init__(
        self,
        state: Sequence[Tensor],
        items: Sequence[Tensor],
        pool: Sequence[Tensor],
        counts: Sequence[int],
        lengths: Sequence[float],
    ) -> None:
        self.state = State(*as_arrays(state))
        self.items = Items(*as_arrays(items))
        self.pool = tuple(as_arrays(pool))
        self.counts, self.lengths = Counts(*counts), Lengths(*lengths)
        self.height = np.float32(self.lengths.height)
        now, items_of = self.state, self.items
        self.ground = now.heightmap.reshape(len(now.heightmap), -1)
        self.queue = (now.item_id, now.queue, now.num_items, now.items_packed)
        self.profile = (
            self.ground,
            now.volume,
            now.support_sum,
            (now.items_packed, now.num_items, now.stable_items, now.illegal_actions, now.overflow),
        )
        top, bottom, com, size, turned = (
            table.reshape(len(table), -1)
            for table in (
                items_of.top,
                items_of.bottom,
                items_of.com,
                items_of.size,
                items_of.orientation_features,
            )
        )
        self.surfaces, self.places = (bottom, items_of.peak), (com, size)
        self.seen_of_items = (items_of.item_features, items_of.remaining, turned, top, bottom)
        _, length, width = now.heightmap.shape
        stride = self.counts.stride
        xs, ys = -(-length // stride), -(-width // stride)
        self.lattice = (items_of.peak.shape[1], xs, ys)
        self.floor = (length, width, xs, ys, stride)

    def measure(self, under: Tensor, measured: np.ndarray) -> None:
        """The metrics of the state as it is."""
        _measure(*self.profile, under.numpy(), self.lengths, measured)

    def show_items(self, rows: np.ndarray, shown: Any) -> None:
        """What is seen of the visible items in some rows."""
        room = (
            shown.item_id,
            shown.item_features,
            shown.orientation_features,
            shown.top,
            shown.bottom,
        )
        arguments = (rows, self.queue, self.seen_of_items, self.counts.remaining, self.height, room)
        run(show_items, arguments, len(rows), shown.top.size)

    def renew(self, rows: np.ndarray, shown: Any, in_turn: bool) -> None:
        """Begin the next episode in some rows, and show it there."""
        _renew(self.state, rows, self.pool, in_turn)
        for flags in (shown.terminated, shown.truncated, shown.done):
            flags[rows] = False
        if shown.heightmap.size:
            shown.heightmap[rows] = 0
        self.show_items(rows, shown)
        tables = (self.items.size, self.items.on_floor)
        show_floor(rows, self.queue, tables, self.floor, shown.mask, shown.drop_height)


def _flat(shown: Sequence[Tensor]) -> Any:
    """What is shown, each in few axes."""
    arrays = dict(zip(names.SHOWN, as_arrays(shown), strict=True))
    for name, axis in _LINES.items():
        shape = arrays[name].shape
        head = shape[:axis] if axis < 3 else (shape[0], shape[1] * shape[2])
        arrays[name] = arrays[name].reshape(*head, math.prod(shape[axis:]))
    return Shown(**arrays)


def maps_step(
    constant: Constants,
    action: Tensor,
    ahead: Sequence[Tensor],
    under: Tensor,
    outcome: Sequence[Tensor],
) -> None:
    """See `packing_env.kernels.advance_maps`."""
    next_up, found = Ahead(*as_arrays(ahead)), Outcome(*as_arrays(outcome))
    rows = len(under)
    turns = constant.lattice[0]
    visible = next_up.peak.shape[1] // turns
    room = [
        array.reshape(len(array), visible, math.prod(array.shape[1:]) // visible)
        for array in next_up
    ]
    numbers = (constant.counts, constant.lengths)
    shape = (visible, *constant.lattice)
    constant.measure(under, found.before)
    arguments = (constant.state, action.numpy(), constant.items, shape, found, *numbers)
    run(_step, arguments, rows, rows)
    surfaces = (constant.surfaces, tuple(room[:3]))
    places = (constant.places, tuple(room[3:]))
    run(_list_ahead, (constant.queue, surfaces, places), rows, room[1].size)


def maps_lid(z: Tensor, peak: Tensor, lid: float) -> None:
    """See `packing_env.kernels.close_lid`."""
    planes = z.numpy().reshape(peak.numel(), -1)
    arguments = (planes, peak.numpy().reshape(-1), np.float32(lid))
    run(close_lid, arguments, len(planes), planes.size)


def maps_show(
    constant: Constants,
    judged: Sequence[Tensor],
    under: Tensor,
    shown: Sequence[Tensor],
    start: Sequence[Tensor],
    outcome: Sequence[Tensor],
    in_turn: bool,
) -> None:
    """See `packing_env.kernels.show_maps`."""
    seen, again, found = _flat(shown), _flat(start), Outcome(*as_arrays(outcome))
    rows, state = len(under), constant.state
    z, stable = (tensor.numpy().reshape(*tensor.shape[:2], -1) for tensor in judged)
    playable, every = np.empty((2, rows), np.bool_)
    ground = (constant.ground, seen.heightmap)
    masks = ((seen.mask, seen.drop_height), (again.mask, again.drop_height))
    arguments = ((z, stable), ground, constant.height, *masks, playable)
    run(show_placements, arguments, rows, z.size)
    _end(state, playable, constant.counts, found, seen.done)
    seen.terminated[:], seen.truncated[:] = state.terminated, state.truncated
    seen.mask[seen.done] = True
    every[:] = True
    constant.show_items(every, seen)
    constant.measure(under, found.after)
    seen.metrics[: len(found.after)] = found.after
    if len(again.done):
        _begin_anew(constant, seen, again, in_turn)


def _begin_anew(constant: Constants, seen: Any, again: Any, in_turn: bool) -> None:
    """Begin the next episode in finished rows, and show it; elsewhere all stays as shown."""
    rows = len(seen.done)
    for name in ("heightmap", "item_features", "orientation_features", "top", "bottom"):
        source, target = getattr(seen, name), getattr(again, name)
        if target.size:
            lines = (source.reshape(rows, -1), target.reshape(rows, -1))
            run(copy_rows, (seen.done, *lines), rows, target.size)
    for name in ("item_id", "terminated", "truncated", "done"):
        getattr(again, name)[:] = getattr(seen, name)
    again.metrics[:] = np.where(seen.done, 0, seen.metrics)
    constant.renew(seen.done, again, in_turn)


def maps_renew(
    constant: Constants,
    rows: Tensor,
    shown: Sequence[Tensor],
    metrics: Sequence[Tensor],
    in_turn: bool,
) -> None:
    """See `packing_env.kernels.renew_maps`."""
    chosen = rows.numpy()
    for values in as_arrays(metrics):
        values[chosen] = 0
    constant.renew(chosen, _flat(shown), in_turn)
