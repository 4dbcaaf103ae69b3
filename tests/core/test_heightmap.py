"""Windows of the heightmap."""

from __future__ import annotations

import torch

from packing_env.core.heightmap import raise_window, read_window

INF = float("inf")


def corners(*xy: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = zip(*xy, strict=True)
    return torch.tensor(x), torch.tensor(y)


def test_read_window_marks_what_lies_outside() -> None:
    ground = torch.arange(12.0).view(1, 3, 4).repeat(3, 1, 1)
    x, y = corners((0, 0), (2, 3), (-1, 1))
    window, inside = read_window(ground, x, y, (2, 2))
    assert window[0].tolist() == [[0, 1], [4, 5]]
    assert inside[0].all()
    assert inside[1].tolist() == [[True, False], [False, False]]
    assert float(window[1, 0, 0]) == 11
    assert inside[2].tolist() == [[False, False], [True, True]]
    assert window[2, 1].tolist() == [1, 2]


def test_raise_window_takes_the_maximum_on_the_footprint() -> None:
    ground = torch.tensor([[[1.0, 1.0, 1.0], [1.0, 5.0, 1.0]]])
    surface = torch.tensor([[[2.0, -INF], [3.0, 9.0]]])
    raised = raise_window(ground, *corners((0, 1)), surface)
    assert raised.tolist() == [[[1.0, 2.0, 1.0], [1.0, 5.0, 9.0]]]


def test_raise_window_at_the_wall_leaves_the_last_cells_alone() -> None:
    """Cells beyond the wall are clamped onto the last ones and must not disturb them."""
    ground = torch.zeros(1, 3, 3)
    surface = torch.tensor([[[7.0, 9.0], [9.0, 9.0]]])
    raised = raise_window(ground, *corners((2, 2)), surface)
    assert raised.sum() == 7
    assert raised[0, 2, 2] == 7
