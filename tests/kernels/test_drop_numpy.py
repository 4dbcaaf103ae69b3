"""Drop heights without a compiled kernel: NumPy and torch give the same, and which one serves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tests.counting import CallSites, host_reads
from tests.kernels.test_kernels_fuzz import NUM_CASES, bits, random_case
from torch import Tensor

from agents.bench.kernel import SIZES, Size, random_problem
from packing_env import kernels
from packing_env.kernels.drop import eager as drop_eager
from packing_env.kernels.drop import numpy as drop_numpy
from packing_env.kernels.drop.eager import drop_height_by_torch

BLOCKS = (1, 40, 700, 250_000)
"""Taps times placements of a block: one tap of one row, and up to everything at once."""


@pytest.fixture(autouse=True)
def _settings_stay() -> Iterator[None]:
    before = np.getbufsize(), np.geterr()
    yield
    assert (np.getbufsize(), np.geterr()) == before


@pytest.fixture(params=BLOCKS)
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(drop_numpy, "_BLOCK", request.param)
    return int(request.param)


def same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and np.array_equal(bits(one.numpy()), bits(other.numpy()))


def random_size(generator: torch.Generator, largest: int) -> Size:
    """Small dimensions; an orientation may be a single cell or fill the container."""

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    cells = draw(2, largest)
    footprints = tuple((draw(1, cells), draw(1, cells)) for _ in range(draw(1, 4)))
    stride = draw(1, min(4, cells))
    return Size(draw(1, 3), cells, stride, footprints)


def test_equals_the_loop(block: int) -> None:
    for seed in range(NUM_CASES):
        case = random_case(seed)
        heightmap, bottom, _ = case.tensors()
        z = drop_numpy.drop_height(heightmap, bottom, case.stride)
        assert np.array_equal(bits(z.numpy()), bits(case.z)), f"case {seed}"
        assert same(drop_height_by_torch(heightmap, bottom, case.stride), z), f"case {seed}"


def test_equals_torch_on_larger_problems(block: int) -> None:
    generator = torch.Generator().manual_seed(block)
    for number in range(30):
        size = random_size(generator, largest=60 if block > 40 else 20)
        heightmap, bottom = random_problem(size, generator)
        if number % 3 == 0:  # rows and columns without a finite cell on the near side
            bottom[..., : bottom.shape[2] // 2, :] = torch.inf
            bottom[..., : bottom.shape[3] // 3] = torch.inf
        if number % 4 == 0:
            bottom = torch.nn.functional.pad(bottom, (0, 70, 0, 3), value=torch.inf)
        if number % 5 == 0:
            bottom[:, 0] = torch.inf
        if number % 7 == 0:
            heightmap = heightmap[:, :, : -(-size.cells // 2)]
        z = drop_numpy.drop_height(heightmap, bottom, size.stride)
        assert same(z, drop_height_by_torch(heightmap, bottom, size.stride)), size


@pytest.mark.parametrize("lift", [-3.5, 0.0, 2.25])
def test_inputs_of_any_layout_and_sign(lift: float) -> None:
    generator = torch.Generator().manual_seed(0)
    heightmap = torch.rand(17, 3, 23, generator=generator).permute(1, 2, 0) + lift
    surface = torch.rand(5, 2, 1, 9, generator=generator).permute(2, 1, 3, 0)
    surface = surface.flip(2).masked_fill(surface > 0.8, torch.inf) - 2 * lift
    for bottom in (surface.expand(3, -1, -1, -1), surface.expand(3, -1, -1, -1)[:, :, ::2, ::3]):
        versions = heightmap._version, bottom._version
        for stride in (1, 2, 3, 4):
            z = drop_numpy.drop_height(heightmap, bottom, stride)
            assert z.is_contiguous()
            assert same(z, drop_height_by_torch(heightmap, bottom, stride))
        assert versions == (heightmap._version, bottom._version)


def test_overflow_passes_as_in_torch() -> None:
    heightmap, bottom = torch.full((1, 3, 3), 3e38), torch.full((1, 1, 2, 2), -3e38)
    assert same(
        drop_numpy.drop_height(heightmap, bottom, 1), drop_height_by_torch(heightmap, bottom, 1)
    )


def test_settings_come_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drop_numpy, "_raise_lanes", None)
    with pytest.raises(TypeError):
        drop_numpy.drop_height(torch.zeros(1, 40, 40), torch.zeros(1, 1, 2, 2), 1)


def maps(*shape: int, stride: int) -> tuple[Tensor, Tensor, int]:
    rows, cells, orientations, window = shape
    return torch.rand(rows, cells, cells), torch.rand(rows, orientations, window, window), stride


FOR_NUMPY = {
    "one item": maps(1, 32, 24, 21, stride=1),
    "a batch": maps(16, 32, 24, 21, stride=1),
    "every fourth cell": maps(1, 100, 24, 40, stride=4),
}
FOR_TORCH = {
    "many small": maps(1024, 10, 2, 5, stride=1),
    "small windows": maps(16, 32, 24, 3, stride=1),
    "few cells of each phase": maps(16, 32, 24, 8, stride=4),
}


def served_by(heightmap: Tensor, bottom: Tensor, stride: int) -> str:
    """Who computes, as torch's dispatcher sees it: NumPy's part is one operation."""
    with CallSites() as sites:
        z = kernels.drop_height(heightmap, bottom, stride, backend="eager")
    for other in (drop_numpy.drop_height, drop_height_by_torch):
        assert same(z, other(heightmap, bottom, stride))
    return "numpy" if sites.total("operations") == 1 else "torch"


@pytest.mark.parametrize("name", FOR_NUMPY)
def test_numpy_serves_where_it_is_faster(name: str) -> None:
    assert served_by(*FOR_NUMPY[name]) == "numpy"


@pytest.mark.parametrize("name", FOR_TORCH)
def test_torch_serves_many_small_maps(name: str) -> None:
    assert served_by(*FOR_TORCH[name]) == "torch"


@pytest.mark.parametrize("name", SIZES)
def test_the_shapes_alone_decide(name: str) -> None:
    size = SIZES[name]
    window = [max(sides) for sides in zip(*size.footprints, strict=True)]
    heightmap = torch.empty(size.rows, size.cells, size.cells, device="meta")
    bottom = torch.empty(size.rows, len(size.footprints), *window, device="meta")
    assert drop_eager.numpy_pays(heightmap, bottom, size.stride)


def test_no_rows_and_no_orientations() -> None:
    for rows, orientations in ((0, 2), (2, 0)):
        maps = torch.zeros(rows, 5, 5), torch.zeros(rows, orientations, 3, 3)
        for drop in (drop_eager.drop_height, drop_numpy.drop_height):
            assert drop(*maps, 2).shape == (rows, orientations, 3, 3)


def test_gradients_flow_through_torch() -> None:
    heightmap, bottom, stride = FOR_NUMPY["one item"]
    heightmap = heightmap.clone().requires_grad_()
    z = kernels.drop_height(heightmap, bottom, stride, backend="eager")
    z[z.isfinite()].sum().backward()
    assert heightmap.grad is not None
    assert heightmap.grad.sum() == z.isfinite().sum()
    with torch.no_grad():
        assert served_by(heightmap, bottom, stride) == "numpy"


def test_nothing_is_read_back() -> None:
    for given in (*FOR_NUMPY.values(), *FOR_TORCH.values()):
        with CallSites() as sites:
            kernels.drop_height(*given, backend="eager")
        assert sites.total("reads") == 0
        assert not host_reads(lambda given=given: kernels.drop_height(*given, backend="eager"))
