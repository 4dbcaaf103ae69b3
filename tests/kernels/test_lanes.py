"""The inner loop of drop heights equals the same loop in NumPy."""

import numpy as np
import pytest

pytest.importorskip("numba")

from packing_env.kernels.compiled.jit import kernel
from packing_env.kernels.compiled.lanes import LANES, raise_lanes


@kernel
def _raise(best, heights, starts, taps, first, count):  # type: ignore[no-untyped-def]
    return raise_lanes(best, heights, starts, taps, first, count)


@pytest.mark.parametrize("rows", [2, 4])
@pytest.mark.parametrize("seed", range(5))
def test_equals_numpy(rows: int, seed: int) -> None:
    """Any number of taps, from any first tap on; rows start anywhere, and some levels are +inf."""
    rng = np.random.default_rng(seed)
    heights = rng.random(400, np.float32)
    offset, level = rng.integers(0, 200, 50), rng.random(50, np.float32)
    level[rng.random(50) < 0.2] = np.inf
    first, *starts = int(rng.integers(0, 50)), *rng.integers(0, 180, rows).tolist()
    count = int(rng.integers(0, 51 - first))
    best = rng.random(rows * LANES, np.float32) - np.float32(0.5)
    expected = best.copy()
    for tap in range(first, first + count):
        for row, begin in enumerate(starts):
            part = expected[row * LANES : (row + 1) * LANES]
            at = begin + offset[tap]
            np.maximum(part, heights[at : at + LANES] - level[tap], out=part)
    lowest = _raise(best, heights, tuple(starts), (offset, level), first, count)
    assert np.array_equal(best, expected)
    assert lowest == expected.min()
