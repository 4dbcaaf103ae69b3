"""A step on cuboids of whole cells on CUDA, in Triton: one program (a warp) per row of the batch.

It has the arguments and entries of `step.cells` and the same bits, and also computes rewards.
Everything is read and written in place: a step is one launch and needs no scratch memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from packing_env.kernels.compiled.scene_triton import part
from packing_env.kernels.compiled.scene_triton import start as launch
from packing_env.kernels.cuboids.observe_triton import (
    Row,
    Seen,
    Tables,
    Task,
    begin,
    decode,
    measure,
    observe_floor,
    queue_after,
    quotient,
    read_row,
    record,
    write_row,
)
from packing_env.kernels.cuboids.places_triton import (
    Grid,
    count_support,
    find_rest,
    level_of,
    rule_of,
    stands,
)
from packing_env.kernels.layout import NUM_METRICS
from packing_env.kernels.stability_rules import NAMES
from packing_env.kernels.step.entries import (
    FUSED_TERMS,
    Counts,
    Items,
    Lengths,
    Observations,
    State,
    Tensors,
)
from packing_env.kernels.step.rows_triton import Ended, count_decision, emit, flags_after

_NUM_METRICS = tl.constexpr(NUM_METRICS)

SIZES = ["rows", "pool_size"]
"""Arguments whose values are not compiled into the kernel."""

OPTIONS = {"maxnreg": 152}
"""Registers per thread that the compiler may use; by default it would use fewer, and spill."""

MOST_POINTS, MOST_CELLS = 128, 256
"""Number of placements, or of cells of the ground, that a program processes at once."""


@part
def raise_ground(line, x, y, w, h, metres, GRID: tl.constexpr):
    """Set the heights under a cuboid to the height of its top."""
    # One window row after another, some cells along y at a time.
    v = tl.arange(0, GRID.across)
    for u in range(0, w):
        for first in range(0, h, GRID.across):
            place = (x + u) * GRID.width + y + first + v
            tl.store(line + place, metres, mask=first + v < h)


@part
def observe_ground(line, share, seen, start, row, TASK: tl.constexpr, GRID: tl.constexpr):
    """Write a row's heights as shares to two observations; return maximum and sum of the levels.

    None means an observation that was not requested.
    """
    # Each lane keeps its own sum and maximum; they are combined at the end.
    total, peak = tl.full([TASK.cells], 0, tl.int32), tl.full([TASK.cells], 0, tl.int32)
    count: tl.constexpr = GRID.length * GRID.width
    for first in range(0, count, TASK.cells):
        k = first + tl.arange(0, TASK.cells)
        level = level_of(tl.load(line + k, mask=k < count, other=0.0), GRID)
        total, peak = total + level, tl.maximum(peak, level)
        # The shares come from a table by height, so they are rounded as in engine `rules`.
        if seen is not None:
            observed = tl.load(share + level)
            tl.store(seen + row * count + k, observed, mask=k < count)
            if start is not None:
                tl.store(start + row * count + k, observed, mask=k < count)
    return tl.max(peak, axis=0), tl.sum(total, axis=0)


@part
def measure_levels(numbers, levels, lengths):
    """Return the metrics of a row from the maximum and the sum of its heights in cells."""
    cell = tl.load(lengths)
    top, total = levels[0].to(tl.float64) * cell, levels[1].to(tl.float64) * cell
    return measure(numbers, top, total * tl.load(lengths + 1), lengths)


@part
def observe_places(
    line, items, seen, start, row, queue_item, left,
    RULE: tl.constexpr, FORMULA: tl.constexpr, TASK: tl.constexpr, GRID: tl.constexpr,
):  # fmt: skip
    """Write legality and rest heights of the visible items; return whether any is legal.

    ``queue_item [slot_lanes]`` are the visible items, of which ``left`` exist.
    """
    # 1. Go through the planes: an item of the queue in one orientation each.
    places: tl.constexpr = TASK.xs * TASK.ys
    playable = left < 0
    lanes = tl.arange(0, TASK.slot_lanes)
    for plane in range(0, TASK.visible * TASK.orientations):
        slot, orientation = plane // TASK.orientations, plane % TASK.orientations
        # Each lane holds the item of its slot; a masked sum over the lanes selects one.
        item = tl.sum(tl.where(lanes == slot, queue_item, 0), axis=0)
        # 2. Its sides; 0 if the queue has no such item, so that it fits nowhere.
        side = items.cuboid + (item * TASK.orientations + orientation) * 3
        there = slot < left
        w, h = tl.load(side, mask=there, other=0), tl.load(side + 1, mask=there, other=0)
        room = GRID.height - tl.load(side + 2, mask=there, other=0)
        offered = tl.where(w > 0, places, 0)
        # 3. Rest height, lid and stability of some places at once.
        for first in range(0, places, TASK.points):
            place = first + tl.arange(0, TASK.points)
            x, y = place // TASK.ys * GRID.stride, place % TASK.ys * GRID.stride
            inside = (place < offered) & (x + w <= GRID.length) & (y + h <= GRID.width)
            rest = find_rest(line, x, y, w, h, inside, GRID)
            level = level_of(rest, GRID)
            legal = inside & (level <= room)
            legal = legal & stands(line, x, y, w, h, legal, rest, RULE, FORMULA, GRID)
            playable = playable | (tl.max(legal.to(tl.int32), axis=0) > 0)
            # 4. Write them to the observations that were requested.
            target = (row * TASK.visible * TASK.orientations + plane) * places + place
            tl.store(seen.mask + target, legal, mask=place < places)
            if start is not None:
                tl.store(start.mask + target, legal, mask=place < places)
            if seen.drop_height is not None:
                z = tl.load(items.drop_height + tl.where(legal, level + 1, 0))
                tl.store(seen.drop_height + target, z, mask=place < places)
                if start is not None:
                    tl.store(start.drop_height + target, z, mask=place < places)
    return playable


@part
def examine(line, items, item, there, pose, x, y, RULE: tl.constexpr, FORMULA: tl.constexpr,
            METRIC: tl.constexpr, METRIC_FORMULA: tl.constexpr, TASK: tl.constexpr,
            GRID: tl.constexpr):  # fmt: skip
    """Return (legal, stable, rest height, support ratio, w, h, top) of a placement.

    See `core.ground.Ground.at_rest`. Heights are metres. The sides w and h are in cells; they are 0
    if the item leaves the container.
    """
    # 1. The sides of the item; 0 if it leaves the container, so that no cell is read.
    kind = item * TASK.orientations + pose
    w, h = tl.load(items.cuboid + kind * 3), tl.load(items.cuboid + kind * 3 + 1)
    d = tl.load(items.cuboid + kind * 3 + 2)
    inside = there & (tl.load(items.orientation_mask + kind) != 0)
    inside = inside & (x + w <= GRID.length) & (y + h <= GRID.width)
    w, h = tl.where(inside, w, 0), tl.where(inside, h, 0)
    # 2. Rest height and support under it.
    rest = find_rest(line, x, y, w, h, inside, GRID)
    count = count_support(line, x, y, w, h, inside, rest, GRID)
    # 3. The lid and the task's rule determine legality, the metric's rule determines stability.
    legal = inside & (level_of(rest, GRID) + d <= GRID.height)
    legal = legal & stands(line, x, y, w, h, legal, rest, RULE, FORMULA, GRID)
    stable = legal & stands(line, x, y, w, h, legal, rest, METRIC, METRIC_FORMULA, GRID)
    ratio = quotient(count.to(tl.float64), (w * h).to(tl.float64))
    return legal, stable, rest, ratio, w, h, rest + d.to(tl.float32) * GRID.cell


@triton.jit(do_not_specialize=SIZES)
def step_kernel(
    state, reward_sum, items, pool, tables, action, seen, start, reward, rows, pool_size,
    RULE: tl.constexpr, FORMULA: tl.constexpr, METRIC: tl.constexpr, METRIC_FORMULA: tl.constexpr,
    TASK: tl.constexpr, GRID: tl.constexpr,
):  # fmt: skip
    """Carry out one decision of a row, and observe; with ``start``, reset the row if finished."""
    # 1. Decode the action; read the row's numbers before anything is written.
    row = tl.program_id(0).to(tl.int64)
    line = state.heightmap + row * (GRID.length * GRID.width)
    own = state.item_id + row * TASK.capacity
    now = read_row(state, row)
    live = (now.terminated | now.truncated) == 0
    known, slot, pose, x, y = decode(action, row, TASK, GRID)
    there = known & (slot < now.of - now.packed)
    position = tl.load(state.queue + row * TASK.slots + slot)
    item = tl.load(own + position, mask=there, other=0)
    # 2. Metrics before the decision; the old ground is not written to any observation.
    levels = observe_ground(line, None, None, None, row, TASK, GRID)
    before = measure_levels(now, levels, tables.numbers)
    # 3. Check the placement again, by the rule that made the mask.
    legal, stable, rest, ratio, w, h, top = examine(
        line, items, item, there, pose, x, y, RULE, FORMULA, METRIC, METRIC_FORMULA, TASK, GRID
    )
    carried = legal & live
    # 4. The counts and the queue after the decision; unchanged if it is illegal.
    after = count_decision(now, legal, stable, ratio, tl.load(items.volume + item))
    queue = queue_after(state.queue + row * TASK.slots, slot, now.packed, carried, TASK)
    lanes, left = tl.arange(0, TASK.slot_lanes), after.of - after.packed
    offered = tl.load(own + queue, mask=(lanes < TASK.slots) & (lanes < left), other=0)
    # 5. Commit: raise the ground under the item.
    tl.debug_barrier()  # all threads have read the state; now all see the new heights
    raise_ground(line, x, y, tl.where(carried, w, 0), h, top, GRID)
    tl.debug_barrier()
    # 6. Observe the new ground, and compute the metrics.
    begun = None if start is None else start.heightmap
    levels = observe_ground(line, tables.share, seen.heightmap, begun, row, TASK, GRID)
    measured = measure_levels(after, levels, tables.numbers)
    # 7. Legality of every placement; if none is legal, the episode ends.
    playable = observe_places(
        line, items, seen, start, row, offered, left, RULE, FORMULA, TASK, GRID
    )
    terminated, truncated = flags_after(after, live, legal, playable, TASK)
    # 8. Write the state, then the observations; a finished row starts again.
    tl.debug_barrier()  # keeps the order of two writes to the same address
    record(state, row, now.packed, (position, pose, x, y), rest, ratio, carried, TASK, GRID)
    tl.store(state.queue + row * TASK.slots + lanes, queue, mask=lanes < TASK.slots)
    write_row(state, row, Row(
        after.packed, after.of, after.volume, after.stable, after.support, after.illegal,
        after.overflow, after.step, terminated, truncated,
    ))  # fmt: skip
    emit(
        state, reward_sum, items, pool, tables, seen, start, reward, row, rows, pool_size,
        Ended(offered, left, before, measured, legal, live, terminated, truncated, after.packed),
        TASK, GRID,
    )  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def reset_kernel(state, reward_sum, items, pool, marked, seen, rows, pool_size,
                 TASK: tl.constexpr, GRID: tl.constexpr):  # fmt: skip
    """Start the next episode of a marked row, and observe its start; its metrics become 0."""
    # Rows that are not marked keep their state and observations.
    row = tl.program_id(0).to(tl.int64)
    if tl.load(marked + row) != 0:
        packed = tl.load(state.items_packed + row)
        index, num = begin(state, reward_sum, pool, row, packed, rows, pool_size, TASK, GRID)
        observe_floor(seen, items, pool, row, index, num, TASK, GRID)
        for m in range(0, _NUM_METRICS + TASK.num_terms):
            tl.store(seen.metrics + m * rows + row, 0.0)


class Sizes(NamedTuple):
    """Sizes of a task.

    Numbers per action, orientations, N, observed items, cells, and lengths of a line of
    ``item_features`` and of ``orientation_features``.
    """

    heads: int
    orientations: int
    capacity: int
    slots: int
    length: int
    width: int
    features: int
    turned: int


@cache
def constants_of(
    counts: Counts, lengths: Lengths, sizes: Sizes, terms: Sequence[str]
) -> dict[str, Any]:
    """Return the constants of a task that are compiled in, by the kernels' argument names."""
    # 1. Sizes, which are compiled in; lanes are powers of two.
    length, width, slots = sizes.length, sizes.width, sizes.slots
    xs, ys = -(-length // counts.stride), -(-width // counts.stride)
    task = Task(
        heads=sizes.heads,
        visible=counts.visible,
        slots=slots,
        orientations=sizes.orientations,
        capacity=sizes.capacity,
        features=sizes.features,
        turned=sizes.turned,
        remaining=counts.remaining,
        step_limit=counts.step_limit,
        illegal_ends=counts.illegal_ends,
        sequential=counts.sequential,
        terms=tuple(FUSED_TERMS.index(term) for term in terms),
        num_terms=len(terms),
        slot_lanes=triton.next_power_of_2(slots),
        feature_lanes=triton.next_power_of_2(sizes.features),
        turned_lanes=triton.next_power_of_2(sizes.turned),
        xs=xs,
        ys=ys,
        points=min(MOST_POINTS, max(32, triton.next_power_of_2(xs * ys))),
        cells=min(MOST_CELLS, max(32, triton.next_power_of_2(length * width))),
    )
    # 2. The container, and the two stability rules with their formulas.
    cell = (lengths.cell, 1 / lengths.cell)
    across = min(32, triton.next_power_of_2(counts.along))
    rule, formula = rule_of(NAMES[counts.rule])
    metric, metric_formula = rule_of(NAMES[counts.metric_rule])
    return {
        "RULE": rule,
        "FORMULA": formula,
        "METRIC": metric,
        "METRIC_FORMULA": metric_formula,
        "TASK": task,
        "GRID": Grid(length, width, counts.height, counts.stride, *cell, across),
    }


def advance(
    state: Tensors, items: Tensors, pool: Tensors, counts: Sequence[int],
    lengths: Sequence[float], tables: Tensors, terms: Sequence[str], action: Tensor,
    observations: Tensors, start: Tensors, reward: Tensor,
) -> None:  # fmt: skip
    """Carry out `packing_env.kernels.step.fused.advance_fused`."""
    # Without ``start``, finished rows are not reset, and this code is not compiled.
    constants = constants_for(state, items, counts, lengths, terms, action.shape[1])
    seen, begun = seen_of(observations), seen_of(start) if start else None
    inputs = (State(*state[:-1]), state[-1], Items(*items), tuple(pool), Tables(*tables), action)
    sizes = (len(action), len(pool[1]))
    with torch.cuda.device_of(action):
        launch(
            step_kernel, len(action), (*inputs, seen, begun, reward, *sizes), constants | OPTIONS
        )


def reset(
    state: Tensors, items: Tensors, pool: Tensors, counts: Sequence[int],
    lengths: Sequence[float], tables: Tensors, terms: Sequence[str], rows: Tensor,
    observations: Tensors,
) -> None:  # fmt: skip
    """Carry out `packing_env.kernels.step.fused.reset_fused`."""
    constants = constants_for(state, items, counts, lengths, terms, 1)
    constants = {name: constants[name] for name in ("TASK", "GRID")}
    inputs = (State(*state[:-1]), state[-1], Items(*items), tuple(pool), rows)
    sizes = (len(rows), len(pool[1]))
    with torch.cuda.device_of(rows):
        launch(reset_kernel, len(rows), (*inputs, seen_of(observations), *sizes), constants)


def constants_for(
    state: Tensors, items: Tensors, counts: Sequence[int], lengths: Sequence[float],
    terms: Sequence[str], heads: int,
) -> dict[str, Any]:  # fmt: skip
    """Return :func:`constants_of`, with the sizes of these tensors."""
    now, table = State(*state[:-1]), Items(*items)
    _, length, width = now.heightmap.shape
    sizes = Sizes(
        heads, table.peak.shape[1], now.item_id.shape[1], now.queue.shape[1], length, width,
        table.item_features.shape[1], table.orientation_features.shape[1],
    )  # fmt: skip
    return constants_of(Counts(*counts), Lengths(*lengths), sizes, tuple(terms))


def seen_of(entries: Tensors) -> Seen:
    """Return observations in the form that kernels expect: None for an empty one."""
    named = dict(zip(Observations._fields, entries, strict=True))
    chosen = (named[name] for name in Seen._fields)
    return Seen(*(entry if entry.numel() else None for entry in chosen))
