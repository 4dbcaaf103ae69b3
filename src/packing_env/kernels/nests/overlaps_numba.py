"""Parts that may overlap in a container: how much they overlap, and moves that separate them.

The search is a guided local search over placements: parts that overlap move to the place of least
weighted overlap, and the weights of pairs that still overlap grow. Sources: Egeblad, Nielsen and
Odgaard, EJOR 2007 (polygons); Gardeyn, Vanden Berghe and Wauters, arXiv 2509.13329 (weights).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from packing_env.kernels.compiled.jit import jit, kernel, lowest_of
from packing_env.kernels.nests.shared_numba import count_shared

REACH = 6
"""Half the side of the cube around a part from which near places are drawn, in voxels."""
FIRST_STEP = 4
"""First step of the descent to places of less overlap, in voxels."""
SLACK = 1.1
"""A place is measured in full if its estimate is below the overlap to beat times this factor."""
KEPT = 3
"""Number of places from which each move descends."""
CLEARLY = 1 - 1e-4
"""A place along an axis is better if its depth is below the old one times this factor; sums in
float32 differ by less."""
MOST = 1e12
"""Largest weight of a pair."""
LONGER = 5
"""Factor on the patience of the search when little overlap is left."""


class Shapes(NamedTuple):
    """The turned parts of an order as bits.

    Attributes:
        words: uint64, the bits ``[U, W, V]`` of all turned parts one after another.
        table: ``[S, 5]`` int64 per turned part: start in `words`, U, V, height in voxels, words W.
        options: ``[P, R]`` int64, rows of the table for each part, then -1.
        number: ``[P]`` int64, number of rows of each part.
        step: ``[1]`` int64; estimates of an overlap count every ``step``-th plane across x.
        pairs: ``[S, S]`` int64, start in `depths` of the table of rows a and b.
        depths: ``[3, D]`` uint8, for each pair of rows the table ``[Ua + Ub - 1, Va + Vb - 1,
            Ha + Hb - 1]`` of the distance that separates them
            (`packing_env.kernels.nests.depths_numba`), in multiples of `unit`, rounded up. In entry
            ``(i, j, k)``, row b lies at ``(i, j, k) - size of b + 1``, seen from row a. Each table
            is there three times: with x, y and z as its last axis. Empty if shared voxels are
            counted instead.
        unit: ``[1]`` float64, voxels.
    """

    words: np.ndarray
    table: np.ndarray
    options: np.ndarray
    number: np.ndarray
    step: np.ndarray
    pairs: np.ndarray
    depths: np.ndarray
    unit: np.ndarray


class Nest(NamedTuple):
    """Pieces in a container; the first of them are fixed.

    Attributes:
        part: ``[N]`` int64, the part of each piece.
        shape: ``[N]`` int64, its row of `Shapes.table`.
        place: ``[N, 3]`` int64, its lower corner.
        container: ``[3]`` int64, in voxels.
        fixed: ``[1]`` int64, the number of pieces that do not move.
    """

    part: np.ndarray
    shape: np.ndarray
    place: np.ndarray
    container: np.ndarray
    fixed: np.ndarray


@jit
def _depth(shapes, row, x, y, z, other, place, enough, step):
    """Return how deeply two placed rows overlap, in voxels.

    Without tables, this is the cube root of the number of voxels that they share.
    """
    a, b = shapes.table[row], shapes.table[other]
    if not shapes.pairs.size:
        shared = count_shared(
            shapes.words, a, x, y, z, b, place[0], place[1], place[2], enough**3, step
        )
        return np.cbrt(shared)
    i, j, k = place[0] - x + b[1] - 1, place[1] - y + b[2] - 1, place[2] - z + b[3] - 1
    U, V, W = a[1] + b[1] - 1, a[2] + b[2] - 1, a[3] + b[3] - 1
    if i < 0 or j < 0 or k < 0 or i >= U or j >= V or k >= W:
        return 0.0
    return shapes.unit[0] * shapes.depths[2, shapes.pairs[row, other] + (i * V + j) * W + k]


@jit
def _cost(shapes, nest, weights, piece, candidate, bound, step):
    """Return the weighted depth of a piece at a candidate; if it reaches `bound`, stop early."""
    cost, row = 0.0, candidate[0]
    x, y, z = candidate[1], candidate[2], candidate[3]
    for other in range(nest.part.shape[0]):
        if other == piece:
            continue
        b, there = nest.shape[other], nest.place[other]
        enough = (bound - cost) / weights[piece, other]
        cost += weights[piece, other] * _depth(shapes, row, x, y, z, b, there, enough, step)
        if cost >= bound:
            break
    return cost


@jit
def _look(shapes, nest, weights, piece, candidate, bound):
    """Return :func:`_cost`, or an estimate from few planes if that clearly exceeds `bound`."""
    step = shapes.step[0]
    if step > 1:
        cost = _cost(shapes, nest, weights, piece, candidate, SLACK * bound, step)
        if cost >= SLACK * bound:
            return cost
    return _cost(shapes, nest, weights, piece, candidate, bound, 1)


@jit
def _below(state, count):
    """Return a random whole number below `count` (xorshift64*, Vigna, ACM TOMS 2016)."""
    bits = state[0]
    bits ^= bits >> np.uint64(12)
    bits ^= bits << np.uint64(25)
    bits ^= bits >> np.uint64(27)
    state[0] = bits
    return np.int64((bits * np.uint64(2685821657736338717)) >> np.uint64(33)) % count


@jit
def _shuffle(order, state):
    for last in range(order.shape[0] - 1, 0, -1):
        other = _below(state, last + 1)
        order[last], order[other] = order[other], order[last]


@jit
def _best_along(shapes, nest, weights, piece, candidate, axis, costs, state):
    """Move a candidate along an axis to the least weighted depth; return this depth.

    The tables hold all places along the axis next to each other, so this takes little longer than
    one place. ``costs [longest side + 1]`` float32 is scratch.
    """
    # 1. Add up the depths in all other pieces, at each place.
    row, here = candidate[0], candidate[1:]
    size = shapes.table[row, 1:4]
    u, v = (1 if axis == 0 else 0), (1 if axis == 2 else 2)
    count = nest.container[axis] - size[axis] + 1
    costs[:count] = 0.0
    for other in range(nest.part.shape[0]):
        there, sides = nest.place[other], shapes.table[nest.shape[other], 1:4]
        i, j = here[u] - there[u] + size[u] - 1, here[v] - there[v] + size[v] - 1
        U, V, W = size[u] + sides[u] - 1, size[v] + sides[v] - 1, size[axis] + sides[axis] - 1
        if other == piece or i < 0 or j < 0 or i >= U or j >= V:
            continue
        first = max(0, there[axis] - size[axis] + 1)
        end = min(count, there[axis] + sides[axis])
        line = shapes.pairs[nest.shape[other], row] + (i * V + j) * W
        depths = shapes.depths[axis, line + first - there[axis] + size[axis] - 1 : line + W]
        weight, sums = np.float32(shapes.unit[0] * weights[piece, other]), costs[first:]
        for k in range(end - first):
            sums[k] += weight * np.float32(depths[k])
    # 2. Find the least; begin at a random place, so that ties are broken at random.
    least = lowest_of(costs[:count])
    best = _below(state, count)
    while costs[best] > least:
        best = best + 1 if best + 1 < count else 0
    here[axis] = best
    return np.float64(costs[best])


@jit
def _try(shapes, nest, weights, piece, candidate, bound, costs, state):
    """Return the weighted depth at a drawn place; with tables, at the best height there."""
    if shapes.pairs.size:
        return _best_along(shapes, nest, weights, piece, candidate, 2, costs, state)
    return _look(shapes, nest, weights, piece, candidate, bound)


@jit
def _draw(shapes, nest, piece, near, state, candidate):
    """Draw a random orientation of a piece and a random place; fill ``candidate [4]`` with both.

    Near places keep the middle of the piece within `REACH`.
    """
    part = nest.part[piece]
    shape = shapes.options[part, _below(state, shapes.number[part])]
    if near and _below(state, 2):
        shape = nest.shape[piece]
    for axis in range(3):
        if shapes.table[shape, 1 + axis] > nest.container[axis]:
            shape = nest.shape[piece]  # the other would be higher than the lid
    candidate[0] = shape
    for axis in range(3):
        room = nest.container[axis] - shapes.table[shape, 1 + axis]
        place = _below(state, room + 1)
        if near:
            wider = shapes.table[nest.shape[piece], 1 + axis] - shapes.table[shape, 1 + axis]
            place = nest.place[piece, axis] + wider // 2 + _below(state, 2 * REACH + 1) - REACH
        candidate[1 + axis] = max(0, min(place, room))


@jit
def _descend_lines(shapes, nest, weights, piece, cost, candidate, costs, state):
    """Move a candidate to the best place along x, y and z in turn while its depth falls."""
    axis, failed = 0, 0
    while failed < 3 and cost > 0.0:
        old = candidate[1 + axis]
        there = _best_along(shapes, nest, weights, piece, candidate, axis, costs, state)
        if there < CLEARLY * cost:
            cost, failed = there, 1  # this axis is done until another changes
        else:
            candidate[1 + axis], failed = old, failed + 1
        axis = (axis + 1) % 3
    return cost


@jit
def _descend_steps(shapes, nest, weights, piece, cost, candidate):
    """Move a candidate along the axes, in ever smaller steps, while its depth falls."""
    size = shapes.table[candidate[0], 1:4]
    step = FIRST_STEP
    while step and cost > 0.0:
        improved = False
        for way in range(6):
            axis, old = way // 2, candidate[1 + way // 2]
            new = old + (step if way % 2 else -step)
            if not 0 <= new <= nest.container[axis] - size[axis]:
                continue
            candidate[1 + axis] = new
            there = _look(shapes, nest, weights, piece, candidate, cost)
            if there < cost:
                cost, improved = there, True
            else:
                candidate[1 + axis] = old
        if not improved:
            step //= 2
    return cost


@jit
def _descend(shapes, nest, weights, piece, cost, candidate, line, state):
    """Move a candidate along the axes while its weighted depth falls; return the depth."""
    if shapes.pairs.size:
        return _descend_lines(shapes, nest, weights, piece, cost, candidate, line, state)
    return _descend_steps(shapes, nest, weights, piece, cost, candidate)


@jit
def _copy(source, target):
    for k in range(source.shape[0]):
        target[k] = source[k]


@jit
def _move(shapes, nest, weights, piece, draws, state, costs, candidates, line):
    """Move a piece to the place of least weighted depth among random ones and its own.

    With tables of depths, each random place is tried at all heights, and descents are along lines.
    """
    # 1. Keep the best of the present place and the random places.
    candidates[0, 0] = nest.shape[piece]
    for axis in range(3):
        candidates[0, 1 + axis] = nest.place[piece, axis]
    costs[:] = np.inf
    costs[0] = _cost(shapes, nest, weights, piece, candidates[0], np.inf, 1)
    for draw in range(draws[0] + draws[1]):
        new = candidates[KEPT]
        _draw(shapes, nest, piece, draw >= draws[0], state, new)
        bound = costs[KEPT - 1]
        cost = _try(shapes, nest, weights, piece, new, bound, line, state)
        if cost < bound:
            rank = KEPT - 1
            while rank and cost < costs[rank - 1]:
                costs[rank] = costs[rank - 1]
                _copy(candidates[rank - 1], candidates[rank])
                rank -= 1
            costs[rank] = cost
            _copy(new, candidates[rank])
        if cost == 0.0:
            break
    # 2. Descend from these, and take the best.
    best = 0
    for rank in range(KEPT):
        if costs[best] > 0.0 and costs[rank] < np.inf:
            costs[rank] = _descend(
                shapes, nest, weights, piece, costs[rank], candidates[rank], line, state
            )
            if costs[rank] < costs[best]:
                best = rank
    nest.shape[piece] = candidates[best, 0]
    for axis in range(3):
        nest.place[piece, axis] = candidates[best, 1 + axis]


@jit
def _measure(shapes, nest, piece, overlap):
    """Update row and column of a piece in ``overlap [N, N]``, as :func:`measure` fills it."""
    row, here = nest.shape[piece], nest.place[piece]
    for other in range(nest.part.shape[0]):
        if other != piece:
            depth = _depth(
                shapes, row, here[0], here[1], here[2], nest.shape[other], nest.place[other],
                np.inf, 1,
            )  # fmt: skip
            overlap[piece, other] = overlap[other, piece] = (
                depth if shapes.pairs.size else np.rint(depth**3)
            )


@kernel
def measure(shapes, nest, overlap):
    """Fill ``overlap [N, N]`` with the voxels that pieces share; with tables, with their depths."""
    for piece in range(nest.part.shape[0]):
        _measure(shapes, nest, piece, overlap)


@kernel
def separate(  # noqa: C901
    shapes, nest, overlap, weights, draws, patience, little, seed, halt
):
    """Move pieces until none overlap; after giving up, restore the places of least overlap.

    Args:
        shapes: `Shapes`.
        nest: `Nest`; its pieces move, except the fixed ones.
        overlap: ``[N, N]`` float64, as :func:`measure` fills it; updated in place.
        weights: ``[N, N]`` float64, weights of the overlaps, initially 1; updated in place.
        draws: ``[2]`` int64, the number of random places and of near places per move.
        patience: The search gives up after this many rounds without a smaller total overlap.
        little: At a total overlap of at most this, `LONGER` times as many rounds are allowed.
        seed: Seed of the random places.
        halt: ``[1]`` int8; the search gives up when another thread sets it.

    Returns:
        True if no pieces overlap.
    """
    # Adjacent seeds give unrelated states.
    state = np.full(1, np.uint64(seed + 1) * np.uint64(0x9E3779B97F4A7C15), np.uint64)
    order = np.arange(nest.part.shape[0])
    costs, candidates = np.zeros(KEPT + 1), np.zeros((KEPT + 1, 4), np.int64)
    line = np.zeros(nest.container.max() + 1, np.float32)
    count, best, rounds = nest.part.shape[0], np.inf, 0
    shape, place = nest.shape.copy(), nest.place.copy()
    while rounds < (patience if best > little else LONGER * patience):
        # 1. Measure the overlap; weights of pairs grow while they overlap, and fall afterwards.
        total, largest = 0.0, 0.0
        for i in range(count):
            for j in range(i):
                total += overlap[i, j]
                largest = max(largest, overlap[i, j])
        if total == 0.0:
            return True
        rounds += 1
        if total < best:
            best, rounds = total, 0
            shape[:] = nest.shape
            place[:] = nest.place
        for i in range(count):
            for j in range(count):
                if overlap[i, j]:
                    growth = 1.2 + 0.8 * overlap[i, j] / largest
                    weights[i, j] = min(MOST, weights[i, j] * growth)
                else:
                    weights[i, j] = max(1.0, 0.95 * weights[i, j])
        # 2. Move each piece that overlaps, in random order.
        _shuffle(order, state)
        for piece in order:
            if piece < nest.fixed[0] or not overlap[piece].any():
                continue
            _move(shapes, nest, weights, piece, draws, state, costs, candidates, line)
            _measure(shapes, nest, piece, overlap)
            if halt[0]:
                return False
    nest.shape[:] = shape
    nest.place[:] = place
    for piece in range(count):
        _measure(shapes, nest, piece, overlap)
    return False
