"""Cuboids on whole cells: on fake and meta tensors, in one graph, and without a host read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.tiny import cuboid_env
from tests.tracing.detectors import run_as_one_graph, run_on_fake_tensors, run_profiled
from torch._subclasses.fake_tensor import FakeTensorMode

from packing_env import kernels
from packing_env.core.cuboids import cells as cuboid
from packing_env.kernels.cuboids import eager as cuboid_eager

BACKENDS = kernels.available_backends()
RULES = kernels.CUBOID_RULES
STRIDES = (1, 3)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    kernels.set_backend(request.param)
    with torch.no_grad():
        yield request.param
    kernels.set_backend(None)
    torch._dynamo.reset()


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    heightmap = torch.randint(0, 4, (3, 7, 8), generator=generator).float()
    size = torch.randint(1, 5, (3, 2, 3), generator=generator, dtype=torch.int32)
    size[1, 1] = 0
    return heightmap, size


def maps(heightmap, size, rule, stride, backend):
    return kernels.cuboid_maps(heightmap, size, 1.0, 6, (4, 4), rule, stride, backend=backend)


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_fake_and_meta_tensors(backend: str, rule: str, stride: int) -> None:
    expected = maps(*inputs(), rule, stride, backend)
    with FakeTensorMode() as mode:
        fakes = maps(*(mode.from_tensor(t) for t in inputs()), rule, stride, backend)
    metas = maps(*(t.to("meta") for t in inputs()), rule, stride, backend)
    for real, fake, meta in zip(expected, fakes, metas, strict=True):
        assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride())
        assert meta.is_meta
        assert (meta.shape, meta.dtype) == (real.shape, real.dtype)


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_one_graph(backend: str | None, rule: str, stride: int) -> None:
    if hasattr(cuboid_eager.cuboid_maps, "__wrapped__"):
        pytest.skip("the shape checker breaks full graphs")
    torch.compiler.reset()
    compiled = torch.compile(maps, backend="eager", fullgraph=True)
    given = (*inputs(), rule, stride, backend)
    for got, expected in zip(compiled(*given), maps(*given), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.skipif("numba" not in BACKENDS, reason="numba is not installed")
@pytest.mark.filterwarnings("ignore")
def test_the_custom_operator_is_well_formed() -> None:
    torch.library.opcheck(
        torch.ops.packing_env.numba_cuboid_maps.default,
        (*inputs(), 1.0, 6, (4, 4), "center_hull", 2),
        test_utils=("test_schema", "test_faketensor"),
    )


DETECTORS: dict[str, Callable[..., Any]] = {
    "fake_tensors": run_on_fake_tensors,
    "profiler": lambda loop, root: run_profiled(loop, root, 20),
    "one_graph": lambda loop, root: run_as_one_graph(loop, root, num_steps=8),
}


@pytest.mark.parametrize("detector", DETECTORS)
@pytest.mark.parametrize(
    "params",
    [
        {"stability": "center_hull"},
        {"stability": "area_corners_code", "num_visible": 2, "grid_step": 2},
        {"stability": "com_hull", "candidate_range": "pct", "action_mode": "candidate"},
    ],
)
def test_steps_without_host_reads(params: dict[str, Any], detector: str, backend: str) -> None:
    env = cuboid_env(3, items={"grid": (5, 6), "height": 5}, **params)
    assert cuboid.applies(env.catalogue.tensors(), env.params)

    def loop(root):
        return env._step_and_maybe_reset(env.rand_action(root))[1]

    DETECTORS[detector](loop, loop(env.reset()))
