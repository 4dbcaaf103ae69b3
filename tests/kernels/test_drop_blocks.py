"""Large items over smooth ground: leaving out blocks that cannot bind changes no bit."""

import numpy as np
import pytest
import torch
from torch import Tensor

from packing_env import kernels

CASES = 120


def pile(rng: np.random.Generator, length: int, width: int, rough: bool) -> np.ndarray:
    """Return a heightmap of plateaus and slopes, as items leave them, or of noise."""
    if rough:
        return rng.random((length, width))
    ground = np.zeros((length, width))
    x, y = np.meshgrid(np.arange(length), np.arange(width), indexing="ij")
    for _ in range(rng.integers(1, 7)):
        x0, y0 = rng.integers(0, length), rng.integers(0, width)
        x1, y1 = x0 + rng.integers(3, 20), y0 + rng.integers(3, 20)
        slope = rng.integers(-1, 2, 2) * 0.004
        top = rng.random() * 0.2 + np.maximum(0, (x - x0) * slope[0] + (y - y0) * slope[1])
        there = (x >= x0) & (x < x1) & (y >= y0) & (y < y1)
        ground = np.where(there, np.maximum(ground, top), ground)
    return ground


def surface(rng: np.random.Generator, side: tuple[int, int]) -> np.ndarray:
    """A bowl, a slope or noise, with holes and corners cut off."""
    u, v = np.meshgrid(np.arange(side[0]), np.arange(side[1]), indexing="ij")
    kind = rng.integers(3)
    bowl = ((u - side[0] / 2) ** 2 + (v - side[1] / 2) ** 2) * 0.0003
    bottom = bowl if kind == 0 else u * 0.003 if kind == 1 else rng.random(side) * 0.05
    out = rng.random(side) < rng.choice([0.0, 0.1, 0.9])
    out |= (u + v < rng.integers(0, 25)) | (u >= side[0] - rng.integers(0, 12))
    return np.where(out, np.inf, bottom - bottom.min())


def problem(seed: int) -> tuple[Tensor, Tensor, int]:
    rng = np.random.default_rng(seed)
    length, width = rng.integers(24, 60, 2)
    side = (int(rng.integers(18, 40)), int(rng.integers(18, 40)))
    heights = np.stack([pile(rng, length, width, seed % 7 == 0) for _ in range(2)])
    bottoms = np.stack([[surface(rng, side) for _ in range(2)] for _ in range(2)])
    if seed % 5 == 0:  # ties
        heights, bottoms = np.round(heights, 2), np.round(bottoms, 2)
    maps = (torch.from_numpy(value.astype(np.float32)) for value in (heights, bottoms))
    return *maps, int(rng.integers(1, 7))


def test_no_bit_changes() -> None:
    pytest.importorskip("numba")
    found = 0
    for seed in range(CASES):
        heightmap, bottom, stride = problem(seed)
        expected = kernels.drop_height(heightmap, bottom, stride, backend="eager")
        got = kernels.drop_height(heightmap, bottom, stride, backend="numba")
        assert np.array_equal(got.numpy(), expected.numpy()), f"case {seed}"
        found += int(expected.isfinite().sum())
    assert found > 4_000
