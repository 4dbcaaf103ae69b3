"""The search of `packing_env.kernels.search` compiled for the CPU.

A *plane* is a visible item in an orientation, a *place* the rank of a placement among equals, and a
*claim* an int64 that orders placements: its key (what the rest height comes to), times the number
of places, plus the place. Each plane keeps the least claim of every lattice row and of all rows; a
plane that has not been looked into claims the lowest ground for its first placement.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from packing_env.kernels.compiled.jit import INF, array, jit, jit_arrays, jit_ordered, kernel, run
from packing_env.kernels.search import REAL, SEARCHED_RULES, WHOLE
from packing_env.kernels.support.eager import HALF_CELL, SUBCELL, VERTICAL

_NEVER = np.iinfo(np.int64).max
"""The claim of what cannot be placed."""

_LANES = 1024
"""Lattice points per pass: the running maxima of a pass stay in the L1 cache."""

_WORK = 20
"""Operations per placement, about, where threads are weighed."""

_NONE, _COM_HULL, _CENTER_HULL = range(len(SEARCHED_RULES))
_WIDTH, _DEPTH, _LAST_X, _LAST_Y, _POINT_X, _POINT_Y, _AREA, _FIRST, _TAPS = range(len(WHOLE))
_PEAK, _BASE = range(len(REAL))


@jit
def _raise_by_taps(z, heights, offset, level):  # type: ignore[no-untyped-def]
    """Z = max(z, heights shifted by each of eight offsets - its level)."""
    n = z.size
    h0, h1 = heights[offset[0] :][:n], heights[offset[1] :][:n]
    h2, h3 = heights[offset[2] :][:n], heights[offset[3] :][:n]
    h4, h5 = heights[offset[4] :][:n], heights[offset[5] :][:n]
    h6, h7 = heights[offset[6] :][:n], heights[offset[7] :][:n]
    l0, l1, l2, l3 = level[0], level[1], level[2], level[3]
    l4, l5, l6, l7 = level[4], level[5], level[6], level[7]
    for i in range(n):
        best = z[i]
        gap = h0[i] - l0
        best = gap if gap > best else best
        gap = h1[i] - l1
        best = gap if gap > best else best
        gap = h2[i] - l2
        best = gap if gap > best else best
        gap = h3[i] - l3
        best = gap if gap > best else best
        gap = h4[i] - l4
        best = gap if gap > best else best
        gap = h5[i] - l5
        best = gap if gap > best else best
        gap = h6[i] - l6
        best = gap if gap > best else best
        gap = h7[i] - l7
        best = gap if gap > best else best
        z[i] = best


@jit
def _widen(pooled, steps, shape):  # type: ignore[no-untyped-def]
    """Fill the squares of all levels but the last, each from four of the next."""
    xs, ys = shape
    for level in range(pooled.shape[0] - 2, -1, -1):
        fine, wide = pooled[level + 1], pooled[level]
        for x in range(xs):
            here, beyond = x * ys, min(x + steps, xs - 1) * ys
            for y in range(ys):
                j = min(y + steps, ys - 1)
                least, most = fine[here + y], fine[xs * ys + here + y]
                for at in (here + j, beyond + y, beyond + j):
                    least, most = min(least, fine[at]), max(most, fine[xs * ys + at])
                wide[here + y], wide[xs * ys + here + y] = least, most
        steps *= 2


@jit_arrays
def _pool(heightmap, stride, side, shape, pooled):  # type: ignore[no-untyped-def]
    """Least and greatest height of the square from each lattice point on; returns those of all.

    pooled[-1] has the minima and then the maxima of all lattice points, and pooled[d] those of
    squares twice as wide as pooled[d + 1].
    """
    length, width = heightmap.shape
    low, high = np.empty(width, np.float32), np.empty(width, np.float32)
    levels, (xs, ys) = pooled.shape[0], shape
    lowest, highest = INF, -INF
    for x in range(xs):
        for j in range(width):
            low[j] = high[j] = heightmap[stride * x, j]
        for i in range(stride * x + 1, min(stride * x + side, length)):
            for j in range(width):
                height = heightmap[i, j]
                low[j] = height if height < low[j] else low[j]
                high[j] = height if height > high[j] else high[j]
        for y in range(ys):
            least, most = low[stride * y], high[stride * y]
            for j in range(stride * y + 1, min(stride * y + side, width)):
                least, most = min(least, low[j]), max(most, high[j])
            pooled[levels - 1, x * ys + y], pooled[levels - 1, (xs + x) * ys + y] = least, most
            lowest, highest = min(lowest, least), max(highest, most)
    _widen(pooled, side // stride, shape)
    return lowest, highest


@jit
def _bounds(bound, pooled, floor, highest, offset, level):  # type: ignore[no-untyped-def]
    """Raise the lower bounds of a plane's placements by its pooled squares.

    Levels ascend, so that the first eight whose least cannot exceed the floor end the list.
    """
    for block in range(0, bound.size, _LANES):
        lanes = bound[block : block + _LANES]
        for t in range(0, level.size, 8):
            if not highest - level[t] > floor:
                break
            _raise_by_taps(lanes, pooled[block:], offset[t : t + 8], level[t : t + 8])


@jit
def _key(z, scale, bits):  # type: ignore[no-untyped-def]
    """Integer that orders rest heights; see `Search.scale`. Never less for a greater height."""
    if scale.size == 0:
        bits[0] = z + np.float32(0.0)  # the bits of -0.0 are not those of 0.0
        found = np.int64(bits.view(np.int32)[0])
        return found if found >= 0 else found ^ np.int64(0x7FFFFFFF)
    value = np.float64(z / np.float32(scale[0]))
    for factor in scale[1:]:
        value = value * factor
    return np.int64(np.rint(value))


@jit_ordered
def _least(values):  # type: ignore[no-untyped-def]
    """The least of some heights."""
    least = INF
    for i in range(values.size):
        least = values[i] if values[i] < least else least
    return least


@jit
def _row_claim(z, peak, lid, scale, bits, first, step, places):  # type: ignore[no-untyped-def]
    """Least claim of a lattice row whose places are first, first + step, ...

    Ties among keys go to the first, whatever their heights.
    """
    least = _least(z)
    if least == INF or least + peak > lid:
        return _NEVER
    key = _key(least, scale, bits)
    for y in range(z.size):
        if z[y] < INF and _key(z[y], scale, bits) == key:
            return key * places + first + y * step
    return _NEVER


@jit_ordered
def _rest_height(heightmap, bottom, z, peak, lid):  # type: ignore[no-untyped-def]
    """Rest height on a window of the heightmap, given a lower bound; +inf if above the lid."""
    for u in range(bottom.shape[0]):
        ground, surface = heightmap[u], bottom[u]
        for v in range(surface.size):
            gap = ground[v] - surface[v]
            z = gap if gap > z else z
        if z + peak > lid:
            return INF
    return z


@jit
def _span(ground, surface, bar):  # type: ignore[no-untyped-def]
    """First supporting cell of a window row, last plus 1, and how many there are."""
    first, last, count = np.int32(surface.size), np.int32(0), np.int32(0)
    for v in range(surface.size):
        supports = ground[v] - surface[v] >= bar
        at = np.int32(v)
        first = min(first, at if supports else np.int32(surface.size))
        last = max(last, at + np.int32(1) if supports else np.int32(0))
        count += np.int32(1) if supports else np.int32(0)
    return first, last, count


@jit
def _holds(heightmap, bottom, bar, item, rule, low, high):  # type: ignore[no-untyped-def]
    """Whether a rule calls a placement stable; see `packing_env.kernels.com_hull`.

    Line a lies between the window rows a - 1 and a and takes corners from both; a line of centres
    lies in row a and takes from that row alone.
    """
    rows, nothing = bottom.shape[0], np.int32(bottom.shape[1])
    count = 0
    for u in range(rows):
        low[u], high[u], found = _span(heightmap[u], bottom[u], bar)
        count += found
    inset, lines = 0, rows + 1
    if rule == _CENTER_HULL:
        if 2 * count > item[_AREA]:
            return True
        inset, lines = HALF_CELL, rows
    up_left = up_right = down_left = down_right = -np.inf
    for line in range(lines):
        first, last = (low[line], high[line]) if line < rows else (nothing, np.int32(0))
        if rule == _COM_HULL and line > 0:
            first, last = min(first, low[line - 1]), max(last, high[line - 1])
        if last == 0:
            continue
        dx = SUBCELL * line + inset - item[_POINT_X]
        distance = float(abs(dx)) if dx else VERTICAL
        up = (SUBCELL * last - inset - item[_POINT_Y]) / distance
        down = (item[_POINT_Y] - SUBCELL * first - inset) / distance
        if dx <= 0:
            up_left, down_left = max(up_left, up), max(down_left, down)
        if dx >= 0:
            up_right, down_right = max(up_right, up), max(down_right, down)
    return up_left + up_right >= 0 and down_left + down_right >= 0


@jit_ordered
def _is_flat(heightmap):  # type: ignore[no-untyped-def]
    """Whether all heights of a window are equal."""
    level = heightmap[0, 0]
    for u in range(heightmap.shape[0]):
        differ, row = np.int32(0), heightmap[u]
        for v in range(row.size):
            differ |= np.int32(row[v] != level)
        if differ:
            return False
    return True


@jit
def _enter(planes, item_id, there, lowest, items, search, box):  # type: ignore[no-untyped-def]
    """Fill the planes (claim, reach, opened, flat, verdict) of a row: what they claim at first."""
    claim, reach, opened, flat, _ = planes
    _, whole, real, _, _ = items
    stride, lid, scale, bits, by_index = search
    length, width, xs, ys = box
    orientations = whole.shape[1]
    count = claim.size
    places = count * xs * ys
    for p in range(count):
        slot, r = p // orientations, p % orientations
        m = item_id[slot]
        claim[p], opened[p], flat[p] = _NEVER, False, INF
        w, h = whole[m, r, _WIDTH], whole[m, r, _DEPTH]
        floor = lowest - real[m, r, _BASE]
        if not there[slot] or w == 0 or w > length or h > width:
            continue
        if floor + real[m, r, _PEAK] > lid:
            continue
        reach[p, 0] = min(length - w, whole[m, r, _LAST_X]) // stride + 1
        reach[p, 1] = min(width - h, whole[m, r, _LAST_Y]) // stride + 1
        if reach[p, 0] > 0 and reach[p, 1] > 0:
            first = p * xs * ys if by_index else p
            claim[p] = _key(floor, scale, bits) * places + first


@jit
def _row_places(p, x, count, search, box):  # type: ignore[no-untyped-def]
    """Place of the first placement of a plane's lattice row, and how far the next is from it."""
    _, _, xs, ys = box
    if search[-1]:
        return (p * xs + x) * ys, 1
    return x * ys * count + p, count


