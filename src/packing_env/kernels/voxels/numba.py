"""The placements of voxel parts, compiled for the CPU by `kernels.compiled.jit`.

A column of voxels is a word of 64 bits, so one operation checks a voxel of a part at all heights.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from packing_env.kernels.compiled.jit import array, jit, kernel, run
from packing_env.kernels.voxels import eager

_MAX_LAYERS = 64
"""Bits of a word; in higher containers the eager function is used."""
_STEPS = np.array([(0, 0, 0), (1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)])
"""The zero step, then the directions of `eager.shadows` in their order."""


@jit
def _list_voxels(part, steps, voxels, counts):
    """Write the solid voxels of a part, one list for each step; fill in their numbers.

    The first list holds all voxels. The list of a direction leaves out voxels with a solid
    neighbour one step back, because this neighbour meets every shadow that the voxel meets. `part`
    has a margin of one voxel.
    """
    for d in range(steps.shape[0]):
        du, dv, dw = steps[d, 0], steps[d, 1], steps[d, 2]
        count = 0
        for u in range(1, part.shape[0] - 1):
            for v in range(1, part.shape[1] - 1):
                for w in range(1, part.shape[2] - 1):
                    if part[u, v, w] and (d == 0 or not part[u - du, v - dv, w - dw]):
                        voxel = voxels[d, count]
                        voxel[0], voxel[1], voxel[2] = u - 1, v - 1, w - 1
                        count += 1
        counts[d] = count


@jit
def _meets(columns, x, y, voxels, count, asked):
    """Return at which of the ``asked`` heights a part at (x, y) meets a voxel of a set."""
    met = np.uint64(0)
    for i in range(count):
        met |= columns[x + voxels[i, 0], y + voxels[i, 1]] >> np.uint64(voxels[i, 2])
        if met & asked == asked:
            break
    return met & asked


@jit
def _legal(columns, x, y, voxels, counts, inside):
    """Return at which of the ``inside`` heights a part at (x, y) meets no voxel of some set."""
    met, first = inside, counts.shape[0] - columns.shape[0]
    for d in range(columns.shape[0]):
        if met == 0:
            break
        met = _meets(columns[d], x, y, voxels[first + d], counts[first + d], met)
    return inside & ~met


@jit
def _touch(neighbours, x, y, voxels, count, legal, heights, contact):
    """Fill in the contact at the legal heights; the part is inside below layer `heights`."""
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
    """Fill ``legal`` and contact, which are zeros, for the planes start <= b * P + p < stop.

    `columns [B, D, X, Y]` are sets of voxels; a part is legal where it meets nothing in one of
    them. They are the shadows of the occupied voxels for each direction, or the occupied voxels.
    `steps` are the zero step, and then the direction of each shadow.
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
        _STEPS if removable else _STEPS[:1],
        array(neighbours),
        array(which),
        array(functional.pad(parts, (1,) * 6)),
        array(size),
        legal.numpy(),
        contact.numpy(),
    )
    work = len(sets) * legal.numel() // layers * parts[0].numel()
    run(_place, arrays, which.numel(), work)
    return legal, contact
