"""What is seen of rows of items of any shape, compiled for the CPU: see `core.observation`.

Arrays come with few axes, and only those that a function needs: that is what its compilation takes
time for.
"""

from __future__ import annotations

import numpy as np

from packing_env.kernels.compiled.jit import INF, jit, kernel
from packing_env.kernels.step.shared import copy_line

_ZERO, _ONE = np.float32(0), np.float32(1)


@kernel
def close_lid(z, peak, lid, start, stop):  # type: ignore[no-untyped-def]
    """Shut out what is above the lid in the planes start <= b * R + r < stop."""
    for p in range(start, stop):
        heights, top = z[p], peak[p]
        for k in range(heights.size):
            heights[k] = heights[k] if heights[k] + top <= lid else INF


@jit
def _show_legal(z, stable, mask):  # type: ignore[no-untyped-def]
    """What is legal of one plane, and whether anything is."""
    found = False
    for k in range(mask.size):
        legal = stable[k] & (z[k] < INF)
        mask[k] = legal
        found |= legal
    return found


@jit
def _show_drop(z, mask, height, shown):  # type: ignore[no-untyped-def]
    """Rest heights of one plane as `core.observation.drop_heights` shows them."""
    for k in range(shown.size):
        shown[k] = z[k] / height if mask[k] else _ONE


@jit
def _show_share(metres, height, shown):  # type: ignore[no-untyped-def]
    """Heights over the container's, in [0, 1]."""
    for k in range(shown.size):
        share = metres[k] / height
        shown[k] = min(max(share, _ZERO), _ONE)


@kernel
def show_placements(judged, ground, height, shown, start, playable, begin, stop):  # type: ignore[no-untyped-def]
    """Legality and rest heights, also as the start, the ground, and whether anything is legal.

    ``shown`` and ``start`` are the mask and the rest heights ``[B, L * R, A]``; ``ground`` the
    heights and what is seen of them ``[B, X * Y]``.
    """
    (z, stable), (masks, drops), (start_masks, start_drops) = judged, shown, start
    for row in range(begin, stop):
        if ground[1].size:
            _show_share(ground[0][row], height, ground[1][row])
        playable[row] = False
        for p in range(masks.shape[1]):
            mask = masks[row, p]
            playable[row] |= _show_legal(z[row, p], stable[row, p], mask)
            if start_masks.size:
                copy_line(mask, start_masks[row, p])
            if drops.size:
                _show_drop(z[row, p], mask, height, drops[row, p])
            if start_drops.size:
                copy_line(drops[row, p], start_drops[row, p])


@kernel
def show_items(rows, queue, tables, left, height, shown, begin, stop):  # type: ignore[no-untyped-def]
    """What is seen of the visible items in the rows that are marked: see `core.observation`.

    ``tables`` are the items' features, what shows how many are left, the orientations' features,
    upper and lower surfaces; ``shown`` the ids, then likewise. Feature ``left`` is the number left.
    """
    item_id, order, num_items, packed = queue
    features, remaining, turned, upper, lower = tables
    ids, item_features, orientation_features, top, bottom = shown
    for row in range(begin, stop):
        if not rows[row]:
            continue
        number = num_items[row] - packed[row]
        for slot in range(ids.shape[1]):
            ids[row, slot] = item_id[row, order[row, slot]] if slot < number else -1
        for slot in range(min(item_features.shape[1], number)):
            copy_line(features[item_id[row, order[row, slot]]], item_features[row, slot])
            item_features[row, slot, left] = remaining[number]
        for slot in range(min(orientation_features.shape[1], number)):
            copy_line(turned[item_id[row, order[row, slot]]], orientation_features[row, slot])
        for slot in range(min(top.shape[1], number)):
            item = item_id[row, order[row, slot]]
            _show_share(upper[item], height, top[row, slot])
            _show_share(lower[item], height, bottom[row, slot])
        for slot in range(number, item_features.shape[1]):
            item_features[row, slot] = _ZERO
        for slot in range(number, orientation_features.shape[1]):
            orientation_features[row, slot] = _ZERO
        for slot in range(number, top.shape[1]):
            top[row, slot], bottom[row, slot] = _ZERO, _ONE


@kernel
def copy_rows(left_out, source, target, start, stop):  # type: ignore[no-untyped-def]
    """The rows start <= row < stop of a ``[B, n]`` array, but for some."""
    for row in range(start, stop):
        if not left_out[row]:
            copy_line(source[row], target[row])


@kernel
def show_floor(rows, queue, tables, shape, mask, drop):  # type: ignore[no-untyped-def]
    """Placements in the empty containers of the rows that are marked.

    See `core.feasibility.empty_container_maps`; ``tables`` are the windows ``[M, R, 2]`` and what
    may stand on the floor, ``shape`` the container's and the lattice's and its step.
    """
    item_id, _, num_items, _ = queue
    size, on_floor = tables
    length, width, xs, ys, stride = shape
    turns = size.shape[1]
    for row in range(rows.size):
        for p in range(mask.shape[1] if rows[row] else 0):
            slot, turn = p // turns, p % turns
            item = item_id[row, slot]
            may = on_floor[item, turn] and slot < num_items[row]
            w, h = size[item, turn, 0], size[item, turn, 1]
            for k in range(xs * ys):
                i, j = k // ys * stride, k % ys * stride
                mask[row, p, k] = may and i + w <= length and j + h <= width
            for k in range(drop.shape[2]):
                drop[row, p, k] = _ZERO if mask[row, p, k] else _ONE
