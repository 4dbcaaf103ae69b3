"""The placements of voxel parts: every backend equals the plain loops at every placement."""

import numpy as np
import pytest
import torch
from tests.solids import random_part

from packing_env import kernels
from packing_env.reference import voxels as reference

BACKENDS = kernels.available_backends()


def board(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return three containers filled to any degree, and five parts; some rows lack some parts."""
    random = np.random.default_rng(seed)
    grid = random.integers(2, 7, 3)
    solids = [random_part(random, 4) for _ in range(5)]
    parts = np.zeros((5, 4, 4, 4), bool)
    for k, solid in enumerate(solids):
        parts[k][tuple(slice(n) for n in solid.shape)] = solid
    size = np.array([solid.shape for solid in solids])
    size[4], parts[4] = 0, False  # padding
    occupied = random.random((3, *grid)) < random.uniform(0.0, 0.3, (3, 1, 1, 1))
    which = random.integers(-1, 5, (3, 4))
    return tuple(torch.from_numpy(a) for a in (occupied, which, parts, size))


@pytest.mark.parametrize("removable", [True, False])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_placement_equals_the_plain_loops(backend: str, seed: int, removable: bool) -> None:
    occupied, which, parts, size = board(seed)
    legal, contact = kernels.voxel_places(
        occupied, which, parts, size, removable=removable, backend=backend
    )
    for b, p in np.ndindex(*which.shape):
        k = int(which[b, p])
        part = parts[k].numpy()[tuple(slice(n) for n in size[k].tolist())]
        for place in np.ndindex(*occupied.shape[1:]):
            container, at = occupied[b].numpy(), (b, p, *place)
            good = k >= 0 and part.size > 0
            good = good and reference.is_legal(container, part, place, removable)
            assert bool(legal[at]) == good
            assert int(contact[at]) == (reference.contact(container, part, place) if good else 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_high_containers(backend: str) -> None:
    """More layers than a word has bits; the counts of large parts are exact."""
    occupied = torch.zeros(1, 5, 4, 70, dtype=torch.bool)
    occupied[0, :, :, 66:] = True
    parts = torch.ones(1, 5, 4, 65, dtype=torch.bool)
    arguments = (occupied, torch.zeros(1, 1, dtype=torch.int64), parts, torch.tensor([[5, 4, 65]]))
    legal, contact = kernels.voxel_places(*arguments, removable=True, backend=backend)
    assert legal.nonzero()[:, 2:].tolist() == [[0, 0, 0], [0, 0, 1]]
    # The four walls; the floor at height 0, the occupied layers at height 1.
    walls = 2 * (5 + 4) * 65
    assert contact[legal].tolist() == [walls + 20, walls + 20]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_part_slides_out_along_one_axis_only(backend: str) -> None:
    """A tube along y that is open at its far end: what is inside leaves along +y."""
    occupied = torch.ones(1, 3, 4, 3, dtype=torch.bool)
    occupied[0, 1, 1:, 1] = False
    parts = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    arguments = (torch.zeros(1, 1, dtype=torch.int64), parts, torch.ones(1, 3, dtype=torch.int64))
    for closed in (False, True):
        occupied[0, 1, 3, 1] = closed
        legal, contact = kernels.voxel_places(occupied, *arguments, removable=True, backend=backend)
        free, _ = kernels.voxel_places(occupied, *arguments, removable=False, backend=backend)
        inside = [] if closed else [[1, 1, 1], [1, 2, 1], [1, 3, 1]]
        assert legal.nonzero()[:, 2:].tolist() == inside
        assert int(free.sum()) == (2 if closed else 3)
        assert contact[legal].tolist() == ([] if closed else [5, 4, 5])
