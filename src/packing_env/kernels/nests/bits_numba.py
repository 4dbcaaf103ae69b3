"""Sets of voxels as bits: where a part has room, where it can leave, and which place is best.

A set is ``uint64 [X, W, Y]``: bit ``z % 64`` of word ``[x, z // 64, y]`` is the voxel (x, y, z).
Words of neighbouring y are adjacent in memory, so LLVM vectorises loops over them.

The *blocked set* of a part holds the places at which one of its voxels meets an occupied one (a
no-fit set of voxels: Lamas-Fernandez, Bennell and Martinez-Sykora, Oper. Res. 2023). The search
computes it strip by strip, and only where a place can be better than the best one so far.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from packing_env.kernels.compiled.jit import jit, kernel

_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_LAST = np.uint64(63)
STRIP = 16
"""Words of neighbouring y that are computed together."""
_CHECKED = 8
"""Number of runs between two checks whether all places of a strip are blocked."""
PADDING = 1
"""Words above the container in each column of `Filled`, because words are read in pairs."""


class Filled(NamedTuple):
    """The occupied voxels of a container.

    Attributes:
        drawn: ``[K, X, W + PADDING, Y + STRIP]``; a voxel is in set k if one of the 2^k voxels from
            it upwards is occupied.
        ahead: ``[6, X, W + PADDING, Y + STRIP]``; for each direction +x, -x, +y, -y, +z and -z, the
            occupied voxels, and all voxels from which one of them lies ahead.
    """

    drawn: np.ndarray
    ahead: np.ndarray


@jit
def _or_row(target, source, shift):
    """Add ``source [W, Y] << shift`` to ``target [W2, Y]``; bits beyond its end are lost."""
    words, bits = shift // 64, np.uint64(shift % 64)
    count = source.shape[1]
    for w in range(min(source.shape[0], target.shape[0] - words)):
        for y in range(count):
            target[w + words, y] |= source[w, y] << bits
    if bits:
        for w in range(min(source.shape[0], target.shape[0] - words - 1)):
            for y in range(count):
                target[w + words + 1, y] |= source[w, y] >> (np.uint64(64) - bits)


@jit
def _or_below(target, source, shift):
    """Add ``source [W, Y] >> shift`` to ``target [W, Y]``."""
    words, bits = shift // 64, np.uint64(shift % 64)
    for w in range(source.shape[0] - words):
        for y in range(source.shape[1]):
            word = source[w + words, y] >> bits
            if bits and w + words + 1 < source.shape[0]:
                word |= source[w + words + 1, y] << (np.uint64(64) - bits)
            target[w, y] |= word


@jit
def _draw_out(row, upwards):
    """Extend the bits of ``row [W, Y]`` to the top or to the bottom."""
    words = row.shape[0]
    for y in range(row.shape[1]):
        met = np.uint64(0)
        for n in range(words):
            w = n if upwards else words - 1 - n
            word = row[w, y]
            for k in range(6):
                step = np.uint64(1 << k)
                word |= word << step if upwards else word >> step
            row[w, y] = word | met
            if word:
                met = _ALL


@jit
def _look_ahead(ahead, row, x, y):
    """Update `Filled.ahead` with ``row [W, V]``, the occupied voxels of plane x, the first at y."""
    X, Y, V = ahead.shape[1], ahead.shape[3] - STRIP, row.shape[1]
    for i in range(x + 1):
        _or_row(ahead[0, i, :, y : y + V], row, 0)
    for i in range(x, X):
        _or_row(ahead[1, i, :, y : y + V], row, 0)
    for w in range(row.shape[0]):
        met = np.uint64(0)
        for j in range(y + V - 1, -1, -1):
            if j >= y:
                met |= row[w, j - y]
            ahead[2, x, w, j] |= met
        met = np.uint64(0)
        for j in range(y, Y):
            if j < y + V:
                met |= row[w, j - y]
            ahead[3, x, w, j] |= met
    for way in (4, 5):
        column = ahead[way, x, :, y : y + V]
        _or_row(column, row, 0)
        _draw_out(column, way == 5)


@kernel
def occupy(filled, bits, x, y, z):
    """Add the voxels ``bits [U, W, V]`` at the place (x, y, z)."""
    drawn, ahead = filled
    V = bits.shape[2]
    for i in range(x, x + bits.shape[0]):
        _or_row(drawn[0, i, :, y : y + V], bits[i - x], z)
        for k in range(1, drawn.shape[0]):
            half, row = drawn[k - 1, i, :, y : y + V], drawn[k, i, :, y : y + V]
            _or_row(row, half, 0)
            _or_below(row, half, 1 << (k - 1))
        _look_ahead(ahead, drawn[0, i, :, y : y + V], i, y)


@jit
def _meets(bits, voxels, x, y, z):
    """Return whether ``bits [U, W, V]`` at a place share a voxel with a set."""
    word, shift = z // 64, np.uint64(z % 64)
    for u in range(bits.shape[0]):
        for w in range(bits.shape[1]):
            low, high = voxels[x + u, word + w, y:], voxels[x + u, word + w + 1, y:]
            met = np.uint64(0)
            for v in range(bits.shape[2]):
                met |= bits[u, w, v] & (low[v] >> shift | (high[v] << _ONE) << (_LAST - shift))
            if met:
                return True
    return False


@jit
def _block_strip(drawn, runs, x, y, w, useless, strip):
    """Update ``strip [STRIP]``, words of the blocked set from ``[x, w, y]``; return if it is stale.

    It remains so if all its places are blocked but some of ``useless``, a word.
    """
    for r in range(runs.shape[0]):
        # 1. Stop if all places that are of use are blocked.
        if r % _CHECKED == 0:
            common = _ALL
            for j in range(STRIP):
                common &= strip[j]
            if common | useless == _ALL:
                return common != _ALL
        # 2. Add the places blocked by either half of the run; the halves may overlap.
        k = runs[r, 2]
        for half in range(2):
            z = 64 * w + runs[r, 3 + half]
            word, shift = z // 64, np.uint64(z % 64)
            low = drawn[k, x + runs[r, 0], word, y + runs[r, 1] :]
            high = drawn[k, x + runs[r, 0], word + 1, y + runs[r, 1] :]
            for j in range(STRIP):
                strip[j] |= low[j] >> shift | (high[j] << _ONE) << (_LAST - shift)
            if runs[r, 3] == runs[r, 4]:
                break
    return False


@kernel
def best_place(  # noqa: C901
    filled, bits, runs, size, container, weights, locked, loose, blocked, stale, best, result
):
    """Find the place with the smallest ``weights . centre`` that touches along all three axes.

    At a place, no voxel of the part meets an occupied one and (unless `locked`) the part can leave
    along an axis. The place touches along an axis if one step back along this axis would meet an
    occupied voxel or the wall.

    Args:
        filled: `Filled`.
        bits: ``[U, W, V]``, the part.
        runs: ``[R, 5]`` int64, the part as vertical runs ``(u, v, k, low, high)``: the 2^k voxels
            from `low` upwards and the 2^k voxels from `high` upwards.
        size: ``[3]`` int64, sides of the part.
        container: ``[3]`` int64, its sides.
        weights: ``[3]`` float64, positive.
        locked: Whether parts that cannot leave are allowed.
        loose: Whether places that touch along one axis are allowed.
        blocked: ``[x, W, Y]``, the blocked set as far as it is known; bits that are not places are
            set. Y is a multiple of `STRIP`.
        stale: ``bool [x, W, Y // STRIP]``, which strips of the blocked set are out of date.
        best: ``[1]`` float64, the smallest score of any part so far; places with a larger score do
            not count.
        result: ``[4]`` float64, filled with score and place if the score is smaller.
    """
    middle = (weights * size).sum() / 2
    for x in range(blocked.shape[0]):
        if middle + weights[0] * x > best[0]:
            break
        for w in range(blocked.shape[1]):
            for y in range(container[1] - size[1] + 1):
                # 1. Update the strip where its places can be as good as the best.
                if y % STRIP == 0:
                    least = middle + weights[0] * x + weights[1] * y + weights[2] * (64 * w)
                    if least > best[0]:
                        break
                    if stale[x, w, y // STRIP]:
                        top = np.uint64(min(63.0, (best[0] - least) / weights[2] + 1.0))
                        stale[x, w, y // STRIP] = _block_strip(
                            filled.drawn, runs, x, y, w, (_ALL << top) << _ONE,
                            blocked[x, w, y : y + STRIP],
                        )  # fmt: skip
                # 2. The free places that touch along the axes. The places before them are up to
                # date, because they have smaller scores.
                places = ~blocked[x, w, y]
                if not places:
                    continue
                along_x = blocked[x - 1, w, y] if x else _ALL
                along_y = blocked[x, w, y - 1] if y else _ALL
                below = blocked[x, w - 1, y] >> _LAST if w else _ONE
                along_z = blocked[x, w, y] << _ONE | below
                places &= along_x | along_y | along_z if loose else along_x & along_y & along_z
                # 3. The best of these places from which the part can leave.
                while places:
                    z = 64 * w + _lowest(places)
                    places &= places - _ONE
                    score = middle + weights[0] * x + weights[1] * y + weights[2] * z
                    if score > best[0] or score >= result[0]:
                        break
                    free = locked
                    for way in range(6):
                        if not free:
                            free = not _meets(bits, filled.ahead[(way + 4) % 6], x, y, z)
                    if free:
                        best[0] = min(best[0], score)
                        result[0], result[1], result[2], result[3] = score, x, y, z


@jit
def _lowest(word):
    """Return the position of the lowest set bit of a word."""
    number = 0
    while not word & np.uint64(0xFF):
        word >>= np.uint64(8)
        number += 8
    while not word & _ONE:
        word >>= _ONE
        number += 1
    return number
