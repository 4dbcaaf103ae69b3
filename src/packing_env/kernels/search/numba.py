"""The search of `packing_env.kernels.search` compiled for the CPU.

A *plane* is a visible item in an orientation. A *place* is the rank of a placement among placements
of the same key. A *claim* is an int64 that orders placements: ``key * places + place``, where the
key is an integer computed from the rest height. Each plane stores the smallest claim of every
lattice row, and of all its rows. Before a plane is opened, its claim is the claim that its first
placement would have on the lowest ground.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from packing_env.kernels.compiled.jit import (
    INF,
    array,
    jit,
    jit_arrays,
    jit_ordered,
    kernel,
    lowest_of,
    run,
)
from packing_env.kernels.compiled.lanes import LANES, raise_lanes
from packing_env.kernels.compiled.stability_rules import COUNTS, HULLS
from packing_env.kernels.compiled.stable import find_support, stands
from packing_env.kernels.drop.blocks_numba import pool
from packing_env.kernels.drop.numba import is_flat
from packing_env.kernels.search.items import REAL, WHOLE

_NEVER = np.iinfo(np.int64).max
"""The claim of a plane without placements."""

_WORK = 20
"""Approximate operations per placement, from which the number of threads follows."""

_TAPS_AT_ONCE = 8
"""Number of squares between two checks of whether further squares can raise a bound."""

_BOUNDED, _MEASURED, _REFUSED, _ACCEPTED = range(4)
"""Possible results for the first placement in the queue."""

_WIDTH, _DEPTH, _COM_X, _COM_Y, _SIZE_X, _SIZE_Y, _FIRST, _TAPS = range(len(WHOLE))
_PEAK, _BASE = range(len(REAL))

Task = namedtuple(
    "Task", "stride side rule lid tolerance scale length width xs ys places orientations"
)
"""Constants of a call; ``places`` is the number of placements of a row of the batch."""

Planes = namedtuple("Planes", "claim reach opened flat verdict rows bounded z known")
"""Per plane: claim, number of allowed lattice points along x and y, whether it is opened, the level
of the last flat ground that was checked, and the result. Per plane and lattice row: claim, and
whether its bounds are set. Per placement: bound or rest height ``z``, and whether it is exact.
"""

Scratch = namedtuple("Scratch", "pooled squares steps line best edges")
"""Pooled heights in one padded line: the minima of all lattice points, then the maxima. The same
``[2, Xs, Ys]``, two arrays for `blocks_numba.pool`, and memory for bounds and for edges of support.
"""


@jit_ordered
def _pool_ground(heightmap, task, scratch):
    """Pool the heights of the square at each lattice point; return the extremes of all squares."""
    # 1. The negated minima, and the maxima.
    side = task.side // task.stride
    for k in range(2):
        sign, sizes = np.float32(2 * k - 1), (task.stride, side, side)
        pool(heightmap, sign, sizes, scratch.steps, scratch.line, scratch.squares[k])
    # 2. The minima, and the extremes of all squares.
    lowest, highest, points = INF, -INF, task.xs * task.ys
    for k in range(points):
        scratch.pooled[k] = -scratch.pooled[k]
        lowest = min(lowest, scratch.pooled[k])
        highest = max(highest, scratch.pooled[points + k])
    return lowest, highest


@jit
def _raise_bounds(bound, pooled, at, taps, listed, best):
    """Raise the bounds of consecutive placements, the first at lattice point ``at``, by squares."""
    first, count = listed
    # Four vectors at a time, or two at the end of the row.
    for lane in range(0, bound.size, 4 * LANES):
        part, here = bound[lane : lane + 4 * LANES], at + lane
        for k in range(part.size):
            best[k] = part[k]
        if part.size > 2 * LANES:
            starts = (here, here + LANES, here + 2 * LANES, here + 3 * LANES)
            raise_lanes(best, pooled, starts, taps, first, count)
        else:
            raise_lanes(best, pooled, (here, here + LANES), taps, first, count)
        for k in range(part.size):
            part[k] = best[k]


@jit
def _set_bounds(p, item, row, ground, planes, items, task, scratch):
    """Set the bounds of a plane's lattice row from pooled squares; ``item`` holds its `WHOLE`."""
    offset, level = items[3], items[4]
    floor, highest = ground
    mine = slice(row * task.ys, row * task.ys + planes.reach[p, 1])
    bound, known = planes.z[p, mine], planes.known[p, mine]
    for lane in range(bound.size):
        bound[lane], known[lane] = floor, False
    # Levels are in ascending order; the list ends at the first level that cannot raise the bounds.
    first, listed, count = item[_FIRST], item[_TAPS], 0
    while count < listed and highest - level[first + count] > floor:
        count += _TAPS_AT_ONCE
    taps = (offset, level)
    _raise_bounds(bound, scratch.pooled, row * task.ys, taps, (first, count), scratch.best)
    planes.bounded[p, row] = True


