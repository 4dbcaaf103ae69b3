"""Plain formulations of drop-height maps, with which the kernels are compared.

They compute one container and one orientation at a time, as their authors do. A map covers the
lattice points at which the item's rectangle is inside, ``[ceil((X - w + 1) / s), ...]``.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from packing_env.types import lid_tolerance


def numpy_map(
    heightmap: Float[np.ndarray, "X Y"], bottom: Float[np.ndarray, "w h"], stride: int
) -> Float[np.ndarray, "Xs Ys"]:
    """Compute the maximum over the windows of a sliding view, the obvious NumPy program."""
    windows = sliding_window_view(heightmap, bottom.shape)[::stride, ::stride]
    found: np.ndarray = (windows - bottom).max(axis=(2, 3))
    return found


def unfold_map(
    heightmap: Float[Tensor, "X Y"], bottom: Float[Tensor, "w h"], stride: int
) -> Float[Tensor, "Xs Ys"]:
    """Compute a map by the unfold formulation of an earlier packing trainer.

    It gathers the windows of the lattice along x, then along y, so every column is copied before
    most are dropped.
    """
    windows = heightmap.unfold(0, bottom.shape[0], 1).unfold(1, bottom.shape[1], 1)
    x, y = (torch.arange(0, steps, stride, device=heightmap.device) for steps in windows.shape[:2])
    return (windows.index_select(0, x).index_select(1, y) - bottom).amax((2, 3))


def unfold_legal(z: Float[Tensor, "Xs Ys"], peak: float, height: float) -> Tensor:
    """Return ``[Xs, Ys]``: True where an item with this highest point stays under the lid."""
    return z.double() + peak <= height + lid_tolerance(height)


def lowest(
    maps: list[Float[Tensor, "Xs Ys"]], legal: list[Tensor]
) -> tuple[tuple[int, int, int] | None, int]:
    """Choose the lowest legal place; ties go to the first orientation, then x, then y.

    Returns:
        ``(orientation, x, y)`` on the lattice, ``None`` if nothing is legal; and the number of
        places that are equally low.
    """
    judged = [torch.where(may, z, torch.inf) for z, may in zip(maps, legal, strict=True)]
    lows = [float(z.min()) for z in judged]
    low = min(lows)
    if low == torch.inf:
        return None, 0
    orientation = lows.index(low)
    x, y = divmod(int(judged[orientation].argmin()), judged[orientation].shape[1])
    return (orientation, x, y), sum(int((z == low).sum()) for z in judged)
