"""The operation of `packing_env.kernels.choice` compiled for the CPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from packing_env.kernels.compiled.jit import array, kernel, run

_WIDTH = 32
"""Number of entries that are counted at once."""


@kernel
def _choose(mask, uniform, chosen, start, stop):
    """Fill ``chosen`` for the rows start <= row < stop.

    Entries are addressed by unsigned indices into one flat array, because views of rows would take
    longer.
    """
    entries, size = mask.reshape(-1), mask.shape[1]
    for row in range(start, stop):
        # 1. Count the True entries, and compute the rank.
        here, total = np.uint64(row * size), np.int32(0)
        for k in range(size):
            total += np.int32(entries[here + np.uint64(k)])
        rank = min(np.int64(np.float64(uniform[row]) * total), np.int64(total) - 1)
        # 2. Skip blocks before the entry of this rank; from then on, ranks count from the block.
        block, index = 0, 0
        while block + _WIDTH < size and total:
            part, count = here + np.uint64(block), np.int32(0)
            for k in range(_WIDTH):
                count += np.int32(entries[part + np.uint64(k)])
            if count > rank:
                break
            rank -= count
            block += _WIDTH
        # 3. The entry.
        for k in range(block, size if total else 0):
            if entries[here + np.uint64(k)]:
                if rank == 0:
                    index = k
                    break
                rank -= 1
        chosen[row] = index


def choose_uniform(mask: Tensor, uniform: Tensor) -> Tensor:
    """Carry out `packing_env.kernels.choose_uniform`."""
    chosen = mask.new_empty(mask.shape[:-1], dtype=torch.int64)
    rows = array(mask).reshape(-1, mask.shape[-1])
    arguments = (rows, array(uniform).reshape(-1), chosen.numpy().reshape(-1))
    run(_choose, arguments, rows.shape[0], mask.numel())
    return chosen