@jit
def _key(z, scale):
    """Return an integer that orders rest heights: see `Search.scale`. It is monotone in z."""
    # Compute as the heuristic does, so that ties are the same.
    value = np.float64(z / np.float32(scale[0]))
    for factor in scale[1:]:
        value = value * factor
    return np.int64(np.rint(value))


@jit
def _row_claim(z, peak, task, first, step):
    """Return the smallest claim of a lattice row whose places are first, first + step, ...

    Of the placements with the same key, the first one wins, even if another one is lower.
    """
    # The lowest placement of the row, if it is below the lid.
    least = lowest_of(z)
    if least == INF or least + peak > task.lid:
        return _NEVER
    # The first placement with this key; keys are monotone in z, so no key is smaller.
    key = _key(least, task.scale)
    for y in range(z.size):
        if z[y] < INF and _key(z[y], task.scale) == key:
            return key * task.places + first + y * step
    return _NEVER


@jit_ordered
def _rest_height(heightmap, bottom, z, peak, lid):
    """Return the rest height on a window, given a lower bound; +inf if above the lid."""
    # Check the lid after every window row, to stop early.
    for u in range(bottom.shape[0]):
        ground, surface = heightmap[u], bottom[u]
        for v in range(surface.size):
            gap = ground[v] - surface[v]
            z = gap if gap > z else z
        if z + peak > lid:
            return INF
    return z


@jit
def _stands(heightmap, bottom, z, p, item, planes, task, scratch):
    """Return whether a placement is stable by the rule; flat ground is checked once per plane."""
    if not (HULLS[task.rule] or COUNTS[task.rule]):
        return True
    # 1. On flat ground at the same level as before, the result is the same.
    even = is_flat(heightmap)
    if even and planes.flat[p] == heightmap[0, 0]:
        return planes.verdict[p]
    # 2. Measure and judge.
    com, size = (item[_COM_X], item[_COM_Y]), (item[_SIZE_X], item[_SIZE_Y])
    bar, edges, tolerance = z - task.tolerance, scratch.edges, task.tolerance
    count, area = find_support(heightmap, bottom, 0, 0, bar, edges)
    corners = (z, z, z, z)  # no rule of the search reads them
    held = stands(task.rule, count, area, corners, bar, tolerance, False, edges, size, com)
    if even:
        planes.flat[p], planes.verdict[p] = heightmap[0, 0], held
    return held


@jit
def _enter(planes, item_id, there, lowest, items, task):
    """Fill the planes of a row with their first claims."""
    _, whole, real, _, _ = items
    for p in range(planes.claim.size):
        # 1. Planes without an item, or above the lid even on the lowest ground, claim nothing.
        slot, r = p // task.orientations, p % task.orientations
        m = item_id[slot]
        planes.claim[p], planes.opened[p], planes.flat[p] = _NEVER, False, INF
        w, h = whole[m, r, _WIDTH], whole[m, r, _DEPTH]
        floor = lowest - real[m, r, _BASE]
        if not there[slot] or w == 0 or w > task.length or h > task.width:
            continue
        if floor + real[m, r, _PEAK] > task.lid:
            continue
        # 2. The number of placements inside the container, along x and y.
        reach = planes.reach[p]
        reach[0] = (task.length - w) // task.stride + 1
        reach[1] = (task.width - h) // task.stride + 1
        # 3. The initial claim: the first placement, whose place is p, on the lowest ground.
        planes.claim[p] = _key(floor, task.scale) * task.places + p


@jit
def _first_place(p, x, planes, task):
    """Return the place of the first placement of a lattice row."""
    # The places of all planes at one lattice point are consecutive.
    return x * task.ys * planes.claim.size + p


@jit
def _argmin(values, count):
    """Return the index of the smallest of the first `count` integers; ties go to the first."""
    best = 0
    for i in range(1, count):
        best = i if values[i] < values[best] else best
    return best


@jit
def _open(p, planes, task):
    """Open a plane: the key of its claim becomes the key of the claim of each of its rows."""
    # No row can have a smaller claim. A row gets its bounds when it is the next in the queue.
    planes.opened[p] = True
    for x in range(planes.reach[p, 0]):
        first = _first_place(p, x, planes, task)
        planes.rows[p, x] = planes.claim[p] // task.places * task.places + first
        planes.bounded[p, x] = False


