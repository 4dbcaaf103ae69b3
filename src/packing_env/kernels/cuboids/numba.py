"""All placements of cuboids on whole cells, compiled for the CPU.

Rows of the batch are handled in blocks (lanes): what is kept of one item in a block stays in the L1
cache.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from packing_env.kernels.compiled import stability_rules as rules
from packing_env.kernels.compiled.jit import jit, jit_arrays
from packing_env.kernels.cuboids import loops
from packing_env.kernels.cuboids.slopes import integers, slope_scale
from packing_env.kernels.stability_rules import NAMES

LANES = 64
"""Rows of the batch that are handled together."""

Buffers = namedtuple(
    "Buffers", "ground sides mask_x mask_y tops raised stable highest places step shape"
)
"""Scratch memory for one item in a block of rows: see :func:`find_maps`."""

_U8 = np.uint8


@jit_arrays
def _find_hulls(buffers, item, rule, tables):
    """Fill ``buffers.stable`` with 1 where the rule's hull holds, lattice row by lattice row."""
    sides, mask_x, mask_y = item
    weights, _, slope_like = tables
    ground, step, tops = buffers.ground, buffers.step, buffers.tops
    stride, _, lanes = step
    span = 0 if rules.CENTRES[rule] else 1
    lines, (length, n) = mask_x.shape[0] + span, tops.shape
    ups = np.empty((length, n), sides.dtype)
    downs = np.empty_like(ups)
    loops.scan_edges(ground, mask_y, sides[1], step, tops, ups, downs)
    slopes = np.empty((lines, n), slope_like.dtype)
    factors, bases = np.empty_like(slopes), np.empty_like(slopes)
    lefts, rights = np.empty_like(slopes), np.empty_like(slopes)
    loops.fill_slopes(sides, 1 - span, weights, lanes, factors, bases, lefts, rights)
    left, right = np.empty(n, slopes.dtype), np.empty(n, slopes.dtype)
    reach = np.zeros((mask_x.shape[0] + 2, n), sides.dtype)
    bar = 2 * weights[0] - mask_y.shape[0]
    middle = (lines - 1) // 2 + 1  # no line beyond is left of a centre
    buffers.stable[:] = 1
    for i in range(buffers.raised.shape[0]):
        x, levels, holds = i * stride, buffers.raised[i], buffers.stable[i]
        num = min(mask_x.shape[0], length - x)
        for side in range(2):
            edges = downs[x:] if side else ups[x:]
            loops.note_reach(tops[x:], edges, mask_x, num, levels, reach)
            loops.find_slopes(reach, span, factors, bases, slopes)
            loops.find_steepest(slopes[:middle], lefts, left)
            loops.find_steepest(slopes, rights, right)
            loops.keep_chords(left, right, bar, holds)


@jit_arrays
def _judge(buffers, item, rule):
    """Fill ``buffers.stable`` by the rule from the hulls in it, lattice row by lattice row."""
    sides, mask_x, mask_y = item
    ground, step, tops = buffers.ground, buffers.step, buffers.tops
    stride, _, lanes = step
    length, n = tops.shape
    counts = np.empty((length if rules.COUNTS[rule] else 0, n), sides.dtype)
    limits, total = np.empty((rules.NUM_LIMITS, n), sides.dtype), np.empty(n, sides.dtype)
    if rules.COUNTS[rule]:
        loops.scan_counts(ground, mask_y, step, tops, counts)
        loops.fill_limits(sides, rules.PERCENTS[rule], lanes, limits)
    ends = np.empty((length if rules.CORNERS[rule] else 0, n), _U8)
    if rules.CORNERS[rule]:
        loops.scan_ends(ground, sides[1], step, ends, mask_y.shape[0])
    corner, highest, corners = np.empty((4, n), _U8), np.empty(n, _U8), np.empty(n, _U8)
    for i in range(buffers.raised.shape[0]):
        x, levels = i * stride, buffers.raised[i]
        num = min(mask_x.shape[0], length - x)
        if rules.COUNTS[rule]:
            loops.count_support(tops[x:], counts[x:], mask_x, num, levels, total)
        if rules.CORNERS[rule]:
            loops.find_corners(ground[x:, :n], num, sides[0], corner[0], corner[1])
            loops.find_corners(ends[x:], num, sides[0], corner[2], corner[3])
            loops.find_highest(corner, highest)
            loops.count_at_level(corner, highest if rules.AT_HIGHEST[rule] else levels, corners)
        loops.judge_lanes(rule, total, limits, corners, highest, levels, buffers.stable[i])


@jit_arrays
def make_buffers(shape, lattice, task, lanes, count_like):
    """Allocate the buffers for the maps of one item in a block of rows."""
    _, across, along, _, stride = task
    columns, n = lattice[1] + (along - 1) // stride, lattice[1] * lanes
    return Buffers(
        np.zeros((shape[0], stride * columns * lanes), _U8),
        np.empty((2, n), count_like.dtype),
        np.empty((across, n), _U8),
        np.empty((along, n), _U8),
        np.empty((shape[0], n), _U8),
        np.empty((lattice[0], n), _U8),
        np.empty((lattice[0], n), _U8),
        np.empty(n, _U8),
        np.empty(n, _U8),
        (stride, columns, lanes),
        (shape[0], shape[1]),
    )


@jit
def find_maps(buffers, size, task, tables):
    """Find the raised rest heights of an item of each row over the ground, and which are stable.

    ``size [lanes, 3]`` are the sides of the items, 0 where there is none.
    """
    height, _, _, rule, stride = task
    length, width = buffers.shape
    lanes = buffers.step[2]
    loops.fill_sides(size, lanes, buffers.sides)
    loops.fill_masks(buffers.sides[0], buffers.mask_x)
    loops.fill_masks(buffers.sides[1], buffers.mask_y)
    loops.scan_tops(buffers.ground, buffers.mask_y, buffers.step, buffers.tops)
    loops.find_rest(buffers.tops, buffers.mask_x, stride, buffers.raised)
    item = (buffers.sides, buffers.mask_x, buffers.mask_y)
    if rules.HULLS[rule]:
        _find_hulls(buffers, item, rule, tables)
    if rules.COUNTS[rule] or rules.CORNERS[rule]:
        _judge(buffers, item, rule)
    elif not rules.HULLS[rule]:
        buffers.stable[:] = 1
    box = (width, height, stride)
    loops.fill_places(size, box, lanes, buffers.highest, buffers.places)
    across, container = buffers.sides[0], (length, stride)
    highest, places = buffers.highest, buffers.places
    loops.finish(buffers.raised, highest, places, across, container, buffers.stable)


@cache
def tables_of(across: int, along: int) -> tuple[Any, ...]:
    """Return weights of slopes by run, and empty arrays of the kinds of counts and of slopes."""
    scale, steepest = slope_scale((across, along))
    runs = np.maximum(np.arange(2 * across + 2), 1)
    weights = (2 * scale + runs) // (2 * runs)
    weights[0] = steepest
    return weights, *(np.empty(0, kind) for kind in integers((across, along)))


def task_of(height: int, window: Sequence[int], rule: str, stride: int) -> tuple[Any, ...]:
    """Return the constants of a task, as the loops take them."""
    return height, window[0], window[1], NAMES.index(rule), stride


def num_blocks(rows: int) -> int:
    """Return how many blocks of rows are handled together."""
    return -(-rows // max(1, min(LANES, rows)))
