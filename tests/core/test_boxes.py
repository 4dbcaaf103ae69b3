"""Cuboids as integer boxes: stacking trees worked out by hand."""

import pytest
import torch
from tests.kernels.piles import as_tensor, put

from packing_env import kernels
from packing_env.reference import boxes as reference


def holds(rule: str, *drops: tuple[int, ...]) -> bool:
    """Test whether the last box is stable; the reference and every backend must agree."""
    *packed, box = put(*drops)
    expected = reference.is_stable(rule, packed, box)
    sides = [box[axis + 3] - box[axis] for axis in range(3)]
    arguments = (
        as_tensor([packed], max(1, len(packed))),
        torch.tensor([[box[:2]]], dtype=torch.int32),
        torch.tensor([[sides]], dtype=torch.int32),
    )
    for backend in kernels.available_backends():
        z = kernels.box_drop(*arguments, backend=backend)
        assert z.item() == box[2]
        assert kernels.box_stable(*arguments, z, rule, backend=backend).item() == expected
    return expected


BLOCK = (0, 0, 20, 10, 4)
PLANK = ((0, 0, 10, 10, 1), (4, 0, 10, 2, 1))
"""Its mass is 20 and its centre 9; it may reach 9.7."""
SHELF = ((0, 0, 6, 2, 1), (0, 0, 9, 2, 1))
"""A plank over the edge of a block: its mass is 18 and its centre 4.5; it may reach 5.7."""
BEAM = (8, 0, 12, 2, 1)
"""Its mass is 24; half of it comes down at 8.5, on the tip of the shelf."""
PILE = ((0, 0, 98, 2, 1), (0, 0, 160, 2, 1), (100, 0, 10, 2, 1), (140, 0, 10, 2, 1))
"""A plank that may reach 93.1 (98 shrunk) and carries two boxes, on which a slab rests.

Half of the slab alone moves the plank's centre to 87.4 or 92.3, all of it to 93.7.
"""


@pytest.mark.parametrize(
    ("drops", "stable"),
    [
        ((BLOCK, (0, 0, 20, 10, 1)), True),
        ((BLOCK, (0, 0, 37, 10, 1)), True),  # its centre 18.5 is inside 1 .. 19, shrunk by a tenth
        ((BLOCK, (0, 0, 38, 10, 1)), False),  # on the rim
        ((BLOCK, (0, 0, 40, 10, 1)), False),  # on the edge of the block
        ((BLOCK, (15, 0, 5, 10, 1)), True),
        ((BLOCK, (18, 0, 3, 10, 1)), True),  # 19.5 is inside 18.1 .. 19.9
        ((BLOCK, (18, 0, 4, 10, 1)), False),
        ((BLOCK, (10, 0, 18, 10, 1)), True),  # 19 is inside 10.5 .. 19.5
        ((BLOCK, (10, 0, 19, 10, 1)), False),
        (PLANK, True),
        # (20 * 9 + 8 * 13) / 28 = 10.1, although the new box stands well on the plank.
        ((*PLANK, (12, 0, 2, 2, 2)), False),
        ((*PLANK, (4, 0, 2, 2, 2)), True),
        ((*SHELF, (16, 0, 4, 2, 2), BEAM), False),  # 6.1
        ((*SHELF, (8, 0, 4, 2, 1), (16, 0, 4, 2, 2), BEAM), False),
        (((0, 0, 9, 2, 2), (16, 0, 4, 2, 2), BEAM), True),
        (PILE[:3], True),
        (PILE, True),
        ((*PILE, (100, 0, 50, 2, 1)), False),
        ((*PILE, (100, 0, 44, 2, 1)), True),
    ],
)
def test_stacking_trees_by_hand(drops: tuple[tuple[int, ...], ...], stable: bool) -> None:
    assert holds("stacking_tree", *drops) == stable
    if drops[0] in (BLOCK, PLANK[0]):  # asks for no margin, and does not see what falls below
        assert holds("com_hull", *drops)
