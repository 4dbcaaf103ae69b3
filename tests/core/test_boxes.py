"""Cuboids as integer boxes: stacking trees worked out by hand."""

import pytest
import torch
from tests.kernels.piles import as_tensor, put

from packing_env import kernels
from packing_env.reference import boxes as reference


def holds(rule: str, *drops: tuple[int, int, int, int, int]) -> bool:
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


@pytest.mark.parametrize(
    ("x", "width", "stable"),
    [
        (0, 20, True),
        (0, 37, True),  # its centre 18.5 is inside 1 .. 19, the contact shrunk by a tenth
        (0, 38, False),  # on the rim
        (0, 40, False),  # on the edge of the block
        (15, 5, True),
        (18, 3, True),  # 19.5 is inside 18.1 .. 19.9
        (18, 4, False),
        (10, 18, True),  # 19 is inside 10.5 .. 19.5
        (10, 19, False),
    ],
)
def test_one_support(x: int, width: int, stable: bool) -> None:
    assert holds("stacking_tree", BLOCK, (x, 0, width, 10, 1)) == stable
    assert holds("com_hull", BLOCK, (x, 0, width, 10, 1))  # asks for no margin


PLANK = ((0, 0, 10, 10, 1), (4, 0, 10, 2, 1))  # mass 20, centre 9; may reach 9.7


def test_a_load_tips_the_box_below() -> None:
    assert holds("stacking_tree", *PLANK)
    # (20 * 9 + 8 * 13) / 28 = 10.1, although the new box stands well on the plank.
    assert not holds("stacking_tree", *PLANK, (12, 0, 2, 2, 2))
    assert holds("com_hull", *PLANK, (12, 0, 2, 2, 2))
    assert holds("stacking_tree", *PLANK, (4, 0, 2, 2, 2))


def test_a_beam_tips_what_it_rests_on() -> None:
    """One pillar is a plank over the edge of a block; the load comes down on the tip of it."""
    shelf = ((0, 0, 6, 2, 1), (0, 0, 9, 2, 1))  # reaches 5.7, its centre is 4.5; mass 18
    beam = (8, 0, 12, 2, 1)  # mass 24, half of it comes down at 8.5
    assert holds("stacking_tree", *shelf, (16, 0, 4, 2, 2), beam) is False  # 6.1
    assert holds("stacking_tree", *shelf, (8, 0, 4, 2, 1), (16, 0, 4, 2, 2), beam) is False
    assert holds("stacking_tree", (0, 0, 9, 2, 2), (16, 0, 4, 2, 2), beam)


def test_a_box_below_over_two_paths_gets_both_loads() -> None:
    """A plank may reach 93.1 (98 shrunk) and carries two boxes; a slab rests on both.

    Half of the slab alone moves the plank's centre to 87.4 or 92.3, all of it to 93.7.
    """
    pile = ((0, 0, 98, 2, 1), (0, 0, 160, 2, 1), (100, 0, 10, 2, 1), (140, 0, 10, 2, 1))
    assert holds("stacking_tree", *pile[:3])
    assert holds("stacking_tree", *pile)
    assert not holds("stacking_tree", *pile, (100, 0, 50, 2, 1))
    assert holds("stacking_tree", *pile, (100, 0, 44, 2, 1))
