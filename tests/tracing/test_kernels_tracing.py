"""The operations on fake and meta tensors, inside one compiled graph, and as custom operators."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.kernels.piles import DISCRETE, random_case
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from packing_env import kernels

BACKENDS = kernels.available_backends()


def map_inputs() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    heightmap = torch.rand(2, 7, 8, generator=generator)
    bottom = torch.rand(2, 3, 3, 4, generator=generator)
    bottom[:, 1, 2:] = torch.inf
    bottom[:, 2] = torch.inf
    com = torch.randint(0, 180, (2, 3, 2), generator=generator)
    return [heightmap, bottom, com]


def on_maps(stride: int) -> Callable[..., list[Tensor]]:
    def run(heightmap: Tensor, bottom: Tensor, com: Tensor, *, backend: str | None) -> list[Tensor]:
        z = kernels.drop_height(heightmap, bottom, stride, backend=backend)
        placed = (heightmap, bottom, z)
        return [
            z,
            kernels.com_hull(*placed, com, 0.3, stride, backend=backend),
            kernels.com_hull(*placed, com, 0.3, stride, centres=True, backend=backend),
            kernels.support_count(*placed, 0.3, stride, backend=backend),
        ]

    return run


def box_inputs() -> list[Tensor]:
    case = random_case(1, DISCRETE, rows=3, capacity=6, count=4)
    return [case.boxes, case.lower, case.size]


def on_boxes(boxes: Tensor, lower: Tensor, size: Tensor, *, backend: str | None) -> list[Tensor]:
    z = kernels.box_drop(boxes, lower, size, backend=backend)
    rules = kernels.BOX_RULES
    return [z, *(kernels.box_stable(boxes, lower, size, z, r, backend=backend) for r in rules)]


def space_inputs() -> list[Tensor]:
    spaces = torch.tensor([[0, 0, 0, 7, 6, 8], [2, 0, 1, 7, 6, 8], [0, 0, 0, 0, 0, 0]])
    box = torch.tensor([[0, 0, 0, 2, 2, 3], [1, 1, 5, 4, 3, 6], [3, 0, 1, 5, 2, 8]])
    placed = torch.tensor([True, True, False])
    return [spaces.expand(3, 3, 6).int(), box.int(), placed, torch.tensor(1, dtype=torch.int32)]


def on_spaces(*given: Tensor, backend: str | None) -> list[Tensor]:
    return list(kernels.split_spaces(*given, backend=backend))


OPERATIONS: dict[str, tuple[Callable[..., list[Tensor]], Callable[[], list[Tensor]]]] = {
    "maps": (on_maps(1), map_inputs),
    "every third place": (on_maps(3), map_inputs),
    "boxes": (on_boxes, box_inputs),
    "spaces": (on_spaces, space_inputs),
}
every_operation = pytest.mark.parametrize("name", OPERATIONS)


@every_operation
@pytest.mark.parametrize("backend", BACKENDS)
def test_fake_tensors(backend: str, name: str) -> None:
    run, inputs = OPERATIONS[name]
    expected = run(*inputs(), backend=backend)
    with FakeTensorMode() as mode:
        fakes = run(*(mode.from_tensor(t) for t in inputs()), backend=backend)
    for fake, real in zip(fakes, expected, strict=True):
        assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride())


@every_operation
@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_meta_tensors(backend: str | None, name: str) -> None:
    run, inputs = OPERATIONS[name]
    expected = run(*inputs(), backend=backend)
    metas = run(*(t.to("meta") for t in inputs()), backend=backend)
    for meta, real in zip(metas, expected, strict=True):
        assert meta.is_meta
        assert (meta.shape, meta.dtype) == (real.shape, real.dtype)


@every_operation
@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_one_graph_that_changes_no_input(backend: str | None, name: str) -> None:
    run, inputs = OPERATIONS[name]
    given = inputs()
    versions = [tensor._version for tensor in given]
    expected = run(*given, backend=backend)
    assert [tensor._version for tensor in given] == versions
    torch.compiler.reset()
    compiled = torch.compile(run, backend="eager", fullgraph=True)
    for got, wanted in zip(compiled(*inputs(), backend=backend), expected, strict=True):
        assert torch.equal(got, wanted)


def operators() -> list[tuple[Any, tuple[Any, ...]]]:
    """Custom operators, and arguments for each."""
    known, (heightmap, bottom, com) = torch.ops.packing_env, map_inputs()
    boxes = box_inputs()
    rested = kernels.box_drop(*boxes)
    rules = kernels.BOX_RULES[1:]  # "none" needs no operator
    listed = [(known.eager_box_stable, (*boxes, rested, rule)) for rule in rules]
    if "numba" not in BACKENDS:
        return listed
    placed = (heightmap, bottom, kernels.drop_height(heightmap, bottom))
    listed += [(known.numba_box_stable, (*boxes, rested, rule)) for rule in rules]
    listed += [(known.numba_com_hull, (*placed, com, 0.3, 1, centres)) for centres in (0, 1)]
    return [
        *listed,
        (known.numba_box_drop, tuple(boxes)),
        (known.numba_drop_height, (heightmap, bottom, 1)),
        (known.numba_support_count, (*placed, 0.3, 1)),
    ]


@pytest.mark.filterwarnings("ignore")
def test_the_custom_operators_are_well_formed() -> None:
    for operator, given in operators():
        torch.library.opcheck(
            operator.default, given, test_utils=("test_schema", "test_faketensor")
        )
