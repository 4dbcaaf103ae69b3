"""The placements of voxel parts, compiled for the CPU like `kernels.compiled.jit`.

A column of voxels is a word of 64 bits, so one operation checks a voxel of a part at all heights.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from packing_env.kernels.compiled.jit import array, jit, kernel, run
from packing_env.kernels.voxels import eager

_MAX_LAYERS = 64
"""Bits of a word; in higher containers the eager function is used."""


@jit
def _list_voxels(part, voxels):
    """Write (u, v, w) of the solid voxels of a part; return their number."""
    count = 0
    for u in range(part.shape[0]):
        for v in range(part.shape[1]):
            for w in range(part.shape[2]):
                if part[u, v, w]:
                    voxels[count, 0], voxels[count, 1], voxels[count, 2] = u, v, w
                    count += 1
    return count


@jit
def _meets(columns, x, y, voxels, count, asked):
    """Return the heights, of those asked, at which a part at (x, y) meets a set of voxels."""
    met = np.uint64(0)
    for i in range(count):
        met |= columns[x + voxels[i, 0], y + voxels[i, 1]] >> np.uint64(voxels[i, 2])
        if met & asked == asked:
            break
    return met & asked


@jit
def _legal(columns, x, y, voxels, count, inside):
    """Return the heights at which a part at (x, y) is legal; `columns` as in `_place`."""
    free = inside & ~_meets(columns[0], x, y, voxels, count, inside)
    if columns.shape[0] == 1:
        return free
    # Heights without a straight way out in any direction so far.
    stuck = free
    for direction in range(1, columns.shape[0]):
        if stuck == 0:
            break
        stuck = _meets(columns[direction], x, y, voxels, count, stuck)
    return free & ~stuck


@jit
def _touch(neighbours, x, y, voxels, count, legal, heights, contact):
    """Fill in the contact at the legal heights; `heights` is the number of heights inside."""
    for z in range(heights):
        contact[z] = 0
    for i in range(count):
        column = neighbours[x + voxels[i, 0], y + voxels[i, 1]]
        w = voxels[i, 2]
        for z in range(heights):
            contact[z] += column[z + w]
    for z in range(heights):
        if not (legal >> np.uint64(z)) & np.uint64(1):
            contact[z] = 0


@kernel
def _place(columns, neighbours, which, parts, size, legal, contact, start, stop):
    """Fill legal and contact, which are zeros, for the planes start <= b * P + p < stop.

    `columns [B, D, X, Y]` are the occupied voxels, and then, for removable parts, the voxels from
    which a moving voxel meets an occupied one, for each direction.
    """
    voxels = np.empty((parts[0].size, 3), np.int64)
    for plane in range(start, stop):
        b, p = divmod(plane, which.shape[1])
        k = which[b, p]
        if k < 0 or size[k].min() <= 0:
            continue
        count = _list_voxels(parts[k], voxels)
        heights = legal.shape[4] - size[k, 2] + 1
        if heights <= 0:
            continue
        inside = ~np.uint64(0) >> np.uint64(64 - heights)
        for x in range(legal.shape[2] - size[k, 0] + 1):
            for y in range(legal.shape[3] - size[k, 1] + 1):
                good = _legal(columns[b], x, y, voxels, count, inside)
                if good == 0:
                    continue
                row = contact[b, p, x, y]
                _touch(neighbours[b], x, y, voxels, count, good, heights, row)
                for z in range(heights):
                    legal[b, p, x, y, z] = (good >> np.uint64(z)) & np.uint64(1)


def voxel_places(
    occupied: Tensor, which: Tensor, parts: Tensor, size: Tensor, removable: bool
) -> tuple[Tensor, Tensor]:
    """Carry out `packing_env.kernels.voxel_places`."""
    layers = occupied.shape[-1]
    if layers > _MAX_LAYERS:
        return eager.voxel_places(occupied, which, parts, size, removable)
    # 1. Words of bits, bit z for layer z.
    sets = [occupied, *(eager.shadows(occupied) if removable else ())]
    bits = torch.bitwise_left_shift(
        torch.ones(layers, dtype=torch.int64), torch.arange(layers, dtype=torch.int64)
    )
    columns = (torch.stack(sets, 1) * bits).sum(-1)
    neighbours = eager.neighbours(occupied)
    # 2. One plane for each part and container.
    shape = (*which.shape, *occupied.shape[1:])
    legal = torch.zeros(shape, dtype=torch.bool)
    contact = torch.zeros(shape, dtype=torch.int32)
    arrays = (
        array(columns).view(np.uint64),
        array(neighbours),
        array(which),
        array(parts),
        array(size),
        legal.numpy(),
        contact.numpy(),
    )
    work = len(sets) * legal.numel() // layers * parts[0].numel()
    run(_place, arrays, which.numel(), work)
    return legal, contact
