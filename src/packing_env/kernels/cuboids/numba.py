"""All placements of cuboids on whole cells, compiled for the CPU.

Rows of the batch are processed in blocks; a row of a block is called a lane. The memory for one
item in a block fits into the L1 cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from packing_env.kernels.compiled import stability_rules as rules
from packing_env.kernels.compiled.jit import jit
from packing_env.kernels.compiled.tables import allocate, reader, rows
from packing_env.kernels.cuboids import loops
from packing_env.kernels.cuboids.slopes import integers, slope_scale
from packing_env.kernels.step.entries import declare_entries

LANES = 64
"""Number of rows of the batch that are processed together."""

Search = declare_entries(
    "Search",
    """
    ground   uint8  X cells
    sides    count  2 line
    mask_x   uint8  U line
    mask_y   uint8  V line
    tops     uint8  X line
    raised   uint8  Xs line
    stable   uint8  Xs line
    highest  uint8  line
    places   uint8  line
    ups      count  reaches line
    downs    count  reaches line
    counts   count  shares line
    limits   count  limits line
    total    count  line
    reach    count  U+2 line
    slopes   slope  chords line
    factors  slope  chords line
    bases    slope  chords line
    lefts    slope  chords line
    rights   slope  chords line
    left     slope  line
    right    slope  line
    ends     uint8  ends line
    corner   uint8  4 line
    level    uint8  line
    corners  uint8  line
    weights  int64  runs
    columns  int64
    lanes    int64
    """,
)
"""Memory for the maps of one item in a block of rows.

The axis ``line`` has one entry per place along y and lane.

- ``ground`` is filled before the search; ``sides``, ``mask_x`` and ``mask_y`` belong to the items;
- ``tops`` are the highest cells of window rows; for each lattice row, ``raised`` are the rest
  heights plus 1, and ``stable`` the verdicts;
- ``weights`` are the weights of slopes by run; ``columns`` are the columns of the ground per phase;
- the axes ``reaches``, ``shares`` and ``ends`` are X, and ``chords`` is U or U + 1; they are 0 for
  arrays that the rule does not read.
"""

as_search = reader(Search)


def new_search(shape: Sequence[int], counts: Any, lanes: int) -> tuple[list[Any], tuple[Any, ...]]:
    """Return `Search`, and two empty arrays with its dtypes of counts and of slopes.

    Args:
        shape: Cells of the container along x and y.
        counts: `Counts` of the task.
        lanes: Rows of the batch in a block.
    """
    stride, across, along = counts.stride, counts.across, counts.along
    xs, ys = (-(-side // stride) for side in shape)
    columns, length = ys + (along - 1) // stride, shape[0]
    # The narrowest integers that can hold counts and slopes: more of them fit into a vector.
    kinds = tuple(np.empty(0, kind) for kind in integers((across, along)))
    count, slope = (torch.from_numpy(kind).dtype for kind in kinds)

    # Arrays that the rule does not read have no rows.
    hulls, shares, corners = (
        int(table[counts.rule]) for table in (rules.HULLS, rules.COUNTS, rules.CORNERS)
    )
    sizes = {
        "X": length,
        "Xs": xs,
        "U": across,
        "V": along,
        "line": ys * lanes,
        "cells": stride * columns * lanes,
        "reaches": hulls * length,
        "shares": shares * length,
        "ends": corners * length,
        "chords": hulls * (across if rules.CENTRES[counts.rule] else across + 1),
        "limits": rules.NUM_LIMITS,
        "runs": 0,
        "columns": columns,
        "lanes": lanes,
    }
    search = allocate(Search, sizes, {"count": count, "slope": slope})
    return list(search._replace(weights=torch.from_numpy(_weights(across, along)))), kinds


def _weights(across: int, along: int) -> np.ndarray:
    # Slopes are integers; the value for run 0 is steeper than all others.
    scale, steepest = slope_scale((across, along))
    runs = np.maximum(np.arange(2 * across + 2), 1)
    weights = (2 * scale + runs) // (2 * runs)
    weights[0] = steepest
    return weights


@jit
def _find_hulls(search, counts):
    """Set ``search.stable`` to 1 if the hull holds the rule's point, otherwise to 0."""
    sides, mask_x, mask_y, tops = search.sides, search.mask_x, search.mask_y, search.tops
    ups, downs, reach, weights = search.ups, search.downs, search.reach, search.weights
    slopes, factors, bases = search.slopes, search.factors, search.bases
    lefts, rights, ahead, behind = search.lefts, search.rights, search.left, search.right
    step = (counts.stride, search.columns, search.lanes)
    # 1. The edges of the highest cells of each window row, and the factors that turn edges into
    #    slopes.
    loops.scan_edges(search.ground, mask_y, sides[1], step, tops, ups, downs)
    span = 0 if rules.CENTRES[counts.rule] else 1
    loops.fill_slopes(sides, 1 - span, weights, search.lanes, factors, bases, lefts, rights)
    bar = 2 * weights[0] - mask_y.shape[0]
    middle = (slopes.shape[0] - 1) // 2 + 1  # from here on, right of all centres
    # 2. Test the chord above each window's centre; with mirrored corners, the chord below it.
    search.stable[:] = 1
    for i in range(search.raised.shape[0]):
        x, levels, holds = i * counts.stride, search.raised[i], search.stable[i]
        left = tops.shape[0] - x
        num = min(mask_x.shape[0], left)
        for side in range(2):
            edges = rows(downs if side else ups, x, left)
            loops.note_reach(rows(tops, x, left), edges, mask_x, num, levels, reach)
            loops.find_slopes(reach, span, factors, bases, slopes)
            loops.find_steepest(rows(slopes, 0, middle), lefts, ahead)
            loops.find_steepest(slopes, rights, behind)
            loops.keep_chords(ahead, behind, bar, holds)


