"""The operations on boxes: wrong arguments, fake and meta tensors, one graph."""

import pytest
import torch
from tests.kernels.piles import DISCRETE, random_case
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from packing_env import kernels

BACKENDS = kernels.available_backends()


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    case = random_case(1, DISCRETE, rows=3, capacity=6, count=4)
    return case.boxes, case.lower, case.size


def both(boxes: Tensor, lower: Tensor, size: Tensor, backend: str | None) -> list[Tensor]:
    z = kernels.box_drop(boxes, lower, size, backend=backend)
    rules = kernels.BOX_RULES
    return [z, *(kernels.box_stable(boxes, lower, size, z, r, backend=backend) for r in rules)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_fake_and_meta_tensors(backend: str) -> None:
    expected = both(*inputs(), backend)
    with FakeTensorMode() as mode:
        fakes = both(*(mode.from_tensor(t) for t in inputs()), backend)
    metas = both(*(t.to("meta") for t in inputs()), backend)
    for fake, meta, real in zip(fakes, metas, expected, strict=True):
        assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride())
        assert (meta.shape, meta.dtype) == (real.shape, real.dtype)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_graph(backend: str) -> None:
    torch.compiler.reset()
    compiled = torch.compile(both, backend="eager", fullgraph=True)
    for got, expected in zip(compiled(*inputs(), backend), both(*inputs(), backend), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_input_is_changed(backend: str) -> None:
    given = inputs()
    versions = [tensor._version for tensor in given]
    both(*given, backend)
    assert [tensor._version for tensor in given] == versions


@pytest.mark.filterwarnings("ignore")
def test_the_custom_operators_are_well_formed() -> None:
    boxes, lower, size = inputs()
    z = kernels.box_drop(boxes, lower, size)
    operators = torch.ops.packing_env
    checks = ("test_schema", "test_faketensor")
    stable = [operators.eager_box_stable]
    if "numba" in BACKENDS:
        torch.library.opcheck(
            operators.numba_box_drop.default, (boxes, lower, size), test_utils=checks
        )
        stable.append(operators.numba_box_stable)
    for operator in stable:
        for rule in kernels.BOX_RULES[1:]:  # "none" needs no operator
            torch.library.opcheck(
                operator.default, (boxes, lower, size, z, rule), test_utils=checks
            )
