"""Vectors of bytes equal the same operations in NumPy."""

import numpy as np
import pytest

pytest.importorskip("numba")

from packing_env.kernels.compiled import bytes as vectors
from packing_env.kernels.compiled.bytes import WIDTH
from packing_env.kernels.compiled.jit import kernel


@kernel
def _combine(one, other, number, made):  # type: ignore[no-untyped-def]
    """Apply every operation once; write each result into a row of ``made``."""
    vectors.fetch(made.ctypes.data)
    first, second = vectors.load(one.ctypes.data), vectors.load(other.ctypes.data)
    at = made.ctypes.data
    vectors.store(at, vectors.splat(number))
    vectors.store(at + WIDTH, vectors.add(first, second))
    vectors.store(at + 2 * WIDTH, vectors.both(first, second))
    vectors.store(at + 3 * WIDTH, vectors.either(first, second))
    vectors.store(at + 4 * WIDTH, vectors.higher(first, second))
    vectors.store(at + 5 * WIDTH, vectors.keep_up_to(first, number))
    vectors.store(at + 6 * WIDTH, vectors.keep_first(first, number))
    vectors.store(at + 7 * WIDTH, vectors.flags(first))
    vectors.store(at + 8 * WIDTH, vectors.above(first, number))
    return vectors.any_of(first)


@pytest.mark.parametrize("seed", range(10))
def test_equals_numpy(seed: int) -> None:
    """The bytes cover the whole range, many are equal, and they start at any address."""
    rng = np.random.default_rng(seed)
    highest = int(rng.choice([0, 1, 3, 200, 255]))
    memory = rng.integers(0, highest, 4 * WIDTH, np.uint8, endpoint=True)
    one, other = memory[seed : seed + WIDTH], memory[101 : 101 + WIDTH]
    number, made = int(rng.integers(0, 256)), np.zeros((9, WIDTH), np.uint8)
    found = _combine(one, other, number, made)
    expected = [
        np.full(WIDTH, number),
        one + other,
        one & other,
        one | other,
        np.maximum(one, other),
        np.where(one <= number, one, 0),
        np.where(np.arange(WIDTH) < number, one, 0),
        one != 0,
        255 * (one > number),
    ]
    assert np.array_equal(made, np.array(expected, np.uint8))
    assert found == one.any()
