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

from packing_env.kernels.compiled.jit import array, jit, jit_arrays, kernel, run
from packing_env.kernels.cuboids import loops
from packing_env.kernels.cuboids.eager import RULES, integers, lattice, slope_scale

LANES = 64
"""Rows of the batch that are handled together."""

Room = namedtuple("Room", "ground sides mask_x mask_y tops raised stable highest places step shape")
"""Scratch memory for one item in a block of rows: see :func:`find_maps`."""

_U8 = np.uint8
_CORNERS, _CODE, _CENTRES, _SQUARES = (RULES.index(name) for name in RULES[1:])
"""Rules by their place in `RULES`: 0 is no rule, and the hulls come last."""


@jit_arrays
def _judge_hulls(ground, step, item, tops, raised, tables, rule, stable):  # type: ignore[no-untyped-def]
    """Fill stable by `com_hull` or `center_hull`, lattice row by lattice row."""
    sides, mask_x, mask_y = item
    weights, slope_like = tables
    stride, _, lanes = step
    span = 0 if rule == _CENTRES else 1
    lines, (length, n) = mask_x.shape[0] + span, tops.shape
    counts = np.empty((length, n), sides.dtype)
    ups, downs = np.empty_like(counts), np.empty_like(counts)
    loops.scan_edges(ground, mask_y, sides[1], step, tops, ups, downs)
    half = np.empty((1, n), sides.dtype)
    if rule == _CENTRES:
        loops.scan_counts(ground, mask_y, step, tops, counts)
        loops.fill_limits(sides, (50,), lanes, half)
    slopes = np.empty((lines, n), slope_like.dtype)
    factors, bases = np.empty_like(slopes), np.empty_like(slopes)
    lefts, rights = np.empty_like(slopes), np.empty_like(slopes)
    loops.fill_slopes(sides, 1 - span, weights, lanes, factors, bases, lefts, rights)
    left, right = np.empty(n, slopes.dtype), np.empty(n, slopes.dtype)
    reach, total = np.zeros((mask_x.shape[0] + 2, n), sides.dtype), np.empty(n, sides.dtype)
    bar = 2 * weights[0] - mask_y.shape[0]
    middle = (lines - 1) // 2 + 1  # no line beyond is left of a centre
    for i in range(raised.shape[0]):
        x, levels, holds = i * stride, raised[i], stable[i]
        num = min(mask_x.shape[0], length - x)
        for side in range(2):
            edges = downs[x:] if side else ups[x:]
            loops.note_reach(tops[x:], edges, mask_x, num, levels, reach)
            loops.find_slopes(reach, span, factors, bases, slopes)
            loops.find_steepest(slopes[:middle], lefts, left)
            loops.find_steepest(slopes, rights, right)
            loops.keep_chords(left, right, bar, holds)
        if rule == _CENTRES:
            loops.count_support(tops[x:], counts[x:], mask_x, num, levels, total)
            loops.keep_over_half(total, half[0], holds)


@jit_arrays
def _judge_corners(ground, step, item, tops, raised, percents, rule, stable):  # type: ignore[no-untyped-def]
    """Fill stable by `area_corners` or `area_corners_code`, lattice row by lattice row."""
    sides, mask_x, mask_y = item
    stride, _, lanes = step
    length, n = tops.shape
    counts, ends = np.empty((length, n), sides.dtype), np.empty_like(tops)
    loops.scan_counts(ground, mask_y, step, tops, counts)
    loops.scan_ends(ground, sides[1], step, ends, mask_y.shape[0])
    limits, total = np.empty((3, n), sides.dtype), np.empty(n, sides.dtype)
    loops.fill_limits(sides, percents, lanes, limits)
    corner, level, corners = np.empty((4, n), _U8), np.empty(n, _U8), np.empty(n, _U8)
    least = _U8(0) if rule == _CORNERS else _U8(2)
    for i in range(raised.shape[0]):
        x, levels, holds = i * stride, raised[i], stable[i]
        num = min(mask_x.shape[0], length - x)
        loops.count_support(tops[x:], counts[x:], mask_x, num, levels, total)
        loops.find_corners(ground[x:, :n], num, sides[0], corner[0], corner[1])
        loops.find_corners(ends[x:], num, sides[0], corner[2], corner[3])
        if rule == _CORNERS:
            loops.count_at_level(corner, levels, corners)
        else:
            loops.find_highest(corner, level)
            loops.count_at_level(corner, level, corners)
            loops.keep_three(level, levels, corners)
        holds[:] = 0
        loops.accept_over(total, limits[0], corners, _U8(4), holds)
        loops.accept_over(total, limits[1], corners, _U8(3), holds)
        loops.accept_over(total, limits[2], corners, least, holds)


