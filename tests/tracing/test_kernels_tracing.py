"""Schemas and fake results of the custom operators; `test_env_tracing.py` compiles their steps."""

from typing import Any

import pytest
import torch
from tests.kernels.piles import DISCRETE, random_case
from torch import Tensor

from packing_env import kernels


def map_inputs() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    heightmap = torch.rand(2, 7, 8, generator=generator)
    bottom = torch.rand(2, 3, 3, 4, generator=generator)
    bottom[:, 1, 2:] = torch.inf
    bottom[:, 2] = torch.inf
    com = torch.randint(0, 180, (2, 3, 2), generator=generator)
    return heightmap, bottom, com


def operators() -> list[tuple[Any, tuple[Any, ...]]]:
    """Custom operators, and arguments for each."""
    known, (heightmap, bottom, com) = torch.ops.packing_env, map_inputs()
    case = random_case(1, DISCRETE, rows=3, capacity=6, count=4)
    boxes = (case.boxes, case.lower, case.size)
    rested = kernels.box_drop(*boxes)
    rules = kernels.BOX_RULES[1:]  # "none" needs no operator
    listed = [(known.eager_box_stable, (*boxes, rested, rule)) for rule in rules]
    if "numba" not in kernels.available_backends():
        return listed
    placed = (heightmap, bottom, kernels.drop_height(heightmap, bottom))
    listed += [(known.numba_box_stable, (*boxes, rested, rule)) for rule in rules]
    listed += [(known.numba_com_hull, (*placed, com, 0.3, 1, centres)) for centres in (0, 1)]
    return [
        *listed,
        (known.numba_box_drop, boxes),
        (known.numba_drop_height, (heightmap, bottom, 1)),
        (known.numba_support_count, (*placed, 0.3, 1)),
    ]


@pytest.mark.filterwarnings("ignore")
def test_the_custom_operators_are_well_formed() -> None:
    for operator, given in operators():
        torch.library.opcheck(
            operator.default, given, test_utils=("test_schema", "test_faketensor")
        )
