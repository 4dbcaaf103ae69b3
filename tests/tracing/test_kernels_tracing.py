"""The kernels on fake and meta tensors, and inside one compiled graph.

The shape checker breaks full graphs, so these tests skip where it is installed in the process.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from packing_env import kernels

BACKENDS = kernels.available_backends()
STRIDES = (1, 3)


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    heightmap = torch.rand(2, 7, 8, generator=generator)
    bottom = torch.rand(2, 3, 3, 4, generator=generator)
    bottom[:, 1, 2:] = torch.inf
    bottom[:, 2] = torch.inf
    com = torch.randint(0, 180, (2, 3, 2), generator=generator)
    return heightmap, bottom, com


def every(heightmap, bottom, com, stride, backend):
    z = kernels.drop_height(heightmap, bottom, stride, backend=backend)
    placed = (heightmap, bottom, z)
    return (
        z,
        kernels.com_hull(*placed, com, 0.3, stride, backend=backend),
        kernels.com_hull(*placed, com, 0.3, stride, centres=True, backend=backend),
        kernels.support_count(*placed, 0.3, stride, backend=backend),
    )


def is_shape_checked() -> bool:
    return hasattr(kernels.drop_height, "__wrapped__")


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_fake_tensors(backend: str, stride: int) -> None:
    expected = every(*inputs(), stride, backend)
    with FakeTensorMode() as mode:
        fakes = every(*(mode.from_tensor(t) for t in inputs()), stride, backend)
    for fake, real in zip(fakes, expected, strict=True):
        assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride())


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_meta_tensors(backend: str | None, stride: int) -> None:
    expected = every(*inputs(), stride, backend)
    metas = every(*(t.to("meta") for t in inputs()), stride, backend)
    for meta, real in zip(metas, expected, strict=True):
        assert meta.is_meta
        assert (meta.shape, meta.dtype) == (real.shape, real.dtype)


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_one_graph(backend: str | None, stride: int) -> None:
    if is_shape_checked():
        pytest.skip("the shape checker breaks full graphs")
    torch.compiler.reset()
    compiled = torch.compile(every, backend="eager", fullgraph=True)
    for got, expected in zip(
        compiled(*inputs(), stride, backend), every(*inputs(), stride, backend), strict=True
    ):
        assert torch.equal(got, expected)


@pytest.mark.skipif("numba" not in BACKENDS, reason="numba is not installed")
@pytest.mark.filterwarnings("ignore")
def test_the_custom_operators_are_well_formed() -> None:
    heightmap, bottom, com = inputs()
    z = kernels.drop_height(heightmap, bottom)
    operators = torch.ops.packing_env
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(
        operators.numba_drop_height.default, (heightmap, bottom, 1), test_utils=checks
    )
    for centres in (False, True):
        torch.library.opcheck(
            operators.numba_com_hull.default,
            (heightmap, bottom, z, com, 0.3, 1, centres),
            test_utils=checks,
        )
    torch.library.opcheck(
        operators.numba_support_count.default, (heightmap, bottom, z, 0.3, 1), test_utils=checks
    )