@jit
def _claim_row(z, rows, p, x, reach, peak, search, box):  # type: ignore[no-untyped-def]
    """Bring the claim of a plane's lattice row up to date."""
    _, lid, scale, bits, _ = search
    _, _, xs, ys = box
    count = rows.shape[0]
    first, step = _row_places(p, x, count, search, box)
    row = z[p, x * ys : x * ys + reach[p, 1]]
    rows[p, x] = _row_claim(row, peak, lid, scale, bits, first, step, count * xs * ys)


@jit
def _minimum(values, count):  # type: ignore[no-untyped-def]
    """Place of the first least of the first so many integers."""
    found = 0
    for i in range(1, count):
        found = i if values[i] < values[found] else found
    return found


@jit
def _stands(heightmap, bottom, touch, rule, p, planes, spans):  # type: ignore[no-untyped-def]
    """Whether the rule calls a placement stable; on flat ground of one level, once per plane."""
    if rule == _NONE:
        return True
    z, tolerance, item = touch
    _, _, _, flat, verdict = planes
    low, high = spans
    even = _is_flat(heightmap)
    if even and flat[p] == heightmap[0, 0]:
        return verdict[p]
    stands = _holds(heightmap, bottom, z - tolerance, item, rule, low, high)
    if even:
        flat[p], verdict[p] = heightmap[0, 0], stands
    return stands


