"""Cuboids as integer boxes: stacking trees worked out by hand, legality, the raster, the maps."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from tests.kernels.piles import DISCRETE, as_tensor, random_pile

from packing_env import PackingParams, kernels
from packing_env.core.cuboids import boxes
from packing_env.reference import boxes as reference
from packing_env.types import ParameterError

Box = reference.Box


def task(stability: str = "none", **changes: object) -> PackingParams:
    """A container of 1000 x 1000 x 1000 units, its raster of 100 x 100 cells."""
    given = {
        "container": (1.0, 1.0, 1.0),
        "cell": 0.01,
        "unit": 0.001,
        "geometry": "boxes",
        "action_mode": "candidate",
        "stability": stability,
        "num_items": 10,
        "observation": ("heightmap", "item_features"),
    }
    return PackingParams(**{**given, **changes})


def cells(side: int = 10, stability: str = "none") -> PackingParams:
    """The same with units as large as cells."""
    size = float(side)
    return task(stability, container=(size, size, size), cell=1.0, unit=None)


def put(*drops: tuple[int, int, int, int, int]) -> list[Box]:
    """Boxes ``(x, y, width, depth, height)`` dropped one after the other."""
    pile: list[Box] = []
    for x, y, *size in drops:
        pile.append(reference.drop(pile, (x, y), tuple(size)))
    return pile


def holds(rule: str, *drops: tuple[int, int, int, int, int]) -> bool:
    """Whether the last of these is stable: the reference and every backend say so alike."""
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


# ---------------------------------------------------------------------- the stacking tree

BLOCK = (0, 0, 20, 10, 4)


def test_the_floor_holds_everything() -> None:
    for rule in kernels.BOX_RULES:
        assert holds(rule, (3, 0, 5, 1, 9))
        assert holds(rule, BLOCK, (20, 0, 5, 1, 9))


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


def test_loads_are_remembered() -> None:
    # With 16 on the other end: (20 * 9 + 16 * 5 + 8 * 13) / 44 = 8.3.
    assert holds("stacking_tree", *PLANK, (4, 0, 2, 2, 4), (12, 0, 2, 2, 2))


PILLARS = ((0, 0, 2, 2, 4), (8, 0, 2, 2, 4))


def test_a_beam_on_two_pillars() -> None:
    pile = put(*PILLARS, (0, 0, 10, 2, 1))
    below = reference.contacts(pile[:2], pile[2])
    assert [contact.centre.tolist() for contact in below] == [[1, 1], [9, 1]]
    for x, left, right in ((5, 0.5, 0.5), (3, 0.75, 0.25), (1.5, 1, 0), (9, 0, 1)):
        shares = reference.shares(below, np.array([x, 1.0]))
        assert [share for share, _ in shares] == pytest.approx([left, right])
    acting = [at.tolist() for _, at in reference.shares(below, np.array([1.5, 1.0]))]
    assert acting[0] == [1.5, 1]  # on the pillar itself: all of it, and where it is
    assert holds("stacking_tree", *PILLARS, (0, 0, 10, 2, 1))


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


def test_three_supports_share_by_least_squares() -> None:
    """The published signs: where the load is between each two, every share is a seventh."""
    at = [np.array(point, float) for point in ((0, 0), (4, 0), (0, 4))]
    shares = reference.least_squares(at, np.array([2.0, 2.0]))
    np.testing.assert_allclose(shares, [1 / 7] * 3)
    # Right above the first, the conditions with it have no divisor: the other two are opposite.
    shares = reference.least_squares(at, np.array([0.0, 0.0]))
    np.testing.assert_allclose(shares.sum(), 1)
    np.testing.assert_allclose(shares[1] + shares[2], 0, atol=1e-9)
    three = ((0, 0, 2, 2, 3), (8, 0, 2, 2, 3), (0, 8, 2, 2, 3))
    assert holds("stacking_tree", *three, (0, 0, 10, 9, 1))
    assert holds("stacking_tree", *three, (0, 0, 9, 9, 1))
    assert not holds("stacking_tree", *three, (1, 1, 10, 10, 1))


def test_points_in_the_middle_of_an_edge_do_not_move_the_outline() -> None:
    """Two supports side by side hold like one of their size."""
    for split in range(1, 10):
        halves = ((0, 0, 20, split, 4), (0, split, 20, 10 - split, 4))
        assert holds("stacking_tree", *halves, (0, 0, 37, 10, 1))
        assert not holds("stacking_tree", *halves, (0, 0, 38, 10, 1))


# ---------------------------------------------------------------------- legality


def test_inside_under_the_lid_and_stable() -> None:
    params = task("com_hull")
    pile = put((0, 0, 400, 400, 500), (600, 0, 400, 400, 900))
    listed = as_tensor([pile], 4)
    drops = (
        ((0, 0), (400, 400, 500), 500, True),
        ((0, 0), (400, 400, 501), 500, False),  # over the lid
        ((600, 600), (400, 400, 1000), 0, True),
        ((601, 600), (400, 400, 1), 0, False),  # over the wall
        ((600, 601), (400, 400, 1), 0, False),
        ((399, 399), (3, 3, 1), 500, False),  # on a corner, its centre beyond it
        ((398, 398), (3, 3, 1), 500, True),
        ((399, 0), (202, 100, 1), 900, False),
        ((-1, 0), (1, 1, 1), 0, False),  # padding
        ((0, 0), (0, 1, 1), 0, False),
        ((0, 0), (1, 1, 0), 0, False),
    )
    lower = torch.tensor([[corner for corner, *_ in drops]], dtype=torch.int32)
    size = torch.tensor([[sides for _, sides, *_ in drops]], dtype=torch.int32)
    judged = boxes.judge(listed, lower, size, params)
    assert judged.z.tolist() == [[z for *_, z, _ in drops]]
    assert judged.legal.tolist() == [[legal for *_, legal in drops]]
    free = boxes.judge(listed, lower, size, params.evolve(stability="none"))
    assert free.legal.tolist() == [[*judged.legal[0, :5].tolist(), True, True, True, *[False] * 3]]
    for (corner, sides, *_), legal in zip(drops[:8], judged.legal[0].tolist(), strict=False):
        container = (1000, 1000, 1000)
        assert reference.is_legal("com_hull", pile, corner, sides, container) == legal


def test_one_placement_per_row() -> None:
    params = task("none", stability_metric="stacking_tree")
    pile = put((0, 0, 400, 400, 500))
    listed = as_tensor([pile] * 5, 3)
    lower = torch.tensor([[0, 0], [200, 0], [300, 0], [500, 500], [900, 0]], dtype=torch.int32)
    size = torch.full((5, 3), 300, dtype=torch.int32)
    judged = boxes.judge(listed, lower[:, None], size[:, None], params)
    assert judged.z.flatten().tolist() == [500, 500, 500, 0, 0]
    assert judged.legal.flatten().tolist() == [True, True, True, True, False]
    z, stable, ratio = (values[:4] for values in boxes.at_rest(listed, lower, size, params))
    assert z.tolist() == pytest.approx([0.5, 0.5, 0.5, 0.0])
    assert stable.tolist() == [True, True, False, True]
    assert ratio.tolist() == pytest.approx([1, 2 / 3, 1 / 3, 1])
    assert ratio.dtype == torch.float64


def test_support_ratios_are_those_of_the_reference() -> None:
    rng = random.Random(5)
    piles = [random_pile(rng, DISCRETE, 14) for _ in range(30)]
    sizes = [DISCRETE.size(rng, (1, 5)) for _ in piles]
    corners = [DISCRETE.lower(rng, *pair) for pair in zip(piles, sizes, strict=True)]
    tall = cells().evolve(container=(10.0, 10.0, 100.0))
    lower, size = (torch.tensor(part, dtype=torch.int32) for part in (corners, sizes))
    _, _, ratios = boxes.at_rest(as_tensor(piles, 14), lower, size, tall)
    for ratio, *drop in zip(ratios.tolist(), piles, corners, sizes, strict=True):
        assert ratio == reference.support_ratio(drop[0], reference.drop(*drop))


def test_a_rule_that_boxes_do_not_decide_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"'glue'.*com_hull.*geometry='maps'"):
        boxes.check_rule("glue")


# ---------------------------------------------------------------------- the raster


def test_the_raster_keeps_what_is_higher_and_rows_without_a_box() -> None:
    params = cells(4)
    before = torch.tensor([[[0.0, 5.0], [1.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]]])
    before = torch.nn.functional.pad(before, (0, 2, 0, 2))
    box = torch.tensor([[0, 0, 2, 2, 2, 3]] * 2, dtype=torch.int32)
    kept = before.clone()
    after = boxes.raise_heightmap(before, box, torch.tensor([True, False]), params)
    assert after[0, :2, :2].tolist() == [[3, 5], [3, 3]]
    assert not after[0, 2:].any()
    assert torch.equal(after[1], kept[1])
    assert torch.equal(before, kept)


@pytest.mark.parametrize("height", [1.0, 3.7, 12.0])
def test_the_top_of_the_container_is_under_the_lid(height: float) -> None:
    params = task(container=(1.0, 1.0, height))
    top = boxes.metres(torch.tensor([params.height_units]), params)
    assert top.item() == np.float32(height)
    assert top.item() <= params.lid