@jit_arrays
def make_room(shape, lattice, task, lanes, count_like):  # type: ignore[no-untyped-def]
    """Room for the maps of one item in a block of rows."""
    _, across, along, _, stride, _ = task
    columns, n = lattice[1] + (along - 1) // stride, lattice[1] * lanes
    return Room(
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
def find_maps(room, size, first, p, task, tables):  # type: ignore[no-untyped-def]
    """The raised rest heights of the p-th item over the room's ground, and which are stable."""
    height, _, _, rule, stride, percents = task
    _, weights, _, slope_like = tables
    length, width = room.shape
    lanes = room.step[2]
    loops.fill_sides(size, first, p, lanes, room.sides)
    loops.fill_masks(room.sides[0], room.mask_x)
    loops.fill_masks(room.sides[1], room.mask_y)
    loops.scan_tops(room.ground, room.mask_y, room.step, room.tops)
    loops.find_rest(room.tops, room.mask_x, stride, room.raised)
    room.stable[:] = 1
    item = (room.sides, room.mask_x, room.mask_y)
    found = (room.tops, room.raised)
    if rule >= _CENTRES:
        slopes = (weights, slope_like)
        _judge_hulls(room.ground, room.step, item, *found, slopes, rule, room.stable)
    elif rule:
        _judge_corners(room.ground, room.step, item, *found, percents, rule, room.stable)
    box = (width, height, stride)
    loops.fill_places(size, first, p, box, lanes, room.highest, room.places)
    across = room.sides[0]
    loops.finish(room.raised, room.highest, room.places, across, (length, stride), room.stable)


@kernel
def _cuboid_maps(heightmap, size, z, legal, task, tables, start, stop):  # type: ignore[no-untyped-def]
    """Fill z and legal for the blocks start <= block < stop of rows of the batch."""
    metres, _, count_like, _ = tables
    lanes = min(LANES, heightmap.shape[0])
    room = make_room(heightmap.shape[1:], z.shape[2:], task, lanes, count_like)
    for block in range(start, stop):
        first = block * lanes
        loops.fill_ground(heightmap, first, metres[2], room.step, room.ground)
        for p in range(size.shape[1]):
            find_maps(room, size, first, p, task, tables)
            loops.write_rows(room.raised, room.stable, first, p, metres, z, legal)


@cache
def tables_of(across: int, along: int, cell: float) -> tuple[Any, ...]:
    """Metres of raised heights, weights of slopes by their run, and empty arrays of both kinds."""
    metres = np.arange(-1, 255).astype(np.float32) * np.float32(cell)
    metres[0] = np.inf
    scale, steepest = slope_scale((across, along))
    runs = np.maximum(np.arange(2 * across + 2), 1)
    weights = (2 * scale + runs) // (2 * runs)
    weights[0] = steepest
    kinds = (torch.empty(0, dtype=kind).numpy() for kind in integers((across, along)))
    return metres, weights, *kinds


def task_of(height: int, window: Sequence[int], rule: str, stride: int) -> tuple[Any, ...]:
    """What is the same in every row, as the loops take it."""
    percents = (60, 80, 95) if rule == "area_corners" else (50, 85, 95)
    return height, window[0], window[1], RULES.index(rule), stride, percents


def num_blocks(rows: int) -> int:
    """Blocks of rows that are handled together."""
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
    """See `packing_env.kernels.cuboid_maps`."""
    shape = (*size.shape[:2], *lattice(heightmap, stride))
    z, legal = heightmap.new_empty(shape), heightmap.new_empty(shape, dtype=torch.bool)
    task = task_of(height, window, rule, stride)
    arrays = (array(heightmap), array(size), z.numpy(), legal.numpy())
    work = z.numel() * sum(window)
    run(_cuboid_maps, (*arrays, task, tables_of(*window, cell)), num_blocks(shape[0]), work)
    return z, legal
