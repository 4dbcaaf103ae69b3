"""The lowest legal placements of a row, compiled for the CPU, and their features.

Placements of a row are indexed ``(slot * R + orientation) * A + place``, as in
`core.orientation.encode_placement`.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from packing_env.kernels.compiled.jit import INF, jit, kernel, run, sift
from packing_env.kernels.compiled.tables import clear, copy
from packing_env.kernels.step.entries import Tensors

Listed = namedtuple("Listed", "features mask")
"""Observed candidates: features ``[B, K, F]`` and mask ``[B, K]``; empty if not requested."""

Tables = namedtuple("Tables", "place shape slot level")
"""Tables of candidates' features: by lattice point ``[A, 2]``, by item and orientation
``[M, R, 4]``, by slot ``[L]``; on whole cells also the rest height in metres by level."""


@jit
def _by_level(heights, legal, scale, capacity, ends, order):
    """List the legal placements of lowest level, ties by index; return their number.

    ``heights`` times ``scale`` are the levels, which are whole numbers apart from rounding errors.
    """
    # A counting sort: count the placements of each level, find where the level ends in the list,
    # fill the list.
    clear(ends)
    for k in range(heights.size):
        ends[np.int64(heights[k] * scale + np.float32(0.5)) + 1] += legal[k]
    for level in range(1, ends.size):
        ends[level] += ends[level - 1]
    for k in range(heights.size):
        if legal[k]:
            here = np.int64(heights[k] * scale + np.float32(0.5))
            if ends[here] < capacity:
                order[ends[here]] = k
            ends[here] += 1
    return min(ends[ends.size - 1], capacity)


@jit
def _by_height(bits, legal, capacity, keys, order):
    """List the legal placements of lowest rest height, ties by index; return their number.

    ``bits`` are the bits of the heights; the bits of non-negative floats have the order of the
    floats.
    """
    # Collect the lowest keys in a heap. A key combines height and index, so ties go to the lower
    # index.
    size = 0
    for k in range(bits.size):
        if legal[k]:
            key = (np.int64(bits[k]) & 0x7FFFFFFF) << 32 | k
            if size < capacity:
                at = size
                while at > 0 and keys[(at - 1) // 2] < key:
                    keys[at] = keys[(at - 1) // 2]
                    at = (at - 1) // 2
                keys[at] = key
                size += 1
            elif key < keys[0]:
                sift(keys, size, 0, key)
    # Remove the largest key repeatedly: this sorts the list from its end.
    for last in range(size - 1, -1, -1):
        order[last] = keys[0] & 0xFFFFFFFF
        sift(keys, last, 0, keys[last])
    return size


@jit
def _by_index(legal, capacity, order):
    """List the first legal placements; return their number."""
    size = 0
    for k in range(legal.size):
        if legal[k] and size < capacity:
            order[size] = k
            size += 1
    return size


@jit
def _write_mask(size, over, mask):
    for n in range(mask.size):
        mask[n] = n < size or over


@jit
def _write_features(order, size, heights, items, tables, features):
    """Write the features of listed placements; ``heights`` are shares of the container's."""
    # Unused lines of the list are zero.
    places, orientations = np.uint32(tables.place.shape[0]), np.uint32(tables.shape.shape[1])
    for n in range(features.shape[0]):
        line = features[n]
        if n >= size:
            clear(line)
            continue
        index = np.uint32(order[n])  # there are fewer than 2^32 placements
        plane, place = index // places, index % places
        slot = plane // orientations
        shape = tables.shape[items[slot], plane % orientations]
        line[0], line[1] = tables.place[place, 0], tables.place[place, 1]
        line[2] = heights[n]
        line[3], line[4], line[5], line[6] = shape[0], shape[1], shape[2], shape[3]
        line[7], line[8] = tables.slot[slot], np.float32(1)


@jit
def _write_list(order, size, z, candidate, candidate_z):
    """Write the list that the state keeps."""
    for n in range(candidate.size):
        candidate[n] = order[n] if n < size else -1
        candidate_z[n] = z[n] if n < size else INF


@kernel
def _list_lowest(current, fresh, tables, candidates, after, start, height, scale, begin, stop):
    """List the candidates of the rows begin <= row < stop: see `kernels.step.list_lowest`."""
    # Buffers of one row, used for all rows of this part.
    heights, bits, legal, items, terminated, done = current
    capacity = candidates[0].shape[1]
    ends, keys = np.empty(tables.level.size + 1, np.int64), np.empty(capacity, np.int64)
    order, z = np.empty(capacity, np.int64), np.empty(capacity, np.float32)
    share = np.empty(capacity, np.float32)
    for row in range(begin, stop):
        if tables.level.size:
            size = _by_level(heights[row], legal[row], scale, capacity, ends, order)
        else:
            size = _by_height(bits[row], legal[row], capacity, keys, order)
        # Rest heights in metres for the state, and divided by the container's height for the agent.
        for n in range(size):
            at = heights[row, order[n]]
            if tables.level.size:
                share[n], z[n] = at, tables.level[np.int64(at * scale + np.float32(0.5))]
            else:
                share[n], z[n] = min(at / height, np.float32(1)), at
        _write_mask(size, terminated[row], after.mask[row])
        _write_features(order, size, share, items[row], tables, after.features[row])
        _write_list(order, size, z, candidates[0][row], candidates[1][row])
        # After resets: a new episode lists its first legal placements, which are all at height 0.
        if not start.mask.size:
            continue
        if not done[row]:
            copy(after.mask[row], start.mask[row])
            copy(after.features[row], start.features[row])
            continue
        size = _by_index(fresh[0][row], capacity, order)
        z[:], share[:] = 0, 0
        _write_mask(size, False, start.mask[row])
        _write_features(order, size, share, fresh[1][row], tables, start.features[row])
        _write_list(order, size, z, candidates[0][row], candidates[1][row])


def list_lowest(
    current: Tensors,
    fresh: Tensors,
    tables: Tensors,
    candidates: Tensors,
    after: Tensors,
    start: Tensors,
    height: float,
    scale: float,
) -> None:
    """Run `packing_env.kernels.step.list_lowest`."""
    batch = len(candidates[0])
    heights, legal, *others = (tensor.numpy().reshape(len(tensor), -1) for tensor in current[:3])
    flags = (tensor.numpy() for tensor in current[3:])
    arguments: tuple[Any, ...] = (
        (heights, heights.view(np.int32), legal, *others, *flags),
        tuple(tensor.numpy().reshape(len(tensor), -1) for tensor in fresh),
        Tables(*(tensor.numpy() for tensor in tables)),
        tuple(tensor.numpy() for tensor in candidates),
        Listed(*(tensor.numpy() for tensor in after)),
        Listed(*(tensor.numpy() for tensor in start)),
        np.float32(height),
        np.float32(scale),
    )
    run(_list_lowest, arguments, batch, 8 * current[1].numel())
