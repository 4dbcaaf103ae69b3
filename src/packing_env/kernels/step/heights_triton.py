"""A step on items of any shape on CUDA, in Triton: the parts before and after the maps.

:func:`decide_kernel` and :func:`finish_kernel` have one program per row. Between them, the kernels
of `compiled.triton` and `support.hull_triton` compute drop maps and hulls, directly in the memory
of the observations. The step has the entries of `step.heights` and the same bits, and also computes
rewards. No memory is allocated: the launches pass values to each other in :class:`Between`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from packing_env.kernels import layout
from packing_env.kernels.compiled.scene_triton import part
from packing_env.kernels.cuboids.observe_triton import (
    METRIC_LANES,
    decode,
    measure,
    queue_after,
    quotient,
    read_row,
    record,
    write_row,
)
from packing_env.kernels.stability_rules import Support
from packing_env.kernels.step.rows_triton import Ended, count_decision, emit, flags_after
from packing_env.kernels.step.triton import SIZES
from packing_env.kernels.step.window_triton import (
    Bars,
    Place,
    corners_of,
    count_cells,
    holds,
    limits_of,
    raise_cells,
    rest_of,
)

_HALF_CELL = tl.constexpr(layout.HALF_CELL)
_INF = tl.constexpr(float("inf"))
_CELLS = tl.constexpr(1024)
"""Number of heights, or other values of a map, that a program processes at once."""


class Between(NamedTuple):
    """Values that the kernels of a step pass to each other.

    The first are ``[B]``: whether the action was legal, and whether the row was unfinished. Then
    come the metrics before the decision, ``[B, METRIC_LANES]``, and the observed items, ``[B, S]``,
    -1 for none. The last are ``[B, P]``, for each orientation of the visible items: the index of
    its surface (negative for none), its highest point, the point of the rule with a hull (``[B, P,
    2]``), and whether a placement is legal.
    """

    legal: Any
    live: Any
    before: Any
    shown: Any
    which: Any
    peak: Any
    point: Any
    playable: Any


class Maps(NamedTuple):
    """Item maps to write, ``[B, S, R, U, V]``; None if not requested."""

    top: Any
    bottom: Any


@part
def _highest(line, GRID: tl.constexpr):
    """Return the highest point of a row's ground, at least 0."""
    # Each lane keeps its own maximum; the maxima are combined at the end.
    peak, count = tl.zeros([_CELLS], tl.float32), GRID.length * GRID.width
    for first in range(0, count, _CELLS):
        k = first + tl.arange(0, _CELLS)
        peak = tl.maximum(peak, tl.load(line + k, mask=k < count, other=0.0))
    return tl.max(peak, axis=0)


@part
def _volume(under, row, numbers):
    """Return the volume under a row's heightmap, from the sum of its heights."""
    return tl.load(under + row) * tl.load(numbers + 1)


@part
def _list_ahead(items, row, between, shown, left, RULE: tl.constexpr, TASK: tl.constexpr):
    """List the orientations of a row's visible items."""
    # 1. The observed items, -1 for none.
    lanes = tl.arange(0, TASK.slot_lanes)
    there = (lanes < TASK.slots) & (lanes < left)
    seen = tl.where(there, shown, -1)
    tl.store(between.shown + row * TASK.slots + lanes, seen, mask=lanes < TASK.slots)
    # 2. For each orientation: surface, highest point and, for a rule with a hull, the point.
    for slot in range(0, TASK.visible):
        # Each lane holds the item of its slot; a masked sum over the lanes selects one.
        item = tl.sum(tl.where(lanes == slot, shown, 0), axis=0)
        present = slot < left
        for orientation in range(0, TASK.orientations):
            kind = item * TASK.orientations + orientation
            plane = (row * TASK.visible + slot) * TASK.orientations + orientation
            tl.store(between.which + plane, tl.where(present, kind, -1))
            tl.store(between.peak + plane, tl.load(items.peak + kind))
            if RULE is not None:
                # The centre of the item's window, or the centre of mass.
                if RULE.centres:
                    px = tl.load(items.size + kind * 2) * _HALF_CELL
                    py = tl.load(items.size + kind * 2 + 1) * _HALF_CELL
                else:
                    px, py = tl.load(items.com + kind * 2), tl.load(items.com + kind * 2 + 1)
                tl.store(between.point + plane * 2, px)
                tl.store(between.point + plane * 2 + 1, py)


