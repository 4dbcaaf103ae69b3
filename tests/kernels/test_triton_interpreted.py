"""The bits of the Triton kernels, as Triton's interpreter computes them.

Triton decides to interpret when it is imported, so these tests run in a process of their own, which
`test_triton.py` starts.
"""

import numpy as np
import pytest
import torch
from tests.engine.engines import interprets
from tests.kernels.test_choice import epsilon_greedy_case
from tests.kernels.test_drop_blocks import pile, surface
from tests.kernels.test_kernels_fuzz import measured, random_arrays, rest_heights
from tests.tiny import stream

from packing_env import kernels

NUM_CASES, NUM_PRUNED = 2, 10

pytestmark = interprets


def test_every_kernel_equals_eager() -> None:
    """Containers and windows of up to 20 x 20 cells; footprints with holes, often much smaller."""
    held = fallen = 0
    for seed in range(NUM_CASES):
        arrays = random_arrays(np.random.default_rng(seed), seed, (1, 3, 20, 20))
        inputs = [torch.from_numpy(array) for array in arrays]
        tolerance, stride = (0.0, 0.01, 0.3)[seed % 3], 1 + seed % 5
        found, expected = (measured(inputs, tolerance, stride, b) for b in ("triton", "eager"))
        for got, value in zip(found, expected, strict=True):
            assert got.dtype == value.dtype
            assert torch.equal(got, value), f"case {seed}"
        held += int(expected[1].sum())
        fallen += int((expected[0].isfinite() & ~expected[1]).sum())
    assert held > 20
    assert fallen > 20


def pruned_case(seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """A pile and an item of several blocks, most of which cannot bind."""
    rng = np.random.default_rng(seed)
    length, width, *side = (int(n) for n in rng.integers((12, 12, 9, 9), (22, 22, 19, 19)))
    ground, bottom = pile(rng, length, width, seed % 7 == 0), surface(rng, (side[0], side[1]))
    if seed % 5 == 0:  # ties
        ground, bottom = np.round(ground, 2), np.round(bottom, 2)
    return ground.astype(np.float32), bottom.astype(np.float32), int(rng.integers(1, 6))


def test_pruned_drop_maps_equal_the_loop() -> None:
    placements = 0
    for seed in range(NUM_PRUNED):
        ground, bottom, stride = pruned_case(seed)
        maps = (torch.from_numpy(ground)[None], torch.from_numpy(bottom)[None, None])
        got = kernels.drop_height(*maps, stride, backend="triton")[0, 0].numpy()
        assert np.array_equal(got, rest_heights(ground, bottom, stride)), f"case {seed}"
        placements += int(np.isfinite(got).sum())
    assert placements > 100


@pytest.mark.parametrize("size", [1, 33, 2100])
def test_choices_equal_eager(size: int) -> None:
    value, mask, *draws, rates = epsilon_greedy_case(size)
    for epsilon in (rates[:1, :1], rates):
        given = (value, mask, *draws, epsilon)
        found = [kernels.choose_epsilon_greedy(*given, backend=b) for b in ("triton", "eager")]
        assert torch.equal(*found)
    found = [kernels.choose_uniform(mask, draws[1], backend=b) for b in ("triton", "eager")]
    assert torch.equal(*found)


@pytest.mark.parametrize("stride", [1, 3])
def test_images_of_placements_equal_eager(stride: int) -> None:
    generator = stream(stride)
    heightmap = torch.rand(2, 13, 21, generator=generator)
    lattice = (-(-13 // stride), -(-21 // stride))
    rest = torch.rand(2, 3, *lattice, generator=generator)
    rest = torch.where(rest < 0.8, rest, 1.0)
    size = (torch.rand(2, 3, 2, generator=generator) * torch.tensor([13, 21])).round()
    size[0, 0] = torch.tensor([6.5 / 13, 2.5 / 21]) * torch.tensor([13, 21])  # ties
    given = (heightmap, rest, size / torch.tensor([13, 21]), rest[:, :, 0, 0], stride)
    found = [kernels.placement_planes(*given, backend=b) for b in ("triton", "eager")]
    assert torch.equal(*found)
