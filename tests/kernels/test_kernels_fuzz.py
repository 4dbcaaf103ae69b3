"""Every backend equals the reference, bit for bit, on ragged and degenerate cases."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch

from packing_env import kernels, reference
from packing_env.reference.stability import Point, hull, in_hull_of_contacts, is_inside

NUM_CASES = 80
BACKENDS = kernels.available_backends()


def rest_heights(heightmap: np.ndarray, bottom: np.ndarray, stride: int) -> np.ndarray:
    """Rest heights of one orientation in one container, by the reference."""
    z = np.empty([-(-side // stride) for side in heightmap.shape], np.float32)
    for i, j in np.ndindex(z.shape):
        z[i, j] = reference.drop_height(heightmap, bottom, i * stride, j * stride)
    return z


def verdicts(
    heightmap: np.ndarray, bottom: np.ndarray, z: np.ndarray, tol: float, stride: int, com: Point
) -> np.ndarray:
    """Hull of squares, hull of centres, number of supporting cells; ``[3, Xs, Ys]``."""
    result = np.zeros((3, *z.shape), np.int32)
    for i, j in np.argwhere(np.isfinite(z)):
        place = (i * stride, j * stride, z[i, j])
        cells = reference.supporting_cells(heightmap, bottom, *place, tol)
        squares = in_hull_of_contacts([(u, v, u + 1, v + 1) for u, v in cells], [com])
        centres = is_inside(hull([(64 * u + 32, 64 * v + 32) for u, v in cells]), com)
        result[:, i, j] = squares, centres, len(cells)
    return result


@dataclass(frozen=True)
class Case:
    """Containers, items, a tolerance and a stride, and what the reference measures."""

    arrays: tuple[np.ndarray, np.ndarray, np.ndarray]
    contact_tol: float
    stride: int
    expected: list[np.ndarray]

    def tensors(self) -> list[torch.Tensor]:
        return [torch.from_numpy(array) for array in self.arrays]


def random_bottom(rng: np.random.Generator, window: tuple[int, int], quantised: bool) -> np.ndarray:
    """One orientation: ragged size, maybe holes, maybe padding, minimum 0."""
    bottom = np.full(window, np.inf, np.float32)
    if rng.random() < 0.15:
        return bottom
    small = rng.random() < 0.6
    w, h = (min(int(rng.integers(1, n + 1)), 4 if small else n) for n in window)
    relief = rng.integers(0, 3, (w, h)) * 0.01 if quantised else rng.random((w, h)) * 0.5
    relief[rng.random((w, h)) < rng.choice([0.0, 0.0, 0.3, 0.9])] = np.inf
    if rng.random() < 0.2:
        relief[np.isfinite(relief)] = 0
    finite = np.isfinite(relief)
    relief = relief.astype(np.float32)
    if finite.any():
        relief[finite] -= relief[finite].min()
    bottom[:w, :h] = relief
    return bottom


def random_com(rng: np.random.Generator, bottom: np.ndarray) -> np.ndarray:
    """A centre of mass in the window: anywhere, or on a cell's corner or middle."""
    u, v = (rng.integers(0, 64 * n + 1) for n in bottom.shape)
    inside = np.argwhere(np.isfinite(bottom))
    if len(inside) and rng.random() < 0.7:
        u, v = inside.mean(axis=0) * 64 + 32
    step = rng.choice([1, 1, 32, 64])
    return np.array([u // step * step, v // step * step], np.int64)


def random_arrays(
    rng: np.random.Generator, seed: int, most: tuple[int, int, int, int] = (3, 3, 10, 12)
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Containers, items, centres of mass; ``most``: batch, orientations, grid and window sides."""
    batch, orientations = (int(rng.integers(1, number + 1)) for number in most[:2])
    grid, window = (tuple(rng.integers(1, side + 1, 2).tolist()) for side in most[2:])
    quantised, shape = seed % 3 != 0, (batch, *grid)
    heightmap = rng.integers(0, 4, shape) * 0.01 if quantised else rng.random(shape)
    if seed % 7 == 0:
        heightmap[:] = 0
    items = [random_bottom(rng, window, quantised) for _ in range(batch * orientations)]
    com = np.stack([random_com(rng, bottom) for bottom in items])
    bottom = np.stack(items).reshape(batch, orientations, *window)
    return heightmap.astype(np.float32), bottom, com.reshape(batch, orientations, 2)


@cache
def random_case(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    heightmap, bottom, com = random_arrays(rng, seed)
    stride, tol = int(rng.integers(1, 5)), float(rng.choice([0.0, 0.01, 0.013, 0.3]))
    lattice = [-(-side // stride) for side in heightmap.shape[1:]]
    z = np.zeros((*bottom.shape[:2], *lattice), np.float32)
    found = np.zeros((3, *z.shape), np.int32)
    for b, r in np.ndindex(*bottom.shape[:2]):
        item, centre = bottom[b, r], tuple(com[b, r].tolist())
        z[b, r] = rest_heights(heightmap[b], item, stride)
        found[:, b, r] = verdicts(heightmap[b], item, z[b, r], tol, stride, centre)
    squares, centres, count = found
    expected = [z, squares.astype(bool), centres.astype(bool), count]
    return Case((heightmap, bottom, com), tol, stride, expected)


def measured(
    inputs: Sequence[torch.Tensor], contact_tol: float, stride: int, backend: str
) -> list[torch.Tensor]:
    """Rest heights, verdicts of both hulls, and numbers of supporting cells of a backend."""
    heightmap, bottom, com = inputs
    z = kernels.drop_height(heightmap, bottom, stride, backend=backend)
    placed, rest = (heightmap, bottom, z), (contact_tol, stride)
    hulls = [
        kernels.com_hull(*placed, com, *rest, centres=centres, backend=backend)
        for centres in (False, True)
    ]
    return [z, *hulls, kernels.support_count(*placed, *rest, backend=backend)]


def compare(case: Case, inputs: Sequence[torch.Tensor], backend: str) -> None:
    found = measured(inputs, case.contact_tol, case.stride, backend)
    for value, wanted in zip(found, case.expected, strict=True):
        array = value.cpu().numpy()
        assert array.dtype == wanted.dtype
        assert np.array_equal(array, wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_equals_the_reference(backend: str) -> None:
    for case in map(random_case, range(NUM_CASES)):
        inputs = case.tensors()
        copies = [value.clone() for value in inputs]
        compare(case, inputs, backend)
        assert all(map(torch.equal, copies, inputs))


@pytest.mark.parametrize("backend", BACKENDS)
def test_placements_the_caller_ruled_out_are_unstable(backend: str) -> None:
    heightmap, bottom = torch.zeros(1, 4, 4), torch.zeros(1, 1, 2, 2)
    com = torch.full((1, 1, 2), 64)
    z = kernels.drop_height(heightmap, bottom, backend=backend)
    z[0, 0, 0, 0] = torch.inf
    for centres in (False, True):
        stable = kernels.com_hull(heightmap, bottom, z, com, 0.0, centres=centres, backend=backend)
        assert stable.sum() == 8
        assert not stable[0, 0, 0, 0]
    count = kernels.support_count(heightmap, bottom, z, 0.0, backend=backend)
    assert count.sum() == 32
    assert count[0, 0, 0, 0] == 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [3, 31, 45, 70])
def test_near_ties_of_slopes_are_told_apart(backend: str, size: int) -> None:
    """Two feet on the diagonal: their hull ends at the line y = x + 64 (in 1/64 cells).

    The hull of their centres is a part of the line y = x. Large windows need float64 slopes.
    """
    last = 64 * (size - 1) - 1
    cases = [(x, beyond) for x in (1, 17, 64, 77, last) for beyond in (-1, 0, 1)]
    com = torch.tensor([[(x, x + 64 + beyond) for x, beyond in cases]])
    bottom = torch.full((1, len(cases), size, size), 0.5)
    bottom[..., 0, 0] = bottom[..., -1, -1] = 0
    heightmap = torch.zeros(1, size, size)
    z = kernels.drop_height(heightmap, bottom, size, backend=backend)
    ground = (heightmap, bottom, z)
    stable = kernels.com_hull(*ground, com, 0.0, size, backend=backend)
    assert stable.flatten().tolist() == [beyond <= 0 for _, beyond in cases]
    com -= torch.tensor([0, 64])
    stable = kernels.com_hull(*ground, com, 0.0, size, centres=True, backend=backend)
    on_line = [beyond == 0 and 32 <= x <= 64 * size - 32 for x, beyond in cases]
    assert stable.flatten().tolist() == on_line


@pytest.mark.parametrize("backend", BACKENDS)
def test_non_contiguous_inputs(backend: str) -> None:
    case = random_case(5)
    heightmap, bottom, com = case.tensors()
    heightmap = heightmap.transpose(1, 2).contiguous().transpose(1, 2)
    bottom = bottom.flip(1).flip(1).permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    com = torch.stack([com, com], dim=-1)[..., 0]
    compare(case, (heightmap, bottom, com), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_large_batch_equals_its_rows(backend: str) -> None:
    """The batch needs chunks (eager) and threads (numba); the container needs several passes."""
    generator = torch.Generator().manual_seed(0)
    heightmap = torch.rand(6, 40, 36, generator=generator)
    bottom = torch.rand(6, 24, 9, 7, generator=generator)
    bottom -= bottom.amin(dim=(2, 3), keepdim=True)
    bottom[:, ::5] = torch.inf
    com = torch.randint(0, 64 * 7, (6, 24, 2), generator=generator)
    inputs = (heightmap, bottom, com)
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if backend == "eager" else 2)
    try:
        found = measured(inputs, 0.2, 1, backend)
    finally:
        torch.set_num_threads(threads)
    _, stable, centred, _ = found
    assert 0 < centred.sum() < stable.sum() < stable.numel()
    for row in range(6):
        alone = measured([value[row : row + 1] for value in inputs], 0.2, 1, "eager")
        assert all(torch.equal(f[row : row + 1], a) for f, a in zip(found, alone, strict=True))