@triton.jit(do_not_specialize=["rows"])
def decide_kernel(
    state, items, numbers, action, under, between, rows, lid, tolerance,
    RULE: tl.constexpr, FORMULA: tl.constexpr, METRIC: tl.constexpr, METRIC_FORMULA: tl.constexpr,
    TASK: tl.constexpr, GRID: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Carry out one decision of a row, and list the next orientations.

    ``under`` holds the sums of the heights before the decision.
    """
    # 1. Decode the action; find the item and its surface.
    row = tl.program_id(0).to(tl.int64)
    line = state.heightmap + row * (GRID.length * GRID.width)
    own = state.item_id + row * TASK.capacity
    now = read_row(state, row)
    live = (now.terminated | now.truncated) == 0
    known, slot, pose, x, y = decode(action, row, TASK, GRID)
    there = known & (slot < now.of - now.packed)
    position = tl.load(state.queue + row * TASK.slots + slot)
    item = tl.load(own + position, mask=there, other=0)
    # 2. Metrics before the decision.
    before = measure(now, _highest(line, GRID).to(tl.float64), _volume(under, row, numbers),
                     numbers)  # fmt: skip
    kind = item * TASK.orientations + pose
    there = there & (tl.load(items.orientation_mask + kind) != 0)
    # 3. Rest height, lid and stability of the placement.
    surface = kind.to(tl.int64) * (WINDOW.across * WINDOW.along)
    w, h = tl.load(items.size + kind * 2), tl.load(items.size + kind * 2 + 1)
    w, h = tl.where(there, w, 0).to(tl.int32), tl.where(there, h, 0).to(tl.int32)
    place = Place(line, items.bottom + surface, x, y, w, h, there)
    rest = rest_of(place, WINDOW, GRID)
    legal = there & (rest + tl.load(items.peak + kind, mask=there, other=0.0) <= lid)
    com_x, com_y = tl.load(items.com + kind * 2), tl.load(items.com + kind * 2 + 1)
    # A cell must reach this bar to support; the hull's point is the centre of mass.
    bars = Bars(rest - tolerance, tolerance, com_x, com_y)
    count, area = count_cells(place, bars.bar, WINDOW, GRID)
    legal = legal & holds(place, bars, count, area, RULE, FORMULA, WINDOW, GRID)
    stable = legal & holds(place, bars, count, area, METRIC, METRIC_FORMULA, WINDOW, GRID)
    share = quotient(count.to(tl.float64), tl.maximum(area, 1).to(tl.float64))
    ratio = tl.where(legal, share, 0.0)
    # 4. The counts and the queue after the decision; unchanged if it is illegal.
    carried = legal & live
    after = count_decision(now, legal, stable, ratio, tl.load(items.volume + item))
    queue = queue_after(state.queue + row * TASK.slots, slot, now.packed, carried, TASK)
    lanes, left = tl.arange(0, TASK.slot_lanes), after.of - after.packed
    shown = tl.load(own + queue, mask=(lanes < TASK.slots) & (lanes < left), other=0)
    # 5. Commit: raise the ground, and write the state.
    tl.debug_barrier()  # all threads have read the state
    lifted = Place(line, None, x, y, tl.where(carried, w, 0), h, carried)
    raise_cells(lifted, items.top + surface, tl.where(carried, rest, 0.0), WINDOW, GRID)
    record(state, row, now.packed, (position, pose, x, y), rest, ratio, carried, TASK, GRID)
    tl.store(state.queue + row * TASK.slots + lanes, queue, mask=lanes < TASK.slots)
    write_row(state, row, after)
    # 6. Write the values that later launches read.
    tl.store(between.legal + row, legal)
    tl.store(between.live + row, live)
    tl.store(between.before + row * METRIC_LANES + tl.arange(0, METRIC_LANES), before)
    _list_ahead(items, row, between, shown, left, RULE, TASK)


@triton.jit
def judge_kernel(
    heightmap, items, areas, z, stable, count, mask, begun_mask, drop_height, begun_drop_height,
    between, height, tolerance,
    RULE: tl.constexpr, FORMULA: tl.constexpr, TASK: tl.constexpr, GRID: tl.constexpr,
    WINDOW: tl.constexpr,
):  # fmt: skip
    """Write legality and observed rest heights of one orientation, and note whether any is legal.

    ``z`` is +inf if a placement leaves the container or is above the lid. ``mask`` may share its
    memory with ``stable``, and ``drop_height`` with ``z``.
    """
    # One program handles one orientation of one row; an earlier launch wrote the rest heights.
    plane = tl.program_id(0).to(tl.int64)
    places: tl.constexpr = TASK.xs * TASK.ys
    row = plane // (TASK.visible * TASK.orientations)
    kind = tl.maximum(tl.load(between.which + plane), 0)
    w = tl.load(items.size + kind * 2).to(tl.int32)
    h = tl.load(items.size + kind * 2 + 1).to(tl.int32)
    line = heightmap + row * (GRID.length * GRID.width)
    surface = items.bottom + kind * (WINDOW.across * WINDOW.along)
    any_legal = tl.full([TASK.points], 0, tl.int32)
    # 1. Placements below the lid and inside the container have finite rest heights.
    for first in range(0, places, TASK.points):
        place = first + tl.arange(0, TASK.points)
        on, at = place < places, plane * places + place
        rest = tl.load(z + at, mask=on, other=_INF)
        legal = rest < _INF
        # 2. Read the measurements of the rule: corners, hulls from earlier launches, counts.
        if RULE is not None:
            corners, touching, in_hull, cells = place * 0, place < 0, place < 0, place * 0
            if RULE.corners:
                x, y = place // TASK.ys * GRID.stride, place % TASK.ys * GRID.stride
                there = Place(line, surface, x, y, w, h, legal)
                bars = Bars(rest - tolerance, tolerance, None, None)
                corners, touching = corners_of(there, bars, RULE.at_highest, WINDOW, GRID)
            if RULE.hull:
                in_hull = tl.load(stable + at, mask=on, other=0) != 0
            if count is not None:
                cells = tl.load(count + at, mask=on, other=0)
            area = tl.load(areas + kind)
            limits = limits_of(area, RULE)
            legal = legal & FORMULA(Support(cells, limits, corners, touching, in_hull, area))
        # 3. Write legality and rest heights, also to the observations after resets.
        tl.store(mask + at, legal, mask=on)
        if begun_mask is not None:
            tl.store(begun_mask + at, legal, mask=on)
        if drop_height is not None:
            share = tl.where(legal, tl.div_rn(tl.where(legal, rest, 0.0), height), 1.0)
            tl.store(drop_height + at, share, mask=on)
            if begun_drop_height is not None:
                tl.store(begun_drop_height + at, share, mask=on)
        any_legal = tl.maximum(any_legal, legal.to(tl.int32))
    tl.store(between.playable + plane, tl.max(any_legal, axis=0) > 0)


@part
def _any_playable(between, row, TASK: tl.constexpr):
    """Return whether any placement of a row is legal."""
    planes: tl.constexpr = TASK.visible * TASK.orientations
    any_legal = tl.full([TASK.points], 0, tl.int32)
    for first in range(0, planes, TASK.points):
        k = first + tl.arange(0, TASK.points)
        here = tl.load(between.playable + row * planes + k, mask=k < planes, other=0)
        any_legal = tl.maximum(any_legal, here.to(tl.int32))
    return tl.max(any_legal, axis=0)


@part
def _observe_heights(line, seen, begun, row, height, GRID: tl.constexpr):
    """Write a row's heights, divided by the container's height, to two observations."""
    count: tl.constexpr = GRID.length * GRID.width
    for first in range(0, count, _CELLS):
        k = first + tl.arange(0, _CELLS)
        share = tl.div_rn(tl.load(line + k, mask=k < count, other=0.0), height)
        share = tl.minimum(tl.maximum(share, 0.0), 1.0)
        tl.store(seen + row * count + k, share, mask=k < count)
        if begun is not None:
            tl.store(begun + row * count + k, share, mask=k < count)


@triton.jit(do_not_specialize=SIZES)
def finish_kernel(
    state, reward_sum, items, pool, tables, under, between, seen, start, reward, height,
    rows, pool_size, TASK: tl.constexpr, GRID: tl.constexpr,
):  # fmt: skip
    """End a row if its episode is over; write its reward and observation; with ``start``, reset it.

    Legality and rest heights are already written; ``under`` holds the current sums of the heights.
    """
    # 1. Read the values from the first launch, and the state after the decision.
    row = tl.program_id(0).to(tl.int64)
    line = state.heightmap + row * (GRID.length * GRID.width)
    now = read_row(state, row)
    legal = tl.load(between.legal + row) != 0
    live = tl.load(between.live + row) != 0
    lanes, left = tl.arange(0, TASK.slot_lanes), now.of - now.packed
    shown = tl.load(between.shown + row * TASK.slots + lanes, mask=lanes < TASK.slots, other=0)
    shown = tl.maximum(shown, 0)
    before = tl.load(between.before + row * METRIC_LANES + tl.arange(0, METRIC_LANES))
    # 2. Compute the metrics after the decision, and write the observed heights.
    top = _highest(line, GRID).to(tl.float64)
    measured = measure(now, top, _volume(under, row, tables.numbers), tables.numbers)
    if seen.heightmap is not None:
        begun = None if start is None else start.heightmap
        _observe_heights(line, seen.heightmap, begun, row, height, GRID)
    # 3. The flags.
    playable = _any_playable(between, row, TASK)
    terminated, truncated = flags_after(now, live, legal, playable, TASK)
    tl.debug_barrier()  # all threads have read the state
    tl.store(state.terminated + row, terminated)
    tl.store(state.truncated + row, truncated)
    # 4. Write items, rewards and masks; a finished row starts again.
    emit(
        state, reward_sum, items, pool, tables, seen, start, reward, row, rows, pool_size,
        Ended(shown, left, before, measured, legal, live, terminated, truncated, now.packed),
        TASK, GRID,
    )  # fmt: skip


@part
def _map_cells(tops, bottoms, item, k, size):
    """Return cells of an item's observed maps; a negative item index means an empty slot."""
    real, at = k < tl.where(item >= 0, size, 0), item * size + k
    top = tl.load(tops + at, mask=real, other=0.0)
    return top, tl.load(bottoms + at, mask=real, other=1.0)


@triton.jit
def item_maps_kernel(
    state, tops, bottoms, shown, seen, start, TASK: tl.constexpr, WINDOW: tl.constexpr
):
    """Write the maps of one slot's item, before and after resets.

    Either target may be None; ``tops`` and ``bottoms`` are the observed maps of all items.
    """
    # 1. Find the item that is now in the queue, and the item that was observed before resets.
    line = tl.program_id(0).to(tl.int64)
    row, slot = line // TASK.slots, line % TASK.slots
    size: tl.constexpr = TASK.orientations * WINDOW.across * WINDOW.along
    left = tl.load(state.num_items + row) - tl.load(state.items_packed + row)
    position = tl.load(state.queue + line)
    here = tl.load(state.item_id + row * TASK.capacity + position)
    here = tl.where(slot < left, here, -1)
    item = here if seen is None else tl.load(shown + line)
    # 2. Copy its maps, some cells at once.
    for first in range(0, size, _CELLS):
        k = first + tl.arange(0, _CELLS)
        at = line * size + k
        top, bottom = _map_cells(tops, bottoms, item, k, size)
        if seen is not None:
            tl.store(seen.top + at, top, mask=k < size)
            tl.store(seen.bottom + at, bottom, mask=k < size)
        if start is not None:
            # After a reset the queue holds another item.
            if here != item:
                top, bottom = _map_cells(tops, bottoms, here, k, size)
            tl.store(start.top + at, top, mask=k < size)
            tl.store(start.bottom + at, bottom, mask=k < size)
