"""The kernels on a CUDA device: the bits of the CPU, no synchronization, capture in a graph."""

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from tests.kernels.test_kernels_fuzz import compare, measured, random_case
from torch import Tensor

from packing_env import kernels

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
BACKENDS = kernels.available_backends("cuda")
TOLERANCE = 0.01


@pytest.fixture(autouse=True)
def _device_left_alone() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


def large_inputs(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Draw containers of 200 x 200 cells, seven orientations of 40 x 40, one of them padding."""
    generator = torch.Generator().manual_seed(seed)
    heightmap = torch.randint(0, 300, (3, 200, 200), generator=generator) * 0.001
    bottom = torch.randint(0, 40, (3, 7, 40, 40), generator=generator) * 0.001
    bottom[torch.rand(bottom.shape, generator=generator) < 0.2] = torch.inf
    bottom[:, 1, 36:] = bottom[:, 2, :, 33:] = torch.inf
    bottom[:, 5] = torch.inf
    com = torch.randint(0, 64 * 40, (3, 7, 2), generator=generator)
    return heightmap, bottom, com


def on_cuda(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(value.cuda() for value in inputs)


def assert_same(there: list[Tensor], here: list[Tensor]) -> None:
    for one, other in zip(there, here, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one.cpu(), other)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("stride", [1, 3, 4])
def test_large_maps_equal_those_of_the_cpu(backend: str, stride: int) -> None:
    inputs = large_inputs()
    there = measured(on_cuda(inputs), TOLERANCE, stride, backend)
    assert_same(there, measured(inputs, TOLERANCE, stride, "eager"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_ragged_cases_equal_the_loop(backend: str) -> None:
    for case in map(random_case, range(100)):
        compare(case, on_cuda(case.tensors()), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_kernel_synchronizes(backend: str) -> None:
    inputs = on_cuda(large_inputs())
    measured(inputs, TOLERANCE, 4, backend)
    torch.cuda.set_sync_debug_mode("error")
    measured(inputs, TOLERANCE, 4, backend)


def captured(work: Callable[[], list[Tensor]]) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
    """Return a captured graph and its results; torch requires a warm-up on a side stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = work()
    return graph, made


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_captured_graph_follows_its_inputs(backend: str) -> None:
    """The second inputs have new footprints; the graph computes their extents on the device."""
    held = on_cuda(large_inputs())
    graph, made = captured(lambda: measured(held, TOLERANCE, 4, backend))
    for seed in (1, 2):
        inputs = large_inputs(seed)
        inputs[1][:, seed, 20:] = torch.inf
        for place, value in zip(held, inputs, strict=True):
            place.copy_(value)
        graph.replay()
        assert_same(made, measured(inputs, TOLERANCE, 4, "eager"))
