"""Other ways to compute drop-height maps, written plainly: what the kernels are compared with.

One container and one orientation at a time, as their authors loop over them. The maps cover the
lattice points at which the item's rectangle is inside, ``[ceil((X - w + 1) / s), ...]``.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

LID_TOLERANCE = 1e-6
"""Metres by which the unfold formulation lets an item pass the lid."""


def numpy_map(
    heightmap: Float[np.ndarray, "X Y"], bottom: Float[np.ndarray, "w h"], stride: int
) -> Float[np.ndarray, "Xs Ys"]:
    """Maximum over the windows of a sliding view: what one writes first in NumPy."""
    windows = sliding_window_view(heightmap, bottom.shape)[::stride, ::stride]
    return (windows - bottom).max(axis=(2, 3))


def unfold_map(
    heightmap: Float[Tensor, "X Y"], bottom: Float[Tensor, "w h"], stride: int
) -> Float[Tensor, "Xs Ys"]:
    """The unfold formulation of an earlier packing trainer.

    The windows of the lattice are gathered along x, then along y: every column is copied before
    most are dropped.
    """
    windows = heightmap.unfold(0, bottom.shape[0], 1).unfold(1, bottom.shape[1], 1)
    x, y = (torch.arange(0, steps, stride, device=heightmap.device) for steps in windows.shape[:2])
    return (windows.index_select(0, x).index_select(1, y) - bottom).amax((2, 3))


def unfold_legal(z: Float[Tensor, "Xs Ys"], peak: float, height: float) -> Tensor:
    """Whether an item with this highest point stays under the lid at each place, ``[Xs, Ys]``."""
    return z.double() + peak <= height + LID_TOLERANCE


def lowest(
    maps: list[Float[Tensor, "Xs Ys"]], legal: list[Tensor]
) -> tuple[tuple[int, int, int] | None, int]:
    """The greedy choice: the lowest legal place, the first orientation, x and y of equals.

    Returns:
        ``(orientation, x, y)`` on the lattice, ``None`` where nothing is legal; and how many
        places are as low.
    """
    best, choice, ties = torch.inf, None, 0
    for orientation, (z, may) in enumerate(zip(maps, legal, strict=True)):
        judged = torch.where(may, z, torch.inf)
        low = float(judged.min())
        if low == torch.inf:
            continue
        if low < best:
            place = int(judged.argmin())
            best, ties = low, 0
            choice = (orientation, place // judged.shape[1], place % judged.shape[1])
        if low == best:
            ties += int((judged == low).sum())
    return choice, ties
