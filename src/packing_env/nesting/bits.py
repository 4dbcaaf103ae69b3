"""Sets of voxels as bits and as runs, for `packing_env.kernels.nests`."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int, UInt64


def words_for(height: int) -> int:
    """Return the number of words that hold a column of voxels."""
    return -(-height // 64)


def to_bits(voxels: Bool[np.ndarray, "U V H"]) -> UInt64[np.ndarray, "U W V"]:
    """Pack voxels into words along z; y varies fastest."""
    U, V, H = voxels.shape
    columns = np.zeros((U, V, 64 * words_for(H)), bool)
    columns[..., :H] = voxels
    words = np.packbits(columns, axis=2, bitorder="little").view("<u8")
    return np.ascontiguousarray(words.transpose(0, 2, 1)).astype(np.uint64)


def to_runs(voxels: Bool[np.ndarray, "U V H"]) -> Int[np.ndarray, "R 4"]:
    """Return the runs of occupied voxels along z as ``(u, v, first w, last w)``."""
    edges = np.diff(np.pad(voxels, ((0, 0), (0, 0), (1, 1))).astype(np.int8), axis=2)
    starts, ends = np.argwhere(edges == 1), np.argwhere(edges == -1)
    return np.ascontiguousarray(np.concatenate([starts, ends[:, 2:] - 1], 1), np.int64)
