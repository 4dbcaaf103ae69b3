"""Maps that are updated after a placement equal those computed anew, bit for bit."""

import numpy as np
import pytest
import torch
from tests.engine.engines import needs_numba
from torch import Tensor

from packing_env import kernels


def random_items(rng: np.random.Generator, count: int, window: tuple[int, int]) -> Tensor:
    """``[M, R, U, V]`` lower surfaces, ragged, with holes, some orientations empty."""
    bottom = np.full((count, 2, *window), np.inf, np.float32)
    for item, turn in np.ndindex(count, 2):
        w, h = (int(rng.integers(0, n + 1)) for n in window)
        part = rng.integers(0, 5, (w, h)) * np.float32(0.01)
        part[rng.random((w, h)) < rng.choice([0.0, 0.4])] = np.inf
        bottom[item, turn, :w, :h] = part
    return torch.from_numpy(bottom)


def full(heightmap: Tensor, bottom: Tensor, stride: int) -> Tensor:
    z = kernels.drop_height(heightmap, bottom.flatten(1, 2), stride, backend="eager")
    return z.view(*bottom.shape[:3], *z.shape[2:])


@needs_numba
@pytest.mark.parametrize("seed", range(20))
def test_equals_maps_computed_anew(seed: int) -> None:
    """Heights rise, rows start again, and visible items come, go and change slots."""
    rng = np.random.default_rng(seed)
    length, width = (int(n) for n in rng.integers(1, 26, 2))
    stride = int(rng.integers(1, 4))
    window = tuple(int(n) for n in rng.integers(1, 12, 2))
    items = random_items(rng, 6, window)
    surfaces, size = items.flatten(0, 1), kernels.surface_sizes(items).flatten(0, 1)
    rows, visible = 3, 4
    heightmap = torch.zeros(rows, length, width)
    item_id = torch.from_numpy(rng.integers(-1, 6, (rows, visible)))
    known = kernels.DropHeights.new(heightmap, item_id.repeat(1, 2), stride)
    for _ in range(8):
        # An item leaves its slot, as after a placement, or all items change.
        item_id[:, :-1] = item_id[:, 1:].clone()
        if rng.random() < 0.4:
            item_id = torch.from_numpy(rng.integers(-1, 6, (rows, visible)))
        there = (item_id >= 0)[..., None]
        which = torch.where(there, 2 * item_id[..., None] + torch.arange(2), -1).flatten(1)
        bottom = torch.where(there[..., None, None], items[item_id], torch.inf)
        z = kernels.update_drop_height(known, heightmap, surfaces, stride, which=which, size=size)
        assert torch.equal(
            z.view(*there.shape[:2], 2, *z.shape[2:]), full(heightmap, bottom, stride)
        )
        for row in range(rows):
            x, y = int(rng.integers(0, length)), int(rng.integers(0, width))
            part = heightmap[row, x : x + 7, y : y + 5]
            if rng.random() < 0.8:
                heightmap[row, x : x + 7, y : y + 5] = part + 0.01 * int(rng.integers(0, 4))
            else:
                heightmap[row] = 0