@jit
def _judge(search, rule, stride, with_corners):
    """Fill ``search.stable`` with the rule's results; on entry it holds the results of the hull."""
    sides, mask_x, mask_y, tops = search.sides, search.mask_x, search.mask_y, search.tops
    ground, counts, limits, total = search.ground, search.counts, search.limits, search.total
    ends, corner, level, corners = search.ends, search.corner, search.level, search.corners
    step = (stride, search.columns, search.lanes)
    # 1. Values that do not depend on x: counts, the rule's shares, last cells.
    if rules.COUNTS[rule]:
        loops.scan_counts(ground, mask_y, step, tops, counts)
        loops.fill_limits(sides, rules.PERCENTS[rule], search.lanes, limits)
    if with_corners is not None:
        loops.scan_ends(ground, sides[1], step, ends, mask_y.shape[0])
    # 2. Counts, corners and the verdict.
    for i in range(search.raised.shape[0]):
        x, levels = i * stride, search.raised[i]
        left = tops.shape[0] - x
        num = min(mask_x.shape[0], left)
        if rules.COUNTS[rule]:
            loops.count_support(
                rows(tops, x, left), rows(counts, x, left), mask_x, num, levels, total
            )
        if with_corners is not None:
            loops.find_corners(rows(ground, x, left), num, sides[0], corner[0], corner[1])
            loops.find_corners(rows(ends, x, left), num, sides[0], corner[2], corner[3])
            loops.find_highest(corner, level)
            loops.count_at_level(corner, level if rules.AT_HIGHEST[rule] else levels, corners)
        loops.judge_lanes(rule, total, limits, sides, corners, level, levels, search.stable[i])


@jit
def find_maps(search, size, width, counts, with_hulls, with_corners):
    """Find the raised rest heights of one item per row, and which placements are stable.

    ``size [lanes, 3]`` are the sides of the items, 0 for no item; ``width`` is the width of the
    container. ``with_hulls`` and ``with_corners`` are None if the rule has no hull or no corners,
    so that numba does not compile unused code.
    """
    rule, stride, lanes = counts.rule, counts.stride, search.lanes
    sides, length = search.sides, search.tops.shape[0]
    # 1. Where each item would rest, without the walls.
    loops.fill_sides(size, lanes, sides)
    loops.fill_masks(sides[0], search.mask_x)
    loops.fill_masks(sides[1], search.mask_y)
    step = (stride, search.columns, lanes)
    loops.scan_tops(search.ground, search.mask_y, step, search.tops)
    loops.find_rest(search.tops, search.mask_x, stride, search.raised)
    # 2. Stability.
    if with_hulls is not None:
        _find_hulls(search, counts)
    else:
        search.stable[:] = 1
    if rules.COUNTS[rule] or rules.CORNERS[rule]:
        _judge(search, rule, stride, with_corners)
    # 3. Walls and lid.
    container, highest, places = (width, counts.height, stride), search.highest, search.places
    loops.fill_places(size, container, lanes, highest, places)
    walls = (length, stride, search.mask_x.shape[0])
    loops.finish(search.raised, highest, places, sides[0], walls, search.stable)
