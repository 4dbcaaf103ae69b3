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
_STEPS = np.kron(np.eye(3), [[1], [-1]])
"""The directions of `eager.shadows`, in their order."""


@jit
def _is_solid(part, u, v, w):
    shape = part.shape
    inside = 0 <= u < shape[0] and 0 <= v < shape[1] and 0 <= w < shape[2]
    return inside and part[u, v, w]


@jit
def _list_voxels(part, steps, voxels, counts):
    """Write the solid voxels (u, v, w) of a part, one list for each step; fill in their numbers.

    A step of 0 lists all voxels. Any other step lists those without a solid neighbour one step
    back: a shadow that a voxel meets, its neighbour one step back meets too.
    """
    for d in range(steps.shape[0]):
        count = 0
        du, dv, dw = steps[d, 0], steps[d, 1], steps[d, 2]
        all_voxels = du == 0 and dv == 0 and dw == 0
        for u in range(part.shape[0]):
            for v in range(part.shape[1]):
                for w in range(part.shape[2]):
                    first = all_voxels or not _is_solid(part, u - du, v - dv, w - dw)
                    if part[u, v, w] and first:
                        voxel = voxels[d, count]
                        voxel[0], voxel[1], voxel[2] = u, v, w
                        count += 1
        counts[d] = count


@jit
def _meets(columns, x, y, voxels, count, asked):
    """Return the heights, of those asked, at which voxels of a part at (x, y) meet a set."""
    met = np.uint64(0)
    for i in range(count):
        met |= columns[x + voxels[i, 0], y + voxels[i, 1]] >> np.uint64(voxels[i, 2])
        if met & asked == asked:
            break
    return met & asked


@jit
def _legal(columns, x, y, voxels, counts, inside):
    """Return the heights inside at which a part at (x, y) meets nothing in one of the sets."""
    met = inside
    for d in range(columns.shape[0]):
        if met == 0:
            break
        met = _meets(columns[d], x, y, voxels[d + 1], counts[d + 1], met)
    return inside & ~met


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
def _place(columns, steps, neighbours, which, parts, size, legal, contact, start, stop):
    """Fill legal and contact, which are zeros, for the planes start <= b * P + p < stop.

    `columns [B, D, X, Y]` are sets of voxels; a part is legal where it meets nothing in one of
    them. They are the shadows of the occupied voxels for each direction, or the occupied voxels.
    `steps [1 + D, 3]` are no step, and then the direction of each set, or no step.
    """
    voxels = np.empty((len(steps), parts[0].size, 3), np.int64)
    counts = np.empty(len(steps), np.int64)
    for plane in range(start, stop):
        b, p = divmod(plane, which.shape[1])
        k = which[b, p]
        if k < 0 or size[k].min() <= 0:
            continue
        _list_voxels(parts[k], steps, voxels, counts)
        heights = legal.shape[4] - size[k, 2] + 1
        if heights <= 0:
            continue
        inside = ~np.uint64(0) >> np.uint64(64 - heights)
        for x in range(legal.shape[2] - size[k, 0] + 1):
            for y in range(legal.shape[3] - size[k, 1] + 1):
                good = _legal(columns[b], x, y, voxels, counts, inside)
                if good == 0:
                    continue
                row = contact[b, p, x, y]
                _touch(neighbours[b], x, y, voxels[0], counts[0], good, heights, row)
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
    sets = [*eager.shadows(occupied)] if removable else [occupied]
    steps = np.concatenate((np.zeros((1, 3)), _STEPS if removable else np.zeros((1, 3))))
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
        steps.astype(np.int64),
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
