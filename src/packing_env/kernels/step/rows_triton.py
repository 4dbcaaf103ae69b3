"""Parts of a fused step for one row, in Triton: its counts, flags and reward, and its reset.

The steps on cuboids of whole cells and on items of any shape both use them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton.language as tl

from packing_env.kernels.compiled.scene_triton import part
from packing_env.kernels.cuboids.observe_triton import (
    METRIC_LANES,
    Row,
    begin,
    fill,
    observe_flags,
    observe_floor,
    observe_items,
    reward_term,
)
from packing_env.kernels.layout import NUM_METRICS

_NUM_METRICS = tl.constexpr(NUM_METRICS)


class Ended(NamedTuple):
    """Result of a decision for a row.

    ``shown`` are the observed items, of which ``left`` exist. ``before`` and ``after`` are the
    metrics before and after the decision. ``live`` is True if the row was not finished
    before. ``packed`` is the number of packed items.
    """

    shown: Any
    left: Any
    before: Any
    after: Any
    legal: Any
    live: Any
    terminated: Any
    truncated: Any
    packed: Any


@part
def count_decision(row, legal, stable, ratio, volume):
    """Return the numbers of a row after a decision; the flags are unchanged."""
    # An illegal decision counts as a step and as illegal; in a finished row nothing counts.
    live = (row.terminated | row.truncated) == 0
    carried = legal & live
    return Row(
        row.packed + carried.to(tl.int64),
        row.of,
        row.volume + tl.where(carried, volume, 0.0),
        row.stable + (carried & stable).to(tl.int64),
        row.support + tl.where(carried, ratio, 0.0),
        row.illegal + (live & (legal == 0)).to(tl.int64),
        row.overflow,
        row.step + live.to(tl.int64),
        row.terminated,
        row.truncated,
    )


@part
def flags_after(row, live, legal, playable, TASK: tl.constexpr):
    """Return whether a row is terminated and whether truncated; see `core.transition.finish`."""
    # Terminated: no placement is legal, or all items are packed.
    stuck = (playable == 0) | (row.packed >= row.of)
    if TASK.illegal_ends:
        stuck = stuck | (legal == 0)
    # Truncated: the limit of steps is reached.
    late = row.step >= TASK.step_limit
    return row.terminated | (live & stuck), row.truncated | (live & late)


@part
def give_reward(before, after, legal, live, state_sum, reward, tables, seen, start, row, rows, done,
                TASK: tl.constexpr):  # fmt: skip
    """Write metrics, the reward (the sum of its terms), and each term's sum over the episode."""
    # 1. The metrics of the state; at the start of an episode all are 0.
    lane = tl.arange(0, METRIC_LANES)
    tl.store(seen.metrics + lane * rows + row, after.to(tl.float32), mask=lane < _NUM_METRICS)
    if start is not None:
        shown = tl.where(done, 0.0, after.to(tl.float32))
        tl.store(start.metrics + lane * rows + row, shown, mask=lane < _NUM_METRICS)
    # 2. The terms, summed in the order of the task.
    total = tl.full([], 0.0, tl.float64)
    num_terms: tl.constexpr = TASK.num_terms
    for k in tl.static_range(0, num_terms):
        weight = tl.load(tables.numbers + 4 + k)
        term = tl.where(live, weight * reward_term(TASK.terms[k], before, after, legal), 0.0)
        # The episode's sums are part of the state and of the metrics.
        sums = tl.load(state_sum + row * TASK.num_terms + k) + term
        tl.store(state_sum + row * TASK.num_terms + k, sums)
        total = term if k == 0 else total + term
        place = (_NUM_METRICS + k) * rows + row
        tl.store(seen.metrics + place, sums.to(tl.float32))
        if start is not None:
            tl.store(start.metrics + place, tl.where(done, 0.0, sums.to(tl.float32)))
    tl.store(reward + row, total.to(tl.float32))


@part
def emit(
    state, reward_sum, items, pool, tables, seen, start, reward, row, rows, pool_size, ended,
    TASK: tl.constexpr, GRID: tl.constexpr,
):  # fmt: skip
    """Write items, flags, metrics and reward of a row; with ``start``, also those after resets.

    With ``start``, a finished row starts its next episode here.
    """
    # 1. Observations after the decision, before resets.
    lanes = tl.arange(0, TASK.slot_lanes)
    terminated, truncated = ended.terminated, ended.truncated
    done = terminated | truncated
    observe_items(seen, items, row, ended.shown, lanes, ended.left, TASK)
    observe_flags(seen, row, terminated, truncated)
    give_reward(ended.before, ended.after, ended.legal, ended.live, reward_sum, reward, tables,
                seen, start, row, rows, done, TASK)  # fmt: skip
    # 2. The mask of a terminated row becomes all True.
    if terminated:
        actions: tl.constexpr = TASK.visible * TASK.orientations * TASK.xs * TASK.ys
        fill(seen.mask, row * actions, actions, terminated)
    # 3. Observations after resets: the same, or those at the start of the next episode.
    if start is not None:
        observe_items(start, items, row, ended.shown, lanes, ended.left, TASK)
        observe_flags(start, row, terminated & False, terminated & False)
        if done:
            index, num = begin(
                state, reward_sum, pool, row, ended.packed, rows, pool_size, TASK, GRID
            )
            observe_floor(start, items, pool, row, index, num, TASK, GRID)
