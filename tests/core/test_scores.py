"""Scores of placements."""

import pytest
import torch
from tests.tiny import stream

from packing_env.core import scores
from packing_env.types import PackingParams


def test_ties_and_what_is_not_legal():
    score = torch.tensor([[0.0, 0.05, 0.2, torch.inf, torch.nan, -3.0]])
    legal = torch.tensor([[True, True, True, False, False, True]])
    never = scores.NEVER
    assert scores.ticks(score, legal).tolist() == [[0, 0, 2, never, never, -24]]


@pytest.mark.parametrize("pitches", [1, 4])
def test_boxes_raise_the_cells_they_touch(pitches):
    """By a loop over the raster's cells."""
    params = PackingParams(
        container=(5.0, 4.0, 6.0), cell=1.0, unit=1 / pitches, geometry="boxes",
        action_mode="candidate", observation=("heightmap",),
    )  # fmt: skip
    random = stream(3)
    heights = torch.randint(0, 6 * pitches, (2, 5, 4), generator=random).double()
    size = torch.randint(1, 2 * pitches + 1, (2, 30, 3), generator=random)
    lower = torch.randint(0, 2 * pitches, (2, 30, 2), generator=random)
    z = torch.randint(0, 4 * pitches, (2, 30), generator=random).double()
    found = scores.summed_rise_of_boxes(heights, lower, size, z, params)
    for row in range(2):
        for k in range(30):
            rise = 0.0
            top = float(z[row, k] + size[row, k, 2])
            for x in range(5):
                for y in range(4):
                    touches = all(
                        int(lower[row, k, a]) < (cell + 1) * pitches
                        and int(lower[row, k, a] + size[row, k, a]) > cell * pitches
                        for a, cell in enumerate((x, y))
                    )
                    rise += touches * max(0.0, top - float(heights[row, x, y]))
            assert float(found[row, k]) == rise
