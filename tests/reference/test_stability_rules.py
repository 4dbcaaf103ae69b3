"""The reference program's stability rules on hand-made grounds.

A ground is drawn as the levels under a flat item that covers all of it: the rest height is the
highest of them. Rows are x, columns are y.
"""

import numpy as np
import pytest

from packing_env import reference
from packing_env.reference import boxes, stability


def flat_item_on(ground: np.ndarray) -> reference.Touch:
    """Put a block over the whole ground, its mass in the middle."""
    w, h = ground.shape
    heights, bottom = ground.astype(np.float32), np.zeros((w, h), np.float32)
    z = reference.drop_height(heights, bottom, 0, 0)
    return reference.touch_at(heights, bottom, 0, 0, z, (32 * w, 32 * h), 0.0)


def drawn(*rows: str) -> np.ndarray:
    """Parse levels drawn as digits."""
    return np.array([[int(level) for level in row] for row in rows])


FOUR_CORNERS = ((0, 0), (-1, 0), (0, -1), (-1, -1))


def lowered(size: tuple[int, int], *cells: tuple[int, int]) -> np.ndarray:
    """Build a ground of level 1, with some cells at level 0."""
    ground = np.ones(size, int)
    for cell in cells:
        ground[cell] = 0
    return ground


def corners_at(*levels: int) -> np.ndarray:
    """Build a ground of 10 x 10 cells of level 3, with these levels at the four corners."""
    ground = np.full((10, 10), 3)
    for corner, level in zip(FOUR_CORNERS, levels, strict=True):
        ground[corner] = level
    return ground


@pytest.mark.parametrize("rule", stability.RULES)
@pytest.mark.parametrize("size", [(1, 1), (1, 4), (5, 1), (2, 2), (4, 5)])
def test_the_floor_holds_everything(rule: str, size: tuple[int, int]) -> None:
    assert reference.is_stable(rule, flat_item_on(np.zeros(size)))


AS_PRINTED = [
    (drawn("11", "10", "10", "10", "11"), True),  # four corners, 7 of 10
    (drawn("11", "10", "00", "00", "11"), False),  # four corners, 5 of 10
    (drawn("11", "10", "10", "00", "11"), False),  # four corners, 6 of 10: exactly 60 %
    (lowered((2, 5), (0, 0)), True),  # three corners, 9 of 10
    (lowered((2, 5), (0, 0), (0, 1)), False),  # three corners, 8 of 10: exactly 80 %
    (lowered((6, 7), (0, 0), (5, 6)), True),  # two corners, 40 of 42: 95.2 %
    (lowered((5, 8), (0, 0), (4, 7)), False),  # two corners, 38 of 40: exactly 95 %
    (lowered((5, 8), (0, 0), (4, 7), (4, 0)), False),  # one corner, 37 of 40
    (drawn("1"), True),
    (drawn("11011"), True),  # both ends are two corners each: four; 4 of 5
    (drawn("10101"), False),  # four corners, 3 of 5: exactly 60 %
    (drawn("01111"), False),  # one end is two corners; 4 of 5
    (lowered((21, 1), (0, 0)), True),  # two corners, 20 of 21: 95.2 %
    (lowered((20, 1), (0, 0)), False),  # two corners, 19 of 20: exactly 95 %
]
AS_PROGRAMMED = [
    (drawn("1001", "1001"), False),  # four corners, 4 of 8: exactly 50 %
    (drawn("1001", "1011"), True),  # four corners, 5 of 8
    (lowered((4, 5), (0, 0), (1, 1), (1, 2)), False),  # three corners, 17 of 20: exactly 85 %
    (lowered((4, 5), (0, 0), (1, 1)), True),  # three corners, 18 of 20
    (lowered((6, 7), (0, 0), (5, 6)), False),  # two corners, though 95.2 % are supported
    (drawn("2111", "1111", "1111"), False),  # one corner is higher than the rest
    (drawn("2112", "2112", "2112"), False),  # four corners supported, 6 of 12: exactly 50 %
    (drawn("2112", "2222", "2112"), True),  # four corners supported, 8 of 12
    # All four corners at one level, below the support: only more than 95 % counts.
    (lowered((10, 10), *FOUR_CORNERS), True),  # 96 %
    (lowered((10, 10), *FOUR_CORNERS, (4, 4)), False),  # exactly 95 %
    (lowered((5, 5), *FOUR_CORNERS), False),  # 84 %, more than the 50 % of touching corners
    # 96 % are supported; at least three corners must be as high as the highest.
    (corners_at(2, 2, 2, 1), True),
    (corners_at(1, 1, 1, 2), False),
    (corners_at(2, 2, 1, 1), False),
    (corners_at(2, 1, 0, 0), False),
    (corners_at(3, 2, 2, 2), False),  # 97 %
    (corners_at(3, 3, 2, 2), False),  # 98 %
    (corners_at(3, 3, 3, 2), True),
    (drawn("1"), True),
    (drawn("101"), True),  # both ends are two corners each: four; 2 of 3
    (drawn("1001"), False),  # four corners, 2 of 4: exactly 50 %
    (drawn("01111"), False),  # one end: two corners at the highest corner's level
]
CENTRES = [
    (drawn("11", "10"), True),  # 3 of 4
    (drawn("11", "00"), False),  # exactly half, on one side
    (drawn("10", "01"), True),  # exactly half, a segment through the centre
    (drawn("1"), True),
    (drawn("000", "010", "000"), True),  # one cell, and the centre is over it
    (drawn("010"), True),  # one cell below the centre
    (drawn("10001"), True),  # a segment
    (drawn("10100"), True),  # a segment that ends at the centre
    (drawn("1100"), False),  # a segment that ends half a cell before the centre
    (drawn("1010"), True),
    (drawn("1001", "0000", "0000", "1000"), True),  # the centre is on the hull's long edge
    (drawn("1001", "0000", "1000", "0000"), False),
    (drawn("1001", "0000", "0000", "1001"), True),
    (drawn("000", "101", "010"), True),  # on an edge along y
    (drawn("010", "001", "010"), True),  # on an edge along x
    (drawn("110", "100", "000"), False),
    (drawn("100", "010", "000"), True),  # a slanted segment that ends at the centre
]


