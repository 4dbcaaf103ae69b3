"""The splitting of empty maximal spaces, compiled for the CPU by `kernels.compiled.jit`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from packing_env.kernels.compiled.jit import array, jit, kernel, run
from packing_env.kernels.spaces.eager import PIECES


@jit
def _num_containing(bounds, count, piece):
    """Count the first spaces that contain the remainder; without branches, so it vectorises."""
    x0, y0, z0 = piece[0], piece[1], piece[2]
    x1, y1, z1 = piece[3], piece[4], piece[5]
    number = np.int32(0)
    for j in range(count):
        lower = (x0 >= bounds[0, j]) & (y0 >= bounds[1, j]) & (z0 >= bounds[2, j])
        upper = (x1 <= bounds[3, j]) & (y1 <= bounds[4, j]) & (z1 <= bounds[5, j])
        number += np.int32(lower & upper)
    return number


@jit
def _copy(space, target):
    """Fill in the six bounds of a space."""
    for bound in range(6):
        target[bound] = space[bound]


@jit
def _piece_of(space, box, index, piece):
    """Fill in remainder `index` (in the order of `eager.PIECES`) of a space that the box cuts."""
    _copy(space, piece)
    border, moved = PIECES[index]
    edge, opposite = box[border], space[(moved + 3) % 6]
    piece[moved] = max(edge, opposite) if moved >= 3 else min(edge, opposite)


@jit
def _split_row(spaces, box, smallest, bounds, cut, piece, listed):
    """Write the new list of a container into ``listed`` (zeros); return how many did not fit."""
    # 1. Spaces that the box does not cut stay, in their order.
    capacity = spaces.shape[0]
    count, num_cut, num = 0, 0, 0
    while count < capacity and spaces[count, 3] > spaces[count, 0]:
        overlap = True
        for axis in range(3):
            lower = max(spaces[count, axis], box[axis])
            overlap &= lower < min(spaces[count, axis + 3], box[axis + 3])
        # Store them bound by bound, so that the search for enclosing spaces vectorises.
        for bound in range(6):
            bounds[bound, count] = spaces[count, bound]
        if overlap:
            cut[num_cut] = count
            num_cut += 1
        else:
            _copy(spaces[count], listed[num])
            num += 1
        count += 1
    # 2. Add the remainders of the cut spaces, unless they lie in an old space other than their own.
    for i in range(num_cut):
        for index in range(5):
            _piece_of(spaces[cut[i]], box, index, piece)
            side = min(piece[3] - piece[0], piece[4] - piece[1], piece[5] - piece[2])
            if side >= smallest and _num_containing(bounds, count, piece) == 1:
                # Beyond the capacity of the list they are only counted.
                if num < capacity:
                    _copy(piece, listed[num])
                num += 1
    return max(0, num - capacity)


@kernel
def _split(spaces, box, placed, smallest, lists, dropped, start, stop):
    """Fill ``lists`` and ``dropped`` for the rows start <= b < stop."""
    # Scratch of a thread.
    capacity = spaces.shape[1]
    bounds = np.empty((6, capacity), np.int32)
    cut = np.empty(capacity, np.int64)
    piece = np.empty(6, np.int32)
    for b in range(start, stop):
        dropped[b] = 0
        # Rows without a box keep their list.
        if placed[b]:
            lists[b] = 0
            dropped[b] = _split_row(spaces[b], box[b], smallest[0], bounds, cut, piece, lists[b])
        else:
            # In a loop: to copy an array at once, numba would compile error messages for seconds.
            for j in range(capacity):
                _copy(spaces[b, j], lists[b, j])


def split_spaces(
    spaces: Tensor, box: Tensor, placed: Tensor, smallest: Tensor
) -> tuple[Tensor, Tensor]:
    """Carry out `packing_env.kernels.split_spaces`."""
    lists = spaces.new_empty(spaces.shape)
    dropped = spaces.new_empty(spaces.shape[0], dtype=torch.int64)
    arrays = (array(spaces), array(box), array(placed), array(smallest.reshape(1)))
    batch, capacity, _ = spaces.shape
    run(_split, (*arrays, lists.numpy(), dropped.numpy()), batch, batch * capacity * capacity)
    return lists, dropped
