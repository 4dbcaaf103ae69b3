"""Lower surfaces picked by index give the results of surfaces copied for each row."""

import numpy as np
import pytest
import torch
from tests.kernels.test_kernels_fuzz import random_bottom, random_com

from packing_env import kernels
from packing_env.kernels.layout import gather_surfaces

BACKENDS = kernels.available_backends()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("known", [True, False], ids=["size", "no size"])
def test_the_bits_of_gathered_ones(backend: str, known: bool) -> None:
    stable = 0
    # Interpreted, a case of the others' size takes three seconds.
    seeds, most = (range(1, 2), 9) if backend == "triton" else (range(10), 13)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        shape, stride, tol = rng.integers(4, most, 2), 1 + seed % 3, (0.0, 0.01)[seed % 2]
        surfaces = [random_bottom(rng, (most - 4, most - 3), True) for _ in range(4)]
        com = torch.from_numpy(np.stack([random_com(rng, bottom) for bottom in surfaces]))
        bottom = torch.from_numpy(np.stack(surfaces))
        ground = torch.from_numpy(rng.integers(0, 3, (2, *shape)).astype(np.float32) * 0.01)
        which = torch.from_numpy(rng.integers(-1, 4, (2, 3)))
        gathered, centre = gather_surfaces(bottom, which), com[which.clamp(min=0)]
        picked = {"which": which, "size": kernels.surface_sizes(bottom) if known else None}
        z = kernels.drop_height(ground, gathered, stride, backend="eager")
        assert torch.equal(
            kernels.drop_height(ground, bottom, stride, backend=backend, **picked), z
        )
        rest = (tol, stride)
        assert torch.equal(
            kernels.support_count(ground, bottom, z, *rest, backend=backend, **picked),
            kernels.support_count(ground, gathered, z, *rest, backend="eager"),
        )
        held = kernels.com_hull(ground, bottom, z, centre, *rest, backend=backend, **picked)
        expected = kernels.com_hull(ground, gathered, z, centre, *rest, backend="eager")
        assert torch.equal(held, expected)
        assert not held[which < 0].any()
        stable += int(held.sum())
    assert stable > 2 * len(seeds)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "triton"])
def test_indices_beyond_the_last_surface_are_refused(backend: str) -> None:
    bottom, which = torch.zeros(3, 2, 2), torch.full((2, 1), 3)
    ground = (torch.zeros(2, 4, 4), bottom)
    z, com = torch.zeros(2, 1, 4, 4), torch.zeros(2, 1, 2, dtype=torch.int64)
    with pytest.raises(IndexError):
        kernels.drop_height(*ground, which=which, backend=backend)
    with pytest.raises(IndexError):
        kernels.support_count(*ground, z, 0.1, which=which, backend=backend)
    with pytest.raises(IndexError):
        kernels.com_hull(*ground, z, com, 0.1, which=which, backend=backend)
