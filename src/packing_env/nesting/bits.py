"""Sets of voxels as bits and as runs, for `packing_env.kernels.nests`."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int, UInt64

from packing_env.kernels.nests.bits_numba import STRIP

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


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


def from_bits(bits: UInt64[np.ndarray, "U W V"], height: int) -> Bool[np.ndarray, "U V H"]:
    """Unpack what :func:`to_bits` has packed."""
    columns = np.ascontiguousarray(bits.transpose(0, 2, 1)).astype("<u8").view(np.uint8)
    return np.unpackbits(columns, axis=2, count=height, bitorder="little").astype(bool)


def to_runs(voxels: Bool[np.ndarray, "U V H"]) -> Int[np.ndarray, "R 5"]:
    """Return the runs of occupied voxels along z as ``(u, v, k, low, high)``, in random order.

    A run consists of the 2^k voxels from ``low`` upwards and those from ``high`` upwards, which may
    overlap.
    """
    edges = np.diff(np.pad(voxels, ((0, 0), (0, 0), (1, 1))).astype(np.int8), axis=2)
    starts, ends = np.argwhere(edges == 1), np.argwhere(edges == -1)[:, 2:]
    power = np.frexp(ends - starts[:, 2:])[1] - 1
    runs = np.concatenate([starts[:, :2], power, starts[:, 2:], ends - 2**power], 1)
    return np.ascontiguousarray(np.random.default_rng(0).permutation(runs), np.int64)


class Blocked:
    """The places at which a turned part would meet occupied voxels, some of them out of date.

    Attributes:
        places: ``uint64 [x, W, Y]``, see :func:`packing_env.kernels.nests.bits_numba.best_place`.
        stale: ``bool [x, W, Y // STRIP]``, which strips of ``places`` are out of date.
    """

    def __init__(self, room: np.ndarray, size: np.ndarray) -> None:
        """Begin with every place out of date.

        Args:
            room: ``[3]``, the largest place of the part.
            size: ``[3]``, the part, in voxels.
        """
        self._size = size
        self._count = x, y, z = tuple(int(n) + 1 for n in room)
        self.places = np.zeros((x, words_for(z), -(-y // STRIP) * STRIP), np.uint64)
        self.places[:, -1] = _ALL << np.uint64(z % 64) if z % 64 else 0
        self.places[:, :, y:] = _ALL
        self.stale = np.ones((x, words_for(z), -(-y // STRIP)), bool)

    def expire(self, place: tuple[int, int, int], size: np.ndarray) -> None:
        """Mark as stale the places at which the part meets a box of newly occupied voxels.

        Args:
            place: Lower corner of the box.
            size: ``[3]``, its size.
        """
        x, y, z = (np.array(place) - self._size + 1).clip(0)
        end = np.minimum(np.array(place) + size, self._count)
        self.stale[x : end[0], z // 64 : words_for(end[2]), y // STRIP : -(-end[1] // STRIP)] = True