@jit
def _look(p, m, heightmap, ground, planes, items, task, scratch):
    """Process the placement that an opened plane claims: bound its row, measure it, or check it.

    Returns:
        Which of the three was done, and the lattice point and the rest height of the placement.
    """
    bottom, whole, real, _, _ = items
    # 1. The placement.
    r, lane = p % task.orientations, planes.claim[p] % task.places // planes.claim.size
    row = lane // task.ys
    x, y = task.stride * row, task.stride * (lane % task.ys)
    item, peak, height = whole[m, r], real[m, r, _PEAK], planes.z[p, lane]
    # 2. First set the bounds of its row; the next time, measure it; then check it.
    if not planes.bounded[p, row]:
        lowest, highest = ground
        floor = (lowest - real[m, r, _BASE], highest)
        _set_bounds(p, item, row, floor, planes, items, task, scratch)
        outcome = _BOUNDED
    else:
        window = heightmap[x : x + item[_WIDTH], y : y + item[_DEPTH]]
        surface = bottom[m, r, : item[_WIDTH], : item[_DEPTH]]
        if planes.known[p, lane]:
            held = _stands(window, surface, height, p, item, planes, task, scratch)
            outcome = _ACCEPTED if held else _REFUSED
            planes.z[p, lane] = INF
        else:
            planes.z[p, lane] = _rest_height(window, surface, height, peak, task.lid)
            planes.known[p, lane] = True
            outcome = _MEASURED
    # 3. Update the claim of the row.
    first = _first_place(p, row, planes, task)
    mine = planes.z[p, row * task.ys : row * task.ys + planes.reach[p, 1]]
    planes.rows[p, row] = _row_claim(mine, peak, task, first, planes.claim.size)
    return outcome, lane, height


@jit_arrays
def _allocate(count, task, window):
    # Memory for one row; the rows of a batch use it one after another.
    points = task.xs * task.ys
    planes = Planes(
        np.empty(count, np.int64),
        np.empty((count, 2), np.int64),
        np.empty(count, np.bool_),
        np.empty(count, np.float32),
        np.empty(count, np.bool_),
        np.empty((count, task.xs), np.int64),
        np.empty((count, task.xs), np.bool_),
        np.empty((count, points), np.float32),
        np.empty((count, points), np.bool_),
    )
    pooled = np.empty(2 * points + 4 * LANES, np.float32)
    scratch = Scratch(
        pooled,
        pooled[: 2 * points].reshape(2, task.xs, task.ys),
        np.empty((task.xs, task.ys), np.float32),
        np.empty(task.width, np.float32),
        np.zeros(4 * LANES, np.float32),
        np.empty((2, window + 2), np.float64),
    )
    return planes, scratch


@kernel
def _search(heightmap, visible, items, counts, lengths, scale, out, start, stop):
    """Fill ``out = (index, heights, examined)`` for the rows start <= b < stop."""
    # 1. Sizes, constants and memory.
    item_id, there = visible
    index, heights, examined = out
    stride, side, rule, patience = counts
    _, length, width = heightmap.shape
    orientations = items[1].shape[1]
    count = there.shape[1] * orientations
    xs, ys = (length + stride - 1) // stride, (width + stride - 1) // stride
    lid, tolerance = lengths
    places = count * xs * ys
    task = Task(
        stride, side, rule, lid, tolerance, scale, length, width, xs, ys, places, orientations
    )
    planes, scratch = _allocate(count, task, items[0].shape[2])
    claim, rows, reach = planes.claim, planes.rows, planes.reach
    # 2. Row by row.
    for b in range(start, stop):
        ground = _pool_ground(heightmap[b], task, scratch)
        _enter(planes, item_id[b], there[b], ground[0], items, task)
        index[b], heights[b], measured, judged = -1, INF, 0, 0
        # Take the plane with the smallest claim, until one is accepted or the search gives up.
        p = _argmin(claim, count)
        while index[b] < 0 and claim[p] < _NEVER:
            if judged >= patience or measured >= 8 * patience:
                break
            # If the plane is open, examine the placement that it claims; otherwise open it.
            if planes.opened[p]:
                m = item_id[b, p // orientations]
                outcome, lane, height = _look(
                    p, m, heightmap[b], ground, planes, items, task, scratch
                )
                measured += outcome == _MEASURED
                judged += outcome >= _REFUSED
                if outcome == _ACCEPTED:
                    index[b] = p * xs * ys + lane
                    heights[b] = height + np.float32(0)  # without -0.0
            else:
                _open(p, planes, task)
            claim[p] = rows[p, _argmin(rows[p], reach[p, 0])]
            p = _argmin(claim, count)
        examined[b, 0], examined[b, 1] = measured, judged
        examined[b, 2] = index[b] < 0 and claim[p] < _NEVER


def lowest_placements(
    heightmap: Tensor,
    item_id: Tensor,
    there: Tensor,
    items: Sequence[Tensor],
    counts: Sequence[int],
    lengths: Sequence[float],
) -> tuple[Tensor, Tensor, Tensor]:
    """Carry out `packing_env.kernels.search.lowest_placements`."""
    index = item_id.new_empty(len(heightmap))
    heights, examined = heightmap.new_empty(len(index)), item_id.new_empty((len(index), 3))
    lid, tolerance, *scale = lengths
    arguments = (
        array(heightmap),
        (array(item_id), array(there)),
        tuple(map(array, items)),
        tuple(counts),
        (np.float32(lid), np.float32(tolerance)),
        np.array(scale, np.float64),
        (index.numpy(), heights.numpy(), examined.numpy()),
    )
    placements = there.shape[1] * items[0].shape[1] * heightmap[0].numel() // counts[0] ** 2
    run(_search, arguments, len(index), len(index) * placements * _WORK)
    return index, heights, examined