@jit
def _open(p, planes, rows, depth, search, box):  # type: ignore[no-untyped-def]
    """Look into a plane: all of its rows claim what it claimed."""
    claim, reach, opened, _, _ = planes
    _, _, xs, ys = box
    count = claim.size
    places = count * xs * ys
    opened[p] = True
    for x in range(reach[p, 0]):
        first, _ = _row_places(p, x, count, search, box)
        rows[p, x], depth[p, x] = claim[p] // places * places + first, 0


@jit
def _refine(z, known, row, depth, m, r, ground, pooled, items):  # type: ignore[no-untyped-def]
    """Raise the bounds z, from the lattice point `row` on, by one level of pooled squares."""
    _, whole, real, offset, level = items
    lowest, highest = ground
    floor = lowest - real[m, r, _BASE]
    for lane in range(z.size if depth == 0 else 0):
        z[lane], known[lane] = floor, False
    first = whole[m, r, _FIRST + 2 * depth]
    listed = slice(first, first + whole[m, r, _TAPS + 2 * depth])
    _bounds(z, pooled[depth, row:], floor, highest, offset[listed], level[listed])


@kernel
def _search(heightmap, seen, items, counts, bounds, scale, out, start, stop):  # type: ignore[no-untyped-def]
    """Fill out, that is (index, heights, examined), for the rows start <= b < stop."""
    item_id, there = seen
    bottom, whole, real, _, _ = items
    index, heights, examined = out
    _, stride, side, rule, patience = counts
    lid, tolerance = bounds
    _, length, width = heightmap.shape
    orientations, num_planes = whole.shape[1], there.shape[1] * whole.shape[1]
    xs, ys = (length + stride - 1) // stride, (width + stride - 1) // stride
    by_index = scale.size == 0
    search = (stride, lid, scale, np.empty(1, np.float32), by_index)
    box = (length, width, xs, ys)
    levels = (whole.shape[2] - _FIRST) // 2
    pooled = np.empty((levels, 2 * xs * ys), np.float32)
    z = np.empty((num_planes, xs * ys), np.float32)  # bounds, then rest heights
    known = np.empty((num_planes, xs * ys), np.bool_)
    rows, depth = np.empty((num_planes, xs), np.int64), np.empty((num_planes, xs), np.int64)
    claim, reach = np.empty(num_planes, np.int64), np.empty((num_planes, 2), np.int64)
    opened, verdict = np.empty(num_planes, np.bool_), np.empty(num_planes, np.bool_)
    planes = (claim, reach, opened, np.empty(num_planes, np.float32), verdict)
    spans = (np.empty(bottom.shape[2], np.int32), np.empty(bottom.shape[2], np.int32))
    for b in range(start, stop):
        ground = _pool(heightmap[b], stride, side, (xs, ys), pooled)
        _enter(planes, item_id[b], there[b], ground[0], items, search, box)
        found, measured, judged = 0, 0, 0
        p = _minimum(claim, num_planes)
        while found < index.shape[1] and claim[p] < _NEVER:
            if judged >= patience or measured >= 8 * patience:
                break
            m, r = item_id[b, p // orientations], p % orientations
            if not opened[p]:
                _open(p, planes, rows, depth, search, box)
            else:
                place = claim[p] % (num_planes * xs * ys)
                lane = place % (xs * ys) if by_index else place // num_planes
                row = lane // ys
                x, y = stride * row, stride * (lane % ys)
                item, peak = whole[m, r], real[m, r, _PEAK]
                window = heightmap[b, x : x + item[_WIDTH], y : y + item[_DEPTH]]
                surface = bottom[m, r, : item[_WIDTH], : item[_DEPTH]]
                if depth[p, row] < levels and not (depth[p, row] and known[p, lane]):
                    mine = slice(row * ys, row * ys + reach[p, 1])
                    bound, fixed = z[p, mine], known[p, mine]
                    _refine(bound, fixed, row * ys, depth[p, row], m, r, ground, pooled, items)
                    depth[p, row] += 1
                elif known[p, lane]:
                    touch = (z[p, lane], tolerance, item)
                    if _stands(window, surface, touch, rule, p, planes, spans):
                        index[b, found] = p * xs * ys + lane
                        heights[b, found] = z[p, lane] + np.float32(0)  # without -0.0
                        found += 1
                    z[p, lane] = INF
                    judged += 1
                else:
                    z[p, lane] = _rest_height(window, surface, z[p, lane], peak, lid)
                    known[p, lane] = True
                    measured += 1
                _claim_row(z, rows, p, row, reach, peak, search, box)
            claim[p] = rows[p, _minimum(rows[p], reach[p, 0])]
            p = _minimum(claim, num_planes)
        for k in range(found, index.shape[1]):
            index[b, k], heights[b, k] = -1, INF
        examined[b, 0], examined[b, 1] = measured, judged
        examined[b, 2] = found < index.shape[1] and claim[p] < _NEVER


def lowest_placements(
    heightmap: Tensor,
    item_id: Tensor,
    there: Tensor,
    items: Sequence[Tensor],
    counts: Sequence[int],
    lengths: Sequence[float],
) -> tuple[Tensor, Tensor, Tensor]:
    """See `packing_env.kernels.search.lowest_placements`."""
    batch, count = len(heightmap), counts[0]
    index = item_id.new_empty((batch, count))
    heights = heightmap.new_empty((batch, count))
    examined = item_id.new_empty((batch, 3))
    lid, tolerance, *scale = lengths
    arrays = (
        array(heightmap),
        (array(item_id), array(there)),
        tuple(array(tensor) for tensor in items),
        tuple(counts),
        (np.float32(lid), np.float32(tolerance)),
        np.array(scale, np.float64),
        (index.numpy(), heights.numpy(), examined.numpy()),
    )
    placements = there.shape[1] * items[0].shape[1] * heightmap[0].numel() // counts[1] ** 2
    run(_search, arrays, batch, batch * placements * _WORK)
    return index, heights, examined
