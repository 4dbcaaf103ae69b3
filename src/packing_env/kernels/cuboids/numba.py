"""All placements of cuboids on whole cells, compiled for the CPU like `kernels.compiled.jit`.

The algorithm of `kernels.cuboids.eager`, on blocks of rows of the batch (lanes): what is
kept of one item in a block stays in the L1 cache.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from packing_env.kernels.compiled import stability_rules as rules
from packing_env.kernels.compiled.jit import array, jit, jit_arrays, kernel, run
from packing_env.kernels.cuboids import loops
from packing_env.kernels.cuboids.eager import integers, slope_scale
from packing_env.kernels.layout import lattice
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
    _, weights, _, slope_like = tables
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
def find_maps(buffers, size, first, p, task, tables):
    """Find the raised rest heights of the p-th item over the ground, and which are stable."""
    height, _, _, rule, stride = task
    length, width = buffers.shape
    lanes = buffers.step[2]
    loops.fill_sides(size, first, p, lanes, buffers.sides)
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
    loops.fill_places(size, first, p, box, lanes, buffers.highest, buffers.places)
    across, container = buffers.sides[0], (length, stride)
    highest, places = buffers.highest, buffers.places
    loops.finish(buffers.raised, highest, places, across, container, buffers.stable)


@kernel
def _cuboid_maps(heightmap, size, z, legal, task, tables, start, stop):
    """Fill z and legal for the blocks start <= block < stop of rows of the batch."""
    metres, _, count_like, _ = tables
    lanes = min(LANES, heightmap.shape[0])
    buffers = make_buffers(heightmap.shape[1:], z.shape[2:], task, lanes, count_like)
    for block in range(start, stop):
        first = block * lanes
        loops.fill_ground(heightmap, first, metres[2], buffers.step, buffers.ground)
        for p in range(size.shape[1]):
            find_maps(buffers, size, first, p, task, tables)
            loops.write_rows(buffers.raised, buffers.stable, first, p, metres, z, legal)


@cache
def tables_of(across: int, along: int, cell: float) -> tuple[Any, ...]:
    """Return metres of raised heights, weights of slopes by run, and empty arrays of both kinds."""
    metres = np.arange(-1, 255).astype(np.float32) * np.float32(cell)
    metres[0] = np.inf
    scale, steepest = slope_scale((across, along))
    runs = np.maximum(np.arange(2 * across + 2), 1)
    weights = (2 * scale + runs) // (2 * runs)
    weights[0] = steepest
    kinds = (torch.empty(0, dtype=kind).numpy() for kind in integers((across, along)))
    return metres, weights, *kinds


def task_of(height: int, window: Sequence[int], rule: str, stride: int) -> tuple[Any, ...]:
    """Return the constants of a task, as the loops take them."""
    return height, window[0], window[1], NAMES.index(rule), stride


def num_blocks(rows: int) -> int:
    """Return how many blocks of rows are handled together."""
    return -(-rows // max(1, min(LANES, rows)))


def cuboid_maps(
    heightmap: Tensor,
    size: Tensor,
    cell: float,
    height: int,
    window: Sequence[int],
    rule: str,
    stride: int,
) -> tuple[Tensor, Tensor]:
    """Carry out `packing_env.kernels.cuboid_maps`."""
    shape = (*size.shape[:2], *lattice(heightmap, stride))
    z, legal = heightmap.new_empty(shape), heightmap.new_empty(shape, dtype=torch.bool)
    task = task_of(height, window, rule, stride)
    arrays = (array(heightmap), array(size), z.numpy(), legal.numpy())
    work = z.numel() * sum(window)
    run(_cuboid_maps, (*arrays, task, tables_of(*window, cell)), num_blocks(shape[0]), work)
    return z, legal
