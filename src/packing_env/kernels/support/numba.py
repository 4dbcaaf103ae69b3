"""The count of supporting cells of all placements, compiled for the CPU with numba."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from packing_env.kernels.compiled.jit import array, extent, jit, kernel, run
from packing_env.kernels.drop.numba import new_phases, read_phases, surface_of, surfaces
from packing_env.kernels.support.cells_numba import (
    BLOCK,
    finite_range,
    gatherer,
    new_cells,
    work_of,
)
from packing_env.kernels.support.hull_numba import com_hull

__all__ = ["com_hull", "support_count"]


@jit
def _add(count, value):
    return np.uint32(count + value)


_count_cells = gatherer(_add)


@kernel
def _support_count(heightmap, bottom, which, z, task, count, start, stop):
    """Fill ``count`` for the orientations start <= b * R + r < stop; `which` as in `drop.numba`."""
    tolerance, stride = task
    _, length, width = heightmap.shape
    surfaces, window_x, window_y = bottom.shape
    # 1. Memory.
    orientations, ys = z.shape[1], z.shape[3]
    ground = new_phases(length, width, stride)
    cells = new_cells(length, width, window_x, window_y, stride)
    one, current = np.ones((window_x, window_y), np.uint32), -1
    # 2. One orientation after another; the ground is prepared once per row.
    for index in range(start, stop):
        b, r = index // orientations, index % orientations
        if b != current:
            current = b
            read_phases(heightmap[b], stride, ground)
        chosen, counts = surface_of(which, b, r, orientations, surfaces), count[b, r].reshape(-1)
        first, last = finite_range(z[b, r].reshape(-1), tolerance, cells.threshold, counts)
        if chosen < 0 or first == last:
            continue
        w, h, _ = extent(bottom[chosen])
        # One block of placements after another; its counts stay in the cache.
        for begin in range(first, last, BLOCK):
            block = (begin, min(last, begin + BLOCK))
            _count_cells(
                counts[block[0] : block[1]], block, (stride, ys), bottom[chosen, :w, :h],
                one, np.uint32(0), ground, cells,
            )  # fmt: skip


def support_count(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    tolerance: float,
    stride: int,
    which: Tensor | None = None,
    size: Tensor | None = None,
) -> Tensor:
    """Carry out `packing_env.kernels.support_count`."""
    count = z.new_empty(z.shape, dtype=torch.int32)
    arrays = (array(heightmap), *surfaces(bottom, which), array(z))
    task = (np.float32(tolerance), stride)
    arguments = (*arrays, task, count.numpy().view(np.uint32))
    run(_support_count, arguments, z.shape[0] * z.shape[1], work_of(z, bottom))
    return count