@pytest.mark.parametrize(
    ("rule", "ground", "stable"),
    [
        *(("area_corners", *case) for case in AS_PRINTED),
        *(("area_corners_code", *case) for case in AS_PROGRAMMED),
        *(("center_hull", *case) for case in CENTRES),
    ],
)
def test_grounds_by_hand(rule: str, ground: np.ndarray, stable: bool) -> None:
    """Turned and mirrored grounds have the same verdict."""
    for each in (ground, ground.T, ground[::-1]):
        assert reference.is_stable(rule, flat_item_on(each)) is stable


def test_the_hull_of_centres_is_smaller_than_that_of_squares() -> None:
    ground = flat_item_on(drawn("1100"))
    assert reference.is_stable("com_hull", ground)
    assert not reference.is_stable("center_hull", ground)


def test_corners_outside_the_footprint() -> None:
    """A plus sign on the floor has no corner; an L has three."""
    plus, bent = np.zeros((3, 3), np.float32), np.zeros((2, 2), np.float32)
    for corner in FOUR_CORNERS:
        plus[corner] = np.inf
    bent[1, 1] = np.inf
    for bottom, printed, programmed in ((plus, True, True), (bent, True, True)):
        ground = np.zeros(bottom.shape, np.float32)
        found = reference.touch_at(ground, bottom, 0, 0, np.float32(0))
        assert reference.area_corners(found) is printed
        assert reference.area_corners_code(found) is programmed
    raised = np.zeros((3, 3), np.float32)
    raised[0, 1] = -0.5
    found = reference.touch_at(raised, plus, 0, 0, np.float32(0))  # 4 of 5 cells
    assert not reference.area_corners(found)
    assert not reference.area_corners_code(found)
    assert found.area == 5


def test_margins_on_boxes_and_on_maps_agree() -> None:
    """A box on a smaller one, at every offset: the same verdicts from contacts and from cells."""

    for dx, dy in ((dx, dy) for dx in range(-3, 4) for dy in range(-3, 3)):
        lower, upper = (4, 4, 0, 8, 7, 2), (4 + dx, 4 + dy, 2, 8 + dx, 8 + dy, 3)
        heightmap = np.zeros((12, 12), np.float32)
        heightmap[4:8, 4:7] = 2
        bottom = np.zeros((4, 4), np.float32)
        at = (upper[0], upper[1], np.float32(2), (128, 128))
        touch = reference.touch_at(heightmap, bottom, *at)
        ground = boxes.meet([lower], upper).touch
        for name in stability.MARGINS:
            inside = reference.is_stable(name, ground)
            assert reference.is_stable(name, touch) is inside, (name, dx, dy)
            assert not inside or reference.is_stable("com_hull", touch)
